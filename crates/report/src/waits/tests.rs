use super::*;
use warmcore_trace::MigrationKind;

const A: TaskId = TaskId(0);
const B: TaskId = TaskId(1);
const IDLE: TaskId = TaskId::IDLE;

fn on(cpu: u32, time_ns: u64, kind: EventKind) -> Event {
    Event { time_ns, cpu: CpuId(cpu), kind }
}

fn switch(prev: TaskId, prev_state: PrevState, next: TaskId) -> EventKind {
    EventKind::Switch { prev, prev_state, next }
}

fn waking(task: TaskId, target_cpu: u32) -> EventKind {
    EventKind::Waking { task, target_cpu: CpuId(target_cpu), waker: IDLE }
}

fn part(cpu: u32, who: Occupant, from_ns: u64, to_ns: u64) -> Part {
    Part { cpu: CpuId(cpu), who, from_ns, to_ns }
}

#[test]
fn a_wait_is_told_with_who_had_the_cpu_and_a_preemption_with_who_came() {
    let mut waits = Waits::new(1);
    let events = [
        on(0, 0, switch(IDLE, PrevState::Idle, A)),
        on(0, 10, waking(B, 0)),
        on(0, 12, EventKind::Wakeup { task: B, reason: None }),
        on(0, 50, switch(A, PrevState::Runnable, IDLE)),
        on(0, 50, EventKind::Foreign { thread: Some(3) }),
        on(0, 80, switch(IDLE, PrevState::Idle, B)),
        on(0, 90, switch(B, PrevState::Sleeping, A)),
    ];
    waits.events(&events).unwrap();
    let (found, _) = waits.finish(100);
    let (first, second) = (&found[0], &found[1]);
    let worst = WakeupWait { end_ns: 80, length_ns: 70, ran: true };
    assert_eq!((second.wakeups, second.wakeup_wait_ns, second.worst_wakeup), (1, 70, Some(worst)));
    let behind = [(Occupant::Task(A), 40), (Occupant::Other(3), 30)];
    assert_eq!(second.behind_ns, BTreeMap::from(behind));
    assert_eq!((first.preemptions, first.preempt_wait_ns), (1, 40));
    assert_eq!(first.preempted_by, BTreeMap::from([(Occupant::Other(3), 1)]));
    assert_eq!(first.behind_ns, BTreeMap::from([(Occupant::Other(3), 30), (Occupant::Task(B), 10)]));
    assert_eq!((first.stays, first.run_ns), (2, 60), "the last stay ends with the trial");
}

#[test]
fn a_wait_that_moves_and_one_that_the_trial_ends_have_parts_without_a_gap() {
    // No wakeup is recorded, as by `perf sched record`.
    let events = [
        on(0, 0, switch(IDLE, PrevState::Idle, A)),
        on(1, 20, EventKind::Foreign { thread: Some(7) }),
        on(1, 30, waking(B, 0)),
        on(1, 45, EventKind::Migrate { task: B, from: CpuId(0), to: CpuId(1), kind: MigrationKind::Balance }),
        on(1, 60, EventKind::Foreign { thread: None }),
        on(1, 62, switch(IDLE, PrevState::Idle, B)),
        on(1, 70, switch(B, PrevState::Sleeping, IDLE)),
        on(0, 75, waking(B, 0)),
    ];
    let of = |at_ns, most| {
        let mut waits = Waits::new(2).keeping(BTreeSet::from([B]), at_ns, most);
        waits.events(&events).unwrap();
        waits.finish(90)
    };
    let (found, waits) = of(None, 5);
    let (a, other, nobody) = (Occupant::Task(A), Occupant::Other(7), Occupant::Nobody);
    let first = Wait {
        task: B,
        from_ns: 30,
        to_ns: 62,
        preempted: false,
        ran: true,
        parts: vec![part(0, a, 30, 45), part(1, other, 45, 60), part(1, nobody, 60, 62)],
    };
    let second = Wait { from_ns: 75, to_ns: 90, ran: false, parts: vec![part(0, a, 75, 90)], ..first.clone() };
    assert_eq!(waits, [first.clone(), second.clone()]);
    assert_eq!((of(None, 1).1, of(Some(80), 1).1, of(Some(80), 0).1), (vec![first], vec![second], vec![]));
    assert_eq!((found[1].wakeups, found[1].wakeup_wait_ns), (2, 47));
    assert_eq!(found[1].behind_ns, BTreeMap::from([(a, 30), (other, 15), (nobody, 2)]));
}

#[test]
fn a_wait_begins_with_the_wakeup_where_the_waking_was_not_recorded() {
    let mut waits = Waits::new(1);
    let events = [
        on(0, 0, switch(IDLE, PrevState::Idle, A)),
        on(0, 10, EventKind::Wakeup { task: B, reason: None }),
        on(0, 30, switch(A, PrevState::Sleeping, B)),
    ];
    waits.events(&events).unwrap();
    let found = waits.finish(30).0;
    assert_eq!((found[1].wakeup_wait_ns, &found[1].behind_ns), (20, &BTreeMap::from([(Occupant::Task(A), 20)])));
}

