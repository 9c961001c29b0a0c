//! What no scheduler changes: the time that tasks take by their timers and sleeps, or their work, alone, and tasks that never end.

use crate::{Drawn, Program, RecorderId, SemaphoreId, Step, Task, Workload};

impl Program {
    /// Nanoseconds from a task's start to its end that its timers, or its sleeps, take alone, whichever are more; work and waiting for others
    /// come on top, and sleeps that are drawn count with their mean. `u64::MAX` if they stand in a loop without end.
    pub fn least_time_ns(&self) -> u64 {
        let timers = self.sum(|step| match step {
            Step::Timer { period_ns, .. } => *period_ns,
            _ => 0,
        });
        let sleeps = self.sum(|step| match step {
            Step::Sleep { duration_ns } => *duration_ns,
            Step::Draw { what: Drawn::Sleep | Drawn::Arrival { .. }, from } => from.mean_ns() as u64,
            _ => 0,
        });
        timers.max(sleeps)
    }

    /// Nanoseconds of CPU time that its own steps take at nominal speed, drawn ones in the mean. `u64::MAX` if they stand in a loop without end.
    pub fn work_ns(&self) -> u64 {
        self.sum(|step| match step {
            Step::Run { work_ns } => *work_ns,
            Step::RunTime { cpu_ns } => *cpu_ns,
            Step::Draw { what: Drawn::Work | Drawn::CpuTime, from } => from.mean_ns() as u64,
            _ => 0,
        })
    }

    /// Nanoseconds of CPU time from its first meeting at a barrier on, with the loop around it, as [`Program::work_ns`] counts them: what the others
    /// of that barrier wait for. In a loop without end that of a round of it from one barrier to the next. `None` if it comes to no barrier.
    pub fn met_work_ns(&self) -> Option<u64> {
        let first = self.steps.iter().position(|step| matches!(step, Step::Barrier(_)))?;
        let encloses =
            |start: &usize| matches!(self.steps[*start], Step::LoopStart { end, .. } if end as usize > first);
        let from = (0..first).find(encloses).unwrap_or(first);
        let mut met = Self { steps: self.steps[from..].to_vec() };
        if !met.is_endless() {
            return Some(met.work_ns());
        }
        for step in &mut met.steps {
            if let Step::LoopStart { times: times @ None, .. } = step {
                *times = Some(1);
            }
        }
        let meetings = met.sum(|step| u64::from(matches!(step, Step::Barrier(_))));
        Some(met.work_ns() / meetings.max(1))
    }

    /// The sum of a number over all steps that are carried out, up to an exit.
    fn sum(&self, of: impl Fn(&Step) -> u64) -> u64 {
        // For each open loop how often it is carried out, and the sum of one iteration.
        let mut open: Vec<(u64, u64)> = vec![(1, 0)];
        for step in &self.steps {
            match step {
                Step::LoopStart { times, .. } => open.push((times.unwrap_or(u64::MAX), 0)),
                Step::LoopEnd { .. } => {
                    // Loops match in every workload that was checked.
                    let (times, once) = open.pop().unwrap_or_default();
                    if let Some(outer) = open.last_mut() {
                        outer.1 = outer.1.saturating_add(once.saturating_mul(times));
                    }
                }
                Step::Exit | Step::Stop => break,
                step => {
                    if let Some(inner) = open.last_mut() {
                        inner.1 = inner.1.saturating_add(of(step));
                    }
                }
            }
        }
        // After an exit within loops their first iteration is all there was.
        open.into_iter().fold(0, |sum, (_, once)| sum.saturating_add(once))
    }

    /// Whether it has a loop without end that no exit leaves.
    pub fn is_endless(&self) -> bool {
        let mut open: Vec<bool> = Vec::new();
        for step in &self.steps {
            match step {
                Step::LoopStart { times, .. } => open.push(times.is_none()),
                Step::LoopEnd { .. } if open.pop() == Some(true) => return true,
                // Whatever loops are open, their first iteration ends here.
                Step::Exit | Step::Stop => return false,
                _ => {}
            }
        }
        false
    }
}

