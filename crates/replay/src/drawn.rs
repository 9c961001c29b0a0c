//! Histories as roles whose threads run and sleep for times that are drawn from those recorded: an open loop.
//!
//! Threads of one process and priority with the same name, but for digits at its end, have a role. A *turn* is what a thread ran between two sleeps, and the sleep that
//! followed. A role's turns give two distributions, of work and of sleep, from which each of its threads draws for ever. So a recording of
//! seconds becomes a workload of any length, threads can be added, and seeds vary it. What is lost: who waits for whom (a wait is a time like any
//! other), and that one time depends on another.
//!
//! The first turn of a thread that was there when the recording began, and what a thread ran after its last sleep, are cut by the
//! recording's ends and not counted.

use std::collections::BTreeMap;

use warmcore_capture::Recording;
use warmcore_workload::{Distribution, Drawn, LONGEST_NS, Policy, ProcessId, ProgramBuilder, Step, Task, Workload};

use crate::fidelity::Fidelity;
use crate::history::{Action, Cause, Histories, History};
use crate::overheads::Overheads;
use crate::policies::{apart, of_priority};
use crate::workload::TIMER_SLACK_NS;

/// The most values of a distribution: of more turns as many quantiles are kept, evenly spaced. The rarest in a thousand is then drawn as often as the rarest
/// two of two thousand were recorded.
pub(crate) const MOST_QUANTILES: usize = 1_000;

/// A role of fewer turns has no distribution: its threads do their recorded work once.
pub(crate) const FEWEST_TURNS: usize = 10;

/// A recording as roles.
#[derive(Clone, PartialEq, Debug)]
pub struct Roles {
    /// What runs, for as long as the recording.
    pub workload: Workload,
    /// What was recorded; `waits` are turns, `by_thread` those whose sleep another of the threads ended.
    pub fidelity: Fidelity,
    /// Roles that draw.
    pub roles: u32,
    /// Threads of roles with too few turns.
    pub once: u32,
}

impl Roles {
    /// What a reader of a result must know, one sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let fidelity = &self.fidelity;
        let mut lines = vec![format!(
            "{} roles of {} threads draw their work and their sleeps from {} recorded turns, independently of each other",
            self.roles,
            fidelity.threads - self.once,
            fidelity.waits
        )];
        if fidelity.by_thread > 0 {
            lines.push(format!(
                "another of the threads ended {:.1} % of the sleeps: they have a length here, so a slow thread makes no other thread wait; without --drawn it does",
                100.0 * fidelity.by_thread as f64 / fidelity.waits as f64
            ));
        }
        if self.once > 0 {
            lines.push(format!(
                "{} threads have a role of fewer than {FEWEST_TURNS} turns: they do their recorded work once",
                self.once
            ));
        }
        // The first of the others counts waits by how they are replayed.
        lines.extend(fidelity.sentences().into_iter().skip(1));
        lines
    }
}

/// What the threads of a role did.
#[derive(Default)]
struct Role {
    /// Work of each thread, ns.
    threads: Vec<u64>,
    /// Work and sleep of each turn, ns.
    work_ns: Vec<u64>,
    sleep_ns: Vec<u64>,
}

/// Makes roles of histories. The recording only tells what was lost.
pub fn roles(name: &str, histories: &Histories, recording: &Recording, overheads: Overheads) -> Roles {
    let mut fidelity = Fidelity::of(histories, recording);
    let mut all: BTreeMap<(Option<i32>, String, Option<i32>), Role> = BTreeMap::new();
    for history in histories.threads.values() {
        let role = all.entry((history.process, role_name(&history.name), apart(history.priority))).or_default();
        role.take(history, overheads, &mut fidelity);
    }
    let mut made = Roles { workload: Workload::empty(name), fidelity, roles: 0, once: 0 };
    made.workload.duration_ns = Some(histories.span_ns);
    let mut processes: BTreeMap<Option<i32>, ProcessId> = BTreeMap::new();
    for ((process, name, priority), role) in all {
        let id = *processes.entry(process).or_insert_with(|| {
            let name = process.map_or_else(|| "process".into(), |process| format!("process-{process}"));
            made.workload.add_process(name)
        });
        // Processes may have roles of the same name.
        let task = process.map_or_else(|| name.clone(), |process| format!("{name}-{process}"));
        made.add(&task, &name, (id, priority), role);
    }
    made
}

