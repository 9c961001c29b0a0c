//! Histories as a workload: every thread a task with a program of its own.
//!
//! | recorded | step |
//! |---|---|
//! | ran | work, less what siblings and small cores took (`speeds`) and the kernel's own part costs on the machine of the recording |
//! | woke a thread that waited for it | post of the semaphore that these two share |
//! | waited for a thread | wait on that semaphore: for that thread's next signal, however early or late it comes |
//! | woken from outside | sleep for as long, or, of arrivals, until that time from the start: see `sleeps` |
//! | created a thread | fork |
//! | took a connection from outside, as others of its kind did | the same, brought by a task `arrivals` (`listening`) |
//! | received a request from outside that was there before | sleep until the request's arrival, if that is to come |
//! | answered a request | a sample of the recorder `request`, from the request's arrival on |
//! | waited for a request of its [pool](crate::pools) | a request: whoever of the pool is free takes the next one |
//!
//! So order and waiting follow from the schedule (a closed loop), and only what came from outside keeps its times. What the recording
//! does not tell keeps its default: affinity, memory, who shares data.

use std::collections::BTreeMap;

use warmcore_capture::Recording;
use warmcore_workload::{
    Aggregate, Distribution, Drawn, ProcessId, Program, ProgramId, RecorderId, SemaphoreId, Step, Task, TaskTemplateId,
    TimerMode, Workload,
};

use crate::arrivals::Arrived;
use crate::fidelity::{Fidelity, Held, Pooled};
use crate::groups::Groups;
use crate::history::{Action, Cause, Histories, History};
use crate::listening;
use crate::measured::{ARRIVALS, Clocks, REQUESTS};
use crate::overheads::Overheads;
use crate::policies::of_priority;
use crate::requests::Requests;
use crate::service::{Latencies, RECORDER};
use crate::sleeps::Sleeps;

/// How late the timers of a replay's tasks may be, ns. A recorded sleep ended when it ended: the kernel's slack is in it.
pub(crate) const TIMER_SLACK_NS: u64 = 0;

/// A recording as a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    /// What runs.
    pub workload: Workload,
    /// How far it is what was recorded.
    pub fidelity: Fidelity,
    /// Task of each thread id.
    pub tasks: BTreeMap<i32, TaskTemplateId>,
    /// What its recorder `request`, if it has one, would have held of the recording: when each request began, and its latency, ns.
    pub requests: Vec<(u64, u64)>,
}

/// Makes a workload of histories. The recording only tells what was lost.
pub fn replay(name: &str, histories: &Histories, recording: &Recording, overheads: Overheads) -> Replay {
    let known = Fidelity::of(histories, recording);
    let histories = &*listening::dispatched(histories);
    let active = || histories.threads.iter().filter(|(_, history)| history.did_something());
    let mut maker = Maker {
        workload: Workload::empty(name),
        tasks: (0..)
            .zip(active().map(|(thread, _)| thread))
            .map(|(task, thread)| (*thread, TaskTemplateId(task)))
            .collect(),
        semaphores: BTreeMap::new(),
        requests: Requests::of(histories, active().count() as u32),
        overheads,
        recorder: None,
        fidelity: known,
    };
    maker.fidelity.pools = maker.requests.pools.clone();
    if maker.fidelity.service.as_ref().is_some_and(|served| served.latency.count > 0) {
        maker.recorder = Some(maker.workload.add_recorder(RECORDER));
    } else if maker.fidelity.pools.iter().any(|pool| pool.replayed) {
        maker.requests.recorder = Some(maker.workload.add_recorder(RECORDER));
        let recorded = Latencies::of(maker.requests.samples.iter().map(|(_, latency_ns)| *latency_ns));
        maker.fidelity.pooled = Some(Pooled { recorded, replayed: None });
    }
    for pool in maker.fidelity.pools.iter().filter(|pool| pool.replayed) {
        let queue = maker.workload.add_semaphore(format!("requests-of-{}", pool.workers[0]), 0);
        maker.requests.queues.push(queue);
    }
    let mut processes: BTreeMap<Option<i32>, ProcessId> = BTreeMap::new();
    for (thread, history) in active() {
        let process = *processes.entry(history.process).or_insert_with(|| {
            let name = history.process.map_or_else(|| "process".into(), |process| format!("process-{process}"));
            maker.workload.add_process(name)
        });
        maker.task(*thread, history, process);
    }
    for steps in maker.requests.take_bodies() {
        maker.workload.add_program(Program { steps });
    }
    let requests = match maker.recorder {
        Some(_) => histories.service.samples(),
        None => maker.requests.samples,
    };
    Replay { workload: maker.workload, fidelity: maker.fidelity, tasks: maker.tasks, requests }
}

