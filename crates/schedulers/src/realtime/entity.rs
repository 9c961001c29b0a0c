//! A constant bandwidth server: the runtime and deadline of a deadline task or of what serves the class below (`sched_dl_entity`).
//!
//! Source: Linux 7.2 `kernel/sched/deadline.c`, as specified in `docs/spec/linux-rt.md` section 3.

use warmcore_kernel::TimerId;
use warmcore_workload::Reservation;

/// What is left of a reservation, and until when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entity {
    /// Left of the present period; negative after an overrun.
    pub runtime_ns: i64,
    /// Absolute deadline.
    pub deadline_ns: u64,
    /// It has used up its runtime, or yielded it, and waits for its timer.
    pub throttled: bool,
    /// The timer that it waits for.
    pub timer: Option<TimerId>,
}

impl Entity {
    /// A period begins now, whatever was left (`replenish_dl_new_period`).
    pub fn begin(&mut self, now_ns: u64, reservation: &Reservation) {
        self.deadline_ns = now_ns + reservation.deadline_ns;
        self.runtime_ns = reservation.runtime_ns as i64;
    }

    /// Whether what is left would be more than the reserved share of the time that is left (`dl_entity_overflow`), in units of 1024 ns.
    pub fn overflows(&self, now_ns: u64, reservation: &Reservation) -> bool {
        let scaled = |ns: u64| i128::from(ns >> 10);
        let left = scaled(reservation.deadline_ns) * i128::from(self.runtime_ns >> 10);
        let right = scaled(self.deadline_ns.saturating_sub(now_ns)) * scaled(reservation.runtime_ns);
        right < left
    }

    /// It becomes runnable (`update_dl_entity`). `revised` says that it keeps its deadline while that is not past, with as much runtime as
    /// fits. Whether a new period begins.
    pub fn wake(&mut self, now_ns: u64, reservation: &Reservation, revised: bool) -> Woken {
        // A kernel's clock has passed 0, the deadline of what has had no period, long before anything runs; a run begins there.
        let past = self.deadline_ns < now_ns || self.deadline_ns == 0;
        if !past && !self.overflows(now_ns, reservation) {
            return Woken::Kept;
        }
        if !past && revised {
            let density = (reservation.runtime_ns << 20) / reservation.deadline_ns;
            let laxity_ns = u128::from(self.deadline_ns - now_ns);
            self.runtime_ns = ((u128::from(density) * laxity_ns) >> 20) as i64;
            return Woken::Revised;
        }
        self.begin(now_ns, reservation);
        Woken::Begun
    }

    /// Gets the runtime of as many periods as its overrun took (`replenish_dl_entity`).
    pub fn replenish(&mut self, now_ns: u64, reservation: &Reservation) {
        while self.runtime_ns <= 0 {
            self.deadline_ns += reservation.period_ns;
            self.runtime_ns += reservation.runtime_ns as i64;
        }
        if self.deadline_ns < now_ns {
            self.begin(now_ns, reservation);
        }
        self.throttled = false;
    }

    /// When a task with just the reserved share would have used what this one has (the 0-lag time, `task_non_contending`).
    pub fn zero_lag_ns(&self, reservation: &Reservation) -> u64 {
        let (period_ns, share_ns) = (i128::from(reservation.period_ns), i128::from(reservation.runtime_ns));
        let left_ns = i128::from(self.runtime_ns) * period_ns / share_ns;
        (i128::from(self.deadline_ns) - left_ns).max(0) as u64
    }

    /// When the next period begins (`dl_next_period`).
    pub fn next_period_ns(&self, reservation: &Reservation) -> u64 {
        self.deadline_ns.saturating_sub(reservation.deadline_ns) + reservation.period_ns
    }
}

/// What becomes of an entity that wakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Woken {
    /// Runtime and deadline stay.
    Kept,
    /// The runtime was cut to what fits before the deadline.
    Revised,
    /// A new period began.
    Begun,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TENTH: Reservation = Reservation { runtime_ns: 10 * MS, deadline_ns: 100 * MS, period_ns: 100 * MS };

    #[test]
    fn what_is_left_is_kept_only_while_it_is_no_more_than_the_share_of_the_time_left() {
        let mut entity = Entity { runtime_ns: 5 * MS as i64, deadline_ns: 100 * MS, ..Entity::default() };
        assert_eq!(entity.wake(49 * MS, &TENTH, false), Woken::Kept);
        assert_eq!(entity.wake(51 * MS, &TENTH, false), Woken::Begun);
        assert_eq!((entity.runtime_ns, entity.deadline_ns), (10 * MS as i64, 151 * MS));
    }

    /// By hand: with 4 of 10 ms left of a period of 100 ms, 60 of it are used.
    #[test]
    fn the_zero_lag_time_is_where_the_used_share_of_the_period_ends() {
        let at = |runtime_ms: i64| {
            let entity = Entity { runtime_ns: runtime_ms * MS as i64, deadline_ns: 300 * MS, ..Entity::default() };
            entity.zero_lag_ns(&TENTH) / MS
        };
        assert_eq!((at(4), at(10), at(0), at(-1)), (260, 200, 300, 310));
    }

    #[test]
    fn a_constrained_entity_keeps_its_deadline_with_less_runtime() {
        let constrained = Reservation { deadline_ns: 50 * MS, ..TENTH };
        let mut entity = Entity { runtime_ns: 9 * MS as i64, deadline_ns: 50 * MS, ..Entity::default() };
        assert_eq!(entity.wake(30 * MS, &constrained, true), Woken::Revised);
        assert_eq!(entity.deadline_ns, 50 * MS);
        assert!((3_999_900..=4_000_000).contains(&entity.runtime_ns), "a fifth of 20 ms: {}", entity.runtime_ns);
    }

    #[test]
    fn an_overrun_is_paid_with_later_periods() {
        let mut entity = Entity { runtime_ns: -12 * MS as i64, deadline_ns: 100 * MS, ..Entity::default() };
        entity.replenish(100 * MS, &TENTH);
        assert_eq!((entity.runtime_ns, entity.deadline_ns), (8 * MS as i64, 300 * MS));
    }
}
