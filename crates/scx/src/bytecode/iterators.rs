//! Open-coded iterators: each is a structure on a program's stack, which holds all there is of it.

use warmcore_bpf::HostFunction;
use warmcore_trace::TaskId;

use crate::bytecode::helpers::{EINVAL, error, functions};
use crate::bytecode::host::Host;

/// Which tasks an iterator goes through (`BPF_TASK_ITER_*`).
const ALL_PROCESSES: u64 = 0;
const ALL_THREADS: u64 = 1;
const THREADS_OF_A_PROCESS: u64 = 2;
/// Those of a group, or of them the first of each process.
const OF_A_GROUP: u64 = 3;
const PROCESSES_OF_A_GROUP: u64 = 4;

/// `CSS_TASK_ITER_PROCS`.
const ONLY_PROCESSES: u64 = 1;

/// Which groups (`BPF_CGROUP_ITER_*`): the group itself first or last, or its children only.
const SELF_AND_DESCENDANTS: [u64; 3] = [2, 3, 4];
const CHILDREN: u64 = 5;

/// Most words of bits (`BITS_ITER_NR_WORDS_MAX`).
const MOST_WORDS: u64 = 511;

/// A kernel function about them, by name.
pub(super) fn kfunc(name: &str) -> Option<(HostFunction, u8)> {
    let find: fn(&str) -> Option<(HostFunction, u8)> = functions! {
        "bpf_iter_bits_new" => |host, iterator, words, count| host.bits_new(iterator, words, u64::from(count as u32));
        "bpf_iter_bits_next" => |host, iterator| host.bits_next(iterator);
        "bpf_iter_task_new" => |host, iterator, task, flags| host.tasks_new(iterator, task, u64::from(flags as u32));
        "bpf_iter_css_task_new" => |host, iterator, css, flags| host.group_tasks_new(iterator, css, flags);
        "bpf_iter_task_next" | "bpf_iter_css_task_next" => |host, iterator| host.tasks_next(iterator);
        "bpf_iter_css_new" => |host, iterator, start, flags| host.groups_new(iterator, start, u64::from(flags as u32));
        "bpf_iter_css_next" => |host, iterator| host.groups_next(iterator);
    };
    find(name)
}

impl Host {
    /// Address of the words, number of bits, and the bit before the next one.
    fn bits_new(&mut self, iterator: u64, words: u64, count: u64) -> u64 {
        self.store_u64(iterator, 0);
        self.store_u64(iterator + 8, 0);
        if count == 0 || words == 0 {
            return error(EINVAL);
        }
        if count > MOST_WORDS {
            return error(7);
        }
        self.store_u64(iterator, words);
        self.store_u64(iterator + 8, (count * 64) | (0xffff_ffff << 32));
        0
    }

    fn bits_next(&mut self, iterator: u64) -> u64 {
        let memory = &self.maps.memory;
        let (words, bits) = (memory.load_u64(iterator), u64::from(memory.load_u32(iterator + 8)));
        let mut bit = u64::from(memory.load_u32(iterator + 12).wrapping_add(1));
        while bit < bits {
            let rest = memory.load_u64(words + bit / 64 * 8) >> (bit % 64);
            if rest != 0 {
                bit += u64::from(rest.trailing_zeros());
                self.store_u32(iterator + 12, bit as u32);
                return iterator + 12;
            }
            bit = (bit / 64 + 1) * 64;
        }
        self.store_u32(iterator + 8, 0);
        0
    }

    /// Number of the task that is looked at next, which tasks, and the process.
    fn tasks_new(&mut self, iterator: u64, task: u64, which: u64) -> u64 {
        let process = self.maps.memory.load_u32(task + self.kept.layout.tgid);
        let is_known = match which {
            ALL_PROCESSES | ALL_THREADS => true,
            THREADS_OF_A_PROCESS => self.task_of(task).is_some(),
            _ => false,
        };
        let first = if is_known { 0 } else { u64::from(u32::MAX) };
        for (at, value) in [first, which, u64::from(process)].into_iter().enumerate() {
            self.store_u64(iterator + 8 * at as u64, value);
        }
        if is_known { 0 } else { error(EINVAL) }
    }

    fn tasks_next(&mut self, iterator: u64) -> u64 {
        let memory = &self.maps.memory;
        let [first, which, process] = [0, 8, 16].map(|at| memory.load_u64(iterator + at));
        let is_meant = |task: u32| {
            let at = self.task_address(TaskId(task));
            let [pid, tgid] = [self.kept.layout.pid, self.kept.layout.tgid].map(|at_| memory.load_u32(at + at_));
            self.lives(TaskId(task))
                && match which {
                    ALL_PROCESSES => pid == tgid,
                    THREADS_OF_A_PROCESS => u64::from(tgid) == process,
                    OF_A_GROUP | PROCESSES_OF_A_GROUP => {
                        u64::from(self.group_of(at)) == process && (which == OF_A_GROUP || pid == tgid)
                    }
                    _ => true,
                }
        };
        let found = (first.min(u64::from(u32::MAX)) as u32..self.task_count()).find(|&task| is_meant(task));
        self.store_u64(iterator, found.map_or(u64::from(u32::MAX), |task| u64::from(task) + 1));
        found.map_or(0, |task| self.task_address(TaskId(task)))
    }

    /// As of tasks, with the group instead of a process.
    fn group_tasks_new(&mut self, iterator: u64, css: u64, flags: u64) -> u64 {
        let which = if flags & ONLY_PROCESSES != 0 { PROCESSES_OF_A_GROUP } else { OF_A_GROUP };
        let Some(group) = self.group_of_css(css) else { return error(EINVAL) };
        for (at, value) in [0, which, u64::from(group)].into_iter().enumerate() {
            self.store_u64(iterator + 8 * at as u64, value);
        }
        0
    }

    fn groups_new(&mut self, iterator: u64, start: u64, which: u64) -> u64 {
        for (at, value) in [0, start, which].into_iter().enumerate() {
            self.store_u64(iterator + 8 * at as u64, value);
        }
        if SELF_AND_DESCENDANTS.contains(&which) || which == CHILDREN { 0 } else { error(EINVAL) }
    }
}
