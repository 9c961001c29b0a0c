//! A workload of several processes as one workload for each, so that each can be a process of its own: address spaces
//! matter to schedulers that group threads by them.

use std::collections::BTreeMap;

use warmcore_workload::{Program, ProgramId, Step, Workload};

/// Something tasks meet at: table and index.
type Object = (&'static str, u32);

/// One workload for each process that has tasks, with the process' index; `None` when tasks of different processes
/// share an object, create or resume each other, or end the whole workload, so that they need one address space here.
///
/// Tables keep their indices: tasks of other processes stay as templates that nobody creates.
#[must_use]
pub fn by_process(workload: &Workload) -> Option<Vec<(u32, Workload)>> {
    let mut owner: BTreeMap<Object, u32> = BTreeMap::new();
    for task in &workload.tasks {
        for step in &workload.programs[task.program.index()].steps {
            if matches!(step, Step::Stop) {
                return None;
            }
            for object in objects(workload, step) {
                let first = *owner.entry(object).or_insert(task.process.0);
                if first != task.process.0 {
                    return None;
                }
            }
        }
    }
    let template_elsewhere =
        |(object, owner): (&Object, &u32)| object.0 == "task" && workload.tasks[object.1 as usize].process.0 != *owner;
    if owner.iter().any(template_elsewhere) {
        return None;
    }
    let mut parts: Vec<(u32, Workload)> = Vec::new();
    for process in 0..workload.processes.len() as u32 {
        if !workload.tasks.iter().any(|task| task.process.0 == process && task.instances > 0) {
            continue;
        }
        parts.push((process, only(workload, process)));
    }
    Some(parts)
}

/// The workload with the tasks of one process.
fn only(workload: &Workload, process: u32) -> Workload {
    let mut part = workload.clone();
    let nothing = ProgramId(part.programs.len() as u32);
    part.programs.push(Program::default());
    for task in part.tasks.iter_mut().filter(|task| task.process.0 != process) {
        task.instances = 0;
        task.program = nothing;
    }
    part
}

/// What a step uses that others can use too.
fn objects(workload: &Workload, step: &Step) -> Vec<Object> {
    match step {
        Step::Lock(lock) | Step::Unlock(lock) => vec![("lock", lock.0)],
        Step::Wait { condition, lock } | Step::SignalAndWait { condition, lock } => {
            vec![("condition", condition.0), ("lock", lock.0)]
        }
        Step::Signal(condition) | Step::Broadcast(condition) => vec![("condition", condition.0)],
        Step::Barrier(barrier) => vec![("barrier", barrier.0)],
        Step::Resume(template) | Step::Fork(template) => vec![("task", template.0)],
        Step::SemPost(semaphore) | Step::SemWait(semaphore) => vec![("semaphore", semaphore.0)],
        Step::Send { channel, .. } | Step::Receive { channel, .. } => vec![("channel", channel.0)],
        Step::Enlist { list, .. } | Step::Serve(list) => vec![("list", list.0)],
        Step::Timer { timer, .. } if !workload.timer_is_private(*timer) => vec![("timer", timer.0)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_workload::{Options, from_rtapp};

    fn two_processes(first: &str, second: &str) -> Workload {
        let text = format!(
            r#"{{"tasks": {{"a": {{"instance": 2, "loop": 3, {first}}}, "b": {{"loop": 3, {second}}}}},
                "warmcore": {{"processes": [{{"name": "p"}}, {{"name": "q"}}],
                              "tasks": {{"b": {{"process": "q"}}}}}}}}"#
        );
        from_rtapp("two", &text, &Options::default()).unwrap()
    }

    #[test]
    fn processes_that_share_nothing_are_taken_apart() {
        let parts = by_process(&two_processes(r#""run": 100"#, r#""sleep": 100"#)).unwrap();
        let instances = |part: &Workload| part.tasks.iter().map(|task| task.instances).collect::<Vec<_>>();
        assert_eq!(parts.iter().map(|(process, _)| *process).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(instances(&parts[0].1), [2, 0]);
        assert_eq!(instances(&parts[1].1), [0, 1]);
        for (_, part) in parts {
            part.check().unwrap();
        }
    }

    #[test]
    fn processes_that_meet_at_an_object_stay_together() {
        let events = r#""lock": "m", "run": 100, "unlock": "m""#;
        assert_eq!(by_process(&two_processes(events, events)), None);
        assert!(by_process(&two_processes(events, r#""run": 5"#)).is_some());
    }
}
