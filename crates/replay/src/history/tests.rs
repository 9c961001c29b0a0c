//! Histories of recordings written by hand.

use super::*;

fn record(time_ns: u64, cpu: u32, by: i32, what: What) -> Record {
    Record { time_ns, cpu, by, context: Context::Thread, what }
}

fn switch(time_ns: u64, cpu: u32, prev: i32, state: PrevState, next: i32) -> Record {
    record(time_ns, cpu, prev, What::Switch { prev, state, next, uninterruptible: false })
}

fn waking(time_ns: u64, cpu: u32, by: i32, thread: i32) -> Record {
    record(time_ns, cpu, by, What::Waking { thread, target_cpu: 0 })
}

fn of(records: Vec<Record>, chosen: &[i32]) -> Histories {
    let recording = Recording { records, ..Recording::default() }.finished();
    histories(&recording, &chosen.iter().copied().collect(), None)
}

/// A run that nothing interrupted.
pub(crate) fn run(work_ns: u64) -> Action {
    Action::Run { work_ns, returns: 0, wakeups: 0 }
}

const IDLE: PrevState = PrevState::Idle;
const ASLEEP: PrevState = PrevState::Sleeping;

#[test]
fn a_wait_is_for_the_thread_that_ended_it_and_work_lies_around_the_signal() {
    let found = of(
        vec![
            switch(100, 0, 0, IDLE, 5),
            switch(100, 1, 0, IDLE, 6),
            switch(130, 1, 6, ASLEEP, 0),
            waking(150, 0, 5, 6),
            switch(160, 1, 0, IDLE, 6),
            switch(180, 0, 5, PrevState::Dead, 0),
            switch(200, 1, 6, PrevState::Dead, 0),
        ],
        &[5, 6],
    );
    let signal = Cause::Signal { waker: 5, soft_interrupt: false, slept_ns: 20 };
    assert_eq!(found.threads[&5].actions, [run(50), Action::Wake { thread: 6 }, run(30), Action::Exit]);
    assert_eq!(found.threads[&6].actions, [run(30), Action::Block(signal), run(40), Action::Exit]);
    assert_eq!((found.threads[&6].cpu_ns, found.span_ns), (70, 100));
    assert_eq!(found.idle_wakeups, (1, 10), "of thread 6, woken at 150, on CPU at 160");
    assert_eq!(found.queued_ns, 0, "nobody else ran there");
}

#[test]
fn work_is_less_than_cpu_time_beside_a_busy_sibling_and_on_a_small_core() {
    let work = |machine: &str, other: u32| {
        let records = vec![
            switch(0, 0, 0, IDLE, 5),
            switch(165, other, 0, IDLE, 9),
            switch(330, other, 9, ASLEEP, 0),
            switch(400, 0, 5, PrevState::Dead, 0),
        ];
        let recording = Recording { records, ..Recording::default() }.finished();
        let found = histories(&recording, &[5].into(), Some(&warmcore_topology::resolve(machine).unwrap()));
        assert_eq!(found.threads[&5].cpu_ns, 400);
        found.threads[&5].actions.clone()
    };
    assert_eq!(work("1s1n1l2c1t", 1), [run(400), Action::Exit]);
    // 165 ns of 400 beside a sibling that makes it take 1.65 times as long. Kernels number the siblings of two cores 0 and 2, 1 and 3.
    assert_eq!(work("1s1n1l1c2t", 1), [run(335), Action::Exit]);
    assert_eq!(work("1s1n1l2c2t", 2), [run(335), Action::Exit]);
    assert_eq!(work("1s1n1l2c2t", 1), [run(400), Action::Exit], "another core");
    assert_eq!(work("1s1n1l1c1t", 1), [run(400), Action::Exit], "the machine does not have the other CPU");
    // A CPU of 462/1024 of the biggest one's capacity.
    assert_eq!(work("hikey960", 7), [run(180), Action::Exit]);
}

