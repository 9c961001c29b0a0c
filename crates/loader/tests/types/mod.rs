//! Type information of a kernel that has just what programs of these tests need.

/// Kinds, as numbered in the format.
const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const ENUM: u32 = 6;
const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;

#[derive(Default)]
struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Builder {
    fn string(&mut self, text: &str) -> u32 {
        let at = self.strings.len() as u32;
        self.strings.extend(text.bytes().chain([0]));
        at
    }

    fn ty(&mut self, name: &str, kind: u32, members: u32, size_or_type: u32, tail: &[u32]) -> u32 {
        let name = if name.is_empty() { 0 } else { self.string(name) };
        for word in [name, kind << 24 | members, size_or_type].iter().chain(tail) {
            self.types.extend(word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }

    fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let tail: Vec<u32> =
            members.iter().flat_map(|&(name, ty, offset)| [self.string(name), ty, offset * 8]).collect();
        self.ty(name, STRUCT, members.len() as u32, size, &tail)
    }
}

/// Control groups, of numbers of 32 and 64 bits and of pointers.
fn groups(b: &mut Builder, (u32_, u64_, pointer): (u32, u32, u32)) {
    let css = b.structure("cgroup_subsys_state", 16, &[("cgroup", pointer, 0), ("parent", pointer, 8)]);
    let ancestors = b.ty("", ARRAY, 0, 0, &[pointer, u32_, 4]);
    let controllers = ["cpuset_cgrp_id", "io_cgrp_id", "cpu_cgrp_id"];
    let values: Vec<u32> = (0..).zip(controllers).flat_map(|(value, name)| [b.string(name), value]).collect();
    b.ty("cgroup_subsys_id", ENUM, controllers.len() as u32, 4, &values);
    let subsys = b.ty("", ARRAY, 0, 0, &[pointer, u32_, controllers.len() as u32]);
    let members = [("self", css, 0), ("level", u32_, 16), ("kn", pointer, 24), ("ancestors", ancestors, 32)];
    b.structure("cgroup", 88, &[&members[..], &[("subsys", subsys, 64)]].concat());
    b.structure("cpuset", 40, &[("css", css, 8), ("cpus_allowed", pointer, 24), ("effective_cpus", pointer, 32)]);
    b.structure("kernfs_node", 16, &[("id", u64_, 0), ("name", pointer, 8)]);
    b.structure("css_set", 8, &[("dfl_cgrp", pointer, 0)]);
    b.structure("task_group", 16, &[("css", css, 0)]);
    b.structure("scx_init_task_args", 16, &[("cgroup", pointer, 8)]);
    let limits = [("weight", u32_, 0), ("bw_period_us", u64_, 8), ("bw_quota_us", u64_, 16), ("bw_burst_us", u64_, 24)];
    b.structure("scx_cgroup_init_args", 32, &limits);
}

/// The type information, and the number of each kernel function.
pub fn kernel(functions: &[&str]) -> (Vec<u8>, Vec<i32>) {
    let mut b = Builder::default();
    b.string("");
    let u32_ = b.ty("unsigned int", INT, 0, 4, &[32]);
    let u64_ = b.ty("unsigned long", INT, 0, 8, &[64]);
    let byte = b.ty("char", INT, 0, 1, &[8]);
    let pointer = b.ty("", POINTER, 0, 0, &[]);
    let array = |b: &mut Builder, of: u32, count: u32| b.ty("", ARRAY, 0, 0, &[of, u32_, count]);
    let (words, name, comm) = (array(&mut b, u64_, 128), array(&mut b, byte, 112), array(&mut b, byte, 16));
    let cpumask = b.structure("cpumask", 1024, &[("bits", words, 0)]);
    let entity = b.structure(
        "sched_ext_entity",
        32,
        &[
            ("slice", u64_, 0),
            ("dsq_vtime", u64_, 8),
            ("weight", u32_, 16),
            ("flags", u32_, 20),
            ("runnable_at", u64_, 24),
            // At the end of the task's structure, where there is room.
            ("disallow", byte, 1092),
        ],
    );
    let thread_info = b.structure("thread_info", 4, &[("cpu", u32_, 0)]);
    let fair = b.structure("sched_entity", 16, &[("sum_exec_runtime", u64_, 8)]);
    b.structure(
        "task_struct",
        1280,
        &[
            ("flags", u32_, 0),
            ("prio", u32_, 4),
            ("static_prio", u32_, 8),
            ("nr_cpus_allowed", u32_, 12),
            ("cpus_ptr", pointer, 16),
            ("pid", u32_, 24),
            ("tgid", u32_, 28),
            ("real_parent", pointer, 32),
            ("group_leader", pointer, 40),
            ("comm", comm, 48),
            ("scx", entity, 64),
            ("se", fair, 96),
            ("thread_info", thread_info, 112),
            // Bytes in 7.2, before which they were numbers of 32 bits.
            ("on_cpu", byte, 116),
            ("on_rq", byte, 117),
            ("wake_cpu", u32_, 124),
            ("cpus_mask", cpumask, 128),
            ("recent_used_cpu", u32_, 1152),
            ("cgroups", pointer, 1160),
            ("sched_task_group", pointer, 1168),
            ("policy", u32_, 1176),
            ("mm", pointer, 1184),
        ],
    );
    let queue = b.structure("scx_dispatch_q", 8, &[("nr", u32_, 0)]);
    let ext = b.structure("scx_rq", 16, &[("nr_running", u32_, 0), ("local_dsq", queue, 8)]);
    let members =
        [("curr", pointer, 0), ("clock_task", u64_, 8), ("nr_running", u32_, 16), ("cpu", u32_, 20), ("scx", ext, 24)];
    b.structure("rq", 64, &members);
    b.structure(
        "scx_exit_info",
        64,
        &[("kind", u32_, 0), ("reason", pointer, 8), ("msg", pointer, 16), ("dump", pointer, 24)],
    );
    b.structure(
        "scx_event_stats",
        24,
        &[
            ("SCX_EV_DISPATCH_KEEP_LAST", u64_, 0),
            ("SCX_EV_REFILL_SLICE_DFL", u64_, 8),
            ("SCX_EV_BYPASS_ACTIVATE", u64_, 16),
        ],
    );
    let operations = [
        ("select_cpu", 0),
        ("enqueue", 8),
        ("dispatch", 16),
        ("init", 24),
        ("never_heard_of", 32),
        ("running", 168),
        ("stopping", 176),
        ("init_task", 184),
    ];
    let mut members: Vec<(&str, u32, u32)> = operations.iter().map(|&(name, at)| (name, pointer, at)).collect();
    members.extend([("flags", u64_, 40), ("timeout_ms", u32_, 48), ("name", name, 56)]);
    let operations = b.structure("sched_ext_ops", 192, &members);
    b.structure("bpf_struct_ops_sched_ext_ops", 256, &[("data", operations, 64)]);
    groups(&mut b, (u32_, u64_, pointer));
    let prototype = b.ty("", PROTOTYPE, 0, 0, &[]);
    let numbers = functions.iter().map(|name| b.ty(name, FUNCTION, 0, prototype, &[]) as i32).collect();
    let mut data = vec![0x9f, 0xeb, 1, 0];
    let (types, strings) = (b.types.len() as u32, b.strings.len() as u32);
    for word in [24, 0, types, types, strings] {
        data.extend(word.to_le_bytes());
    }
    data.extend(b.types);
    data.extend(b.strings);
    (data, numbers)
}
