//! The runs of the plan, one after another.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use warmcore_agent::costs::{self, MeasuredCosts};
use warmcore_agent::plan::{Plan, RunPlan};
use warmcore_agent::report::{Costs, Failed, FrameKind, ProcessReport, RunBegin, RunEnd, Sample, write_document};
use warmcore_agent::tracefs::Instance;
use warmcore_native::calibrate;
use warmcore_options::Observe;

use crate::actions::Actor;
use crate::cgroups::Groups;
use crate::facts::{forget_pass_costs, monotonic_ns, rebuild_domains};
use crate::observer::{Observer, Seen};
use crate::recorder;
use crate::scx::{Scx, Watch};
use crate::session::{Sessions, Worker};
use crate::settings::{self, Changed};
use crate::worker::Order;
use warmcore_agent::files;

/// From the moment all processes are ready to their start.
const REST_NS: u64 = 200_000_000;

/// How long the guest is watched to see whether it is at rest.
const WATCH: Duration = Duration::from_millis(500);

/// How often it is watched before its first run is given up.
const WATCHES: u32 = 60;

/// Waits until the CPUs have had next to nothing to do for a while: the kernel's own threads still work when this program
/// begins, and on a machine of few CPUs they would take part in the first run.
fn come_to_rest() -> Result<(), String> {
    let mut before = cpu_ticks()?;
    for _ in 0..WATCHES {
        std::thread::sleep(WATCH);
        let now = cpu_ticks()?;
        let (busy, all) = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
        if busy <= 2 + all / 100 {
            return Ok(());
        }
        before = now;
    }
    Err(format!("the guest did not come to rest within {} s", WATCHES * WATCH.as_millis() as u32 / 1000))
}

/// Ticks in which CPUs had something to do, and all ticks (`/proc/stat`).
fn cpu_ticks() -> Result<(u64, u64), String> {
    let text = files::read("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks[..] else {
        return Err(format!("/proc/stat begins with `{line}`"));
    };
    let busy = user + nice + system + irq + softirq + steal;
    Ok((busy, busy + idle + iowait))
}

/// Trace buffer while costs are measured, KiB per CPU: what a full one does not take costs less.
const COSTS_KIB: u32 = 16 << 10;

/// Measures what the kernel's own actions cost here while they are recorded, as they are in runs; what depends on caches only
/// if CPUs have them.
pub fn measure_costs(caches: bool, channel: &mut File) -> Result<(), String> {
    let machine = warmcore_topology::from_sysfs(std::path::Path::new("/")).map_err(|error| error.to_string())?;
    recorder::prepare()?;
    come_to_rest()?;
    recorder::start(COSTS_KIB)?;
    let instance = Instance::at(recorder::TRACEFS, "costs");
    let measured = costs::measure(&machine, Ok(&instance), caches);
    // It is not there if it could not be made.
    let _ = instance.remove();
    let MeasuredCosts { values, without_idle_exit } = measured?;
    recorder::stop()?;
    let values = values.into_iter().map(|value| (value.name, value.value, value.low, value.high)).collect();
    write_document(channel, FrameKind::Costs, &Costs { values, without_idle_exit })
        .map_err(|error| format!("cannot send the costs: {error}"))
}

