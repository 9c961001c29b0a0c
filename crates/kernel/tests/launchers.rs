//! Launchers as tasks: what they take, who begins when, and who does not see them. The policy is `support/fifo.rs`.

use warmcore_kernel::{Setup, run};
use warmcore_topology::{Background, Machine, resolve};
use warmcore_trace::{Event, EventKind, Outcome, TaskId};
use warmcore_workload::{Options, Workload, from_rtapp};

use crate::events::Events;
use crate::fifo::Fifo;

fn machine() -> Machine {
    let background = Background { name: "test".into(), launchers: true, ..Background::default() };
    resolve("1s1n1l4c1t").unwrap().with_background(background).unwrap()
}

fn workload(text: &str) -> Workload {
    from_rtapp("scene", text, &Options::default()).unwrap()
}

fn run_on(machine: &Machine, workload: &Workload) -> (Outcome, Vec<Event>) {
    let mut setup = Setup::new(machine, workload, 1).unwrap();
    setup.check_invariants = true;
    let mut events = Events::default();
    let outcome = run(&setup, Fifo::default(), Some(&mut events)).unwrap();
    (outcome, events.0)
}

fn times(events: &[Event], of: impl Fn(&EventKind) -> bool) -> Vec<u64> {
    events.iter().filter(|event| of(&event.kind)).map(|event| event.time_ns).collect()
}

#[test]
fn a_launcher_takes_the_time_of_a_fork_for_each_task_and_is_none_itself() {
    let machine = machine();
    let (outcome, events) = run_on(&machine, &workload(r#"{"tasks": {"a": {"instance": 3, "loop": 1, "run": 5000}}}"#));
    let forks = times(&events, |kind| matches!(kind, EventKind::Fork { parent: TaskId::IDLE, .. }));
    let fork_ns = machine.costs().fork_ns;
    assert_eq!(forks.len(), 3);
    assert!(forks[0] > fork_ns, "it wakes first");
    assert_eq!([forks[1] - forks[0], forks[2] - forks[1]], [fork_ns; 2]);
    let ids: Vec<u32> = outcome.tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids, [0, 1, 2]);
    let of_launcher: u64 = outcome.cpus.iter().map(|cpu| cpu.background_ns).sum();
    assert!(of_launcher >= 3 * fork_ns && outcome.background.is_empty(), "{of_launcher}");
    for cpu in &outcome.cpus {
        assert_eq!(cpu.idle_ns + cpu.busy_ns + cpu.background_ns, outcome.elapsed_ns);
    }
    assert_eq!(
        outcome.tasks.iter().map(|task| task.cpu_time_ns).sum::<u64>(),
        outcome.cpus.iter().map(|cpu| cpu.busy_ns).sum::<u64>()
    );
}

#[test]
fn tasks_that_are_bound_begin_together_where_they_may_run() {
    let text = r#"{"tasks": {"a": {"instance": 4, "loop": 1, "run": 5000, "cpus": [2]}, "b": {"loop": 1, "run": 10}}}"#;
    let (outcome, events) = run_on(&machine(), &workload(text));
    let forks = times(&events, |kind| matches!(kind, EventKind::Fork { .. }));
    let bound = |task: TaskId| outcome.tasks[task.index()].role == "a";
    let woken = times(&events, |kind| matches!(kind, EventKind::Waking { task, .. } if bound(*task)));
    assert!(woken.iter().all(|at| *at >= forks[4]), "{woken:?} {forks:?}");
    for event in &events {
        if let EventKind::Switch { next, .. } = event.kind
            && !next.is_idle()
            && bound(next)
        {
            assert_eq!(event.cpu.index(), 2);
        }
    }
    assert!(outcome.tasks.iter().all(|task| task.exited_ns.is_some()));
}

#[test]
fn a_launcher_releases_and_creates_later_what_is_to_come_later() {
    let text = r#"{"tasks": {"a": {"instance": 2, "loop": 1, "run": 30000, "cpus": [1]}, "late": {"loop": 1, "run": 10}},
                   "warmcore": {"tasks": {"a": {"release_ns": 10000000}, "late": {"start_ns": 20000000}}}}"#;
    let (outcome, events) = run_on(&machine(), &workload(text));
    let freed = times(&events, |kind| matches!(kind, EventKind::Affinity { restriction: 0, .. }));
    assert_eq!(freed.len(), 2);
    assert!(freed.iter().all(|at| (10_000_000..10_200_000).contains(at)), "{freed:?}");
    let late = outcome.tasks.iter().find(|task| task.role == "late").unwrap();
    assert!((20_000_000..20_200_000).contains(&late.started_ns), "{}", late.started_ns);
}

#[test]
fn without_launchers_tasks_appear_at_their_times() {
    let plain = resolve("1s1n1l4c1t").unwrap();
    let (outcome, _) = run_on(&plain, &workload(r#"{"tasks": {"a": {"loop": 1, "run": 50}}}"#));
    assert_eq!(outcome.tasks[0].started_ns, 0);
    assert_eq!(outcome.cpus.iter().map(|cpu| cpu.background_ns).sum::<u64>(), 0);
}