impl Workload {
    /// Whether a step asks when what it takes from this semaphore was added ([`Step::SemTake`]).
    pub fn is_timed(&self, semaphore: SemaphoreId) -> bool {
        self.programs.iter().flat_map(|program| &program.steps).any(|step| match step {
            Step::SemTake { semaphore: taken, .. } | Step::Work { semaphore: taken, recorder: Some(_), .. } => {
                *taken == semaphore
            }
            _ => false,
        })
    }

    /// Whether a task group has a quota.
    pub fn has_quotas(&self) -> bool {
        self.groups.iter().any(|group| group.cpu_max.is_some())
    }

    /// Whether requests arrive by themselves, at drawn times, and not when earlier ones are done ([`Drawn::Arrival`]): then their rate is
    /// no scheduler's doing.
    pub fn has_arrivals(&self) -> bool {
        let arrives = |step: &Step| matches!(step, Step::Draw { what: Drawn::Arrival { .. }, .. });
        self.programs.iter().flat_map(|program| &program.steps).any(arrives)
    }

    /// Whether timers and arrivals alone say how much there is to do in a time: each task that works for ever does so by a timer or an arrival,
    /// or takes from a semaphore what such tasks add. Then no scheduler does more of it, unless the machine cannot keep up.
    pub fn has_fixed_rate(&self) -> bool {
        let is_clock =
            |step: &Step| matches!(step, Step::Timer { .. } | Step::Draw { what: Drawn::Arrival { .. }, .. });
        let adds_to = |program: &Program, queue: SemaphoreId| {
            program.steps.iter().any(|step| match step {
                Step::SemPost(semaphore) | Step::Submit { semaphore, .. } => *semaphore == queue,
                _ => false,
            })
        };
        let used: Vec<&Program> = self.tasks.iter().map(|task| &self.programs[task.program.index()]).collect();
        let is_paced = |program: &Program| program.steps.iter().any(is_clock);
        let feeds = |queue: SemaphoreId| {
            let mut adding = used.iter().filter(|program| adds_to(program, queue)).peekable();
            adding.peek().is_some() && adding.all(|program| is_paced(program))
        };
        let is_fixed = |program: &Program| {
            !program.is_endless()
                || !program.steps.iter().any(Step::works)
                || is_paced(program)
                || program.steps.iter().any(|step| match step {
                    Step::SemWait(semaphore) | Step::SemTake { semaphore, .. } | Step::Work { semaphore, .. } => {
                        feeds(*semaphore)
                    }
                    _ => false,
                })
        };
        used.iter().any(|program| program.is_endless() && is_paced(program))
            && used.iter().all(|program| is_fixed(program))
    }

    /// Whether a step of a task writes to a recorder.
    pub fn is_recorded(&self, of: RecorderId) -> bool {
        self.programs.iter().flat_map(|program| &program.steps).any(|step| match step {
            Step::Enlist { recorder, .. } | Step::Work { recorder, .. } => *recorder == Some(of),
            Step::RecordClock { recorder, .. } | Step::RecordSince { recorder, .. } => *recorder == of,
            _ => false,
        })
    }

    /// A task because of which the workload never ends: it loops for ever, and nothing else ends the workload, neither its duration nor a
    /// task's [`Step::Stop`].
    pub fn endless_task(&self) -> Option<&Task> {
        let stops = |program: &Program| program.steps.contains(&Step::Stop);
        if self.duration_ns.is_some() || self.programs.iter().any(stops) {
            return None;
        }
        self.tasks.iter().find(|task| self.programs[task.program.index()].is_endless())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Options, Workload, from_generator, from_rtapp};

