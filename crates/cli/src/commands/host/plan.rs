//! What an experiment on this computer would change.

use serde::Serialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_places::host::state::{Means, Scheduler, Wanted};
use warmcore_topology::{CpuSet, Machine};

use super::Configuration;

/// The document of `host compare --dry-run --json`.
#[derive(Serialize)]
pub(super) struct Plan {
    schema: &'static str,
    tool_version: &'static str,
    configurations: Vec<PlannedChanges>,
}

/// What one configuration would change before each of its trials.
#[derive(Serialize)]
struct PlannedChanges {
    configuration: String,
    changes: Vec<String>,
}

/// What the experiment would change.
pub(super) fn plan(configurations: &[Configuration], machine: &Machine) -> Plan {
    let changes = |wanted: &Wanted| {
        let mut changes = Vec::new();
        if let Some(cpus) = &wanted.cpus {
            let others: CpuSet = machine.cpus().filter(|cpu| !cpus.contains(*cpu)).collect();
            changes.push(match wanted.means {
                Means::Affinity => format!("the command is bound to CPUs {cpus}"),
                Means::Offline => format!("CPUs {others} are taken offline, one by one"),
            });
        }
        changes.extend(wanted.settings.iter().map(|(path, value)| format!("/{path} becomes {value}")));
        match &wanted.scheduler {
            Scheduler::Fair => {}
            Scheduler::CacheAware => changes.push("cache-aware scheduling is switched on".into()),
            Scheduler::Program(program, _) => changes.push(format!("{program} is loaded")),
        }
        changes
    };
    let planned = |Configuration { label, wanted }: &Configuration| PlannedChanges {
        configuration: label.clone(),
        changes: changes(wanted),
    };
    let configurations = configurations.iter().map(planned).collect();
    Plan { schema: "warmcore-host-plan-1", tool_version: TOOL_VERSION, configurations }
}

/// The same as text.
pub(super) fn in_steps(plan: &Plan) -> String {
    let steps = |one: &PlannedChanges| {
        let changes: String = one.changes.iter().map(|change| format!("  {change}\n")).collect();
        format!("{}:\n{changes}", one.configuration)
    };
    plan.configurations.iter().map(steps).collect()
}
