//! States of threads as the numbers that kernels print, without the kernel's word on what they mean.
//!
//! Kernels before 4.14 mean other things by some bits, and mark a thread that was preempted by 1024, 2048 or 4096, later ones by
//! 256. By those marks they are told apart.
//!
//! Source: `include/linux/sched.h` and `include/trace/events/sched.h` (`prev_state`), Linux 4.4, 4.14, 6.18.

use warmcore_trace::PrevState;

use crate::record::{Record, What};

/// Dead in all kernels; dead before 4.14, parked after; and where the marks begin.
const DEAD: u64 = 0x30;
const DEAD_BEFORE_4_14: u64 = 0x40;
const MARKS: u64 = 0x100;

/// Reads states, and settles at the end those that depend on the kernel.
#[derive(Debug, Default)]
pub(crate) struct NumberedStates {
    doubtful: Vec<(u64, u32, i32)>,
    before_4_14: bool,
}

impl NumberedStates {
    /// The state with which a thread left at that time from that CPU.
    pub fn read(&mut self, state: u64, (time_ns, cpu, thread): (u64, u32, i32)) -> PrevState {
        let (waits, marks) = (state % MARKS, state / MARKS);
        self.before_4_14 |= marks > 1;
        match waits {
            0 => PrevState::Runnable,
            dead if dead & DEAD != 0 => PrevState::Dead,
            parked if parked & DEAD_BEFORE_4_14 != 0 => {
                self.doubtful.push((time_ns, cpu, thread));
                PrevState::Sleeping
            }
            _ => PrevState::Sleeping,
        }
    }

    /// Corrects the records.
    pub fn settle(mut self, records: &mut [Record]) {
        if !self.before_4_14 {
            return;
        }
        self.doubtful.sort_unstable();
        for record in records {
            if let What::Switch { prev, state, .. } = &mut record.what
                && self.doubtful.binary_search(&(record.time_ns, record.cpu, *prev)).is_ok()
            {
                *state = PrevState::Dead;
            }
        }
    }
}