impl Replay {
    /// Gives every group data that its threads share, with the memory profile of that name if there is one, and asks cache-aware
    /// schedulers to keep each group together and the others apart. How much data a group shares no recording of a scheduler tells: it
    /// is the caller's assumption.
    pub fn keep_together(&mut self, groups: &Groups, bytes: u64, profile: Option<&str>) {
        for process in 0..self.workload.processes.len() as u32 {
            self.workload.aggregation.processes.insert(process, Aggregate::Off);
        }
        for (number, group) in (1..).zip(&groups.groups) {
            let name = format!("group-{number}");
            let data = self.workload.add_data_group(&name, bytes);
            let choice = self.workload.aggregation.groups.len() as u32;
            self.workload.aggregation.groups.push(name);
            self.workload.aggregation.data_groups.insert(data.0, Aggregate::Group(choice));
            for task in group.threads.iter().filter_map(|thread| self.tasks.get(thread)) {
                let task = &mut self.workload.tasks[task.index()];
                task.data_groups.push(data);
                task.profile = profile.map(str::to_owned);
            }
        }
    }
}

struct Maker {
    workload: Workload,
    tasks: BTreeMap<i32, TaskTemplateId>,
    /// By who signals whom.
    semaphores: BTreeMap<(i32, i32), SemaphoreId>,
    requests: Requests,
    /// Where the latencies of requests go.
    recorder: Option<RecorderId>,
    overheads: Overheads,
    fidelity: Fidelity,
}

impl Maker {
    fn task(&mut self, thread: i32, history: &History, process: ProcessId) {
        let program = self.program(thread, history);
        let program: ProgramId = self.workload.add_program(program);
        let name = if history.name.is_empty() { "thread" } else { &history.name };
        let (policy, nice) = of_priority(history.priority);
        self.workload.add_task(Task {
            policy,
            nice,
            role: name.to_owned(),
            // Of several threads of one name the tasks' differ.
            comm: Some(name.to_owned()),
            instances: u32::from(!history.forked),
            start_ns: if history.forked { 0 } else { history.start_ns },
            timer_slack_ns: Some(TIMER_SLACK_NS),
            ..Task::new(format!("{name}-{thread}"), process, program)
        });
    }

