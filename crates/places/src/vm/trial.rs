//! Runs of workloads in a guest, and trials made of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use warmcore_agent::PROTOCOL;
use warmcore_agent::plan::{GroupPlan, LaunchPlan, Plan, Purpose, RunPlan, ScxPlan, Setting};
use warmcore_agent::report::{ActionReport, CALLS, Frame, FrameKind, Hello, ProcessReport, RunBegin, RunEnd, Sample};
use warmcore_capture::convert::{Cast, Converted, Decoder};
use warmcore_capture::{EventFormats, Thread};
use warmcore_kernel::Setup;
use warmcore_topology::{CpuId, CpuSet, Machine, format_cpu_list};
use warmcore_trace::{ApplicationOutcome, End, GroupCounters, GroupOutcome, Outcome, TaskOutcome};
use warmcore_trace::{Event, Histogram, RunTables, Sink, TaskId};
use warmcore_workload::{Affinity, Group, Launch, Step, TaskTemplateId, Workload, to_rtapp};

use super::VmError;
use super::boot::{Boot, Lab, document};
use super::calls;
use super::initramfs::Initramfs;
use super::kernel::Abilities;
use super::layout::Layout;
use super::libraries;
use super::qemu::Execution;
use super::settings::{NUMA_BALANCING, settings_of};
use crate::beside::{by_process, name_threads};
use crate::circumstances;
use crate::files::{find_program, read_bytes};
use crate::place::{OperationUse, Request, Sequence};

/// Time for a sched_ext scheduler to be enabled: an emulated verifier is slow.
const ENABLE_NS: u64 = 180_000_000_000;
/// Starts of runs are spread over this time: several ticks of any kernel.
const PHASES_NS: u64 = 20_000_000;
/// Events handed to a sink at a time.
const BATCH: usize = 4096;
/// Share of all CPU time that other threads may use before it is said.
const MOST_FOREIGN: f64 = 0.01;
/// Directory of sched_ext schedulers in the guest.
const SCX_DIRECTORY: &str = "/scx";

/// A finished run.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// In order of time, counted from the start.
    pub events: Vec<Event>,
    /// What events refer to.
    pub tables: RunTables,
    /// What the run left, in the simulator's words.
    pub outcome: Outcome,
    /// Events that the trace buffers did not take.
    pub events_lost: u64,
    /// CPU time of threads that are not the workload's.
    pub foreign_run_ns: u64,
    /// Settings in force, read back.
    pub settings: Vec<(String, String)>,
    /// The sched_ext scheduler as the kernel named it, and how often it was asked during the run.
    pub scx: Option<(String, u32)>,
    /// How often it was ended for CPUs that went offline or came online, and started again.
    pub scx_restarts: u32,
    /// How often each of its operations was called, if that was counted.
    pub operations: Vec<OperationUse>,
    /// What each call of them called, if that was noted.
    pub sequences: Vec<Sequence>,
    /// Events that each CPU's trace buffer took and did not take.
    pub buffers: Vec<(u64, u64)>,
    /// The kernel's accounts: before, at intervals if asked for, and after.
    pub samples: Vec<Sample>,
    /// What was not done as the workload asks.
    pub warnings: Vec<String>,
    /// NUMA balancing was switched off, because the workload says nothing about memory.
    pub numa_balancing_off: bool,
}

/// What came of a boot.
pub struct Booted {
    /// The first runs, in their order: all of them, or those that were whole when it ended.
    pub runs: Vec<(Hello, Recorded)>,
    /// Why it ended before the last run.
    pub error: Option<VmError>,
}