#[test]
fn a_wait_whose_end_is_missing_is_none_and_the_next_one_counts() {
    // A leaves at 3000 and at 600, but how it came there is missing.
    let wakings = [on(0, 2000, waking(A, 0)), on(0, 3000, switch(A, PrevState::Sleeping, B))];
    let last = [on(0, 9000, waking(A, 0)), on(0, 9010, switch(B, PrevState::Runnable, A))];
    let preempted = [on(0, 500, waking(A, 0)), on(0, 600, switch(A, PrevState::Runnable, B))];
    let again = [on(0, 650, switch(B, PrevState::Runnable, A)), on(0, 700, switch(A, PrevState::Sleeping, B))];
    let mut waits = Waits::new(1).keeping(BTreeSet::from([A]), None, 5);
    waits.events(&[preempted, again, wakings, last].concat()).unwrap();
    let (found, kept) = waits.finish(9020);
    assert_eq!((found[0].wakeups, found[0].wakeup_wait_ns), (1, 10));
    assert_eq!((found[0].preemptions, found[0].preempt_wait_ns), (1, 50));
    assert_eq!(found[0].run_ns, 50 + 10);
    assert_eq!(kept.iter().map(|wait| (wait.from_ns, wait.to_ns)).collect::<Vec<_>>(), [(600, 650), (9000, 9010)]);
}

#[test]
fn a_task_that_a_quota_keeps_from_running_waits_for_nobody() {
    let quota = |throttled: bool| EventKind::Throttle { task: A, throttled: throttled.then_some(Throttler::Quota) };
    let events = [
        on(0, 0, switch(IDLE, PrevState::Idle, A)),
        on(0, 5, EventKind::Wakeup { task: B, reason: None }),
        on(0, 20, quota(true)),
        on(0, 20, switch(A, PrevState::Runnable, B)),
        on(0, 100, quota(false)),
        on(0, 103, switch(B, PrevState::Sleeping, A)),
        on(0, 110, quota(true)),
        on(0, 110, switch(A, PrevState::Runnable, IDLE)),
    ];
    let of = |end_ns| {
        let mut waits = Waits::new(1).keeping(BTreeSet::from([A]), None, 5);
        waits.events(&events).unwrap();
        waits.finish(end_ns)
    };
    let (found, waits) = of(150);
    let first = &found[0];
    assert_eq!((first.throttled_ns, first.preempt_wait_ns, first.preemptions, first.run_ns), (80 + 40, 3, 0, 27));
    assert_eq!(first.behind_ns, BTreeMap::from([(Occupant::Task(B), 3)]));
    assert_eq!(waits.iter().map(|wait| (wait.from_ns, wait.to_ns)).collect::<Vec<_>>(), [(100, 103)]);
    assert_eq!(found[1].behind_ns, BTreeMap::from([(Occupant::Task(A), 15)]));
}

#[test]
fn events_that_go_back_in_time_are_refused() {
    let mut waits = Waits::new(1);
    waits.events(&[on(0, 30, switch(IDLE, PrevState::Idle, A))]).unwrap();
    assert!(waits.events(&[on(0, 20, switch(A, PrevState::Sleeping, IDLE))]).is_err());
}

/// A deadline task is woken at 100 while its reservation is used up, which lasts to 400; B has the CPU from 300 to 450. The reservation is
/// used up again at 500.
#[test]
fn a_task_that_is_woken_without_runtime_waits_for_its_reservation() {
    let reservation =
        |used_up: bool| EventKind::Throttle { task: A, throttled: used_up.then_some(Throttler::Reservation) };
    let events = [
        on(0, 0, switch(IDLE, PrevState::Idle, A)),
        on(0, 20, switch(A, PrevState::Sleeping, IDLE)),
        on(0, 100, waking(A, 0)),
        on(0, 100, reservation(true)),
        on(0, 100, EventKind::Wakeup { task: A, reason: None }),
        on(0, 300, switch(IDLE, PrevState::Idle, B)),
        on(0, 400, reservation(false)),
        on(0, 450, switch(B, PrevState::Sleeping, A)),
        on(0, 500, reservation(true)),
        on(0, 500, switch(A, PrevState::Runnable, IDLE)),
    ];
    let mut waits = Waits::new(1).keeping(BTreeSet::from([A]), None, 5);
    waits.events(&events).unwrap();
    let (found, waits) = waits.finish(600);
    assert_eq!((found[0].wakeups, found[0].wakeup_wait_ns, found[0].throttled_ns), (1, 350, 100));
    assert_eq!(found[0].behind_ns, BTreeMap::from([(Occupant::Reservation, 300), (Occupant::Task(B), 50)]));
    assert_eq!(waits.len(), 1);
    let parts = [part(0, Occupant::Reservation, 100, 400), part(0, Occupant::Task(B), 400, 450)];
    assert_eq!((waits[0].from_ns, waits[0].to_ns, waits[0].parts.as_slice()), (100, 450, parts.as_slice()));
}

/// A lock's holder is who wakes the one that sleeps for it; an interrupt is nobody, and a waking of one that does not sleep ends nothing.
#[test]
fn a_sleep_that_another_task_ends_is_told_with_that_task() {
    let woken_by = |waker| EventKind::Waking { task: B, target_cpu: CpuId(0), waker };
    let events = [
        on(0, 0, switch(IDLE, PrevState::Idle, B)),
        on(0, 10, switch(B, PrevState::Sleeping, A)),
        on(0, 70, woken_by(A)),
        on(0, 75, woken_by(A)),
        on(0, 75, switch(A, PrevState::Runnable, B)),
        on(0, 80, switch(B, PrevState::Sleeping, A)),
        on(0, 90, woken_by(IDLE)),
    ];
    let mut waits = Waits::new(1);
    waits.events(&events).unwrap();
    let (found, _) = waits.finish(100);
    assert_eq!(found[1].blocked_ns, BTreeMap::from([(Occupant::Task(A), 60)]));
    assert!(found[0].blocked_ns.is_empty());
}