#[test]
fn preemption_is_no_action_and_others_cpu_time_is_counted() {
    let found = of(
        vec![
            switch(0, 0, 0, IDLE, 5),
            switch(10, 0, 5, PrevState::Runnable, 9),
            switch(40, 0, 9, PrevState::Runnable, 5),
            switch(60, 0, 5, PrevState::Dead, 0),
        ],
        &[5],
    );
    let returned = Action::Run { work_ns: 30, returns: 1, wakeups: 0 };
    assert_eq!(found.threads[&5].actions, [returned, Action::Exit]);
    assert_eq!((found.other_cpu_ns, found.queued_ns), (30, 30));
}

#[test]
fn from_its_last_record_until_another_thread_is_seen_on_it_nobody_is_known_to_have_run_on_a_cpu() {
    for leaves in [102, 0] {
        let records =
            vec![switch(0, 0, 0, IDLE, 101), switch(300, 0, leaves, ASLEEP, 103), switch(1000, 0, 103, ASLEEP, 0)];
        let found = of(records, &[101, 102, 103]);
        let cpu_ns = |thread| found.threads.get(&thread).map_or(0, |history| history.cpu_ns);
        assert_eq!([101, 102, 103].map(cpu_ns), [0, 0, 700], "{leaves} leaves");
        assert_eq!((found.other_cpu_ns, found.queued_ns), (300, 0));
    }
}

#[test]
fn run_and_idle_time_of_cpus_are_the_length_of_the_recording_whatever_is_lost() {
    const CPUS: u64 = 3;
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..200 {
        // Every CPU's first switch is there.
        let mut records: Vec<Record> = (0..CPUS).map(|cpu| switch(0, cpu as u32, 0, IDLE, 101 + cpu as i32)).collect();
        let mut running: Vec<i32> = (0..CPUS).map(|cpu| 101 + cpu as i32).collect();
        for time_ns in 1..40 {
            let (cpu, thread) = (random(CPUS) as usize, 100 + random(6) as i32);
            let next = if thread == 100 || running.contains(&thread) { 0 } else { thread };
            let prev = std::mem::replace(&mut running[cpu], next);
            if prev != next && random(3) > 0 {
                records.push(switch(10 * time_ns, cpu as u32, prev, if prev == 0 { IDLE } else { ASLEEP }, next));
            }
        }
        let recording = Recording { records, end_ns: Some(400), ..Recording::default() }.finished();
        let found = histories(&recording, &(101..106).collect(), None);
        let run_ns: u64 = found.threads.values().map(|history| history.cpu_ns).sum();
        let (mut idle_ns, mut idle_since) = (0, BTreeMap::new());
        for record in recording.in_order() {
            if let What::Switch { next, .. } = record.what {
                let since = if next == 0 {
                    idle_since.insert(record.cpu, record.time_ns)
                } else {
                    idle_since.remove(&record.cpu)
                };
                idle_ns += since.map_or(0, |since| record.time_ns - since);
            }
        }
        idle_ns += idle_since.values().map(|since| 400 - since).sum::<u64>();
        assert_eq!(run_ns + idle_ns + found.other_cpu_ns, CPUS * 400, "{:?}", recording.records);
    }
}

#[test]
fn a_thread_that_is_queued_at_the_instant_of_its_waking_was_woken_by_its_waker() {
    // CPU 0, where it is queued, comes before CPU 1, where it is woken.
    let found = of(
        vec![
            switch(0, 1, 0, IDLE, 5),
            switch(0, 0, 0, IDLE, 6),
            switch(20, 0, 6, ASLEEP, 0),
            waking(50, 1, 5, 6),
            record(50, 0, 0, What::Wakeup { thread: 6, target_cpu: 0 }),
            switch(50, 0, 0, IDLE, 6),
            switch(90, 0, 6, ASLEEP, 0),
        ],
        &[5, 6],
    );
    let signal = Cause::Signal { waker: 5, soft_interrupt: false, slept_ns: 30 };
    assert_eq!(found.threads[&6].actions[1], Action::Block(signal));
}