/// Does all runs in one boot, in their order.
///
/// # Errors
/// A scheduler or workload that a guest cannot have. What goes wrong later comes with the runs before it.
pub fn run_all(lab: &Lab, machine: &Machine, requests: &[Request<'_>], stop: &AtomicBool) -> Result<Booted, VmError> {
    let layout = Layout::new(machine, &lab.qemu.version)?;
    let abilities = lab.kernel.abilities()?;
    let mut files = Initramfs::default();
    let mut runs = Vec::new();
    for request in requests {
        let scx = request.scheduler.program();
        let scx = scx.map(|scx| scx_plan(&mut files, &scx.program, &scx.arguments, request)).transpose()?;
        runs.push(RunPlan {
            launches: launches(machine, &layout, request)?,
            isolcpus: guest_list(machine, &layout, &request.workload.isolcpus),
            nohz_full: guest_list(machine, &layout, &request.workload.nohz_full),
            groups: request.workload.groups.iter().map(|group| group_plan(machine, &layout, group)).collect(),
            settings: settings_for(machine, request, &abilities)?,
            actions: super::actions::plan(machine, &layout, request)?,
            scx,
            time_limit_ns: request.options.max_time_ns,
            buffer_kib: request.options.buffer_kib.unwrap_or(lab.buffer_kib),
            sample_ns: None,
            phase_ns: request.seed % PHASES_NS,
            forget_pass_costs: lab.execution != Execution::Kvm,
        });
    }
    let buffers: u64 = runs.iter().map(|run: &RunPlan| u64::from(run.buffer_kib)).max().unwrap_or(0);
    let plan = Plan { protocol: PROTOCOL, purpose: Purpose::Run, runs };
    let extra_memory_mib = ((buffers * machine.cpu_count() as u64) >> 10) + 128;
    let boot = Boot { machine, plan: &plan, files, extra_memory_mib };
    let mut collector =
        Collector { machine, layout: &layout, requests, decoder: None, current: Current::default(), done: Vec::new() };
    let ended = lab.boot(boot, stop, |hello, frame| collector.take(hello, &frame));
    let runs = collector.done;
    let short = || VmError::Protocol { reason: format!("{} of {} runs came back", runs.len(), requests.len()) };
    let error = ended.err().or_else(|| (runs.len() != requests.len()).then(short));
    Ok(Booted { runs, error })
}

/// Checks that a guest can have what is asked for, without booting one.
///
/// # Errors
/// A machine that QEMU cannot build; a scheduler, its settings or its program, or a workload that a guest cannot have.
pub fn check(lab: &Lab, request: &Request<'_>) -> Result<(), VmError> {
    let machine = request.machine;
    let layout = Layout::new(machine, &lab.qemu.version)?;
    settings_of(request.scheduler, &lab.kernel.abilities()?)?;
    launches(machine, &layout, request)?;
    super::actions::plan(machine, &layout, request)?;
    if let Some(program) = request.scheduler.program() {
        scx_plan(&mut Initramfs::default(), &program.program, &program.arguments, request)?;
    }
    Ok(())
}

/// The program goes into the guest with its libraries, and with the files that its arguments name.
fn scx_plan(
    files: &mut Initramfs,
    program: &str,
    arguments: &[String],
    request: &Request<'_>,
) -> Result<ScxPlan, VmError> {
    let path = find_program(program);
    let name = path.file_name().unwrap_or(path.as_os_str());
    let place = Path::new(SCX_DIRECTORY).join(name);
    libraries::add_program(files, &path, &place)?;
    let in_guest = |argument: &String| {
        let file = Path::new(argument);
        let Some(name) = file.file_name().filter(|_| file.is_file()) else { return Ok(argument.clone()) };
        let place = Path::new(SCX_DIRECTORY).join(name).display().to_string();
        files.file(&place, read_bytes(file)?);
        Ok(place)
    };
    let arguments = arguments.iter().map(in_guest).collect::<Result<_, VmError>>()?;
    let (may_restart, observe) = (request.changes_cpus(), request.options.observe);
    Ok(ScxPlan { program: place.display().to_string(), arguments, enable_ns: ENABLE_NS, may_restart, observe })
}

/// The settings of a run: the scheduler's, those of its column, and no NUMA balancing for a workload that says nothing about memory. Its
/// threads would fault on the few pages that any program has, and be moved for that.
fn settings_for(machine: &Machine, request: &Request<'_>, abilities: &Abilities) -> Result<Vec<Setting>, VmError> {
    let mut settings = settings_of(request.scheduler, abilities)?;
    if numa_balancing_means_nothing(machine, request) {
        settings.push(Setting { path: NUMA_BALANCING.into(), value: "0".into(), required: false });
    }
    settings.extend(circumstances::files_of(request.scheduler.circumstances()));
    Ok(settings)
}

/// Whether NUMA balancing is on where nodes are there to balance between, and no memory that would tell where to.
fn numa_balancing_means_nothing(machine: &Machine, request: &Request<'_>) -> bool {
    let is_off = request.scheduler.changed().contains(&("numa_balancing", 0));
    machine.node_count() > 1 && !request.workload.uses_memory() && !is_off
}

/// What a run with quotas says under a sched_ext program, to which the kernel leaves them.
fn quota_of_a_program(request: &Request<'_>) -> Option<String> {
    let limited = request.workload.groups.iter().find(|group| group.cpu_max.is_some())?;
    let words =
        || format!("quota of {}: the kernel leaves it to the sched_ext program, and keeps none itself", limited.name);
    request.scheduler.program().map(|_| words())
}

/// CPUs of the machine, by its numbers, as a list of the guest's.
fn guest_list(machine: &Machine, layout: &Layout, cpus: &[u32]) -> String {
    format_cpu_list(layout.guest_cpus(&Affinity::OsCpus(cpus.to_vec()).on(machine)))
}

/// A task group as the agent makes it.
fn group_plan(machine: &Machine, layout: &Layout, group: &Group) -> Option<GroupPlan> {
    let cpu_max_us = group.cpu_max.map(|max| [max.quota_ns() / 1_000, max.period_ns() / 1_000, max.burst_us()]);
    (!group.is_root()).then(|| GroupPlan {
        shares: group.shares,
        parent: group.parent.map(|parent| parent.0),
        cpu_max_us,
        cpu_uclamp: (!group.clamp.is_default())
            .then(|| [group.clamp.min, group.clamp.max].map(|bound| bound.to_string())),
        cpu_idle: group.idle,
        cpuset_cpus: group.cpus.as_ref().map(|cpus| guest_list(machine, layout, cpus)),
    })
}

/// Each launcher's part of the workload, with affinities in the guest's CPU numbers.
fn launches(machine: &Machine, layout: &Layout, request: &Request<'_>) -> Result<Vec<LaunchPlan>, VmError> {
    let workload = request.workload;
    let refuse = |reason: String| VmError::Workload { workload: workload.name.clone(), reason };
    if let Some(reason) = workload.refused_by_threads() {
        return Err(refuse(reason));
    }
    let setup = Setup::new(machine, workload, request.seed).map_err(|error| refuse(error.to_string()))?;
    let translate = |affinity: &Affinity| match affinity {
        Affinity::All => Affinity::All,
        other => Affinity::OsCpus(layout.guest_cpus(&setup.affinity_cpus(other))),
    };
    let mut guest = workload.clone();
    for task in &mut guest.tasks {
        task.affinity = translate(&task.affinity);
    }
    // Who acts from outside takes CPUs offline, not a part of the workload.
    guest.hotplug.clear();
    (guest.isolcpus, guest.nohz_full) = (Vec::new(), Vec::new());
    // The agent makes the groups; a part of the workload need not have tasks in each.
    for group in &mut guest.groups {
        *group = Group { parent: group.parent, ..Group::new(group.name.clone()) };
    }
    for step in guest.programs.iter_mut().flat_map(|program| &mut program.steps) {
        if let Step::SetAffinity(affinity) = step {
            *affinity = translate(affinity);
        }
    }
    let plan = |(launch, cpu): &(Launch, CpuId)| {
        Ok(LaunchPlan {
            workload: to_rtapp(&guest.part(launch)).map_err(|error| refuse(error.to_string()))?,
            processes: launch.processes.clone(),
            session: launch.application,
            cpu: layout.guest_cpus(&CpuSet::from_iter([*cpu]))[0],
            seed: request.seed,
        })
    };
    setup.launchers().iter().map(plan).collect()
}

/// What came of the run in progress.
#[derive(Default)]
struct Current {
    begin: Option<RunBegin>,
    samples: Vec<Sample>,
    /// Records of what programs called.
    calls: String,
}

/// Makes runs of frames.
struct Collector<'a> {
    machine: &'a Machine,
    layout: &'a Layout,
    requests: &'a [Request<'a>],
    decoder: Option<Decoder>,
    current: Current,
    done: Vec<(Hello, Recorded)>,
}

