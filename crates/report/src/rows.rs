//! In which order CPUs are shown, and which tasks share a row when there are too many for one each.

use warmcore_topology::{CpuId, Machine};
use warmcore_trace::TaskInfo;

/// Tasks in one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// What stands beside the row.
    pub label: String,
    /// Indices of its tasks.
    pub tasks: Vec<usize>,
    /// Index of the group (application and role) they belong to.
    pub group: usize,
}

/// CPUs by socket, node, LLC and core, so that what shares a cache lies side by side whatever the numbering.
pub(crate) fn cpu_order(machine: &Machine) -> Vec<CpuId> {
    let mut cpus: Vec<CpuId> = machine.cpus().collect();
    cpus.sort_by_key(|cpu| {
        (machine.socket_of(*cpu), machine.node_of(*cpu), machine.llc_of(*cpu), machine.core_of(*cpu), *cpu)
    });
    cpus
}

/// One row per application and role, in order of the first task.
pub fn groups(tasks: &[TaskInfo]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    // Whether the role alone does not say which application it is of.
    let is_shared = |info: &TaskInfo| {
        let foreign = |other: &&TaskInfo| other.application != info.application;
        tasks.iter().filter(foreign).any(|other| [&other.role, &other.application_name].contains(&&info.role))
    };
    let mut index = std::collections::BTreeMap::new();
    for (task, info) in tasks.iter().enumerate() {
        let position = *index.entry((info.application, info.role.as_str())).or_insert_with(|| {
            rows.push(Row { label: group_label(info, is_shared(info)), tasks: Vec::new(), group: rows.len() });
            rows.len() - 1
        });
        rows[position].tasks.push(task);
    }
    for row in &mut rows {
        let count = row.tasks.len();
        row.label = if count > 1 { format!("{} ×{count}", row.label) } else { row.label.clone() };
    }
    rows
}

/// The role; with its application where another one `shares` it.
fn group_label(info: &TaskInfo, shares: bool) -> String {
    match (info.application_name.as_str(), info.role.as_str()) {
        ("", role) => role.to_owned(),
        (_, role) if !shares && !role.is_empty() => role.to_owned(),
        (application, role) if role.is_empty() || role == application => application.to_owned(),
        (application, role) => format!("{application}/{role}"),
    }
}

/// One row per task if there are at most `most`, else one per group, else one per stretch of groups.
pub fn rows(tasks: &[TaskInfo], most: usize) -> Vec<Row> {
    let groups = groups(tasks);
    if tasks.len() <= most {
        let row =
            |group: &Row, task: usize| Row { label: tasks[task].name.clone(), tasks: vec![task], group: group.group };
        return groups.iter().flat_map(|group| group.tasks.iter().map(|task| row(group, *task))).collect();
    }
    merged(groups, most)
}

/// The rows of the machine's map: every task where there are few, else groups.
pub(crate) fn map_rows(tasks: &[TaskInfo]) -> Vec<Row> {
    const MOST: usize = 12;
    rows(tasks, MOST)
}

/// One row per group if there are at most `most`, else one per stretch of groups.
pub(crate) fn groups_at_most(tasks: &[TaskInfo], most: usize) -> Vec<Row> {
    merged(groups(tasks), most)
}

fn merged(groups: Vec<Row>, most: usize) -> Vec<Row> {
    if groups.len() <= most {
        return groups;
    }
    let merge = |chunk: &[Row]| Row {
        label: format!("{} … {}", chunk[0].label, chunk[chunk.len() - 1].label),
        tasks: chunk.iter().flat_map(|row| row.tasks.iter().copied()).collect(),
        group: chunk[0].group,
    };
    groups.chunks(groups.len().div_ceil(most)).map(merge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_trace::TaskId;

    fn task(id: u32, application: u32, role: &str) -> TaskInfo {
        let name = format!("{role}-{id}");
        TaskInfo {
            id: TaskId(id),
            name,
            role: role.into(),
            application,
            application_name: format!("a{application}"),
            process: 0,
        }
    }

    #[test]
    fn tasks_share_rows_only_when_they_must() {
        let tasks: Vec<TaskInfo> = (0..10).map(|id| task(id, id % 2, "r")).collect();
        let labels = |most| rows(&tasks, most).into_iter().map(|row| row.label).collect::<Vec<_>>();
        assert_eq!(labels(10).len(), 10);
        assert_eq!(labels(9), ["a0/r ×5", "a1/r ×5"]);
        assert_eq!(labels(1), ["a0/r ×5 … a1/r ×5"]);
        assert_eq!(groups_at_most(&tasks, 2).len(), 2, "groups even where every task could have a row");
        assert_eq!(groups_at_most(&tasks, 1)[0].tasks.len(), 10);
        let alone: Vec<TaskInfo> = (0..3).map(|id| task(id, 0, "r")).collect();
        assert_eq!(groups(&alone)[0].label, "r ×3", "the only application needs no name");
        let different = [task(0, 0, "front"), task(1, 1, "back"), task(2, 1, "back")];
        let labels: Vec<String> = groups(&different).into_iter().map(|row| row.label).collect();
        assert_eq!(labels, ["front", "back ×2"], "roles that differ need no application");
        let all: usize = rows(&tasks, 1).iter().map(|row| row.tasks.len()).sum();
        assert_eq!(all, 10, "no task is left out");
    }

    #[test]
    fn cpus_that_share_a_cache_lie_side_by_side() {
        let machine = warmcore_topology::resolve("2s1n2l2c2t").unwrap();
        let llcs: Vec<u32> = cpu_order(&machine).iter().map(|cpu| machine.llc_of(*cpu).0).collect();
        assert!(llcs.windows(2).all(|pair| pair[0] <= pair[1]), "{llcs:?}");
    }
}
