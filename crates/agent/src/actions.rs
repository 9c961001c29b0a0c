//! What is done from outside the workload at given times of a run: binding threads, writing files of the kernel.
//!
//! A thread of process 1 sleeps until the time of each action. Where threads have been it finds by looks at `/proc`: the CPU time of each
//! thread since the look before counts for the CPU where the thread is (`crates/workload/src/action.rs` has the times).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use warmcore_agent::plan::{ActionPlan, DeedPlan, Setting, ThreadsOf};
use warmcore_agent::report::ActionReport;

use crate::facts::monotonic_ns;
use crate::session::Worker;
use crate::settings::{self, Changed};
use warmcore_agent::files;

/// How long it sleeps at most before it looks whether the run is over.
const NAP_NS: u64 = 20_000_000;

/// The one who acts.
pub struct Actor {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(Result<Vec<ActionReport>, String>, Changed)>,
}

impl Actor {
    /// Begins to wait for the times of the actions.
    pub fn start(actions: &[ActionPlan], start_ns: u64, workers: &[Worker]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let processes: Vec<u32> = workers.iter().map(|worker| worker.process).collect();
        let (flag, actions) = (Arc::clone(&stop), actions.to_vec());
        let thread = std::thread::spawn(move || {
            let mut changed = Changed::default();
            let done = act_all(&actions, start_ns, &processes, &flag, &mut changed);
            (done, changed)
        });
        Self { stop, thread }
    }

    /// Ends it: what it did, or what went wrong. Settings that it changed are added to those that are to be set back.
    pub fn stop(self, changed: &mut Changed) -> Result<Vec<ActionReport>, String> {
        self.stop.store(true, Ordering::Relaxed);
        let (done, later) = self.thread.join().map_err(|_| "who acts from outside panicked".to_owned())?;
        changed.append(later);
        done
    }
}

/// Something to do next: an action, or a look before it.
struct Step {
    time_ns: u64,
    action: usize,
    is_look: bool,
}

fn act_all(
    actions: &[ActionPlan],
    start_ns: u64,
    processes: &[u32],
    stop: &AtomicBool,
    changed: &mut Changed,
) -> Result<Vec<ActionReport>, String> {
    let mut steps: Vec<Step> = Vec::new();
    for (action, plan) in actions.iter().enumerate() {
        steps.extend(plan.looks_ns.iter().map(|time_ns| Step { time_ns: *time_ns, action, is_look: true }));
        steps.push(Step { time_ns: plan.time_ns, action, is_look: false });
    }
    steps.sort_by_key(|step| step.time_ns);
    let mut looks: BTreeMap<usize, Looks> = BTreeMap::new();
    let mut done = Vec::new();
    for step in &steps {
        if !wait_until(start_ns + step.time_ns, stop) {
            // The workload ended before.
            break;
        }
        let plan = &actions[step.action];
        if let DeedPlan::Follow { home, regions, .. } = &plan.what {
            let from_start =
                step.time_ns == plan.looks_ns.first().copied().unwrap_or(0) && step.time_ns < look_ns(plan);
            looks
                .entry(step.action)
                .or_insert_with(|| Looks::new(regions.len(), from_start))
                .look(home, regions, processes);
        }
        if step.is_look {
            continue;
        }
        let failed = |reason: String| format!("{}: {reason}", plan.text);
        done.push(match &plan.what {
            DeedPlan::Bind { threads, cpus } => bind(threads, cpus, processes).map_err(failed)?,
            DeedPlan::Follow { threads, regions, .. } => {
                let most = looks.get(&step.action).and_then(Looks::most);
                let region = most.ok_or_else(|| failed("no task of that name used a CPU in the time before".into()))?;
                bind(threads, &regions[region], processes).map_err(failed)?
            }
            DeedPlan::Write(setting) => write(setting, changed).map_err(failed)?,
        });
    }
    Ok(done)
}

/// Time between two looks.
fn look_ns(plan: &ActionPlan) -> u64 {
    plan.looks_ns.last().map_or(0, |last| plan.time_ns - last)
}

/// Sleeps until an instant; false if the run is over before.
fn wait_until(time_ns: u64, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = time_ns.saturating_sub(monotonic_ns());
        if left == 0 {
            return true;
        }
        std::thread::sleep(Duration::from_nanos(left.min(NAP_NS)));
    }
}