impl Collector<'_> {
    fn take(&mut self, hello: &Hello, frame: &Frame) -> Result<(), VmError> {
        let protocol = |reason: String| VmError::Protocol { reason };
        match frame.kind {
            FrameKind::Formats => {
                let formats: EventFormats = document(frame)?;
                self.decoder = Some(Decoder::new(&formats).map_err(protocol)?);
            }
            FrameKind::RunBegin => self.current = Current { begin: Some(document(frame)?), ..Current::default() },
            FrameKind::Sample => {
                let sample: Sample = document(frame)?;
                match sample.texts.first().filter(|(name, _)| name == CALLS) {
                    Some((_, text)) => self.current.calls.push_str(text),
                    None => self.current.samples.push(sample),
                }
            }
            FrameKind::TracePage => {
                let Some((cpu, page)) = frame.payload.split_first_chunk::<4>() else {
                    return Err(protocol("a trace page without a CPU".into()));
                };
                let decoder =
                    self.decoder.as_mut().ok_or_else(|| protocol("a trace page before its formats".into()))?;
                decoder.page(u32::from_le_bytes(*cpu), page).map_err(protocol)?;
            }
            FrameKind::RunEnd => {
                let end: RunEnd = document(frame)?;
                let recorded = self.run(hello, end)?;
                self.done.push((hello.clone(), recorded));
            }
            FrameKind::Hello
            | FrameKind::Failed
            | FrameKind::Done
            | FrameKind::Came
            | FrameKind::Output
            | FrameKind::Words
            | FrameKind::File
            | FrameKind::CommandEnd
            | FrameKind::Costs => {}
        }
        Ok(())
    }

    fn run(&mut self, hello: &Hello, end: RunEnd) -> Result<Recorded, VmError> {
        let protocol = |reason: String| VmError::Protocol { reason };
        let current = std::mem::take(&mut self.current);
        let request = self.requests.get(end.run).ok_or_else(|| protocol(format!("there is no run {}", end.run)))?;
        let mut setup = Setup::new(self.machine, request.workload, 0).map_err(|error| protocol(error.to_string()))?;
        setup.set_actions(request.actions).map_err(|error| protocol(error.to_string()))?;
        let mut tables = setup.run_tables(Vec::new());
        let roster = Roster::new(request.workload, &end.processes);
        let restrictions: Vec<u32> =
            roster.tasks.iter().map(|task| setup.template_restriction(TaskTemplateId(task.template))).collect();
        let allowed = |restriction: u32, cpu: CpuId| tables.restrictions[restriction as usize].contains(cpu);
        let cpu = |guest: u32| self.layout.machine_cpu(guest);
        let start_ns = end.processes.iter().map(|process| process.start_ns).min().unwrap_or(0);
        let elapsed_ns = end.processes.iter().map(|process| process.start_ns - start_ns + process.elapsed_ns).max();
        let elapsed_ns = elapsed_ns.unwrap_or(0);
        let mut bindings = roster.releases(request.workload);
        bindings.extend(self.bindings(&roster, &tables, &end.actions, start_ns)?);
        bindings.sort_unstable_by_key(|(at, task, _)| (*at, task.0));
        let cast = Cast {
            tasks: &roster.by_thread,
            launchers: &end.processes.iter().flat_map(launchers_of).collect::<BTreeSet<i32>>(),
            stoppers: &hello.stoppers,
            restrictions: &restrictions,
            allowed: &allowed,
            bindings: &bindings,
            start_ns,
            elapsed_ns,
            cpu: &cpu,
        };
        let decoder = self.decoder.as_mut().ok_or_else(|| protocol("a run before its formats".into()))?;
        let converted = decoder.finish(&cast).map_err(protocol)?;
        let known = |thread| Thread { name: decoder.name(thread).unwrap_or_default().to_owned(), ..Thread::default() };
        let (foreign_run_ns, background) = (converted.foreign_run_ns(), by_process(&converted.foreign, known));
        let mut outcome = roster.outcome(request.workload, &end.processes, &converted, elapsed_ns);
        outcome.background = background;
        let group = |(number, counters): &(u32, GroupCounters)| GroupOutcome {
            name: request.workload.groups[*number as usize].name.clone(),
            counters: *counters,
        };
        outcome.groups = end.groups.iter().map(group).collect();
        name_threads(&mut tables, &roster.by_thread, &converted, known);
        let begin = current.begin.ok_or_else(|| protocol("the end of a run that did not begin".into()))?;
        let warning = |(what, consequence, count): &(String, String, u32)| format!("{what} ({count}): {consequence}");
        let written = end.actions.iter().filter_map(|action| action.written.clone());
        Ok(Recorded {
            outcome,
            events: converted.events,
            tables,
            events_lost: end.lost.iter().sum(),
            foreign_run_ns,
            settings: begin.settings.into_iter().chain(written).collect(),
            scx: begin.scx.map(|name| (name, end.scx_checks)),
            scx_restarts: end.scx_restarts,
            operations: calls::operations(&end.operations),
            sequences: calls::sequences(&current.calls),
            buffers: end.entries.iter().copied().zip(end.lost.iter().copied()).collect(),
            samples: current.samples,
            numa_balancing_off: numa_balancing_means_nothing(self.machine, request),
            warnings: end
                .processes
                .iter()
                .flat_map(|process| process.warnings.iter().map(warning))
                .chain(quota_of_a_program(request))
                .collect(),
        })
    }
}