    /// Of a thread of a pool what it did before its first request; what it did for each is with [`Requests`].
    fn program(&mut self, thread: i32, history: &History) -> Program {
        let (sleeps, of_unknown) = (Sleeps::of(history), Sleeps::of_unknown(history));
        let mut held = Held { thread, name: history.name.clone(), ..Held::default() };
        // Before the first request, and since the last wait for one.
        let (mut first, mut steps) = (Vec::new(), Vec::with_capacity(history.actions.len()));
        let mut debt = Debt { left_ns: self.overheads.switch_ns };
        // Part of the last run: a task pays for it when its program ends.
        let mut exit_ns = self.overheads.exit_ns;
        // Times are counted from the start of the task, as timers do.
        let (mut timer, mut timed) = (None, false);
        let mut clocks = Clocks::of(history, self.fidelity.span_ns);
        if history.forked && clocks.measures() {
            steps.push(Step::StartClock { slot: ARRIVALS });
        }
        let mut requests_ns = 0;
        let mut timer_ns = if history.forked { history.start_ns } else { history.start_ns.min(self.fidelity.span_ns) };
        for (number, action) in history.actions.iter().enumerate() {
            match *action {
                Action::Run { work_ns, returns, wakeups } => {
                    debt.left_ns += self.overheads.of_run(returns, wakeups);
                    let next = history.actions[number + 1..].iter().find(|next| !matches!(next, Action::Answer(_)));
                    if let Some(Action::Exit | Action::Block(Cause::Never)) = next {
                        debt.left_ns += std::mem::take(&mut exit_ns);
                    }
                    let work_ns = debt.taken_off(work_ns);
                    if work_ns > 0 {
                        steps.push(Step::Run { work_ns });
                    }
                }
                Action::Wake { thread: woken } => {
                    steps.push(match self.requests.submitted(thread, woken) {
                        Some(request) => request,
                        None => Step::SemPost(self.semaphore(self.requests.in_place_of(thread), woken)),
                    });
                    debt.left_ns += self.overheads.wake_ns;
                }
                Action::Fork { child } => {
                    steps.extend(self.tasks.get(&child).map(|task| Step::Fork(*task)));
                    debt.left_ns += self.overheads.fork_ns;
                }
                Action::Block(Cause::Signal { waker, soft_interrupt, .. }) => {
                    self.fidelity.waits += 1;
                    self.fidelity.by_thread += 1;
                    self.fidelity.by_softirq += u64::from(soft_interrupt);
                    match self.requests.begun(thread, &mut steps) {
                        Some(work) => {
                            // Whoever is free takes it, and that is another thread than the one that measures.
                            clocks.lose();
                            first.extend(work);
                        }
                        None => {
                            let semaphore = self.semaphore(self.requests.in_place_of(waker), thread);
                            steps.push(match clocks.begin(number) {
                                Some(slot) => Step::SemTake { semaphore, slot },
                                None => Step::SemWait(semaphore),
                            });
                        }
                    }
                    debt.left_ns += self.overheads.wait_ns + self.overheads.switch_ns;
                }
                Action::Block(Cause::Outside { at_ns, slept_ns, .. } | Cause::Unknown { at_ns, slept_ns }) => {
                    let unknown = matches!(action, Action::Block(Cause::Unknown { .. }));
                    let late_ns = self.overheads.late_ns;
                    self.fidelity.waits += 1;
                    let sleeps = match *action {
                        Action::Block(Cause::Outside { asked: Some(asked), .. }) => asked,
                        Action::Block(Cause::Outside { uninterruptible: true, .. }) => Sleeps::For,
                        Action::Block(Cause::Outside { .. }) => sleeps,
                        _ => of_unknown,
                    };
                    match (unknown, sleeps) {
                        (true, _) => self.fidelity.unknown += 1,
                        (false, Sleeps::At | Sleeps::Arrival) => self.fidelity.at_times += 1,
                        (false, Sleeps::For) => self.fidelity.for_durations += 1,
                    }
                    let duration_ns = slept_ns.saturating_sub(late_ns);
                    let step = match sleeps {
                        Sleeps::For => match clocks.begin(number) {
                            Some(slot) => {
                                steps.push(Step::StartClock { slot });
                                // The clock begins before what the step itself takes.
                                arrival(slot, duration_ns + self.overheads.timer_ns)
                            }
                            None => Step::Sleep { duration_ns },
                        },
                        Sleeps::Arrival => {
                            held.keep(at_ns);
                            let due_ns = requests_ns.max(at_ns.saturating_sub(late_ns));
                            arrival(REQUESTS, due_ns - std::mem::replace(&mut requests_ns, due_ns))
                        }
                        Sleeps::At => {
                            held.keep(at_ns);
                            let due_ns = at_ns.saturating_sub(late_ns);
                            if clocks.measures() {
                                // A clock is counted from the run's start, or from a fork.
                                let since_ns = if timed || history.forked { timer_ns } else { 0 };
                                (timed, timer_ns) = (true, since_ns.max(due_ns));
                                clocks.arrive(number);
                                arrival(ARRIVALS, timer_ns - since_ns)
                            } else {
                                let timer = *timer.get_or_insert_with(|| {
                                    let (count, workload) = (self.workload.timers.len(), &mut self.workload);
                                    workload.add_timer(format!("arrivals-{count}"))
                                });
                                let period_ns = due_ns.saturating_sub(timer_ns);
                                timer_ns = timer_ns.max(due_ns);
                                Step::Timer { timer, period_ns, mode: TimerMode::Absolute }
                            }
                        }
                    };
                    steps.push(step);
                    debt.left_ns += self.overheads.timer_ns + self.overheads.switch_ns;
                }
                // What nobody kept waiting is work.
                Action::Arrive { keeps: false, .. } => {}
                Action::Arrive { at_ns, keeps: true } => {
                    let due_ns = at_ns.saturating_sub(self.overheads.late_ns);
                    if due_ns > requests_ns {
                        steps.push(arrival(REQUESTS, due_ns - std::mem::replace(&mut requests_ns, due_ns)));
                        debt.left_ns += self.overheads.timer_ns;
                    }
                }
                Action::Answer(arrived) => {
                    let Some(recorder) = self.recorder else { continue };
                    let step = match arrived {
                        Arrived::At(since_ns) => Step::RecordSince { since_ns, recorder },
                        Arrived::With(waited) => match clocks.end(waited) {
                            Some(slot) => Step::RecordClock { slot, recorder },
                            None => continue,
                        },
                        Arrived::Elsewhere => continue,
                    };
                    steps.push(step);
                    self.fidelity.service.iter_mut().for_each(|served| {
                        served.measured += 1;
                        served.open += u64::from(matches!(arrived, Arrived::At(_)));
                    });
                }
                Action::Block(Cause::Never) | Action::Exit => {}
            }
        }
        if held.waits > 0 && self.fidelity.held.as_ref().is_none_or(|other| other.until_ns < held.until_ns) {
            self.fidelity.held = Some(held);
        }
        self.fidelity.overhead_left_ns += debt.left_ns + exit_ns;
        // A thread whose work was all the kernel's own keeps a trace of it: a program without work is taken for a slip of the pen.
        let mut program = Program { steps: self.requests.ended(thread, first, steps) };
        if program.is_idle() {
            program.steps.push(Step::Run { work_ns: 1 });
        }
        program
    }

