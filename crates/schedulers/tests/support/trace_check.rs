//! What must hold in every trace, checked independently of the kernel's own invariants: a task is in one place, runs only where
//! it was assigned and may run, only after it was woken and never after its exit; times add up to the outcome's.

use std::collections::BTreeMap;

use warmcore_topology::{CpuId, CpuSet};
use warmcore_trace::Outcome;
use warmcore_trace::{Event, EventKind, PrevState, TaskId};

/// What is known of a task.
struct Known {
    cpu: Option<CpuId>,
    runnable: bool,
    running_since: Option<u64>,
    /// Between `Waking` and `Wakeup`.
    waking: bool,
    restriction: u32,
    ran_ns: u64,
    dead: bool,
}

/// Fails with the first event that contradicts what came before, or if the times do not add up.
pub fn check(events: &[Event], outcome: &Outcome, restrictions: &[CpuSet]) {
    check_at(events, outcome, restrictions, 1.0);
}

/// The same where a CPU does up to so many times the work that it does at its reference frequency.
pub fn check_at(events: &[Event], outcome: &Outcome, restrictions: &[CpuSet], fastest: f64) {
    let mut tasks: BTreeMap<TaskId, Known> = BTreeMap::new();
    let mut on_cpu: Vec<TaskId> = vec![TaskId::IDLE; outcome.cpus.len()];
    let mut busy_ns = vec![0u64; outcome.cpus.len()];
    let mut last_ns = 0;
    for event in events {
        assert!(event.time_ns >= last_ns, "time goes back at {event:?}");
        last_ns = event.time_ns;
        step(event, &mut tasks, &mut on_cpu, &mut busy_ns, restrictions);
    }
    for (cpu, &task) in on_cpu.iter().enumerate() {
        if let Some(known) = tasks.get_mut(&task) {
            let since = known.running_since.take().expect("it is on a CPU");
            known.ran_ns += outcome.elapsed_ns - since;
            busy_ns[cpu] += outcome.elapsed_ns - since;
        }
    }
    for (cpu, of_cpu) in outcome.cpus.iter().enumerate() {
        assert_eq!(of_cpu.busy_ns, busy_ns[cpu], "busy time of CPU {cpu}");
        let whole_ns = of_cpu.idle_ns + of_cpu.offline_ns + of_cpu.busy_ns + of_cpu.background_ns;
        assert_eq!(whole_ns, outcome.elapsed_ns, "time of CPU {cpu}");
    }
    super::placements(events).iter().for_each(reason_fits);
    assert_eq!(outcome.tasks.len(), tasks.len(), "tasks created");
    for task in &outcome.tasks {
        let known = &tasks[&TaskId(task.id)];
        assert_eq!(task.cpu_time_ns, known.ran_ns, "CPU time of {}", task.name);
        assert_eq!(task.exited_ns.is_some(), known.dead, "exit of {}", task.name);
        assert!(task.progress_ns as f64 <= task.cpu_time_ns as f64 * fastest, "progress of {}", task.name);
    }
}

/// What a policy says of a place is true of the CPU.
fn reason_fits(placed: &super::Placed) {
    let Some(reason) = placed.reason else { return };
    let meant = placed.cpu_of(reason.step.side(), placed.target());
    assert!(meant.is_none_or(|cpu| cpu == placed.cpu), "{placed:?}");
}

fn step(
    event: &Event,
    tasks: &mut BTreeMap<TaskId, Known>,
    on_cpu: &mut [TaskId],
    busy_ns: &mut [u64],
    restrictions: &[CpuSet],
) {
    let cpu = event.cpu;
    match event.kind {
        EventKind::Fork { child, .. } => {
            let new = Known {
                cpu: None,
                runnable: false,
                running_since: None,
                waking: false,
                restriction: 0,
                ran_ns: 0,
                dead: false,
            };
            assert!(tasks.insert(child, new).is_none(), "created twice: {event:?}");
        }
        EventKind::Affinity { task, restriction } => known(tasks, task, event).restriction = restriction,
        EventKind::Waking { task, target_cpu, .. } => {
            let known = known(tasks, task, event);
            assert!(!known.runnable && !known.waking && !known.dead, "woken while awake: {event:?}");
            assert_eq!(known.cpu, Some(target_cpu), "target of {event:?}");
            known.waking = true;
        }
        EventKind::Wakeup { task, .. } => {
            let known = known(tasks, task, event);
            assert!(!known.runnable && !known.dead, "runnable already: {event:?}");
            assert!(known.cpu.is_none_or(|assigned| assigned == cpu), "queued where it is not assigned: {event:?}");
            assert!(known.waking || known.cpu.is_none(), "nobody woke it: {event:?}");
            (known.cpu, known.runnable, known.waking) = (Some(cpu), true, false);
        }
        EventKind::Migrate { task, from, to, .. } => {
            let known = known(tasks, task, event);
            assert_eq!(known.cpu, Some(from), "{event:?}");
            assert!(known.running_since.is_none() && !known.dead, "moved while running or dead: {event:?}");
            known.cpu = Some(to);
        }
        EventKind::Exit { task } => {
            let known = known(tasks, task, event);
            assert!(known.running_since.is_some() && !known.dead, "{event:?}");
            known.dead = true;
        }
        EventKind::Switch { prev, prev_state, next } => {
            assert_eq!(on_cpu[cpu.index()], prev, "{event:?}");
            if prev.is_idle() {
                assert_eq!(prev_state, PrevState::Idle);
            } else {
                let known = known(tasks, prev, event);
                let since = known.running_since.take().expect("it runs");
                known.ran_ns += event.time_ns - since;
                busy_ns[cpu.index()] += event.time_ns - since;
                known.runnable = prev_state == PrevState::Runnable;
                assert_eq!(known.dead, prev_state == PrevState::Dead, "{event:?}");
            }
            on_cpu[cpu.index()] = next;
            if !next.is_idle() {
                let known = known(tasks, next, event);
                assert!(known.runnable && !known.dead && known.running_since.is_none(), "not runnable: {event:?}");
                assert_eq!(known.cpu, Some(cpu), "not assigned here: {event:?}");
                assert!(restrictions[known.restriction as usize].contains(cpu), "not allowed here: {event:?}");
                known.running_since = Some(event.time_ns);
            }
        }
        _ => {}
    }
}

fn known<'a>(tasks: &'a mut BTreeMap<TaskId, Known>, task: TaskId, event: &Event) -> &'a mut Known {
    tasks.get_mut(&task).unwrap_or_else(|| panic!("unknown task in {event:?}"))
}