/// Does all runs.
pub fn run_all(plan: &Plan, channel: &mut File) -> Result<(), Failed> {
    let failed = |reason: String| Failed { run: None, reason, scheduler_ejected: false };
    if plan.runs.is_empty() {
        return Ok(());
    }
    let formats = recorder::prepare().map_err(failed)?;
    write_document(channel, FrameKind::Formats, &formats).map_err(|error| failed(error.to_string()))?;
    let speed = calibrate().iterations_per_ms;
    for (index, run) in plan.runs.iter().enumerate() {
        let in_run = |reason: String| Failed { run: Some(index), reason, scheduler_ejected: false };
        rebuild_domains().map_err(in_run)?;
        let mut changed = Changed::default();
        let values = settings::apply(&run.settings, &mut changed).map_err(in_run)?;
        let mut scx = match &run.scx {
            Some(scx) => Some(Scx::load(scx).map_err(|reason| Failed { scheduler_ejected: true, ..in_run(reason) })?),
            None => None,
        };
        let begin = RunBegin { run: index, settings: values, scx: scx.as_ref().map(|scx| scx.name().to_owned()) };
        write_document(channel, FrameKind::RunBegin, &begin).map_err(|error| in_run(error.to_string()))?;
        let result = one_run(index, run, speed, scx.as_ref(), &mut changed, channel);
        // What the scheduler says of its own end explains a run that failed, so it comes first.
        if let Some(scx) = &mut scx {
            scx.check().map_err(|reason| Failed { scheduler_ejected: true, ..in_run(reason) })?;
        }
        let end = result.map_err(in_run)?;
        if let Some(scx) = scx {
            scx.unload().map_err(in_run)?;
        }
        recorder::send(channel).map_err(in_run)?;
        write_document(channel, FrameKind::RunEnd, &end).map_err(|error| in_run(error.to_string()))?;
        settings::restore(&mut changed).map_err(in_run)?;
    }
    Ok(())
}

fn one_run(
    index: usize,
    run: &RunPlan,
    speed: u64,
    scx: Option<&Scx>,
    changed: &mut Changed,
    channel: &mut File,
) -> Result<RunEnd, String> {
    for (name, wanted) in [("isolated", &run.isolcpus), ("nohz_full", &run.nohz_full)] {
        let file = format!("/sys/devices/system/cpu/{name}");
        if !wanted.is_empty() && files::read(&file)? != *wanted {
            return Err(format!("the kernel was started for {file} to be {wanted}, and it is not"));
        }
    }
    let groups = Groups::make(&run.groups)?;
    let (mut sessions, mut workers) = start_workers(run, &groups, speed)?;
    for worker in &mut workers {
        expect_ready(worker).map_err(|reason| sessions.died(&reason))?;
    }
    if run.forget_pass_costs {
        // The start of the workers made passes in the new domains. Before the rest: listing domains leaves kernel threads with something to clean up.
        forget_pass_costs()?;
    }
    come_to_rest()?;
    send_sample(channel, &schedstat()?)?;
    let observer = Observer::start(run.scx.as_ref().map_or(Observe::Nothing, |scx| scx.observe))?;
    recorder::start(run.buffer_kib)?;
    let start_ns = monotonic_ns() + REST_NS + run.phase_ns;
    for worker in &mut workers {
        worker.tell(&start_ns.to_string()).map_err(|reason| sessions.died(&reason))?;
    }
    let sampler = run.sample_ns.map(|interval_ns| Sampler::start(interval_ns, &workers));
    let actor = Actor::start(&run.actions, start_ns, &workers);
    // What runs on under another scheduler is of no use.
    let processes: Vec<u32> = workers.iter().map(|worker| worker.process).collect();
    let watch = scx.map(|scx| scx.watch(move || end_all(&processes)));
    let reports: Result<Vec<ProcessReport>, String> = workers.iter_mut().map(report).collect();
    recorder::stop()?;
    let Seen { operations, calls } = observer.stop()?;
    for sample in calls {
        send_sample(channel, &sample)?;
    }
    let acted = actor.stop(changed);
    let scx_checks = watch.map_or(0, Watch::stop);
    let may_restart = run.scx.as_ref().is_some_and(|scx| scx.may_restart);
    let scx_restarts = scx.filter(|_| may_restart).map_or(Ok(0), Scx::restarts)?;
    let after = schedstat()?;
    for sample in sampler.map(Sampler::stop).unwrap_or_default() {
        send_sample(channel, &sample)?;
    }
    send_sample(channel, &after)?;
    let (entries, lost) = recorder::counts()?;
    let group_counters = groups.counters()?;
    let mut processes = reports.map_err(|reason| sessions.died(&reason))?;
    sessions.wait()?;
    let actions = acted?;
    if let Some(first) = processes.first_mut() {
        first.warnings.extend(groups.warnings.iter().cloned());
    }
    let groups = group_counters;
    Ok(RunEnd { run: index, processes, lost, entries, actions, scx_checks, scx_restarts, operations, groups })
}