/// Threads that create tasks and are none.
fn launchers_of(process: &ProcessReport) -> impl Iterator<Item = i32> {
    std::iter::once(process.launcher).chain(process.helpers.iter().copied())
}

impl Collector<'_> {
    /// The bindings that were made from outside.
    fn bindings(
        &self,
        roster: &Roster,
        tables: &RunTables,
        actions: &[ActionReport],
        start_ns: u64,
    ) -> Result<Vec<(u64, TaskId, u32)>, VmError> {
        let mut bindings = Vec::new();
        for action in actions.iter().filter(|action| !action.threads.is_empty()) {
            let cpus: CpuSet = action.cpus.iter().filter_map(|cpu| self.layout.machine_cpu(*cpu)).collect();
            let restriction = tables.restrictions.iter().position(|known| *known == cpus);
            let restriction = restriction.ok_or_else(|| VmError::Protocol {
                reason: format!("threads were bound to CPUs {cpus}, which no action names"),
            })?;
            let tasks = action.threads.iter().filter_map(|thread| roster.by_thread.get(thread));
            let at = action.time_ns.saturating_sub(start_ns);
            bindings.extend(tasks.map(|task| (at, *task, restriction as u32)));
        }
        Ok(bindings)
    }
}

/// A task of the workload as it ran.
pub(crate) struct RosterTask {
    template: u32,
    number: u32,
    thread: i32,
    cpu_ns: u64,
}

