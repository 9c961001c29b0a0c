//! Memory that tasks have of their own and share, so that a kernel that looks where memory is used (NUMA balancing) finds it in use
//! where the tasks run.
//!
//! A task that has a memory profile or data groups touches one byte of a page of each of its regions every few microseconds of its
//! run time, page after page. Sizes and sharing are those of the profile; rates and kinds of access are not.

use std::sync::{Arc, Mutex};

use warmcore_memory::{Home, Sharing};
use warmcore_workload::{Task, Workload};

use crate::spin::pause;
use crate::sync::locked;

const PAGE: usize = 4096;
/// Least private memory of a task that has some: so much that it weighs more than what threads of a process share anyway.
const LEAST_PRIVATE: u64 = 800 << 10;
/// Most memory of a region.
const MOST: u64 = 64 << 20;

/// What a shared region is known by.
#[derive(Clone, PartialEq, Eq, Debug)]
enum RegionKey {
    Class { process: u32, name: String },
    Data { group: u32 },
}

/// A region that several tasks use.
type SharedRegion = Arc<Mutex<Vec<u8>>>;

/// Private memory of a task: a part of what was set aside for all tasks of its template.
type Private = &'static mut [u8];

/// Regions that tasks share, by what they are known by, and the needs of each template.
pub(crate) struct SharedMemory {
    regions: Vec<(RegionKey, SharedRegion)>,
    needs: Vec<TemplateMemory>,
    /// By template: memory for tasks that are still to come.
    set_aside: Mutex<Vec<Vec<Private>>>,
}

/// What the tasks of a template need.
#[derive(Clone, Default, Debug)]
struct TemplateMemory {
    private_bytes: u64,
    shared: Vec<usize>,
    /// What is not as the workload asks.
    reduced: Vec<&'static str>,
}

impl SharedMemory {
    pub(crate) fn new(workload: &Workload) -> Self {
        let mut memory = Self { regions: Vec::new(), needs: Vec::new(), set_aside: Mutex::default() };
        let mut set_aside = Vec::new();
        for task in &workload.tasks {
            let need = memory.need(workload, task);
            set_aside.push(set_aside_for(task.instances as usize, need.private_bytes as usize));
            memory.needs.push(need);
        }
        memory.set_aside = Mutex::new(set_aside);
        memory
    }

    fn need(&mut self, workload: &Workload, task: &Task) -> TemplateMemory {
        let mut need = TemplateMemory::default();
        let groups: Vec<u32> = task.data_groups.iter().map(|id| id.0).collect();
        let named = |name: &str| groups.iter().copied().find(|&g| workload.data_groups[g as usize].name == name);
        for class in workload.profile_of(task).map_or(&[][..], |profile| &profile.classes) {
            if class.code {
                need.reduced.push("its threads execute the code of this program, not that of the profile");
                continue;
            }
            let group = match &class.sharing {
                Sharing::Data(Some(name)) => named(name),
                Sharing::Data(None) => groups.first().copied(),
                Sharing::Private | Sharing::Process => None,
            };
            if class.home != Home::FirstTouch {
                need.reduced.push("memory is where its user first touches it, not where the profile says");
            }
            match group {
                Some(group) => self.share(&mut need, RegionKey::Data { group }, class.bytes),
                None if class.is_shared() => {
                    let key = RegionKey::Class { process: task.process.0, name: class.name.clone() };
                    self.share(&mut need, key, class.bytes);
                }
                None => need.private_bytes += class.bytes,
            }
        }
        for group in groups {
            self.share(&mut need, RegionKey::Data { group }, workload.data_groups[group as usize].bytes);
        }
        if need.private_bytes > 0 || !need.shared.is_empty() && task.profile.is_some() {
            need.private_bytes = need.private_bytes.max(LEAST_PRIVATE);
        }
        if need.private_bytes > MOST {
            need.reduced.push("only 64 MiB of it are there");
            need.private_bytes = MOST;
        }
        need
    }

    fn share(&mut self, need: &mut TemplateMemory, key: RegionKey, bytes: u64) {
        if bytes > MOST {
            need.reduced.push("only 64 MiB of it are there");
        }
        let size = bytes.clamp(1, MOST) as usize;
        let position = self.regions.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            // Zeroed memory that nobody has touched is nowhere yet.
            self.regions.push((key, Arc::new(Mutex::new(vec![0; size]))));
            self.regions.len() - 1
        });
        if !need.shared.contains(&position) {
            need.shared.push(position);
        }
    }

    /// What cannot be had as asked by a template's tasks.
    pub(crate) fn reduced(&self, template: usize) -> &[&'static str] {
        &self.needs[template].reduced
    }

    /// The memory of a new task of a template, whose private part it has touched; `None` if it has none.
    pub(crate) fn of_task(&self, template: usize) -> Option<TaskMemory> {
        let need = &self.needs[template];
        if need.private_bytes == 0 && need.shared.is_empty() {
            return None;
        }
        let left = locked(&self.set_aside)[template].pop();
        // Tasks that others fork were not counted.
        let private = left.unwrap_or_else(|| vec![0; need.private_bytes as usize].leak());
        let mut memory = TaskMemory {
            private,
            shared: need.shared.iter().map(|&region| Arc::clone(&self.regions[region].1)).collect(),
            turn: 0,
        };
        for _ in 0..memory.private.len().div_ceil(PAGE) {
            memory.touch();
            pause();
        }
        Some(memory)
    }
}

