//! Who starts what: processes that one launcher starts, and a workload's part that is one launcher's.
//!
//! A launcher is the main thread of a started program: it creates the tasks that exist from the start, one after the other, and is no
//! task itself. Each process has one of its own. Processes whose tasks meet at an object, or create each other's tasks, have one
//! together: the program that started them all. The simulated kernel and a guest's agent divide a workload alike.

use std::collections::BTreeMap;

use crate::{Program, ProgramId, Step, Workload};

/// What one launcher starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Indices of processes, ascending; those without a task at the start of the run or later are nobody's.
    pub processes: Vec<u32>,
    /// Index of the application, that is of the session, of the first of them.
    pub application: u32,
}

/// Something tasks meet at: table and index.
type Object = (&'static str, u32);

impl Workload {
    /// The launchers, in the order of their first processes.
    pub fn launches(&self) -> Vec<Launch> {
        // By process, the least process that it is joined with, as far as is known.
        let mut joined: Vec<u32> = (0..self.processes.len() as u32).collect();
        let mut owner: BTreeMap<Object, u32> = BTreeMap::new();
        for task in &self.tasks {
            for step in self.steps_with_requests(task.program) {
                for object in self.objects(step) {
                    let first = *owner.entry(object).or_insert(task.process.0);
                    join(&mut joined, first, task.process.0);
                }
            }
        }
        for ((kind, index), process) in &owner {
            if *kind == "task" {
                join(&mut joined, self.tasks[*index as usize].process.0, *process);
            }
        }
        let mut launches: Vec<Launch> = Vec::new();
        for process in 0..self.processes.len() as u32 {
            if !self.tasks.iter().any(|task| task.process.0 == process) {
                continue;
            }
            let least = joined[process as usize];
            match launches.iter_mut().find(|launch| joined[launch.processes[0] as usize] == least) {
                Some(launch) => launch.processes.push(process),
                None => {
                    let application = self.processes[process as usize].application;
                    launches.push(Launch { processes: vec![process], application });
                }
            }
        }
        launches
    }

    /// The workload with the tasks of one launcher. Tables keep their indices: other tasks stay as templates that nobody creates.
    pub fn part(&self, launch: &Launch) -> Workload {
        let mut part = self.clone();
        let nothing = ProgramId(part.programs.len() as u32);
        part.programs.push(Program::default());
        for task in part.tasks.iter_mut().filter(|task| !launch.processes.contains(&task.process.0)) {
            task.instances = 0;
            task.program = nothing;
        }
        part
    }

    /// Whether a task says what memory it uses: a profile with memory in it, or data.
    pub fn uses_memory(&self) -> bool {
        let says = |task: &crate::Task| {
            self.profile_of(task).is_some_and(|profile| !profile.classes.is_empty()) || !task.data_groups.is_empty()
        };
        self.tasks.iter().any(says)
    }

    /// The steps of a program, and of the requests that it submits, and that these submit.
    fn steps_with_requests(&self, program: ProgramId) -> impl Iterator<Item = &Step> {
        let (mut found, mut next) = (vec![program], 0);
        let mut seen = std::collections::BTreeSet::from([program]);
        while let Some(&program) = found.get(next) {
            next += 1;
            for step in &self.programs[program.index()].steps {
                if let Step::Submit { program, .. } = step
                    && seen.insert(*program)
                {
                    found.push(*program);
                }
            }
        }
        found.into_iter().flat_map(|program| &self.programs[program.index()].steps)
    }

    /// What a step uses that other processes can use too; all processes where it ends the whole workload.
    fn objects(&self, step: &Step) -> Vec<Object> {
        match step {
            Step::Lock(lock) | Step::LockShared(lock) | Step::Unlock(lock) => vec![("lock", lock.0)],
            Step::Wait { condition, lock } | Step::SignalAndWait { condition, lock } => {
                vec![("condition", condition.0), ("lock", lock.0)]
            }
            Step::Signal(condition) | Step::Broadcast(condition) => vec![("condition", condition.0)],
            Step::Barrier(barrier) => vec![("barrier", barrier.0)],
            Step::Resume(template) | Step::Fork(template) => vec![("task", template.0)],
            Step::SemPost(semaphore)
            | Step::SemWait(semaphore)
            | Step::SemTake { semaphore, .. }
            | Step::Submit { semaphore, .. }
            | Step::Work { semaphore, .. } => vec![("semaphore", semaphore.0)],
            Step::Send { channel, .. } | Step::Receive { channel, .. } => vec![("channel", channel.0)],
            Step::Enlist { list, .. } | Step::Serve(list) => vec![("list", list.0)],
            Step::Timer { timer, .. } if !self.timer_is_private(*timer) => vec![("timer", timer.0)],
            Step::Stop => (0..self.tasks.len() as u32).map(|task| ("task", task)).collect(),
            _ => Vec::new(),
        }
    }
}

/// Joins the processes of two.
fn join(joined: &mut [u32], one: u32, other: u32) {
    let (one, other) = (joined[one as usize], joined[other as usize]);
    let (least, most) = (one.min(other), one.max(other));
    joined.iter_mut().filter(|process| **process == most).for_each(|process| *process = least);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, from_rtapp};

    fn three_processes(steps: [&str; 3]) -> Workload {
        let [first, second, third] = steps;
        let text = format!(
            r#"{{"tasks": {{"a": {{"instance": 2, "loop": 3, {first}}}, "b": {{"loop": 3, {second}}},
                           "c": {{"loop": 3, {third}}}}},
                "warmcore": {{"processes": [{{"name": "p"}}, {{"name": "q"}}, {{"name": "r"}}],
                              "tasks": {{"b": {{"process": "q"}}, "c": {{"process": "r"}}}}}}}}"#
        );
        from_rtapp("three", &text, &Options::default()).unwrap()
    }

    fn processes(workload: &Workload) -> Vec<Vec<u32>> {
        workload.launches().into_iter().map(|launch| launch.processes).collect()
    }

    #[test]
    fn processes_that_share_nothing_have_a_launcher_each() {
        let workload = three_processes([r#""run": 100"#, r#""sleep": 100"#, r#""run": 5"#]);
        assert_eq!(processes(&workload), [[0], [1], [2]]);
        let instances = |launch: &Launch| -> Vec<u32> {
            let part = workload.part(launch);
            part.check().unwrap();
            part.tasks.iter().map(|task| task.instances).collect()
        };
        assert_eq!(workload.launches().iter().map(instances).collect::<Vec<_>>(), [[2, 0, 0], [0, 1, 0], [0, 0, 1]]);
    }

    #[test]
    fn processes_that_meet_at_an_object_have_one_together_and_others_stay_apart() {
        let meet = r#""lock": "m", "run": 100, "unlock": "m""#;
        assert_eq!(processes(&three_processes([meet, r#""run": 5"#, meet])), [vec![0, 2], vec![1]]);
        let other = r#""lock": "n", "run": 100, "unlock": "n""#;
        let both = r#""lock": "m", "lock1": "n", "run": 100, "unlock": "n", "unlock1": "m""#;
        assert_eq!(processes(&three_processes([meet, other, both])), [[0, 1, 2]]);
    }

    #[test]
    fn memory_is_used_where_a_profile_or_data_is_named() {
        let mut workload = three_processes([r#""run": 100"#, r#""run": 5"#, r#""run": 5"#]);
        assert!(!workload.uses_memory());
        workload.tasks[1].profile = Some("spin".into());
        assert!(workload.uses_memory(), "10 KiB are little, and are where the task runs");
    }
}