    fn semaphore(&mut self, waker: i32, woken: i32) -> SemaphoreId {
        let workload = &mut self.workload;
        *self
            .semaphores
            .entry((waker, woken))
            .or_insert_with(|| workload.add_semaphore(format!("{waker}-wakes-{woken}"), 0))
    }
}

/// A sleep until a clock that such steps advance.
fn arrival(slot: u8, ns: u64) -> Step {
    Step::Draw { what: Drawn::Arrival { slot }, from: Distribution::Constant { ns } }
}

/// The kernel's own time that is still to be taken off what was recorded.
struct Debt {
    left_ns: u64,
}

impl Debt {
    fn taken_off(&mut self, cpu_ns: u64) -> u64 {
        let off = self.left_ns.min(cpu_ns);
        self.left_ns -= off;
        cpu_ns - off
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::run;
    use warmcore_workload::TimerId;

    fn thread(actions: Vec<Action>) -> History {
        let cpu = |action: &Action| if let Action::Run { work_ns, .. } = action { *work_ns } else { 0 };
        History { name: "worker".into(), cpu_ns: actions.iter().map(cpu).sum(), actions, ..History::default() }
    }

    fn made(threads: Vec<(i32, History)>, overheads: Overheads) -> Replay {
        let histories =
            Histories { threads: threads.into_iter().collect(), span_ns: 1_000_000, ..Histories::default() };
        replay("recorded", &histories, &Recording::default(), overheads)
    }

    fn steps(replay: &Replay, task: usize) -> &[Step] {
        &replay.workload.programs[replay.workload.tasks[task].program.index()].steps
    }

    fn outside(at_ns: u64, slept_ns: u64) -> Action {
        Action::Block(Cause::Outside { at_ns, slept_ns, interrupt: true, uninterruptible: false, asked: None })
    }

    #[test]
    fn two_threads_that_signal_each_other_share_a_semaphore_each_way() {
        let signal = |waker| Action::Block(Cause::Signal { waker, soft_interrupt: false, slept_ns: 0 });
        let ping = thread(vec![run(9), Action::Wake { thread: 2 }, signal(2), Action::Exit]);
        let pong = thread(vec![signal(1), run(7), Action::Wake { thread: 1 }, Action::Exit]);
        let made = made(vec![(1, ping), (2, pong)], Overheads::default());
        let (there, back) = (SemaphoreId(0), SemaphoreId(1));
        assert_eq!(steps(&made, 0), [Step::Run { work_ns: 9 }, Step::SemPost(there), Step::SemWait(back)]);
        assert_eq!(steps(&made, 1), [Step::SemWait(there), Step::Run { work_ns: 7 }, Step::SemPost(back)]);
        assert!(made.workload.check().is_ok());
        assert_eq!((made.fidelity.waits, made.fidelity.by_thread), (2, 2));
    }

    #[test]
    fn threads_of_one_name_are_tasks_of_different_names_and_still_called_as_they_were() {
        let made = made(vec![(23831, thread(vec![run(9)])), (23832, thread(vec![run(9)]))], Overheads::default());
        let names: Vec<_> = made.workload.tasks.iter().map(|task| (task.name.as_str(), task.comm())).collect();
        assert_eq!(names, [("worker-23831", "worker"), ("worker-23832", "worker")]);
    }

    #[test]
    fn what_a_thread_of_a_pool_did_for_a_request_moves_with_it() {
        let wake = |thread| Action::Wake { thread };
        let signal = |waker| Action::Block(Cause::Signal { waker, soft_interrupt: false, slept_ns: 50 });
        let of = |name: &str, actions| History { name: name.into(), process: Some(7), ..thread(actions) };
        // Eight requests to two workers by turns; each answers.
        let main = (0..4).flat_map(|_| [run(9), wake(2), wake(3), signal(2), signal(3)]).collect();
        let worker = |first: u64| {
            std::iter::once(run(5)).chain((0..4).flat_map(move |number| [signal(1), run(first + number), wake(1)]))
        };
        let threads = [
            (1, of("main", main)),
            (2, of("worker-1", worker(20).collect())),
            (3, of("worker-2", worker(40).collect())),
        ];
        let signals = (0..4).flat_map(|round| {
            let one = move |(waker, woken, object)| crate::signals::Signal {
                waker,
                woken,
                asleep_ns: 1_000 * round,
                at_ns: 1_000 * round + 500,
                object,
                more: false,
            };
            [(1, 2, Some(0)), (1, 3, Some(0)), (2, 1, None), (3, 1, None)].map(one)
        });
        let histories = Histories {
            threads: threads.into_iter().collect(),
            span_ns: 1_000_000,
            signals: signals.collect(),
            objects: vec![crate::signals::Object::Futex(7, 0x7f00)],
            ..Histories::default()
        };
        let made = replay("recorded", &histories, &Recording::default(), Overheads::default());
        let queue = SemaphoreId(0);
        let program = |number| ProgramId(3 + number);
        let submit = |number| Step::Submit { semaphore: queue, program: program(number) };
        // Until each worker waits for the next, at the beginning of the next round; the last until it is not heard of any more.
        assert_eq!(made.requests[..3], [(500, 500), (500, 500), (1_500, 500)]);
        assert_eq!(made.fidelity.pooled.as_ref().unwrap().recorded.count, 8);
        assert_eq!(steps(&made, 0)[..3], [Step::Run { work_ns: 9 }, submit(0), submit(1)]);
        let work =
            [Step::Run { work_ns: 5 }, Step::Work { semaphore: queue, requests: 8, recorder: Some(RecorderId(0)) }];
        assert_eq!((steps(&made, 1), steps(&made, 2)), (&work[..], &work[..]));
        let answer = SemaphoreId(1);
        let request = |number: u32| &made.workload.programs[program(number).index()].steps;
        assert_eq!(request(2)[..], [Step::Run { work_ns: 21 }, Step::SemPost(answer)]);
        assert_eq!(request(7)[..], [Step::Run { work_ns: 43 }, Step::SemPost(answer)]);
        assert_eq!(steps(&made, 0)[3..5], [Step::SemWait(answer), Step::SemWait(answer)], "whoever answers");
        let text = warmcore_workload::to_rtapp(&made.workload).unwrap();
        let read = warmcore_workload::resolve("r.json", &Default::default(), |_| Ok(text.clone())).unwrap();
        assert_eq!(read.programs, made.workload.programs, "a file holds all of it");
        let apart = Histories { signals: Vec::new(), ..histories };
        let made = replay("recorded", &apart, &Recording::default(), Overheads::default());
        assert_eq!((made.workload.programs.len(), made.fidelity.pools.len()), (3, 0));
    }

    #[test]
    fn the_kernels_own_time_is_taken_off_once_and_carried_on() {
        let overheads = Overheads { switch_ns: 10, wake_ns: 7, ..Overheads::default() };
        let made = made(
            vec![
                (1, thread(vec![run(4), Action::Wake { thread: 2 }, run(20), Action::Exit])),
                (2, thread(vec![run(5)])),
            ],
            overheads,
        );
        assert_eq!(steps(&made, 0), [Step::SemPost(SemaphoreId(0)), Step::Run { work_ns: 7 }]);
        assert_eq!(made.fidelity.overhead_left_ns, 5, "the second thread ran shorter than a switch takes");
    }

    /// The replay's tasks pay for their exits again, so one that is too short for its own is longer in the replay than in the recording.
    #[test]
    fn an_exit_is_taken_off_the_last_run_and_what_is_left_of_it_is_reported() {
        let overheads = Overheads { exit_ns: 30, ..Overheads::default() };
        let long = vec![run(50), outside(700, 600), run(100), Action::Exit];
        let sleeps_on = vec![run(100), Action::Block(Cause::Never)];
        let (short, unheard) = (vec![run(20), Action::Exit], vec![run(9), outside(700, 600), Action::Exit]);
        let made = made(
            [long, sleeps_on, short, unheard].into_iter().zip(1..).map(|(of, id)| (id, thread(of))).collect(),
            overheads,
        );
        let (work, sleep) = (|work_ns| Step::Run { work_ns }, Step::Sleep { duration_ns: 600 });
        assert_eq!(steps(&made, 0), [work(50), sleep.clone(), work(70)]);
        assert_eq!((steps(&made, 1), steps(&made, 2)), (&[work(70)][..], &[work(1)][..]));
        assert_eq!(steps(&made, 3), [work(9), sleep]);
        assert_eq!(made.fidelity.overhead_left_ns, 10 + 30);
    }

    #[test]
    fn returns_and_interrupts_are_taken_off_a_run_and_a_timers_lateness_off_a_sleep() {
        let overheads = Overheads { switch_ns: 10, interrupt_ns: 7, late_ns: 30, ..Overheads::default() };
        let cut = Action::Run { work_ns: 100, returns: 2, wakeups: 3 };
        let sleeper = thread(vec![cut, outside(700, 600), run(10), outside(750, 20), run(11), Action::Exit]);
        let made = made(vec![(1, sleeper)], overheads);
        let sleep = |duration_ns| Step::Sleep { duration_ns };
        let expected = [Step::Run { work_ns: 100 - 30 - 21 }, sleep(570), sleep(0), Step::Run { work_ns: 1 }];
        assert_eq!(steps(&made, 0), expected);
        assert_eq!(made.workload.tasks[0].timer_slack_ns, Some(0), "the kernel's slack is in the sleeps");
    }

    #[test]
    fn arrivals_keep_their_times_and_sleeps_their_lengths() {
        // Every 1000, with work of 100 to 400.
        let arrivals = thread(vec![
            outside(1000, 900),
            run(400),
            outside(2000, 600),
            run(100),
            outside(3000, 900),
            run(300),
            outside(4000, 700),
        ]);
        // Sleeps of 500 whatever the work.
        let sleeper = thread(vec![
            outside(500, 500),
            run(400),
            outside(1400, 500),
            run(100),
            outside(2000, 500),
            run(300),
            outside(2800, 500),
        ]);
        let made = made(vec![(1, arrivals), (2, sleeper)], Overheads::default());
        let timer = Step::Timer { timer: TimerId(0), period_ns: 1000, mode: TimerMode::Absolute };
        assert!(steps(&made, 0).iter().step_by(2).all(|step| *step == timer), "{:?}", steps(&made, 0));
        assert!(steps(&made, 1).iter().step_by(2).all(|step| *step == Step::Sleep { duration_ns: 500 }));
        assert_eq!((made.fidelity.at_times, made.fidelity.for_durations), (4, 4));
    }

    #[test]
    fn a_disk_wait_or_a_rare_timer_takes_as_long_as_it_took_and_only_arrivals_hold_the_elapsed_time() {
        let disk = |at_ns, slept_ns| {
            Action::Block(Cause::Outside { at_ns, slept_ns, interrupt: false, uninterruptible: false, asked: None })
        };
        let unknown = Action::Block(Cause::Unknown { at_ns: 9_000, slept_ns: 30 });
        let few = thread(vec![run(500), outside(700, 200), run(100), disk(1_000, 200), run(9), unknown]);
        let made_of_few = made(vec![(1, few)], Overheads::default());
        let sleep = |duration_ns| Step::Sleep { duration_ns };
        let expected = [500, 100, 9].map(|work_ns| Step::Run { work_ns }).into_iter().zip([200, 200, 30].map(sleep));
        assert_eq!(steps(&made_of_few, 0), expected.flat_map(|(run, sleep)| [run, sleep]).collect::<Vec<_>>());
        assert_eq!((made_of_few.fidelity.held, made_of_few.fidelity.for_durations), (None, 2));
        // Of many as of few.
        let of_disk = |number: u64| Cause::Outside {
            at_ns: 1_000 * number,
            slept_ns: 90 * number,
            interrupt: true,
            uninterruptible: true,
            asked: None,
        };
        let reads = (1..9).flat_map(|number| [Action::Block(of_disk(number)), run(10)]);
        let made_of_many = made(vec![(1, thread(reads.collect()))], Overheads::default());
        assert_eq!((made_of_many.fidelity.held, made_of_many.fidelity.for_durations), (None, 8));
        // Clients that no one chose come at times of their own.
        let work = [400, 100, 300, 200, 100];
        let served = (1..).zip(work).flat_map(|(number, work)| [disk(1_000 * number, 900 - work), run(work)]);
        let made = made(vec![(7, thread(served.collect()))], Overheads::default());
        let held = Held { thread: 7, name: "worker".into(), waits: 5, from_ns: 1_000, until_ns: 5_000 };
        assert_eq!(made.fidelity.held, Some(held));
        assert!(
            made.fidelity.sentences()[1].contains("those of worker (7), 5 from"),
            "{:?}",
            made.fidelity.sentences()
        );
    }

    #[test]
    fn groups_are_kept_together_and_everybody_else_is_not() {
        let once = || thread(vec![run(9), Action::Exit]);
        let mut made = made(vec![(1, once()), (2, once()), (3, once())], Overheads::default());
        let group = crate::ThreadGroup {
            threads: vec![1, 3],
            wakes_inside: 9,
            wakes_across: 0,
            inside: [Some(1.0); crate::graph::PARTS],
        };
        made.keep_together(
            &Groups { groups: vec![group], alone: vec![2], stability: Some(1.0) },
            4096,
            Some("hackbench"),
        );
        let workload = &made.workload;
        let choices: Vec<Aggregate> = workload
            .tasks
            .iter()
            .map(|task| workload.aggregation.of(task.process, task.group, &task.data_groups))
            .collect();
        assert_eq!(choices, [Aggregate::Group(0), Aggregate::Off, Aggregate::Group(0)]);
        let text = warmcore_workload::to_rtapp(workload).unwrap();
        let read = warmcore_workload::from_rtapp("recorded", &text, &Default::default()).unwrap();
        assert_eq!(read, *workload, "a file holds all of it");
    }

    #[test]
    fn threads_that_did_nothing_become_no_tasks_and_those_that_did_little_keep_a_trace_of_it() {
        let parent = thread(vec![run(9), Action::Fork { child: 2 }, Action::Exit]);
        let silent = History { forked: true, ..thread(vec![Action::Block(Cause::Never)]) };
        let short = thread(vec![outside(700, 600), run(5), Action::Exit]);
        let made = made(vec![(1, parent), (2, silent), (3, short)], Overheads { switch_ns: 8, ..Overheads::default() });
        assert_eq!((made.fidelity.threads, made.fidelity.silent), (2, 1));
        assert_eq!(steps(&made, 0), [Step::Run { work_ns: 1 }]);
        assert_eq!(steps(&made, 1), [Step::Sleep { duration_ns: 600 }, Step::Run { work_ns: 1 }]);
        let text = warmcore_workload::to_rtapp(&made.workload).unwrap();
        let read = warmcore_workload::resolve("r.json", &Default::default(), |_| Ok(text.clone()));
        assert!(read.is_ok(), "every command accepts it: {read:?}");
    }

    #[test]
    fn a_forked_thread_is_no_task_of_the_start() {
        let parent = thread(vec![Action::Fork { child: 2 }, Action::Exit]);
        let child = History { forked: true, ..thread(vec![run(5), Action::Exit]) };
        let made = made(vec![(1, parent), (2, child)], Overheads::default());
        assert_eq!(steps(&made, 0), [Step::Fork(TaskTemplateId(1))]);
        assert_eq!(made.workload.tasks.iter().map(|task| task.instances).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(made.tasks[&2], TaskTemplateId(1));
    }
}
