//! How a wait that ended from outside is replayed: as a sleep of the same length, or as one that ends at the same time.
//!
//! Where calls were recorded, the call says it: a relative sleep has a length, one with `TIMER_ABSTIME` a time. Elsewhere a thread that is
//! woken by arrivals at times of their own sleeps for whatever its work leaves: its sleeps vary by as much as the arrivals and the work
//! together. One that sleeps for a time it chose itself is woken at times that vary by as much as its sleeps and its work together. So what
//! varies less was the cause. Between two wakeups of which one found the thread awake it ran late, and the time between them says nothing.
//!
//! A few waits, for a rare timer, are no schedule of arrivals, and waits for a disk (uninterruptible sleep) never are: they took as long
//! as they took.

use std::collections::BTreeMap;

use warmcore_capture::Call;

use crate::history::{Action, Cause, History};

/// What `/proc/PID/fd` shows of a timer that is a file (`fs/timerfd.c`).
const TIMER_FILE: &str = "anon_inode:[timerfd]";

/// How a thread's wakeups from outside are replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleeps {
    /// Wakeups keep their times from the start.
    At,
    /// The same, of requests: also where another thread created this one.
    Arrival,
    /// Sleeps keep their lengths.
    For,
}

impl Sleeps {
    /// Fewer wakeups than this are no arrivals.
    pub(crate) const FEWEST: usize = 4;

    /// Of the wakeups by interrupts, or, where these are few, of all from outside; those whose call is known do not count.
    pub(crate) fn of(history: &History) -> Self {
        let outside = |by_others: bool| {
            let wakeup = move |action: &Action| match action {
                Action::Block(Cause::Outside { at_ns, slept_ns, interrupt, uninterruptible: false, asked: None })
                    if *interrupt || by_others =>
                {
                    Some((*at_ns, *slept_ns))
                }
                _ => None,
            };
            history.actions.iter().filter_map(wakeup).unzip()
        };
        let (mut at, mut slept): (Vec<u64>, Vec<u64>) = outside(false);
        let by_others = at.len() < Self::FEWEST;
        if by_others {
            (at, slept) = outside(true);
        }
        if at.len() < Self::FEWEST {
            return Self::For;
        }
        let awake = history.woken_awake.iter().filter(|(_, interrupt)| *interrupt || by_others);
        let awake: Vec<u64> = awake.map(|(at_ns, _)| *at_ns).collect();
        let late = |from: u64, to: u64| {
            let next = awake.partition_point(|at_ns| *at_ns < from);
            awake.get(next).is_some_and(|at_ns| *at_ns <= to)
        };
        let between = at.windows(2).filter(|pair| !late(pair[0], pair[1])).map(|pair| pair[1] - pair[0]).collect();
        if spread(slept.split_off(1)) < spread(between) { Self::For } else { Self::At }
    }

    /// Of the waits of which nobody knows who ended them.
    pub(crate) fn of_unknown(history: &History) -> Self {
        let unknown = |action: &&Action| matches!(action, Action::Block(Cause::Unknown { .. }));
        if history.actions.iter().filter(unknown).count() < Self::FEWEST { Self::For } else { Self::At }
    }

    /// Whether a thread has requests that come at their recorded times.
    pub(crate) fn has_arrivals(history: &History) -> bool {
        history.actions.iter().any(|action| match action {
            Action::Block(Cause::Outside { asked, .. }) => *asked == Some(Self::Arrival),
            Action::Arrive { keeps, .. } => *keeps,
            _ => false,
        })
    }

    /// Whether a thread has waits that end at their recorded times.
    pub(crate) fn keeps_times(history: &History) -> bool {
        let asked = |action: &Action| matches!(action, Action::Block(Cause::Outside { asked: Some(Self::At), .. }));
        Self::has_arrivals(history)
            || Self::of(history) == Self::At
            || Self::of_unknown(history) == Self::At
            || history.actions.iter().any(asked)
    }
}

/// How far times lie apart, ns: the median of what they differ from their median, and, where that is equal, what nine of ten differ at
/// most. What is rare, such as the few times that a thread ran late, does not count, however far off it is.
fn spread(mut times: Vec<u64>) -> (u64, u64) {
    times.sort_unstable();
    let Some(&median) = times.get(times.len() / 2) else { return (0, 0) };
    let mut apart: Vec<u64> = times.into_iter().map(|time| time.abs_diff(median)).collect();
    apart.sort_unstable();
    let last = apart.len() - 1;
    (apart[last.div_ceil(2)], apart[(9 * last).div_ceil(10)])
}

/// Timers that are files, by process and number of the file: how the next wait for each ends.
#[derive(Clone, Default, Debug)]
pub(crate) struct TimerFiles(BTreeMap<(i32, u64), Sleeps>);

