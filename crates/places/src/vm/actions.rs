//! What somebody outside the workload does, as the guest is told.

use warmcore_agent::plan::{ActionPlan, DeedPlan, Setting, ThreadsOf};
use warmcore_kernel::Setup;
use warmcore_topology::{CpuSet, Machine};
use warmcore_workload::{Action, Deed, Destination, Workload};

use super::VmError;
use super::layout::Layout;
use super::settings::setting_of;
use crate::place::Request;

/// The kernel keeps so many bytes of a thread's name.
const NAME_BYTES: usize = 15;

/// The actions of a run.
pub(super) fn plan(machine: &Machine, layout: &Layout, request: &Request<'_>) -> Result<Vec<ActionPlan>, VmError> {
    let workload = request.workload;
    let refuse = |reason: String| VmError::Workload { workload: workload.name.clone(), reason };
    let mut setup = Setup::new(machine, workload, request.seed).map_err(|error| refuse(error.to_string()))?;
    setup.set_actions(request.actions).map_err(|error| refuse(error.to_string()))?;
    let guest = |set: &CpuSet| layout.guest_cpus(set);
    let plan = |action: &Action| {
        let threads = |name: &str| {
            threads(workload, name)
                .map_err(|other| refuse(format!("{action}: `{other}` has the same name in the kernel")))
        };
        let what = match &action.what {
            Deed::Bind { tasks, to: Destination::Cpus(affinity) } => {
                DeedPlan::Bind { threads: threads(tasks)?, cpus: guest(&setup.affinity_cpus(affinity)) }
            }
            Deed::Bind { tasks, to: Destination::LlcOf(home) } => DeedPlan::Follow {
                threads: threads(tasks)?,
                home: threads(home)?,
                regions: machine.llcs().map(|llc| guest(machine.cpus_of_llc(llc))).collect(),
            },
            Deed::Bind { tasks, to: Destination::NodeOf(home) } => DeedPlan::Follow {
                threads: threads(tasks)?,
                home: threads(home)?,
                regions: machine.nodes().map(|node| guest(machine.cpus_of_node(node))).collect(),
            },
            Deed::Hotplug { cpu, online } => DeedPlan::Write(
                plug(machine, layout, (*cpu, *online)).map_err(|why| refuse(format!("{action}: {why}")))?,
            ),
            Deed::Set { tunable, value } => {
                let setting = setting_of(tunable, *value);
                DeedPlan::Write(setting.ok_or_else(|| refuse(format!("{action}: a guest cannot")))?)
            }
        };
        let (time_ns, looks_ns) = (action.time_ns, action.looks_ns().collect());
        Ok(ActionPlan { time_ns, looks_ns, what, text: action.to_string() })
    };
    let own = request.workload.hotplug.iter().map(|change| Action::from(*change));
    let all: Vec<Action> = own.chain(request.actions.iter().cloned()).collect();
    let mut plans = all.iter().map(plan).collect::<Result<Vec<_>, VmError>>()?;
    plans.sort_by_key(|plan| plan.time_ns);
    Ok(plans)
}

/// The file that takes a CPU, by the machine's number, offline or brings it online.
fn plug(machine: &Machine, layout: &Layout, (cpu, online): (u32, bool)) -> Result<Setting, String> {
    let dense = machine.cpu_by_os_index(cpu).ok_or_else(|| "the machine has no such CPU".to_owned())?;
    match layout.guest_cpus(&CpuSet::from_iter([dense]))[..] {
        [0] => Err("a kernel for x86 cannot take CPU 0 offline (since 6.5); take another".to_owned()),
        [guest] => Ok(Setting {
            path: format!("/sys/devices/system/cpu/cpu{guest}/online"),
            value: u8::from(online).to_string(),
            required: true,
        }),
        _ => Err("the guest has no such CPU".to_owned()),
    }
}

/// Threads of the tasks that a name stands for. Another template of the same process with the same first bytes cannot be told from
/// them: its name is the error.
fn threads(workload: &Workload, name: &str) -> Result<Vec<ThreadsOf>, String> {
    let launches = workload.launches();
    let launch_of = |template: usize| {
        let process = workload.tasks[template].process.0;
        launches.iter().position(|launch| launch.processes.contains(&process)).unwrap_or(0) as u32
    };
    let of = |template: usize| ThreadsOf { launch: launch_of(template), name: kept(workload.tasks[template].comm()) };
    let wanted: Vec<usize> = workload.templates_called(name).into_iter().map(|template| template as usize).collect();
    let threads: Vec<ThreadsOf> = wanted.iter().map(|template| of(*template)).collect();
    let other =
        (0..workload.tasks.len()).find(|template| !wanted.contains(template) && threads.contains(&of(*template)));
    other.map_or(Ok(threads), |other| Err(workload.tasks[other].name.clone()))
}

/// A thread's name as the kernel keeps it.
fn kept(name: &str) -> String {
    String::from_utf8_lossy(&name.as_bytes()[..name.len().min(NAME_BYTES)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_workload::{Options, from_rtapp};

    #[test]
    fn names_that_the_kernel_cannot_tell_apart_are_refused() {
        let text = r#"{"tasks": {"a-very-long-name-one": {"run": 5}, "a-very-long-name-two": {"run": 5}, "short": {"run": 5}}}"#;
        let workload = from_rtapp("three", text, &Options::default()).unwrap();
        assert_eq!(threads(&workload, "a-very-long-name-one"), Err("a-very-long-name-two".into()));
        assert_eq!(threads(&workload, "short"), Ok(vec![ThreadsOf { launch: 0, name: "short".into() }]));
        let mut renamed = workload.clone();
        renamed.tasks[2].comm = Some("python3".into());
        assert_eq!(threads(&renamed, "short"), Ok(vec![ThreadsOf { launch: 0, name: "python3".into() }]));
    }
}