    fn made(tasks: &str) -> Workload {
        from_rtapp("w", &format!(r#"{{ "tasks": {tasks} }}"#), &Options::default()).unwrap()
    }

    fn least_of(events: &str) -> u64 {
        made(&format!(r#"{{ "a": {{ {events} }} }}"#)).programs[0].least_time_ns()
    }

    #[test]
    fn timers_or_sleeps_count_each_as_often_as_it_comes() {
        assert_eq!(least_of(r#""loop": 1, "run": 1000"#), 0);
        let timer = r#""timer": { "ref": "t", "period": 100 }"#;
        assert_eq!(least_of(&format!(r#""loop": 50, "run": 10, {timer}"#)), 5_000_000);
        assert_eq!(least_of(&format!(r#""loop": 50, "run": 10, "sleep": 20, {timer}"#)), 5_000_000);
        assert_eq!(least_of(&format!(r#""loop": 50, "run": 10, "sleep": 120, {timer}"#)), 6_000_000);
        let phases = r#""loop": 2, "phases": { "p": { "loop": 3, "sleep": 10 }, "q": { "sleep": 5 } }"#;
        assert_eq!(least_of(phases), 70_000);
        assert_eq!(least_of(r#""sleep": 10"#), u64::MAX, "a loop is without end if nobody says how long it is");
    }

    #[test]
    fn others_wait_for_what_is_worked_between_meetings_and_not_for_what_is_worked_before() {
        let met = |text: &str| -> Vec<Option<u64>> {
            from_generator(text).unwrap().programs.iter().map(super::Program::met_work_ns).collect()
        };
        let rounds = [20_000_000, 25_000_000, 30_000_000].map(Some);
        assert_eq!(met("forkjoin:-n3,-i20,-w1ms,-m50"), rounds);
        assert_eq!(met("forkjoin:-n3,-i20,-w1ms,-m50,--setup=1s"), rounds);
        assert_eq!(met("spin:-n2,-d50ms")[0], None);
        let endless = made(
            r#"{ "a": { "run": 10, "barrier": "b", "run1": 30, "barrier1": "d" }, "c": { "run": 20, "barrier": "b", "barrier1": "d" } }"#,
        );
        assert_eq!(endless.programs[0].met_work_ns(), Some(20_000));
    }

    #[test]
    fn timers_and_arrivals_fix_the_rate_unless_a_task_works_without_them() {
        let fixed = |text: &str| from_generator(text).unwrap().has_fixed_rate();
        for text in ["schbench:-m2,-t4,-R150", "schbench:-m1,-t4,-R150+schbench:-m1,-t2,-R9"] {
            assert!(fixed(text), "{text}");
        }
        for text in ["schbench:-m2,-t4", "schbench:-m2,-t4,-R150+spin:-n1", "periodic:-n3", "spin", "forkjoin:-n3"] {
            assert!(!fixed(text), "{text}");
        }
        let timer = r#""run": 10, "timer": { "ref": "t", "period": 100 }"#;
        assert!(made(&format!(r#"{{ "a": {{ {timer} }}, "b": {{ "loop": 5, "run": 5 }} }}"#)).has_fixed_rate());
        assert!(!made(&format!(r#"{{ "a": {{ {timer} }}, "b": {{ "run": 5 }} }}"#)).has_fixed_rate());
    }

    #[test]
    fn a_task_that_loops_for_ever_never_ends_unless_something_ends_it() {
        let endless = |workload: &Workload| workload.endless_task().map(|task| task.name.clone());
        assert_eq!(endless(&made(r#"{ "b": { "loop": 1, "run": 5 }, "a": { "run": 5 } }"#)), Some("a".into()));
        assert_eq!(endless(&made(r#"{ "a": { "loop": 5, "run": 5 } }"#)), None);
        let text = r#"{ "tasks": { "a": { "run": 5 } }, "global": { "duration": 2 } }"#;
        assert_eq!(endless(&from_rtapp("w", text, &Options::default()).unwrap()), None);
        assert_eq!(endless(&from_generator("schbench:-m1,-t2,-r1,-L").unwrap()), None);
        assert_eq!(endless(&from_generator("hackbench:-g1,-f2,-l3").unwrap()), None);
    }
}
