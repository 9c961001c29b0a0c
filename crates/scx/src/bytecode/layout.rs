//! Where the members of kernel structures lie that programs read, by a kernel's type information.

use thiserror::Error;
use warmcore_bpf::btf::{Btf, TypeKind};

use crate::events::Event;

/// A kernel that a program cannot be run for.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the kernel's type information has no {what}: it is not of a kernel with sched_ext, or of one that is too new")]
pub struct LayoutError {
    /// What is missing.
    pub what: String,
}

/// Offsets and sizes, in bytes.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Layout {
    pub task_size: u64,
    pub rq_size: u64,
    pub cpumask_size: u64,
    pub slice: u64,
    pub vtime: u64,
    pub weight: u64,
    pub scx_flags: u64,
    pub runtime: u64,
    pub pid: u64,
    pub tgid: u64,
    pub comm: u64,
    pub task_flags: u64,
    pub cpus_ptr: u64,
    pub cpus_mask: u64,
    pub nr_cpus_allowed: u64,
    pub migration_disabled: Option<u64>,
    pub prio: u64,
    pub static_prio: u64,
    pub task_cpu: Option<u64>,
    pub wake_cpu: Option<u64>,
    pub recent_used_cpu: Option<u64>,
    pub on_cpu: Option<u64>,
    pub on_rq: Option<u64>,
    /// Bytes of each of these two: 1 in 7.2, 4 in kernels before.
    pub on_bytes: u64,
    pub runnable_at: Option<u64>,
    pub policy: Option<u64>,
    pub mm: Option<u64>,
    pub real_parent: u64,
    pub group_leader: u64,
    pub cgroups: Option<u64>,
    pub sched_task_group: Option<u64>,
    pub ddsp_dsq_id: Option<u64>,
    pub scx_tid: Option<u64>,
    pub disallow: Option<u64>,
    pub rq_curr: u64,
    pub rq_clock_task: u64,
    pub rq_clock_pelt: Option<u64>,
    pub rq_cpu: Option<u64>,
    pub rq_running: Option<u64>,
    pub rq_scx_running: Option<u64>,
    pub rq_local_queued: Option<u64>,
    pub dfl_cgrp: Option<u64>,
    pub cgroup_kn: Option<u64>,
    pub cgroup_self: Option<u64>,
    pub cgroup_level: Option<u64>,
    pub cgroup_ancestors: Option<u64>,
    pub cgroup_cpu: Option<u64>,
    pub cgroup_cpuset: Option<u64>,
    pub cpuset_css: Option<u64>,
    /// What its list has, and what it has of that.
    pub cpuset_masks: [Option<u64>; 2],
    /// The masks are members themselves, not pointers (a kernel without `CONFIG_CPUMASK_OFFSTACK`).
    pub cpuset_has_masks: bool,
    pub css_cgroup: Option<u64>,
    pub css_parent: Option<u64>,
    pub kernfs_id: Option<u64>,
    pub kernfs_name: Option<u64>,
    pub task_group_css: Option<u64>,
    pub init_task_cgroup: Option<u64>,
    pub init_task_fork: Option<u64>,
    pub cgroup_init_weight: Option<u64>,
    pub cgroup_init_period: Option<u64>,
    pub cgroup_init_quota: Option<u64>,
    pub cgroup_init_burst: Option<u64>,
    pub dump_kind: Option<u64>,
    pub dump_exit_code: Option<u64>,
    pub dump_reason: Option<u64>,
    pub dump_at: Option<u64>,
    pub exit_kind: u64,
    pub exit_code: Option<u64>,
    pub exit_reason: u64,
    pub exit_message: u64,
    pub exit_dump: u64,
    pub events_size: u64,
    pub events: Vec<(Event, u64)>,
}