/// The tasks of a run, by id: in the order of templates, as a simulation creates them, not in the order of threads.
pub(crate) struct Roster {
    pub(crate) tasks: Vec<RosterTask>,
    pub(crate) by_thread: BTreeMap<i32, TaskId>,
}

impl Roster {
    pub(crate) fn new(workload: &Workload, processes: &[ProcessReport]) -> Self {
        let mut tasks: Vec<RosterTask> = processes
            .iter()
            .flat_map(|process| &process.tasks)
            .map(|task| RosterTask {
                template: task.template,
                number: task.number,
                thread: task.thread,
                cpu_ns: task.cpu_ns,
            })
            .collect();
        let start = |template: u32| workload.tasks.get(template as usize).map_or(0, |task| task.start_ns);
        tasks.sort_by_key(|task| (start(task.template), task.template, task.number));
        let by_thread = (0..).zip(&tasks).map(|(id, task)| (task.thread, TaskId(id))).collect();
        Self { tasks, by_thread }
    }

    fn releases(&self, workload: &Workload) -> Vec<(u64, TaskId, u32)> {
        let release = |(id, task): (u32, &RosterTask)| {
            Some((workload.tasks.get(task.template as usize)?.release_ns?, TaskId(id), 0))
        };
        (0..).zip(&self.tasks).filter_map(release).collect()
    }

