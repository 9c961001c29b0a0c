//! The threads of a workload that live as long as it does, each as a task of its own, so that each can be pinned by itself.
//!
//! A program that forks eight times from one template, before anything else happens in that loop, has eight long-lived threads. They are
//! written out: a template for each, forked one by one. What is forked again and again (a pool of short threads) stays as it is and is
//! not placed; nor is what the workload binds itself, what it resumes by template, what does nothing but fork, wait for exits and sleep, or a
//! deadline task, which a kernel lets nobody bind.

use std::collections::BTreeSet;

use warmcore_topology::Machine;
use warmcore_workload::{Drawn, Policy, Program, Step, Task, TaskTemplateId, Workload};

/// Most long-lived threads: more are not written out.
pub(crate) const MAX_THREADS: usize = 1024;

/// A workload whose long-lived threads are tasks of their own.
#[derive(Clone, Debug)]
pub struct Unrolled {
    /// The same workload.
    pub workload: Workload,
    /// Indices into its tasks: the long-lived threads, in the order of the table.
    pub threads: Vec<usize>,
}

/// Writes the long-lived threads of a workload out that a machine leaves to its scheduler.
pub fn unroll(workload: &Workload, machine: &Machine) -> Unrolled {
    let kept = kept_as_they_are(workload);
    let mut writer = ThreadsWriter {
        source: workload,
        kept: &kept,
        out: workload.clone(),
        made: vec![0; workload.tasks.len()],
        threads: Vec::new(),
    };
    for index in 0..workload.tasks.len() {
        let id = TaskTemplateId(index as u32);
        let instances = workload.tasks[index].instances;
        if instances == 0 || kept.contains(&id) {
            continue;
        }
        for number in 0..instances {
            if writer.threads.len() >= MAX_THREADS {
                // The rest stays together, as copies of one more template.
                let rest = writer.copy(id);
                writer.out.tasks[rest.index()].instances = instances - number;
                break;
            }
            let thread = writer.write(id);
            writer.out.tasks[thread.index()].instances = 1;
        }
    }
    let ThreadsWriter { out, mut threads, .. } = writer;
    threads.sort_unstable();
    threads.retain(|thread| is_placed(&out, machine, *thread));
    Unrolled { workload: out, threads }
}

/// Whether a thread is worth a place and has none of its own. A mask of every CPU of the machine is no place.
fn is_placed(workload: &Workload, machine: &Machine, thread: usize) -> bool {
    let task = &workload.tasks[thread];
    let steps = &workload.programs[task.program.index()].steps;
    let bound = steps.iter().any(|step| matches!(step, Step::SetAffinity(_)));
    let anywhere = task.affinity.on(machine).len() == machine.cpu_count();
    anywhere && task.release_ns.is_none() && !bound && can_be_bound(workload, thread) && works(workload, thread)
}

/// Whether a thread is never of `SCHED_DEADLINE`, whose reservations are of the whole machine.
fn can_be_bound(workload: &Workload, thread: usize) -> bool {
    !workload.policies_of(&workload.tasks[thread]).any(Policy::is_deadline)
}

/// Whether a thread does more than fork, wait for exits and sleep.
fn works(workload: &Workload, thread: usize) -> bool {
    let works = |step: &Step| {
        !matches!(
            step,
            Step::Fork(_)
                | Step::Join { .. }
                | Step::LoopStart { .. }
                | Step::LoopEnd { .. }
                | Step::Sleep { .. }
                | Step::Draw { what: Drawn::Sleep | Drawn::Arrival { .. }, .. }
                | Step::StartClock { .. }
                | Step::RecordClock { .. }
                | Step::RecordSince { .. }
                | Step::Phase(_)
                | Step::Exit
                | Step::Stop
        )
    };
    workload.programs[workload.tasks[thread].program.index()].steps.iter().any(works)
}

/// Why no thread of a workload is placed, as the end of a sentence.
pub(crate) fn why_none(workload: &Workload) -> &'static str {
    let kept = kept_as_they_are(workload);
    let working: Vec<usize> = (0..workload.tasks.len()).filter(|thread| works(workload, *thread)).collect();
    let is_kept = |thread: &usize| kept.contains(&TaskTemplateId(*thread as u32));
    match working.iter().filter(|thread| is_kept(thread)).count() {
        _ if working.is_empty() => "its threads do no more than fork, wait and sleep",
        _ if !working.iter().any(|thread| can_be_bound(workload, *thread)) => {
            "its threads are of SCHED_DEADLINE, and no kernel lets such a one be bound"
        }
        0 => "its threads are bound already",
        short if short == working.len() => "its threads are forked again and again, and none lives as long as it does",
        _ => "its threads are bound already, or forked again and again",
    }
}