impl Role {
    /// Adds a thread's turns.
    fn take(&mut self, history: &History, overheads: Overheads, fidelity: &mut Fidelity) {
        // What the simulated kernel charges for a turn: the way onto the CPU, and the timer of the sleep.
        let of_turn_ns = overheads.switch_ns + overheads.timer_ns;
        let (mut ran_ns, mut charged_ns, mut cut) = (0, of_turn_ns, !history.forked && history.start_ns == 0);
        for action in &history.actions {
            match *action {
                Action::Run { work_ns, returns, wakeups } => {
                    ran_ns += work_ns;
                    charged_ns += overheads.of_run(returns, wakeups);
                }
                Action::Block(
                    Cause::Signal { slept_ns, .. } | Cause::Outside { slept_ns, .. } | Cause::Unknown { slept_ns, .. },
                ) => {
                    if !std::mem::take(&mut cut) {
                        fidelity.waits += 1;
                        fidelity.by_thread += u64::from(matches!(action, Action::Block(Cause::Signal { .. })));
                        fidelity.overhead_left_ns += charged_ns.saturating_sub(ran_ns);
                        self.work_ns.push(ran_ns.saturating_sub(charged_ns));
                        self.sleep_ns.push(slept_ns.saturating_sub(overheads.late_ns));
                    }
                    (ran_ns, charged_ns) = (0, of_turn_ns);
                }
                Action::Wake { .. }
                | Action::Fork { .. }
                | Action::Arrive { .. }
                | Action::Answer(_)
                | Action::Block(Cause::Never)
                | Action::Exit => {}
            }
        }
        if history.did_something() {
            self.threads.push(history.cpu_ns);
        }
    }
}

impl Roles {
    fn add(&mut self, task: &str, name: &str, (process, priority): (ProcessId, Option<i32>), role: Role) {
        let (policy, nice) = of_priority(priority);
        let task = &match policy {
            Policy::Fifo { priority } => format!("{task}-fifo-{priority}"),
            _ if nice != 0 => format!("{task}-nice-{nice}"),
            _ => task.to_owned(),
        };
        let described = |task: &str, program| Task {
            policy,
            nice,
            role: name.to_owned(),
            comm: Some(name.to_owned()),
            timer_slack_ns: Some(TIMER_SLACK_NS),
            ..Task::new(task, process, program)
        };
        if role.work_ns.len() < FEWEST_TURNS {
            self.once += role.threads.len() as u32;
            for (number, work_ns) in role.threads.into_iter().enumerate() {
                let program = ProgramBuilder::new().step(Step::Run { work_ns }).finish();
                let program = self.workload.add_program(program);
                self.workload.add_task(described(&format!("{task}-once-{number}"), program));
            }
            return;
        }
        self.roles += 1;
        let draw = |what, times| Step::Draw { what, from: Distribution::Empirical { values_ns: quantiles(times) } };
        let turn = [draw(Drawn::Work, role.work_ns), draw(Drawn::Sleep, role.sleep_ns)];
        let program =
            ProgramBuilder::new().repeat(None, |body| turn.into_iter().fold(body, ProgramBuilder::step)).finish();
        let program = self.workload.add_program(program);
        self.workload.add_task(Task { instances: role.threads.len() as u32, ..described(task, program) });
    }
}

/// A thread's name without the number at its end.
pub(crate) fn role_name(name: &str) -> String {
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let stem = if stem.len() < name.len() { stem.trim_end_matches(['-', '_', '/', '#', ':', '.', ' ']) } else { stem };
    if stem.is_empty() { "thread".to_owned() } else { stem.to_owned() }
}