impl Layout {
    /// Of a kernel.
    ///
    /// # Errors
    /// When a structure or member is missing that every program needs.
    pub fn new(btf: &Btf) -> Result<Self, LayoutError> {
        let missing = |what: String| LayoutError { what };
        let size = |name: &str| {
            let found = btf.find(TypeKind::Struct, name).map(|ty| u64::from(btf.size(ty)));
            found.ok_or_else(|| missing(format!("structure `{name}`")))
        };
        let some = |structure: &str, member: &str| btf.offset(structure, member).map(u64::from);
        let at = |structure: &str, member: &str| {
            some(structure, member).ok_or_else(|| missing(format!("member `{member}` of structure `{structure}`")))
        };
        let task = |member: &str| at("task_struct", member);
        let controller = |name: &str| {
            let number = btf.enumerator("cgroup_subsys_id", &format!("{name}_cgrp_id"))?;
            some("cgroup", &format!("subsys.{number}"))
        };
        Ok(Self {
            task_size: size("task_struct")?.next_multiple_of(64),
            rq_size: size("rq")?.next_multiple_of(64),
            cpumask_size: size("cpumask")?,
            slice: task("scx.slice")?,
            vtime: task("scx.dsq_vtime")?,
            weight: task("scx.weight")?,
            scx_flags: task("scx.flags")?,
            runtime: task("se.sum_exec_runtime")?,
            pid: task("pid")?,
            tgid: task("tgid")?,
            comm: task("comm")?,
            task_flags: task("flags")?,
            cpus_ptr: task("cpus_ptr")?,
            cpus_mask: task("cpus_mask")?,
            nr_cpus_allowed: task("nr_cpus_allowed")?,
            migration_disabled: some("task_struct", "migration_disabled"),
            prio: task("prio")?,
            static_prio: task("static_prio")?,
            task_cpu: some("task_struct", "thread_info.cpu"),
            wake_cpu: some("task_struct", "wake_cpu"),
            recent_used_cpu: some("task_struct", "recent_used_cpu"),
            on_cpu: some("task_struct", "on_cpu"),
            on_rq: some("task_struct", "on_rq"),
            on_bytes: btf.width("task_struct", "on_rq").map_or(0, u64::from),
            runnable_at: some("task_struct", "scx.runnable_at"),
            policy: some("task_struct", "policy"),
            mm: some("task_struct", "mm"),
            real_parent: task("real_parent")?,
            group_leader: task("group_leader")?,
            cgroups: some("task_struct", "cgroups"),
            sched_task_group: some("task_struct", "sched_task_group"),
            ddsp_dsq_id: some("task_struct", "scx.ddsp_dsq_id"),
            scx_tid: some("task_struct", "scx.tid"),
            disallow: some("task_struct", "scx.disallow"),
            rq_curr: at("rq", "curr")?,
            rq_clock_task: at("rq", "clock_task")?,
            rq_clock_pelt: some("rq", "clock_pelt"),
            rq_cpu: some("rq", "cpu"),
            rq_running: some("rq", "nr_running"),
            rq_scx_running: some("rq", "scx.nr_running"),
            rq_local_queued: some("rq", "scx.local_dsq.nr"),
            dfl_cgrp: some("css_set", "dfl_cgrp"),
            cgroup_kn: some("cgroup", "kn"),
            cgroup_self: some("cgroup", "self"),
            cgroup_level: some("cgroup", "level"),
            cgroup_ancestors: some("cgroup", "ancestors"),
            cgroup_cpu: controller("cpu"),
            cgroup_cpuset: controller("cpuset"),
            cpuset_css: some("cpuset", "css"),
            cpuset_masks: ["cpus_allowed", "effective_cpus"].map(|member| some("cpuset", member)),
            cpuset_has_masks: some("cpuset", "cpus_allowed.0").is_some(),
            css_cgroup: some("cgroup_subsys_state", "cgroup"),
            css_parent: some("cgroup_subsys_state", "parent"),
            kernfs_id: some("kernfs_node", "id"),
            kernfs_name: some("kernfs_node", "name"),
            task_group_css: some("task_group", "css"),
            init_task_cgroup: some("scx_init_task_args", "cgroup"),
            init_task_fork: some("scx_init_task_args", "fork"),
            cgroup_init_weight: some("scx_cgroup_init_args", "weight"),
            cgroup_init_period: some("scx_cgroup_init_args", "bw_period_us"),
            cgroup_init_quota: some("scx_cgroup_init_args", "bw_quota_us"),
            cgroup_init_burst: some("scx_cgroup_init_args", "bw_burst_us"),
            dump_kind: some("scx_dump_ctx", "kind"),
            dump_exit_code: some("scx_dump_ctx", "exit_code"),
            dump_reason: some("scx_dump_ctx", "reason"),
            dump_at: some("scx_dump_ctx", "at_ns"),
            exit_kind: at("scx_exit_info", "kind")?,
            exit_code: some("scx_exit_info", "exit_code"),
            exit_reason: at("scx_exit_info", "reason")?,
            exit_message: at("scx_exit_info", "msg")?,
            exit_dump: at("scx_exit_info", "dump")?,
            events_size: size("scx_event_stats").unwrap_or(0),
            events: Event::ALL
                .into_iter()
                .filter_map(|(event, name)| Some((event, some("scx_event_stats", name)?)))
                .collect(),
        })
    }
}
