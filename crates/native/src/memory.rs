//! Memory that tasks have of their own and share, so that a kernel that looks where memory is used (NUMA balancing) finds it in use
//! where the tasks run.
//!
//! A task that has a memory profile or data groups touches one byte of a page of each of its regions every few microseconds of its
//! run time, page after page. Sizes and sharing are those of the profile; rates and kinds of access are not.

use std::sync::{Arc, Mutex};

use warmcore_memory::{Home, Sharing};
use warmcore_workload::{Task, Workload};

/// A page.
const PAGE: usize = 4096;
/// Least private memory of a task that has some: so much that it weighs more than what threads of a process share anyway.
const LEAST_PRIVATE: u64 = 800 << 10;
/// Most memory of a region.
const MOST: u64 = 64 << 20;

/// What a shared region is known by.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Key {
    Class { process: u32, name: String },
    Data { group: u32 },
}

/// A region that several tasks use.
type Region = Arc<Mutex<Vec<u8>>>;

/// Regions that tasks share, by what they are known by, and the needs of each template.
pub(crate) struct SharedMemory {
    regions: Vec<(Key, Region)>,
    needs: Vec<Need>,
}

/// What the tasks of a template need.
#[derive(Clone, Default, Debug)]
struct Need {
    private_bytes: u64,
    shared: Vec<usize>,
    /// What is not as the workload asks.
    reduced: Vec<&'static str>,
}

impl SharedMemory {
    pub(crate) fn new(workload: &Workload) -> Self {
        let mut memory = Self { regions: Vec::new(), needs: Vec::new() };
        for task in &workload.tasks {
            let need = memory.need(workload, task);
            memory.needs.push(need);
        }
        memory
    }

    fn need(&mut self, workload: &Workload, task: &Task) -> Need {
        let mut need = Need::default();
        let groups: Vec<u32> = task.data_groups.iter().map(|id| id.0).collect();
        let named = |name: &str| groups.iter().copied().find(|&g| workload.data_groups[g as usize].name == name);
        for class in workload.profile_of(task).map_or(&[][..], |profile| &profile.classes) {
            let group = match &class.sharing {
                Sharing::Data(Some(name)) => named(name),
                Sharing::Data(None) => groups.first().copied(),
                Sharing::Private | Sharing::Process => None,
            };
            if class.home != Home::FirstTouch {
                need.reduced.push("memory is where its user first touches it, not where the profile says");
            }
            match group {
                Some(group) => self.share(&mut need, Key::Data { group }, class.bytes),
                None if class.is_shared() => {
                    let key = Key::Class { process: task.process.0, name: class.name.clone() };
                    self.share(&mut need, key, class.bytes);
                }
                None => need.private_bytes += class.bytes,
            }
        }
        for group in groups {
            self.share(&mut need, Key::Data { group }, workload.data_groups[group as usize].bytes);
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

    fn share(&mut self, need: &mut Need, key: Key, bytes: u64) {
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
        let mut memory = TaskMemory {
            private: vec![0; need.private_bytes as usize],
            shared: need.shared.iter().map(|&region| Arc::clone(&self.regions[region].1)).collect(),
            turn: 0,
        };
        for _ in 0..memory.private.len().div_ceil(PAGE) {
            memory.touch();
        }
        Some(memory)
    }
}

/// The memory of one task.
pub(crate) struct TaskMemory {
    private: Vec<u8>,
    shared: Vec<Region>,
    turn: usize,
}

impl TaskMemory {
    /// Writes to the next page of each region.
    pub(crate) fn touch(&mut self) {
        touch_page(&mut self.private, self.turn);
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
        assert!(with.private.iter().step_by(PAGE).all(|byte| *byte == 1), "every page is touched once");
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
}