#[test]
fn only_a_cpu_that_was_idle_at_the_wakeup_and_takes_the_thread_next_was_woken_up_for_it() {
    let wakeup = |time_ns, target_cpu| record(time_ns, target_cpu, 0, What::Wakeup { thread: 6, target_cpu });
    let of_wakeup = |at_ns: u64, queued_on: u32| {
        let start = [
            switch(0, 1, 0, IDLE, 6),
            switch(10, 0, 0, IDLE, 5),
            switch(20, 1, 6, ASLEEP, 0),
            switch(40, 0, 5, ASLEEP, 0),
        ];
        let end = [waking(at_ns, 2, 7, 6), wakeup(at_ns, queued_on), switch(60, 0, 0, IDLE, 6)];
        of(start.into_iter().chain(end).collect(), &[5, 6]).idle_wakeups
    };
    assert_eq!(of_wakeup(50, 0), (1, 10));
    assert_eq!(of_wakeup(30, 0), (0, 0), "thread 5 ran there");
    assert_eq!(of_wakeup(50, 1), (0, 0), "it was taken from another CPU");
}

#[test]
fn interrupts_and_threads_outside_wake_at_their_time() {
    let mut by_timer = waking(70, 0, 5, 6);
    by_timer.context = Context::HardInterrupt;
    let start = [switch(0, 0, 0, IDLE, 5), switch(0, 1, 0, IDLE, 6), switch(20, 1, 6, ASLEEP, 0)];
    for (wakeup, interrupt) in [(by_timer, true), (waking(70, 0, 99, 6), false)] {
        let found = of(start.into_iter().chain([wakeup, switch(80, 1, 0, IDLE, 6)]).collect(), &[5, 6]);
        let cause = Cause::Outside { at_ns: 70, slept_ns: 50, interrupt, uninterruptible: false, asked: None };
        assert_eq!(found.threads[&6].actions[1], Action::Block(cause));
        let ran = Action::Run { work_ns: 80, returns: 0, wakeups: u32::from(interrupt) };
        assert_eq!(found.threads[&5].actions, [ran, Action::Exit], "it woke nobody");
    }
}