/// Templates that are not written out: forked where other things happen again and again, or by such, or resumed by template.
fn kept_as_they_are(workload: &Workload) -> BTreeSet<TaskTemplateId> {
    let mut kept = BTreeSet::new();
    for program in &workload.programs {
        let steps = &program.steps;
        for (index, step) in steps.iter().enumerate() {
            match step {
                Step::Resume(id) => _ = kept.insert(*id),
                Step::Fork(id) if !enclosing(steps, index).all(|(start, end)| only_forks(steps, start, end)) => {
                    kept.insert(*id);
                }
                _ => {}
            }
        }
    }
    // What forks itself, over however many generations, has no end that could be written out.
    let all = (0..workload.tasks.len()).map(|index| TaskTemplateId(index as u32));
    kept.extend(all.filter(|id| descendants(workload, *id).contains(id)));
    let below: Vec<TaskTemplateId> = kept.iter().flat_map(|id| descendants(workload, *id)).collect();
    kept.extend(below);
    kept
}

/// The templates that a template's tasks fork, and theirs.
fn descendants(workload: &Workload, id: TaskTemplateId) -> BTreeSet<TaskTemplateId> {
    let (mut found, mut open) = (BTreeSet::new(), vec![id]);
    while let Some(id) = open.pop() {
        for step in &workload.programs[workload.tasks[id.index()].program.index()].steps {
            if let Step::Fork(child) = step
                && found.insert(*child)
            {
                open.push(*child);
            }
        }
    }
    found
}

/// The loops around a step, as indices of their start and end.
fn enclosing(steps: &[Step], index: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    (0..index).filter_map(move |start| match steps[start] {
        Step::LoopStart { end, .. } if end as usize > index => Some((start, end as usize)),
        _ => None,
    })
}

/// Whether a loop ends and does nothing but fork.
fn only_forks(steps: &[Step], start: usize, end: usize) -> bool {
    matches!(steps[start], Step::LoopStart { times: Some(times), .. } if times <= MAX_THREADS as u64)
        && steps[start + 1..end]
            .iter()
            .all(|step| matches!(step, Step::Fork(_) | Step::LoopStart { times: Some(_), .. } | Step::LoopEnd { .. }))
}

struct ThreadsWriter<'a> {
    source: &'a Workload,
    kept: &'a BTreeSet<TaskTemplateId>,
    out: Workload,
    /// Threads written of each template of the source.
    made: Vec<u32>,
    threads: Vec<usize>,
}