/// Ends workers that have not ended, with the processes that they began; one that has makes no difference.
fn end_all(processes: &[u32]) {
    for process in processes.iter().filter_map(|process| Pid::from_raw(i32::try_from(*process).ok()?)) {
        let _ = kill_process_group(process, Signal::KILL);
    }
}

/// A worker for each launch, the workers of a session started by one leader.
fn start_workers(run: &RunPlan, groups: &Groups, speed: u64) -> Result<(Sessions, Vec<Worker>), String> {
    let mut numbers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (number, launch) in run.launches.iter().enumerate() {
        numbers.entry(launch.session).or_default().push(number);
    }
    let mut sessions = Sessions::start(&numbers.into_values().collect::<Vec<_>>())?;
    let mut workers: Vec<Option<Worker>> = run.launches.iter().map(|_| None).collect();
    for _ in &run.launches {
        let (number, mut worker) = sessions.accept()?;
        let launch = run.launches.get(number).ok_or_else(|| format!("there is no process {number} in the run"))?;
        let order = Order {
            launch: launch.clone(),
            groups: groups.joins.clone(),
            separate: run.actions.is_empty(),
            iterations_per_ms: speed,
            time_limit_ns: run.time_limit_ns,
        };
        let order = serde_json::to_string(&order).map_err(|error| error.to_string())?;
        worker.tell(&order).map_err(|reason| sessions.died(&reason))?;
        workers[number] = Some(worker);
    }
    let all: Option<Vec<Worker>> = workers.into_iter().collect();
    Ok((sessions, all.ok_or("two processes of the workload are the same one")?))
}

fn expect_ready(worker: &mut Worker) -> Result<(), String> {
    let line = worker.line()?;
    if line.trim() == "ready" { Ok(()) } else { Err(format!("a process of the workload said `{}`", line.trim())) }
}

fn report(worker: &mut Worker) -> Result<ProcessReport, String> {
    let line = worker.line()?;
    serde_json::from_str(&line).map_err(|error| format!("the report of a process: {error}"))
}

fn schedstat() -> Result<Sample, String> {
    let text = files::read("/proc/schedstat")?;
    Ok(Sample { time_ns: monotonic_ns(), texts: vec![("/proc/schedstat".into(), text)] })
}

fn send_sample(channel: &mut File, sample: &Sample) -> Result<(), String> {
    write_document(channel, FrameKind::Sample, sample).map_err(|error| format!("cannot send a sample: {error}"))
}

/// Reads the kernel's accounts at intervals while the workload runs.
struct Sampler {
    stop: Arc<AtomicBool>,
    taken: Arc<Mutex<Vec<Sample>>>,
    thread: std::thread::JoinHandle<()>,
}

impl Sampler {
    fn start(interval_ns: u64, workers: &[Worker]) -> Self {
        let (stop, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let processes: Vec<u32> = workers.iter().map(|worker| worker.process).collect();
        let (flag, samples) = (Arc::clone(&stop), Arc::clone(&taken));
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_nanos(interval_ns));
                let mut texts =
                    vec![("/proc/schedstat".to_owned(), files::read("/proc/schedstat").unwrap_or_default())];
                for process in &processes {
                    for thread in files::names(&format!("/proc/{process}/task")) {
                        let path = format!("/proc/{process}/task/{thread}/sched");
                        // A thread may end at any moment.
                        if let Ok(text) = files::read(&path) {
                            texts.push((path, text));
                        }
                    }
                }
                let sample = Sample { time_ns: monotonic_ns(), texts };
                samples.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
            }
        });
        Self { stop, taken, thread }
    }

    fn stop(self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        // A sampler that panicked leaves what it had taken.
        let _ = self.thread.join();
        std::mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
