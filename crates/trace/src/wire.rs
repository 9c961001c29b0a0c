//! Events as bytes of one length, for a process that sends them to another. Not a format of files.

use warmcore_topology::CpuId;

use crate::event::{Event, EventKind, MigrationKind, OverheadKind, PrevState, TaskId, Throttler};
use crate::{BalanceDetail, PlaceReason, SearchStart, SearchStep};

/// Bytes of an event: time, CPU, which kind, a small number, two bytes of nothing, two numbers, a value.
pub const EVENT_BYTES: usize = 32;

/// Appends an event.
pub fn encode(event: &Event, out: &mut Vec<u8>) {
    use EventKind::*;
    let (kind, small, first, second, value): (u8, u8, u32, u32, u64) = match event.kind {
        Switch { prev, prev_state, next } => (0, prev_state as u8, prev.0, next.0, 0),
        Waking { task, target_cpu, waker } => (1, 0, task.0, target_cpu.0, u64::from(waker.0)),
        Wakeup { task, reason } => (2, 0, task.0, 0, reason_code(reason)),
        Migrate { task, from, to, kind } => (3, kind as u8, task.0, from.0, u64::from(to.0)),
        Fork { parent, child } => (4, 0, parent.0, child.0, 0),
        Exit { task } => (5, 0, task.0, 0, 0),
        Affinity { task, restriction } => (6, 0, task.0, restriction, 0),
        Counter { counter, task, value } => (7, 0, counter, task.0, value),
        Phase { task, phase } => (8, 0, task.0, phase, 0),
        BalanceDetail { detail, task, value } => (9, detail as u8, task.0, 0, value as u64),
        Decision { decision, task, value } => (10, 0, decision, task.0, value as u64),
        Score { score, task, value } => (11, 0, score, task.0, value as u64),
        Overhead { kind, duration_ns } => (12, kind as u8, 0, 0, duration_ns),
        Foreign { thread } => (13, u8::from(thread.is_some()), thread.unwrap_or(0), 0, 0),
        Hotplug { online } => (14, u8::from(online), 0, 0, 0),
        Throttle { task, throttled } => (15, Throttler::number(throttled), task.0, 0, 0),
    };
    out.extend_from_slice(&event.time_ns.to_le_bytes());
    out.extend_from_slice(&event.cpu.0.to_le_bytes());
    out.extend_from_slice(&[kind, small, 0, 0]);
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&second.to_le_bytes());
    out.extend_from_slice(&value.to_le_bytes());
}

/// Reads an event; `None` if the bytes are none.
pub fn decode(bytes: &[u8; EVENT_BYTES]) -> Option<Event> {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let (kind, small) = (bytes[12], usize::from(bytes[13]));
    let (first, second, value) = (word(16), word(20), long(24));
    let (task, other) = (TaskId(first), TaskId(second));
    let kind = match kind {
        0 => EventKind::Switch { prev: task, prev_state: *PrevState::ALL.get(small)?, next: other },
        1 => {
            let waker = TaskId(u32::try_from(value).ok()?);
            EventKind::Waking { task, target_cpu: CpuId(second), waker }
        }
        2 => EventKind::Wakeup { task, reason: reason_of(value)? },
        3 => {
            let (from, to) = (CpuId(second), CpuId(u32::try_from(value).ok()?));
            EventKind::Migrate { task, from, to, kind: *MigrationKind::ALL.get(small)? }
        }
        4 => EventKind::Fork { parent: task, child: other },
        5 => EventKind::Exit { task },
        6 => EventKind::Affinity { task, restriction: second },
        7 => EventKind::Counter { counter: first, task: other, value },
        8 => EventKind::Phase { task, phase: second },
        9 => EventKind::BalanceDetail { detail: *BalanceDetail::ALL.get(small)?, task, value: value as i64 },
        10 => EventKind::Decision { decision: first, task: other, value: value as i64 },
        11 => EventKind::Score { score: first, task: other, value: value as i64 },
        12 => EventKind::Overhead { kind: *OverheadKind::ALL.get(small)?, duration_ns: value },
        13 => EventKind::Foreign { thread: (small == 1).then_some(first) },
        14 => EventKind::Hotplug { online: small == 1 },
        15 => EventKind::Throttle { task, throttled: Throttler::of_number(small) },
        _ => return None,
    };
    Some(Event { time_ns: long(0), cpu: CpuId(word(8)), kind })
}

/// 0 for none, else the step's number and one more, and the start's above it.
fn reason_code(reason: Option<PlaceReason>) -> u64 {
    reason.map_or(0, |PlaceReason { start, step }| (start as u64) << 8 | (step as u64 + 1))
}

fn reason_of(code: u64) -> Option<Option<PlaceReason>> {
    let Some(step) = ((code & 0xff) as usize).checked_sub(1) else { return (code == 0).then_some(None) };
    let start = *SearchStart::ALL.get(usize::try_from(code >> 8).ok()?)?;
    Some(Some(PlaceReason { start, step: *SearchStep::ALL.get(step)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each kind, with numbers that differ.
    fn of_each_kind() -> Vec<Event> {
        let (task, other) = (TaskId(7), TaskId::IDLE);
        let kinds = [
            EventKind::Switch { prev: task, prev_state: PrevState::Dead, next: other },
            EventKind::Waking { task, target_cpu: CpuId(3), waker: other },
            EventKind::Wakeup { task, reason: None },
            EventKind::Wakeup {
                task,
                reason: Some(PlaceReason { start: SearchStart::HintHome, step: SearchStep::NoGroup }),
            },
            EventKind::Migrate { task, from: CpuId(1), to: CpuId(500), kind: MigrationKind::Numa },
            EventKind::Fork { parent: other, child: task },
            EventKind::Exit { task },
            EventKind::Affinity { task, restriction: 9 },
            EventKind::Counter { counter: 4, task, value: u64::MAX },
            EventKind::Phase { task, phase: 2 },
            EventKind::BalanceDetail { detail: BalanceDetail::MigrationCostNs, task, value: -1 },
            EventKind::Decision { decision: 5, task: other, value: i64::MIN },
            EventKind::Score { score: 6, task, value: -12 },
            EventKind::Overhead { kind: OverheadKind::Numa, duration_ns: 1 << 40 },
            EventKind::Foreign { thread: Some(0) },
            EventKind::Foreign { thread: None },
            EventKind::Hotplug { online: false },
            EventKind::Hotplug { online: true },
            EventKind::Throttle { task, throttled: Some(Throttler::Quota) },
            EventKind::Throttle { task, throttled: Some(Throttler::Reservation) },
            EventKind::Throttle { task, throttled: None },
        ];
        let event = |(number, kind): (usize, EventKind)| Event {
            time_ns: u64::MAX - number as u64,
            cpu: CpuId(number as u32),
            kind,
        };
        kinds.into_iter().enumerate().map(event).collect()
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        for event in of_each_kind() {
            let mut bytes = Vec::new();
            encode(&event, &mut bytes);
            assert_eq!(decode(bytes.as_slice().try_into().unwrap()), Some(event));
        }
    }

    #[test]
    fn bytes_that_are_no_event_are_none() {
        let mut bytes = Vec::new();
        encode(&of_each_kind()[0], &mut bytes);
        for (at, wrong) in [(12, 16), (12, 255), (13, 4)] {
            let mut bytes: [u8; EVENT_BYTES] = bytes.as_slice().try_into().unwrap();
            bytes[at] = wrong;
            assert_eq!(decode(&bytes), None, "{at}: {wrong}");
        }
    }
}