    /// What the run left, as a simulation leaves it: CPU times and samples, which threads report, are without the warm-up.
    pub(crate) fn outcome(
        &self,
        workload: &Workload,
        processes: &[ProcessReport],
        converted: &Converted,
        elapsed_ns: u64,
    ) -> Outcome {
        let warm_up_ns = workload.warm_up_ns.unwrap_or(0);
        let task = |(id, task): (usize, &RosterTask)| {
            let template = &workload.tasks[task.template as usize];
            let name = match template.instances {
                1 => template.name.clone(),
                _ => format!("{}-{}", template.name, task.number),
            };
            TaskOutcome {
                application: workload.processes[template.process.index()].application,
                process: template.process.0,
                started_ns: converted.created_ns[id].unwrap_or(0),
                exited_ns: converted.exited_ns[id],
                ..TaskOutcome::new(id as u32, name, template.role.clone(), task.cpu_ns)
            }
        };
        let tasks: Vec<TaskOutcome> = self.tasks.iter().enumerate().map(task).collect();
        let application = |(index, name): (usize, &String)| {
            let own = || tasks.iter().filter(move |task| task.application == index as u32);
            let finished = own().all(|task| task.exited_ns.is_some());
            let last = own().filter_map(|task| task.exited_ns).max().filter(|_| finished).unwrap_or(elapsed_ns);
            let first = own().map(|task| task.started_ns).min().unwrap_or(0).max(warm_up_ns);
            ApplicationOutcome {
                name: name.clone(),
                elapsed_ns: last.saturating_sub(first),
                finished,
                cpu_time_ns: own().map(|task| task.cpu_time_ns).sum(),
            }
        };
        let mut recorders: Vec<Histogram> = workload.recorders.iter().map(|_| Histogram::new()).collect();
        for process in processes {
            for (recorder, samples) in recorders.iter_mut().zip(&process.samples) {
                samples.iter().for_each(|sample| recorder.record(*sample));
            }
        }
        let ended = |word: &str| processes.iter().any(|process| process.ended == word);
        let end = if ended("time_limit") {
            End::TimeLimit
        } else if ended("duration") || ended("stop_step") {
            End::Stopped
        } else {
            End::AllExited
        };
        Outcome {
            warm_up_ns,
            applications: workload.applications.iter().enumerate().map(application).collect(),
            tasks,
            recorders,
            engine_events: converted.events.len() as u64,
            ..Outcome::new(end, elapsed_ns)
        }
    }
}

impl Recorded {
    /// What a reader of the run's results must know besides [`Recorded::warnings`].
    pub fn notes(&self, cpus: usize) -> Vec<String> {
        let mut notes = Vec::new();
        if self.numa_balancing_off {
            let what = "NUMA balancing was off, because the workload says nothing about memory; give it memory (a profile, data groups) to have it";
            notes.push(what.to_owned());
        }
        if self.scx_restarts > 0 {
            notes.push(format!(
                "the kernel ended the scheduler {} times as CPUs went offline or came online, and its loader attached it again; until then the tasks \
                 ran under the fair class",
                self.scx_restarts
            ));
        }
        let all = self.outcome.elapsed_ns.saturating_mul(cpus as u64);
        if all > 0 && self.foreign_run_ns as f64 > MOST_FOREIGN * all as f64 {
            let share = 100.0 * self.foreign_run_ns as f64 / all as f64;
            notes.push(format!("threads that are not the workload's ran for {share:.1} % of all CPU time"));
        }
        notes
    }

    /// Hands the events to a sink.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn replay(&self, sink: &mut dyn Sink) -> std::io::Result<()> {
        self.events.chunks(BATCH).try_for_each(|batch| sink.events(batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_schedulers::SchedulerSpec;
    use warmcore_topology::resolve;
    use warmcore_workload::{Options, from_rtapp};

    fn numa_balancing(machine: &str, scheduler: &str, profile: &str) -> Vec<String> {
        let text = format!(
            r#"{{"tasks": {{"a": {{"run": 5}}}}, "warmcore": {{"tasks": {{"a": {{"role": "r" {profile}}}}}}}}}"#
        );
        let workload = from_rtapp("one", &text, &Options::default()).unwrap();
        let scheduler = SchedulerSpec::parse(scheduler).unwrap();
        let machine = resolve(machine).unwrap();
        let request = Request::new(&machine, &workload, &scheduler, 1);
        let abilities = Abilities { hz: Some(250), cache_aware: true, sched_ext: true, numa_balancing: true };
        let settings = settings_for(&machine, &request, &abilities).unwrap();
        settings.into_iter().filter(|setting| setting.path == NUMA_BALANCING).map(|setting| setting.value).collect()
    }

    #[test]
    fn tasks_without_memory_are_not_balanced_between_nodes() {
        assert_eq!(numa_balancing("1s2n2l2c1t", "eevdf", ""), ["0"]);
        assert_eq!(numa_balancing("1s2n2l2c1t", "eevdf:numa_balancing=0", ""), ["0"]);
        assert_eq!(numa_balancing("1s2n2l2c1t", "eevdf", r#", "profile": "perlbench""#), Vec::<String>::new());
        assert_eq!(numa_balancing("1s1n2l2c1t", "eevdf", ""), Vec::<String>::new());
    }
}