/// Where threads were.
struct Looks {
    /// By region.
    spent_ns: Vec<u64>,
    /// CPU time of each thread at the last look.
    before_ns: BTreeMap<i32, u64>,
    /// Whether what was used before the present look counts.
    counts: bool,
}

impl Looks {
    fn new(regions: usize, counts: bool) -> Self {
        Self { spent_ns: vec![0; regions], before_ns: BTreeMap::new(), counts }
    }

    fn look(&mut self, home: &[ThreadsOf], regions: &[Vec<u32>], processes: &[u32]) {
        for (process, thread) in threads(home, processes) {
            // A thread may end at any moment.
            let Some((ran_ns, cpu)) = ran_and_cpu(process, thread) else { continue };
            let before = self.before_ns.insert(thread, ran_ns).unwrap_or(0);
            if let Some(region) = regions.iter().position(|cpus| cpus.contains(&cpu)).filter(|_| self.counts) {
                self.spent_ns[region] += ran_ns.saturating_sub(before);
            }
        }
        self.counts = true;
    }

    /// The region of most CPU time, of equal ones the first.
    fn most(&self) -> Option<usize> {
        let most = (0..self.spent_ns.len()).rev().max_by_key(|region| self.spent_ns[*region]);
        most.filter(|region| self.spent_ns[*region] > 0)
    }
}

/// CPU time of a thread, ns, and the CPU that it is on.
fn ran_and_cpu(process: u32, thread: i32) -> Option<(u64, u32)> {
    let directory = format!("/proc/{process}/task/{thread}");
    let ran = files::read(&format!("{directory}/schedstat")).ok()?;
    let stat = files::read(&format!("{directory}/stat")).ok()?;
    Some((ran.split_whitespace().next()?.parse().ok()?, cpu_of(&stat)?))
}

/// The CPU in a text of `/proc/PID/stat`: its field 39. The second one, a name, may hold anything.
fn cpu_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(39 - 3)?.parse().ok()
}

/// Processes and threads of these names, main threads excepted.
fn threads(wanted: &[ThreadsOf], processes: &[u32]) -> Vec<(u32, i32)> {
    let mut found = Vec::new();
    for (launch, process) in (0..).zip(processes) {
        let names: Vec<&str> = wanted.iter().filter(|of| of.launch == launch).map(|of| of.name.as_str()).collect();
        if names.is_empty() {
            continue;
        }
        let mut numbers: Vec<i32> =
            files::names(&format!("/proc/{process}/task")).iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        numbers.retain(|number| *number as u32 != *process);
        let called = |number: &i32| {
            let name = files::read(&format!("/proc/{process}/task/{number}/comm"));
            name.is_ok_and(|name| names.contains(&name.as_str()))
        };
        found.extend(numbers.into_iter().filter(called).map(|number| (*process, number)));
    }
    found
}

fn bind(wanted: &[ThreadsOf], cpus: &[u32], processes: &[u32]) -> Result<ActionReport, String> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu as usize));
    let mut report = ActionReport { time_ns: monotonic_ns(), threads: Vec::new(), cpus: cpus.to_vec(), written: None };
    for (_, thread) in threads(wanted, processes) {
        match sched_setaffinity(Pid::from_raw(thread), &set) {
            Ok(()) => report.threads.push(thread),
            // It has just ended.
            Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(format!("cannot bind thread {thread}: {error}")),
        }
    }
    Ok(report)
}

fn write(setting: &Setting, changed: &mut Changed) -> Result<ActionReport, String> {
    let time_ns = monotonic_ns();
    let written = settings::apply(std::slice::from_ref(setting), changed)?.pop();
    Ok(ActionReport { time_ns, threads: Vec::new(), cpus: Vec::new(), written })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_of_a_thread_is_found_whatever_its_name() {
        let stat = "12 (a ) b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 7 0 0";
        assert_eq!(cpu_of(stat), Some(7));
        assert_eq!(cpu_of("12 (short) R 1"), None);
    }

    #[test]
    fn of_regions_with_equal_time_the_first_is_taken_and_none_without_any() {
        let looks = |spent_ns: &[u64]| Looks { spent_ns: spent_ns.to_vec(), ..Looks::new(0, true) };
        assert_eq!(looks(&[1, 5, 5]).most(), Some(1));
        assert_eq!(looks(&[0, 0]).most(), None);
    }
}
