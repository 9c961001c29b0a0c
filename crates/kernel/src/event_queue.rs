//! The event queue: a total order of everything that is going to happen.
//!
//! Order is (time, class, CPU, sequence). The class order is part of the simulator's behaviour: at one instant timers
//! expire before interrupts between CPUs arrive, those before ticks, and all of them before a task's own progress.
//!
//! Two structures share that order. What a CPU has at most one of (its high-resolution tick, its ordinary tick, the
//! running task's progress, a reschedule that waits for the end of a wakeup) lives in slots under a tournament tree: setting a slot replaces what was there, so events
//! that are re-armed at every context switch leave nothing behind. Everything else is in a heap; nothing is removed
//! from it: an event that was overtaken carries a generation that no longer matches and is skipped when it surfaces.

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
    /// Somebody outside acts, or looks before acting; payload is the action, generation 1 for a look.
    Action = 3,
    /// A sleep ends; payload is the task.
    Timer = 4,
    /// A queued wakeup arrives at its CPU; payload is the task, generation 1 if it was on another CPU before.
    WakeIpi = 5,
    /// A reschedule interrupt arrives, or what a CPU was doing in the kernel is over and it may reschedule (in a slot).
    ReschedIpi = 6,
    /// The stopper thread runs, alone (low half of the generation 0) or with that of CPU low half − 1; the upper half says for which class.
    Stopper = 7,
    /// High-resolution tick. In a slot.
    HrTick = 8,
    /// Ordinary tick. In a slot.
    Tick = 9,
    /// The timer of a kernel thread; payload is the thread.
    Background = 10,
    /// A kick to balance on behalf of idle CPUs; payload is the class it is for.
    NohzKick = 11,
    /// A scheduler's own timer; payload is its place in the table of timers.
    Policy = 12,
    /// The running task finishes what it is doing. In a slot.
    Progress = 13,
    /// The warm-up is over: behind everything else that happens at its last instant.
    Window = 14,
}

impl Class {
    /// Whether no other CPU sent it: its time has no way out of an idle state in it.
    #[inline]
    pub const fn is_of_the_cpu_itself(self) -> bool {
        matches!(self, Class::Release | Class::Action | Class::HrTick | Class::Tick | Class::Background | Class::Policy)
    }

    /// For messages.
    pub const fn name(self) -> &'static str {
        match self {
            Class::End => "end of the run",
            Class::Start => "start of a task",
            Class::Release => "release",
            Class::Action => "action from outside",
            Class::Timer => "timer of a task",
            Class::WakeIpi => "wakeup by interrupt",
            Class::ReschedIpi => "reschedule interrupt",
            Class::Stopper => "stopper",
            Class::HrTick => "high-resolution tick",
            Class::Tick => "tick",
            Class::Background => "timer of a kernel thread or interrupt",
            Class::NohzKick => "balancing kick",
            Class::Policy => "timer of the scheduler",
            Class::Progress => "progress of the running task",
            Class::Window => "end of the warm-up",
        }
    }
}

const CLASSES: [Class; 15] = [
    Class::End,
    Class::Start,
    Class::Release,
    Class::Action,
    Class::Timer,
    Class::WakeIpi,
    Class::ReschedIpi,
    Class::Stopper,
    Class::HrTick,
    Class::Tick,
    Class::Background,
    Class::NohzKick,
    Class::Policy,
    Class::Progress,
    Class::Window,
];

/// Events of which a CPU has at most one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    HrTick = 0,
    Tick = 1,
    Progress = 2,
    Resched = 3,
}

impl Slot {
    const fn class(self) -> Class {
        match self {
            Slot::HrTick => Class::HrTick,
            Slot::Tick => Class::Tick,
            Slot::Progress => Class::Progress,
            Slot::Resched => Class::ReschedIpi,
        }
    }
}

const CPU_BITS: u32 = 12;
const CLASS_BITS: u32 = 4;

/// Simulated time is below 2^48 ns, about 78 hours: a key holds time, class and CPU in 64 bits.
pub(crate) const TIME_LIMIT_NS: u64 = (1 << (64 - CPU_BITS - CLASS_BITS)) - 1;

