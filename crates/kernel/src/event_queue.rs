//! The event queue: a total order of everything that is going to happen.
//!
//! Order is (time, class, CPU, sequence). The class order is part of the simulator's behaviour: at one instant timers
//! expire before interrupts between CPUs arrive, those before ticks, and all of them before a task's own progress.
//! Nothing is ever removed: an event that was overtaken carries a generation that no longer matches and is skipped
//! when it surfaces.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use warmcore_topology::CpuId;

/// What kind of event; the variants' order is the order at equal times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Class {
    /// End of the run.
    End = 0,
    /// The launcher creates a task; payload is the start entry.
    Start = 1,
    /// A task's affinity opens up; payload is the task.
    Release = 2,
    /// A sleep ends; payload is the task.
    Timer = 3,
    /// A queued wakeup arrives at its CPU; payload is the task.
    WakeIpi = 4,
    /// A reschedule interrupt arrives.
    ReschedIpi = 5,
    /// The stopper thread runs.
    Stopper = 6,
    /// High-resolution tick.
    HrTick = 7,
    /// Ordinary tick.
    Tick = 8,
    /// A kick to balance on behalf of idle CPUs.
    NohzKick = 9,
    /// A scheduler's own timer; payload is the scheduler's.
    Policy = 10,
    /// The running task finishes what it is doing.
    Progress = 11,
}

const CLASSES: [Class; 12] = [
    Class::End,
    Class::Start,
    Class::Release,
    Class::Timer,
    Class::WakeIpi,
    Class::ReschedIpi,
    Class::Stopper,
    Class::HrTick,
    Class::Tick,
    Class::NohzKick,
    Class::Policy,
    Class::Progress,
];

/// An event in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queued {
    pub time_ns: u64,
    /// Class (8 bits), CPU (16 bits), sequence (40 bits): compared as one number.
    key: u64,
    /// Task, start entry, or the scheduler's payload.
    pub payload: u32,
    /// Generation at which the event was made.
    pub generation: u32,
}

impl Queued {
    pub fn class(self) -> Class {
        CLASSES[(self.key >> 56) as usize]
    }

    pub fn cpu(self) -> CpuId {
        CpuId(((self.key >> 40) & 0xffff) as u32)
    }
}

impl Ord for Queued {
    /// Reversed, because the standard heap gives the largest element first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time_ns, other.key).cmp(&(self.time_ns, self.key))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The queue.
#[derive(Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Queued>,
    sequence: u64,
}

const SEQUENCE_MASK: u64 = (1 << 40) - 1;

impl EventQueue {
    pub fn push(&mut self, time_ns: u64, class: Class, cpu: CpuId, payload: u32, generation: u32) {
        // 2^40 events are days of host time; the order of two events further apart than that never matters, because
        // they cannot be in the queue together.
        self.sequence = (self.sequence + 1) & SEQUENCE_MASK;
        let key = ((class as u64) << 56) | (u64::from(cpu.0 & 0xffff) << 40) | self.sequence;
        self.heap.push(Queued { time_ns, key, payload, generation });
    }

    pub fn pop(&mut self) -> Option<Queued> {
        self.heap.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_class_then_cpu_then_insertion() {
        let mut queue = EventQueue::default();
        queue.push(20, Class::Start, CpuId(0), 1, 0);
        queue.push(10, Class::Progress, CpuId(0), 2, 0);
        queue.push(10, Class::Tick, CpuId(3), 3, 0);
        queue.push(10, Class::Tick, CpuId(1), 4, 0);
        queue.push(10, Class::Tick, CpuId(1), 5, 0);
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).map(|event| event.payload).collect();
        assert_eq!(order, [4, 5, 3, 2, 1]);
    }
}