#[test]
fn a_sleep_is_what_its_call_asked_for_and_a_timer_that_finds_its_thread_awake_is_no_sleep() {
    let call = |time_ns, call| record(time_ns, 0, 5, What::Call { call, object: 0 });
    let timer = |time_ns| Record { context: Context::HardInterrupt, ..waking(time_ns, 0, 0, 5) };
    let found = of(
        vec![
            switch(0, 0, 0, IDLE, 5),
            call(10, Call::SleepUntil),
            switch(11, 0, 5, ASLEEP, 0),
            timer(30),
            switch(31, 0, 0, IDLE, 5),
            // Over already: it goes on, and then waits for something that no call was recorded of.
            call(50, Call::SleepUntil),
            timer(51),
            switch(60, 0, 5, ASLEEP, 0),
            timer(90),
            switch(91, 0, 0, IDLE, 5),
            call(92, Call::SleepFor),
            switch(93, 0, 5, ASLEEP, 0),
            timer(99),
            switch(100, 0, 0, IDLE, 5),
            switch(110, 0, 5, ASLEEP, 0),
            record(120, 0, 0, What::Migrate { thread: 5, from: 0, to: 1 }),
        ],
        &[5],
    );
    let thread = &found.threads[&5];
    let asked = thread.actions.iter().filter_map(|action| match action {
        Action::Block(Cause::Outside { at_ns, asked, .. }) => Some((*at_ns, *asked)),
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [(30, Some(Sleeps::At)), (90, None), (99, Some(Sleeps::For))]);
    assert_eq!((&thread.woken_awake[..], thread.end_ns), (&[(51, true)][..], 110));
}

#[test]
fn a_wakeup_that_is_recorded_before_the_sleep_it_ends_counts() {
    let found = of(
        vec![
            switch(0, 0, 0, IDLE, 5),
            switch(0, 1, 0, IDLE, 6),
            waking(19, 0, 5, 6),
            switch(20, 1, 6, ASLEEP, 0),
            record(21, 1, 0, What::Wakeup { thread: 6, target_cpu: 1 }),
            switch(22, 1, 0, IDLE, 6),
            switch(30, 1, 6, ASLEEP, 0),
        ],
        &[5, 6],
    );
    let signal = Action::Block(Cause::Signal { waker: 5, soft_interrupt: false, slept_ns: 0 });
    assert_eq!(found.threads[&6].actions[1], signal);
    assert_eq!(found.threads[&6].actions[3], Action::Block(Cause::Never));
}

#[test]
fn without_wakers_a_wait_has_no_known_cause() {
    let found = of(
        vec![
            switch(0, 1, 0, IDLE, 6),
            switch(20, 1, 6, ASLEEP, 0),
            record(50, 1, 0, What::Wakeup { thread: 6, target_cpu: 1 }),
            switch(52, 1, 0, IDLE, 6),
        ],
        &[6],
    );
    assert_eq!(found.threads[&6].actions[1], Action::Block(Cause::Unknown { at_ns: 50, slept_ns: 30 }));
}

#[test]
fn a_fork_makes_a_thread_of_its_creators() {
    let found = of(
        vec![
            switch(0, 0, 0, IDLE, 5),
            record(10, 0, 5, What::Fork { parent: 5, child: 6 }),
            switch(15, 1, 0, IDLE, 6),
            switch(25, 1, 6, PrevState::Dead, 0),
        ],
        &[5, 6],
    );
    assert_eq!(found.threads[&5].actions[..2], [run(10), Action::Fork { child: 6 }]);
    assert!(found.threads[&6].forked);
    assert_eq!(found.threads[&6].actions, [run(10), Action::Exit]);
}

/// The number of thread 6 is used again: what the second one does is another thread's.
#[test]
fn a_number_that_is_used_again_is_that_of_another_thread() {
    let fork = |time_ns| record(time_ns, 0, 5, What::Fork { parent: 5, child: 6 });
    let found = of(
        vec![
            switch(100, 0, 0, IDLE, 5),
            fork(110),
            switch(120, 0, 5, ASLEEP, 6),
            waking(150, 0, 6, 5),
            switch(160, 0, 6, PrevState::Dead, 5),
            fork(170),
            switch(180, 0, 5, ASLEEP, 6),
            waking(240, 0, 6, 5),
            switch(250, 0, 6, PrevState::Dead, 5),
            switch(260, 0, 5, PrevState::Dead, 0),
        ],
        &[5, 6],
    );
    assert_eq!(found.threads[&6].actions, [run(30), Action::Wake { thread: 5 }, run(10), Action::Exit]);
    let forks = found.threads[&5].actions.iter().filter(|action| matches!(action, Action::Fork { .. })).count();
    assert_eq!((forks, found.threads[&5].cpu_ns, found.threads[&6].cpu_ns, found.other_cpu_ns), (1, 50, 40, 70));
}

#[test]
fn a_run_counts_its_returns_after_preemption_and_the_wakeups_by_interrupts_on_its_cpu() {
    let mut timer = waking(140, 0, 6, 5);
    timer.context = Context::HardInterrupt;
    let found = of(
        vec![
            switch(100, 0, 0, IDLE, 5),
            switch(110, 0, 5, PrevState::Runnable, 6),
            switch(120, 0, 6, PrevState::Runnable, 5),
            switch(130, 0, 5, ASLEEP, 6),
            timer,
            switch(150, 0, 6, PrevState::Runnable, 5),
            switch(160, 0, 5, PrevState::Dead, 6),
            switch(180, 0, 6, PrevState::Dead, 0),
        ],
        &[5, 6],
    );
    let ran = |work_ns, returns, wakeups| Action::Run { work_ns, returns, wakeups };
    assert_eq!(found.threads[&5].actions[0], ran(20, 1, 0));
    assert_eq!(found.threads[&5].actions[2..], [run(10), Action::Exit], "a wakeup is no return");
    assert_eq!(found.threads[&6].actions, [ran(50, 2, 1), Action::Exit]);
}
