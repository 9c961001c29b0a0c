//! Timers of a scheduler's own: 64 bits each, and they can be cancelled.
//!
//! An event carries the number of a place in this table and the generation in which the place was taken; a cancelled timer's event
//! finds another generation there and is skipped. And the high-resolution tick, of which each CPU has one.

use warmcore_topology::CpuId;

use crate::core::Core;
use crate::event_queue::{Class, Slot};

/// A timer that was started, for cancelling it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerId {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    payload: u64,
    /// How often the place has been given back.
    generation: u32,
    /// Class that started the timer.
    class: ClassPath,
}

/// All timers that are armed.
#[derive(Default)]
pub(crate) struct Timers {
    places: Vec<Entry>,
    free: Vec<u32>,
}

impl Timers {
    pub fn start(&mut self, payload: u64, class: ClassPath) -> TimerId {
        if let Some(place) = self.free.pop() {
            let entry = &mut self.places[place as usize];
            (entry.payload, entry.class) = (payload, class);
            return TimerId { place, generation: entry.generation };
        }
        self.places.push(Entry { payload, generation: 0, class });
        TimerId { place: self.places.len() as u32 - 1, generation: 0 }
    }

    /// Takes a timer out: what it carries, and whose it is. `None` if it has run out or was cancelled.
    pub fn take(&mut self, timer: TimerId) -> Option<(u64, ClassPath)> {
        let entry = self.places.get_mut(timer.place as usize)?;
        if entry.generation != timer.generation {
            return None;
        }
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(timer.place);
        Some((entry.payload, entry.class))
    }
}

/// Which of two classes of a composite scheduler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// It goes first.
    Upper,
    /// It has what the upper leaves.
    Lower,
}

/// Which class of a composite is at work, as the levels from the outermost composite on: one bit for each. A scheduler that is no
/// composite is the empty path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ClassPath {
    bits: u8,
    depth: u8,
}

impl ClassPath {
    pub fn enter(&mut self, level: Level) {
        debug_assert!(self.depth < 8, "composites are nested too deeply");
        self.bits |= u8::from(level == Level::Lower) << self.depth;
        self.depth += 1;
    }

    pub fn leave(&mut self) {
        self.depth -= 1;
        self.bits &= !(1 << self.depth);
    }

    /// Takes the outermost level off.
    pub fn next(&mut self) -> Level {
        let level = if self.bits & 1 == 0 { Level::Upper } else { Level::Lower };
        self.bits >>= 1;
        self.depth = self.depth.saturating_sub(1);
        level
    }

    /// As a number, for an event that has room for one.
    pub fn to_bits(self) -> u32 {
        u32::from(self.bits) | u32::from(self.depth) << 8
    }

    pub fn from_bits(bits: u32) -> Self {
        Self { bits: bits as u8, depth: (bits >> 8) as u8 }
    }
}

impl Core<'_> {
    /// Arms the CPU's high-resolution tick `delay_ns` from now, replacing an armed one (`hrtick_start`). Another CPU is sent an interrupt to do
    /// it, on whose way back to user mode a lazy request takes effect.
    pub fn start_hrtick(&mut self, cpu: CpuId, delay_ns: u64) {
        self.queue.set(Slot::HrTick, cpu, self.now_ns + delay_ns + self.machine.costs().timer_late_ns);
        if cpu != self.this_cpu {
            let arrives_ns = self.now_ns + self.wakeup_so_far_ns() + self.ipi_delay(cpu);
            self.queue.push(arrives_ns, Class::ReschedIpi, cpu, 0, 0);
        }
    }

    /// Disarms the CPU's high-resolution tick.
    #[inline]
    pub fn cancel_hrtick(&mut self, cpu: CpuId) {
        self.queue.clear(Slot::HrTick, cpu);
    }

    /// When the CPU's high-resolution tick will fire, if it is armed.
    #[inline]
    pub fn hrtick_at_ns(&self, cpu: CpuId) -> Option<u64> {
        self.queue.slot_time_ns(Slot::HrTick, cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_taken_once_and_its_place_is_used_again() {
        let mut timers = Timers::default();
        let path = ClassPath::default();
        let [first, second] = [u64::MAX, 2].map(|payload| timers.start(payload, path));
        assert_eq!(timers.take(first), Some((u64::MAX, path)));
        assert_eq!(timers.take(first), None);
        let third = timers.start(3, path);
        assert_eq!((third.place, timers.take(first)), (first.place, None));
        assert_eq!([timers.take(third), timers.take(second)], [Some((3, path)), Some((2, path))]);
    }

    #[test]
    fn a_path_is_followed_from_the_outside() {
        let mut path = ClassPath::default();
        path.enter(Level::Lower);
        path.enter(Level::Upper);
        let mut sent = ClassPath::from_bits(path.to_bits());
        assert_eq!([sent.next(), sent.next()], [Level::Lower, Level::Upper]);
        path.leave();
        path.enter(Level::Lower);
        assert_eq!(path.to_bits(), 0b11 | 2 << 8);
    }
}