/// Key of an empty slot: later than everything.
const NEVER: u64 = u64::MAX;

/// Time, class and CPU as one number in their order. Times beyond the limit sort last.
fn key(time_ns: u64, class: Class, cpu: CpuId) -> u64 {
    (time_ns.min(TIME_LIMIT_NS) << (CPU_BITS + CLASS_BITS)) | ((class as u64) << CPU_BITS) | u64::from(cpu.0)
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queued {
    key: u64,
    sequence: u64,
    /// Task, start entry, or the scheduler's payload.
    pub payload: u32,
    /// Generation at which the event was made; see [`Class::Stopper`] for what it is there.
    pub generation: u32,
}

impl Queued {
    pub fn time_ns(self) -> u64 {
        self.key >> (CPU_BITS + CLASS_BITS)
    }

    pub fn class(self) -> Class {
        CLASSES[(self.key >> CPU_BITS) as usize & ((1 << CLASS_BITS) - 1)]
    }

    pub fn cpu(self) -> CpuId {
        CpuId(self.key as u32 & ((1 << CPU_BITS) - 1))
    }
}

impl Ord for Queued {
    /// Reversed, because the standard heap gives the largest element first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.key, other.sequence).cmp(&(self.key, self.sequence))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

pub(crate) struct EventQueue {
    heap: BinaryHeap<Queued>,
    sequence: u64,
    /// Keys of each CPU's slots.
    slots: Vec<[u64; 4]>,
    /// Tournament tree: node `i` is the smaller of `2 i` and `2 i + 1`; leaf `leaves + cpu` is the CPU's smallest.
    tree: Vec<u64>,
    leaves: usize,
    /// A CPU whose slots were changed and whose leaf is not yet updated: one event usually changes several slots of one CPU.
    stale: Option<CpuId>,
}

impl EventQueue {
    pub fn new(cpus: usize) -> Self {
        let leaves = cpus.next_power_of_two();
        Self {
            heap: BinaryHeap::new(),
            sequence: 0,
            slots: vec![[NEVER; 4]; cpus],
            tree: vec![NEVER; 2 * leaves],
            leaves,
            stale: None,
        }
    }

    pub fn push(&mut self, time_ns: u64, class: Class, cpu: CpuId, payload: u32, generation: u32) {
        self.sequence += 1;
        self.heap.push(Queued { key: key(time_ns, class, cpu), sequence: self.sequence, payload, generation });
    }

    /// Gives what is to happen on a CPU that goes offline to another one: starts, actions, timers of tasks and of the kernel itself. What
    /// other CPUs or policies have sent to it arrives there.
    pub fn rehome(&mut self, from: CpuId, to: CpuId) {
        let moves = |event: &Queued| {
            let class = event.class();
            let of_the_cpu =
                matches!(class, Class::WakeIpi | Class::ReschedIpi | Class::Stopper | Class::NohzKick | Class::Policy);
            event.cpu() == from && !of_the_cpu
        };
        let rehomed = std::mem::take(&mut self.heap).into_iter().map(|event| match moves(&event) {
            true => Queued { key: key(event.time_ns(), event.class(), to), ..event },
            false => event,
        });
        self.heap = rehomed.collect();
    }

    /// Sets a CPU's slot, replacing what was in it.
    #[inline]
    pub fn set(&mut self, slot: Slot, cpu: CpuId, time_ns: u64) {
        self.slots[cpu.index()][slot as usize] = key(time_ns, slot.class(), cpu);
        self.touch(cpu);
    }

    /// Empties a CPU's slot.
    #[inline]
    pub fn clear(&mut self, slot: Slot, cpu: CpuId) {
        let key = &mut self.slots[cpu.index()][slot as usize];
        if *key != NEVER {
            *key = NEVER;
            self.touch(cpu);
        }
    }

    /// Time of a CPU's slot, if it is set.
    pub(crate) fn slot_time_ns(&self, slot: Slot, cpu: CpuId) -> Option<u64> {
        let key = self.slots[cpu.index()][slot as usize];
        (key != NEVER).then_some(key >> (CPU_BITS + CLASS_BITS))
    }

    /// Remembers that a CPU's leaf is out of date, bringing another one up to date if there was one.
    #[inline]
    fn touch(&mut self, cpu: CpuId) {
        if let Some(other) = self.stale.replace(cpu)
            && other != cpu
        {
            self.update_leaf(other);
        }
    }

    /// Carries a CPU's smallest key up the tree.
    fn update_leaf(&mut self, cpu: CpuId) {
        let slots = &self.slots[cpu.index()];
        let mut least = slots[0].min(slots[1]).min(slots[2].min(slots[3]));
        let mut node = self.leaves + cpu.index();
        while self.tree[node] != least {
            self.tree[node] = least;
            if node == 1 {
                break;
            }
            least = least.min(self.tree[node ^ 1]);
            node /= 2;
        }
    }

    pub fn pop(&mut self) -> Option<Queued> {
        if let Some(cpu) = self.stale.take() {
            self.update_leaf(cpu);
        }
        let slot_key = self.tree[1];
        if self.heap.peek().is_some_and(|first| first.key < slot_key) {
            return self.heap.pop();
        }
        if slot_key == NEVER {
            return None;
        }
        let event = Queued { key: slot_key, sequence: 0, payload: 0, generation: 0 };
        let slot = match event.class() {
            Class::HrTick => Slot::HrTick,
            Class::Tick => Slot::Tick,
            Class::ReschedIpi => Slot::Resched,
            _ => Slot::Progress,
        };
        self.slots[event.cpu().index()][slot as usize] = NEVER;
        self.touch(event.cpu());
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_class_then_cpu_then_insertion() {
        let mut queue = EventQueue::new(4);
        queue.push(20, Class::Start, CpuId(0), 1, 0);
        queue.set(Slot::Progress, CpuId(0), 10);
        queue.set(Slot::Tick, CpuId(3), 10);
        queue.push(10, Class::Timer, CpuId(1), 4, 0);
        queue.push(10, Class::Timer, CpuId(1), 5, 0);
        queue.push(10, Class::NohzKick, CpuId(1), 6, 0);
        let order: Vec<(Class, u32)> =
            std::iter::from_fn(|| queue.pop()).map(|event| (event.class(), event.payload)).collect();
        let expected = [
            (Class::Timer, 4),
            (Class::Timer, 5),
            (Class::Tick, 0),
            (Class::NohzKick, 6),
            (Class::Progress, 0),
            (Class::Start, 1),
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn setting_a_slot_again_replaces_it_and_clearing_empties_it() {
        let mut queue = EventQueue::new(3);
        queue.set(Slot::HrTick, CpuId(2), 50);
        queue.set(Slot::HrTick, CpuId(2), 70);
        queue.set(Slot::Tick, CpuId(2), 60);
        queue.set(Slot::Tick, CpuId(1), 55);
        queue.clear(Slot::Tick, CpuId(1));
        assert_eq!(queue.slot_time_ns(Slot::HrTick, CpuId(2)), Some(70));
        let order: Vec<(u64, u32)> =
            std::iter::from_fn(|| queue.pop()).map(|event| (event.time_ns(), event.cpu().0)).collect();
        assert_eq!(order, [(60, 2), (70, 2)]);
    }

    #[test]
    fn slots_keep_the_order_of_a_sorted_list() {
        let mut queue = EventQueue::new(13);
        let mut expected: std::collections::BTreeMap<(u32, u8), u64> = std::collections::BTreeMap::new();
        let mut state = 12345u64;
        for _ in 0..2000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let cpu = CpuId((state >> 33) as u32 % 13);
            let slot = [Slot::HrTick, Slot::Tick, Slot::Progress][(state >> 40) as usize % 3];
            let time = (state >> 45) % 1000;
            queue.set(slot, cpu, time);
            expected.insert((cpu.0, slot.class() as u8), time);
        }
        let mut sorted: Vec<_> = expected.into_iter().map(|((cpu, class), time)| (time, class, cpu)).collect();
        sorted.sort_unstable();
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|event| (event.time_ns(), event.class() as u8, event.cpu().0))
            .collect();
        assert_eq!(popped, sorted);
    }
}
