//! Waits where threads are tasks: what is over is due, and its thread goes on when its task has got a CPU.

use super::{AskRing, Due, For, Held, Waits, go_on, is_ready};
use crate::process::Process;

impl Waits {
    /// Threads, as this computer names them, that go on when their tasks run.
    pub fn due(&self) -> impl Iterator<Item = u32> {
        self.held.iter().filter(|held| held.due != Due::No).map(|held| held.call.thread)
    }

    /// The task of threads runs: lets the first of them go on that is due; whether one was.
    pub fn go_on(&mut self, process: &Process, rings: AskRing<'_>, is_of_task: impl Fn(u32) -> bool) -> bool {
        loop {
            let due = |held: &Held| held.due != Due::No && is_of_task(held.call.thread);
            let first = (0..self.held.len()).filter(|&place| due(&self.held[place]));
            let Some(place) = first.min_by_key(|&place| self.held[place].until_ns) else { return false };
            if self.held[place].due == Due::Come && !is_ready(process, &self.held[place], rings) {
                // Another thread has taken it.
                self.held[place].due = Due::No;
                continue;
            }
            let held = self.held.remove(place);
            match held.due {
                Due::Come => go_on(process, &held, rings),
                Due::Woken(value) => process.answer(&held.call, Ok(value)),
                _ => self.time_is_over(process, &held, rings),
            }
            return true;
        }
    }

    /// Whether the first of these threads that is due has yielded.
    pub fn has_yielded(&self, is_of_task: impl Fn(u32) -> bool) -> bool {
        let due = self.held.iter().filter(|held| held.due != Due::No && is_of_task(held.call.thread));
        due.min_by_key(|held| held.until_ns).is_some_and(|held| matches!(held.what, For::Turn))
    }

    /// Whether one of these threads has yielded; it goes on when its task runs again.
    pub fn yields(&mut self, is_of_task: impl Fn(u32) -> bool) -> bool {
        let yielded =
            |held: &&mut Held| held.due == Due::No && matches!(held.what, For::Turn) && is_of_task(held.call.thread);
        let Some(held) = self.held.iter_mut().find(yielded) else { return false };
        held.due = Due::Over;
        true
    }
}