impl ThreadsWriter<'_> {
    /// A row for one more thread of a template: its own the first time, then copies. It is called what the thread is called in a run of the source:
    /// by the template where that has one instance, else by the template and a number.
    fn copy(&mut self, id: TaskTemplateId) -> TaskTemplateId {
        let source = &self.source.tasks[id.index()];
        let number = self.made[id.index()];
        self.made[id.index()] += 1;
        let name = match (source.instances, number) {
            (1, 0) => source.name.clone(),
            _ => format!("{}-{number}", source.name),
        };
        if number == 0 {
            self.out.tasks[id.index()].name = name;
            return id;
        }
        self.out.add_task(Task { name, ..source.clone() })
    }

    /// One more thread of a template, and the threads that it forks.
    fn write(&mut self, id: TaskTemplateId) -> TaskTemplateId {
        let thread = self.copy(id);
        self.threads.push(thread.index());
        self.out.tasks[thread.index()].instances = 0;
        let source = self.source;
        let steps = &source.programs[source.tasks[id.index()].program.index()].steps;
        if steps.iter().any(|step| matches!(step, Step::Fork(child) if !self.kept.contains(child))) {
            let mut written = Vec::new();
            self.steps(steps, 0..steps.len(), &mut written);
            let program = self.out.add_program(Program { steps: written });
            self.out.tasks[thread.index()].program = program;
        }
        thread
    }

    /// Copies steps, with loops of forks written out.
    fn steps(&mut self, steps: &[Step], range: std::ops::Range<usize>, out: &mut Vec<Step>) {
        let mut index = range.start;
        while index < range.end {
            match &steps[index] {
                Step::Fork(id) if !self.kept.contains(id) => {
                    let child = if self.threads.len() < MAX_THREADS { self.write(*id) } else { *id };
                    out.push(Step::Fork(child));
                }
                Step::LoopStart { times, end } => {
                    let (times, end) = (*times, *end as usize);
                    let body = index + 1..end;
                    let forks = steps[body.clone()]
                        .iter()
                        .any(|step| matches!(step, Step::Fork(id) if !self.kept.contains(id)));
                    match times {
                        Some(times) if forks => (0..times).for_each(|_| self.steps(steps, body.clone(), out)),
                        _ => {
                            let start = out.len();
                            out.push(Step::LoopStart { times, end: 0 });
                            self.steps(steps, body, out);
                            let end = out.len();
                            out.push(Step::LoopEnd { start: start as u32 });
                            out[start] = Step::LoopStart { times, end: end as u32 };
                        }
                    }
                    index = end;
                }
                step => out.push(step.clone()),
            }
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use warmcore_workload::{Affinity, Reservation, from_generator};

    use super::*;

    /// Of 8 CPUs.
    fn machine() -> Machine {
        warmcore_topology::resolve("1s1n2l4c1t").unwrap()
    }

    fn names(text: &str) -> Vec<String> {
        let unrolled = unroll(&from_generator(text).unwrap(), &machine());
        unrolled.workload.check().unwrap();
        unrolled.threads.iter().map(|thread| unrolled.workload.tasks[*thread].name.clone()).collect()
    }

    #[test]
    fn threads_forked_in_a_loop_of_forks_are_tasks_of_their_own() {
        assert_eq!(names("verilator:-t8,-C100").len(), 8);
        assert_eq!(names("forkjoin:-n16,-i5,-w1ms").len(), 16);
        // The message thread and its workers; the thread that looks at the clock is not placed.
        assert_eq!(names("schbench:-m1,-t8,-r1,-L").len(), 9);
        let all = names("hackbench:-T,-p,-f4,-g1,-l10");
        assert_eq!(all.iter().filter(|name| name.starts_with("sender")).count(), 4);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "names differ: {all:?}");
    }

    #[test]
    fn where_no_thread_is_placed_it_is_said_why() {
        let why = |text: &str| {
            let workload = from_generator(text).unwrap();
            assert!(unroll(&workload, &machine()).threads.is_empty(), "{text}");
            why_none(&workload)
        };
        assert!(why("transcode:-j2,-n3,-i5,-w1ms").contains("forked again and again, and none lives"));
        assert_eq!(why("spin:-n2,-p0,-d1s"), "its threads are bound already");
    }

    #[test]
    fn deadline_tasks_are_not_placed() {
        let mut workload = from_generator("spin:-n2,-d1s").unwrap();
        let reservation = Reservation { runtime_ns: 1_000_000, deadline_ns: 10_000_000, period_ns: 10_000_000 };
        workload.tasks.iter_mut().for_each(|task| task.policy = Policy::Deadline(reservation));
        assert!(unroll(&workload, &machine()).threads.is_empty());
        assert!(why_none(&workload).contains("SCHED_DEADLINE"));
    }

    #[test]
    fn threads_are_called_as_in_a_run() {
        assert_eq!(names("spin:-n3,-d1s"), ["spin-0", "spin-1", "spin-2"]);
        let hackbench = names("hackbench:-T,-p,-f2,-g1,-l20");
        for name in ["main", "receiver-0-0-0", "receiver-0-1-0", "sender-0-0", "sender-0-1"] {
            assert!(hackbench.iter().any(|known| known == name), "{name} is not in {hackbench:?}");
        }
    }

    #[test]
    fn threads_of_a_pool_that_come_and_go_are_left_alone() {
        let workload = from_generator("transcode:-j2,-n4,-i25,-w10ms").unwrap();
        let unrolled = unroll(&workload, &machine());
        assert!(unrolled.workload.tasks.len() <= workload.tasks.len() + 1);
        let forked = |step: &Step| matches!(step, Step::Fork(id) if unrolled.threads.contains(&id.index()));
        assert!(!unrolled.workload.programs.iter().flat_map(|program| &program.steps).any(forked));
    }

    #[test]
    fn what_the_workload_binds_itself_is_not_placed() {
        assert_eq!(names("spin:-n8,-p0,-u100ms,-d1s").len(), 0);
        assert_eq!(names("spin:-n8,-d1s").len(), 8);
    }

    #[test]
    fn a_mask_of_every_cpu_of_the_machine_binds_nobody() {
        let placed = |cpus: u32| {
            let mut workload = from_generator("spin:-n3,-d1s").unwrap();
            workload.tasks[0].affinity = Affinity::OsCpus((0..cpus).collect());
            unroll(&workload, &machine()).threads.len()
        };
        assert_eq!([7, 8, 24].map(placed), [0, 3, 3]);
    }
}
