//! Timers of programs (`bpf_timer`).
//!
//! From the kernel on that has `bpf_timer_cancel_async`, whoever has interrupts off cannot wait for a callback: `bpf_timer_cancel` refuses there, and starts
//! are carried out a moment later, which is no time here. Source: `docs/spec/bpf-runtime.md` section 8.

use warmcore_bpf::btf::TypeKind;

use crate::bytecode::helpers::{EBUSY, EINVAL, ENOMEM, error};
use crate::bytecode::host::{Host, Timer, clock_ns};

const EDEADLK: i64 = 35;
const EOPNOTSUPP: i64 = 95;
const ECANCELED: i64 = 125;

/// Timers that there may be: the number of one and of its start are 31 bits together. The one above them marks samples.
const TIMERS: usize = 1 << 12;

/// Bits of the number of a start.
const GENERATION_BITS: u32 = 19;

/// Least time in which a timer comes, in ns: one that starts itself again at once does not stop the clock. No hardware timer is faster.
const LEAST_TIMER_NS: u64 = 1_000;

const GENERATION: u32 = (1 << GENERATION_BITS) - 1;

impl Timer {
    /// Whatever is under way is ignored; whether something was.
    fn stop(&mut self) -> bool {
        self.generation = self.generation.wrapping_add(1) & GENERATION;
        std::mem::take(&mut self.is_armed)
    }
}

impl Host {
    /// `bpf_timer_init`. Callbacks are given the element that the timer lies in, so it lies in one.
    pub(super) fn timer_init(&mut self, timer: u64, map: u64) -> u64 {
        if self.kept.timer_at.contains_key(&timer) {
            return error(EBUSY);
        }
        let begins = self.maps.get(map).map(|map| map.address);
        if begins.is_none_or(|begins| timer < begins) {
            return error(EINVAL);
        }
        if self.kept.timers.len() >= TIMERS {
            return error(ENOMEM);
        }
        self.kept.timer_at.insert(timer, self.kept.timers.len() as u32);
        self.kept.timers.push(Timer { address: timer, map, ..Timer::default() });
        0
    }

    /// The maps that they lie in are gone.
    pub(super) fn stop_timers(&mut self) {
        for timer in &mut self.kept.timers {
            timer.stop();
            timer.callback = 0;
        }
    }

    fn timer(&mut self, timer: u64) -> Option<(u32, &mut Timer)> {
        let number = *self.kept.timer_at.get(&timer)?;
        Some((number, &mut self.kept.timers[number as usize]))
    }

    pub(super) fn timer_set_callback(&mut self, timer: u64, callback: u64) -> u64 {
        let Some((_, timer)) = self.timer(timer) else { return error(EINVAL) };
        timer.callback = callback;
        0
    }

    pub(super) fn timer_start(&mut self, timer: u64, delay_ns: u64, flags: u64) -> u64 {
        const ABSOLUTE: u64 = 1;
        const PINNED: u64 = 2;
        let Some(kernel) = self.kernel() else { return error(EINVAL) };
        let Some((number, timer)) = self.timer(timer) else { return error(EINVAL) };
        if timer.callback == 0 || flags & !(ABSOLUTE | PINNED) != 0 {
            return error(EINVAL);
        }
        timer.stop();
        timer.is_armed = true;
        let payload = number << GENERATION_BITS | timer.generation;
        let delay_ns = if flags & ABSOLUTE != 0 { delay_ns.saturating_sub(clock_ns(kernel)) } else { delay_ns };
        kernel.start_timer(delay_ns.max(LEAST_TIMER_NS), payload);
        0
    }

    /// Whether the kernel leaves to an interrupt what is asked of a timer with interrupts off, as from 7.0 on.
    fn defers_timers(&self) -> bool {
        self.kept.btf.find(TypeKind::Function, "bpf_timer_cancel_async").is_some()
    }

    /// `bpf_timer_cancel`: 1 if it was armed. Its callback is forgotten.
    pub(super) fn timer_cancel(&mut self, timer: u64) -> u64 {
        if self.interrupts_off && self.defers_timers() {
            return error(EOPNOTSUPP);
        }
        let running = self.running_timer;
        let Some((number, timer)) = self.timer(timer) else { return error(EINVAL) };
        if running == Some(number) {
            return error(EDEADLK);
        }
        timer.callback = 0;
        u64::from(timer.stop())
    }

    /// `bpf_timer_cancel_async`: the same without a wait, and with its callback kept.
    pub(super) fn timer_cancel_async(&mut self, timer: u64) -> u64 {
        let (running, interrupts_off) = (self.running_timer, self.interrupts_off);
        let Some((number, timer)) = self.timer(timer) else { return error(EINVAL) };
        let was_armed = timer.stop();
        match (interrupts_off, running == Some(number)) {
            (true, _) => error(ECANCELED),
            (false, true) => error(1),
            (false, false) => u64::from(was_armed),
        }
    }

    /// A timer runs out; `None` if it was stopped meanwhile.
    pub(super) fn timer_runs_out(&mut self, payload: u32) -> Option<Expiry> {
        let number = payload >> GENERATION_BITS;
        let timer = self.kept.timers.get_mut(number as usize)?;
        if timer.generation != payload & GENERATION || timer.callback == 0 {
            return None;
        }
        timer.is_armed = false;
        let (callback, handle, address) = (timer.callback - 1, timer.map, timer.address);
        let map = self.maps.get(handle)?;
        let index = address.checked_sub(map.address)? / map.stride.max(1);
        let function = ((callback >> 32) as usize, (callback & 0xffff_ffff) as usize);
        Some(Expiry { number, function, map: handle, index: index as u32, value: map.address + index * map.stride })
    }
}

/// A timer that has run out.
pub(super) struct Expiry {
    pub number: u32,
    /// Program and function of its callback.
    pub function: (usize, usize),
    pub map: u64,
    /// The element that it lies in.
    pub index: u32,
    pub value: u64,
}