impl TimerFiles {
    /// What a call asks of its thread's next sleep, as far as it says that. A timer that is waited for a second time without being set is
    /// periodic: it expires at times of its own.
    pub(crate) fn asked(&mut self, call: Call, timer: (i32, u64), file: Option<&str>) -> Option<Sleeps> {
        match call {
            Call::SleepFor => Some(Sleeps::For),
            Call::SleepUntil => Some(Sleeps::At),
            Call::TimerFor => self.0.insert(timer, Sleeps::For).and(None),
            Call::TimerUntil => self.0.insert(timer, Sleeps::At).and(None),
            // Where a file was seen under that number, it may be another one by now.
            Call::Read if file.is_none_or(|file| file == TIMER_FILE) => match self.0.get_mut(&timer) {
                Some(set) => Some(std::mem::replace(set, Sleeps::At)),
                None => file.map(|_| Sleeps::At),
            },
            Call::Read
            | Call::Write
            | Call::Accept
            | Call::Connect
            | Call::FutexWait
            | Call::FutexWake
            | Call::Poll => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::run;

    /// Work of 1000 ns or so, and a sleep until the next multiple of 3000 ns, or none if that is over.
    fn periodic(work: &[u64]) -> History {
        let mut history = History::default();
        let (mut now, mut due) = (0, 0);
        for &work_ns in work {
            history.actions.push(run(work_ns));
            (now, due) = (now + work_ns, due + 3_000);
            if now < due {
                let outside = Cause::Outside {
                    at_ns: due,
                    slept_ns: due - now,
                    interrupt: true,
                    uninterruptible: false,
                    asked: None,
                };
                history.actions.push(Action::Block(outside));
                now = due;
            } else {
                history.woken_awake.push((now, true));
            }
        }
        history
    }

    #[test]
    fn a_thread_that_runs_late_at_times_keeps_the_times_of_its_timer() {
        let mut work = vec![1_000, 1_010, 990, 1_005, 995, 1_002, 998, 1_008, 992, 1_000];
        assert_eq!(Sleeps::of(&periodic(&work.repeat(4))), Sleeps::At);
        // Late by up to three periods, so that the two times that follow find it awake: lateness makes the sleeps no longer.
        work[4] = 9_500;
        let late = periodic(&work.repeat(4));
        assert_eq!(Sleeps::of(&late), Sleeps::At);
        let slept = |action: &Action| match action {
            Action::Block(Cause::Outside { slept_ns, .. }) => Some(*slept_ns),
            _ => None,
        };
        let slept: Vec<u64> = late.actions.iter().filter_map(slept).collect();
        assert!(slept.iter().all(|slept| *slept <= 2_010), "{slept:?}");
    }

    #[test]
    fn rare_times_do_not_count_however_far_off_they_are() {
        let mut times = vec![500; 100];
        times[..9].fill(1_000_000);
        assert_eq!(spread(times.clone()), (0, 0));
        times[..11].fill(1_000_000);
        assert_eq!(spread(times), (0, 999_500), "of two that are regular, the one that is so more often is");
        assert_eq!((spread(vec![1, 2, 6]), spread(vec![4]), spread(Vec::new())), ((1, 4), (0, 0), (0, 0)));
    }

    #[test]
    fn calls_say_whether_a_sleep_has_a_length_or_an_end() {
        let mut timers = TimerFiles::default();
        let file = Some(TIMER_FILE);
        assert_eq!(timers.asked(Call::SleepFor, (7, 0), None), Some(Sleeps::For));
        assert_eq!(timers.asked(Call::SleepUntil, (7, 0), None), Some(Sleeps::At));
        assert_eq!(timers.asked(Call::Read, (7, 3), None), None, "a file that nothing is known of");
        assert_eq!(timers.asked(Call::Read, (7, 3), file), Some(Sleeps::At), "set before the recording, and not since");
        for _ in 0..2 {
            assert_eq!(timers.asked(Call::TimerFor, (7, 4), file), None);
            assert_eq!(timers.asked(Call::Read, (7, 4), file), Some(Sleeps::For));
        }
        assert_eq!(timers.asked(Call::Read, (7, 4), file), Some(Sleeps::At), "it is periodic");
        timers.asked(Call::TimerUntil, (7, 4), None);
        assert_eq!(timers.asked(Call::Read, (7, 4), None), Some(Sleeps::At));
        assert_eq!(timers.asked(Call::Read, (7, 4), Some("pipe:[3]")), None, "the number is another file by now");
        assert_eq!(timers.asked(Call::Read, (8, 4), None), None, "another process");
    }
}