/// All times in order, or so many quantiles of them.
fn quantiles(mut times_ns: Vec<u64>) -> Vec<u64> {
    times_ns.iter_mut().for_each(|ns| *ns = (*ns).min(LONGEST_NS));
    times_ns.sort_unstable();
    let count = times_ns.len();
    if count <= MOST_QUANTILES {
        return times_ns;
    }
    (0..MOST_QUANTILES).map(|number| times_ns[(2 * number + 1) * count / (2 * MOST_QUANTILES)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::run;

    const OVERHEADS: Overheads = Overheads {
        switch_ns: 3,
        timer_ns: 2,
        wake_ns: 0,
        interrupt_ns: 0,
        wait_ns: 0,
        fork_ns: 0,
        exit_ns: 0,
        late_ns: 0,
    };

    /// A thread of that many turns of 100 + n ns and sleeps of 1000 + n.
    fn thread(name: &str, turns: u64, first: u64) -> History {
        let mut actions = vec![];
        for number in 0..turns {
            actions.push(run(40));
            actions.push(Action::Wake { thread: 9 });
            actions.push(run(60 + number));
            let slept_ns = 1_000 + number;
            actions.push(Action::Block(match number % 2 {
                0 => Cause::Outside { at_ns: number, slept_ns, interrupt: true, uninterruptible: false, asked: None },
                _ => Cause::Signal { waker: 9, soft_interrupt: false, slept_ns },
            }));
        }
        actions.extend([run(77), Action::Exit]);
        History { name: name.into(), process: Some(5), start_ns: first, actions, cpu_ns: 500, ..History::default() }
    }

    fn made(threads: Vec<History>) -> Roles {
        let threads = (1..).zip(threads).collect();
        let histories = Histories { threads, span_ns: 1_000_000, ..Histories::default() };
        roles("recorded", &histories, &Recording::default(), OVERHEADS)
    }

    fn times(roles: &Roles, task: usize) -> [Vec<u64>; 2] {
        let steps = &roles.workload.programs[roles.workload.tasks[task].program.index()].steps;
        [1, 2].map(|step| match &steps[step] {
            Step::Draw { from: Distribution::Empirical { values_ns }, .. } => values_ns.clone(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_role_draws_the_work_and_the_sleeps_of_its_threads_without_what_the_kernel_charges_again() {
        let made = made(vec![thread("io-1", 12, 7), thread("io-22", 12, 7)]);
        let task = &made.workload.tasks[0];
        assert_eq!((made.workload.tasks.len(), task.instances, task.role.as_str()), (1, 2, "io"));
        let [work, sleep] = times(&made, 0);
        let twice = |base: u64| -> Vec<u64> { (0..24).map(|turn| base + turn / 2).collect() };
        assert_eq!((work, sleep), (twice(95), twice(1_000)));
        assert_eq!((made.fidelity.waits, made.fidelity.by_thread, made.once), (24, 12, 0));
        assert_eq!(made.workload.duration_ns, Some(1_000_000));
        assert!(made.workload.check().is_ok());
        assert!(made.sentences()[1].contains("50.0 % of the sleeps"), "{:?}", made.sentences());
        let text = warmcore_workload::to_rtapp(&made.workload).unwrap();
        let read = warmcore_workload::from_rtapp("recorded", &text, &Default::default()).unwrap();
        assert_eq!(read, made.workload, "a file holds all of it");
    }

    #[test]
    fn threads_of_one_name_with_different_priorities_are_tasks_of_different_policies() {
        let of = |priority| History { priority, ..thread("io", 12, 7) };
        let made = made(vec![of(Some(120)), of(None), of(Some(49)), of(Some(125))]);
        let tasks: Vec<_> = made
            .workload
            .tasks
            .iter()
            .map(|task| (task.name.as_str(), task.policy, task.nice, task.instances))
            .collect();
        let fifo = Policy::Fifo { priority: 50 };
        let expected =
            [("io-5", Policy::Normal, 0, 2), ("io-5-fifo-50", fifo, 0, 1), ("io-5-nice-5", Policy::Normal, 5, 1)];
        assert_eq!(tasks, expected);
    }

    #[test]
    fn what_the_recordings_beginning_cut_does_not_count() {
        let [work, _] = times(&made(vec![thread("io", 12, 0)]), 0);
        assert_eq!((work.len(), work[0]), (11, 96), "the first turn began before it");
    }

    #[test]
    fn threads_of_few_turns_do_their_work_once_and_that_is_said() {
        let made = made(vec![thread("io", 12, 7), thread("main", 3, 7)]);
        let once = &made.workload.tasks[1];
        assert_eq!((once.role.as_str(), made.once, made.roles), ("main", 1, 1));
        assert_eq!(made.workload.programs[once.program.index()].steps, [Step::Run { work_ns: 500 }]);
        assert!(made.sentences().iter().any(|line| line.starts_with("1 threads have a role of fewer than 10")));
    }

    #[test]
    fn many_times_become_evenly_spaced_quantiles() {
        assert_eq!(quantiles(vec![3, 1, 2]), [1, 2, 3]);
        let kept = quantiles((0..10_000).rev().collect());
        assert_eq!((kept.len(), kept[0], kept[500], kept[999]), (1_000, 5, 5_005, 9_995));
    }

    #[test]
    fn a_number_at_the_end_of_a_name_is_no_role() {
        for (name, role) in
            [("io-1", "io"), ("io", "io"), ("pool/12", "pool"), ("x86-", "x86-"), ("7", "thread"), ("", "thread")]
        {
            assert_eq!(role_name(name), role, "{name}");
        }
    }
}