/// Memory for so many tasks, of which nothing but its first page is anywhere yet.
///
/// It is one mapping made before the first thread is, and known to be used: a thread's first touches then need no lock of the whole
/// address space. With a mapping for each thread, threads that are bound to one CPU are preempted with that lock held, and whoever
/// makes further threads waits for the turns of all of them: in a kernel whose CPUs are emulated half a second went by until 64
/// threads were there. It is never given back, as the processes that use it end with their run.
fn set_aside_for(tasks: usize, private_bytes: usize) -> Vec<Private> {
    if tasks == 0 || private_bytes == 0 {
        return Vec::new();
    }
    let size = private_bytes.next_multiple_of(PAGE);
    let all = vec![0; tasks * size].leak();
    touch_page(all, 0);
    all.chunks_mut(size).map(|part| &mut part[..private_bytes]).collect()
}

pub(crate) struct TaskMemory {
    private: Private,
    shared: Vec<SharedRegion>,
    turn: usize,
}

impl TaskMemory {
    /// Writes to the next page of each region.
    pub(crate) fn touch(&mut self) {
        touch_page(self.private, self.turn);
        for region in &self.shared {
            // Another task that is there now touches for both: nobody waits for memory.
            if let Ok(mut region) = region.try_lock() {
                touch_page(&mut region, self.turn);
            }
        }
        self.turn = self.turn.wrapping_add(1);
    }
}

fn touch_page(bytes: &mut [u8], turn: usize) {
    let pages = bytes.len().div_ceil(PAGE);
    if pages > 0 {
        let byte = &mut bytes[turn % pages * PAGE];
        *byte = std::hint::black_box(byte.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_workload::{Options, from_rtapp};

    #[test]
    fn tasks_have_the_memory_that_the_workload_speaks_of_and_no_other() {
        let text = r#"{"tasks": {"with": {"loop": 1, "run": 5}, "data": {"loop": 1, "run": 5}, "without": {"loop": 1, "run": 5}},
            "warmcore": {"data_groups": [{"name": "d", "bytes": 8192}],
                         "tasks": {"with": {"profile": "perlbench", "data": ["d"]}, "data": {"data": ["d"]}}}}"#;
        let workload = from_rtapp("memory", text, &Options::default()).unwrap();
        let memory = SharedMemory::new(&workload);
        let mut with = memory.of_task(0).unwrap();
        assert!(with.private.len() >= LEAST_PRIVATE as usize);
        let pages = || with.private.iter().step_by(PAGE);
        assert!(pages().skip(1).all(|byte| *byte == 1), "every page is touched once");
        let data = memory.of_task(1).unwrap();
        assert!(data.private.is_empty() && Arc::ptr_eq(&with.shared[0], &data.shared[0]));
        let of_pages =
            |data: &TaskMemory| data.shared[0].lock().unwrap().iter().step_by(PAGE).copied().collect::<Vec<u8>>();
        let before = of_pages(&data);
        with.touch();
        with.touch();
        let touched_once: Vec<u8> = before.iter().map(|byte| byte.wrapping_add(1)).collect();
        assert_eq!((before.len(), of_pages(&data)), (2, touched_once), "one page at a time, seen by both");
        assert!(memory.of_task(2).is_none());
    }

    #[test]
    fn memory_is_set_aside_for_the_tasks_that_are_known_and_no_two_have_the_same() {
        let text = r#"{"tasks": {"with": {"instance": 2, "loop": 1, "run": 5}}, "warmcore": {"tasks": {"with": {"profile": "perlbench"}}}}"#;
        let workload = from_rtapp("memory", text, &Options::default()).unwrap();
        let memory = SharedMemory::new(&workload);
        let parts: Vec<TaskMemory> = (0..3).map(|_| memory.of_task(0).unwrap()).collect();
        let ranges: Vec<_> = parts.iter().map(|task| task.private.as_ptr_range()).collect();
        let apart = |a: usize, b: usize| ranges[a].end <= ranges[b].start || ranges[b].end <= ranges[a].start;
        assert!(apart(0, 1) && apart(0, 2) && apart(1, 2));
        let size = parts[0].private.len().next_multiple_of(PAGE);
        assert_eq!(ranges[0].start as usize, ranges[1].start as usize + size, "parts of one mapping");
        assert_eq!(parts[2].private.len(), parts[0].private.len(), "one that was forked has as much");
    }
}
