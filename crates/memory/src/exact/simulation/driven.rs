//! What a driver needs whose tasks come and go ([`Live`](super::super::live::Live)): a simulation without tasks, and tasks added, changed and let
//! run by the piece.

use warmcore_topology::Machine;

use super::super::domain::{Entry, NO_CORE, NO_HOME};
use super::super::error::ExactError;
use super::super::home::HomeEntry;
use super::super::options::Options;
use super::super::paging::distinct_pages;
use super::super::space::{COHERENT_ROOM, Region, Space, TaskSpec};
use super::{FS_PER_NS, Simulation, code_of};
use crate::hierarchy::Hierarchy;
use crate::profile::Profile;

impl Simulation {
    /// A machine without tasks, which [`Simulation::add`] adds with lines of their own; the directories may know those below
    /// [`COHERENT_ROOM`]. `has_code`: some of them have.
    pub(in crate::exact) fn open(machine: &Machine, options: Options, has_code: bool) -> Result<Self, ExactError> {
        let hierarchy = Hierarchy::new(machine)?;
        let space = Space::open(&hierarchy, &options);
        let mut simulation = Self::with_space(machine, options, hierarchy, space, Vec::new(), has_code)?;
        if simulation.paging.is_some() {
            return Ok(simulation);
        }
        simulation.context.coherent_end = COHERENT_ROOM;
        let pages = COHERENT_ROOM as usize >> simulation.context.page_shift;
        simulation.context.homes.resize(pages, NO_HOME);
        simulation.context.page_core.resize(pages, NO_CORE);
        Ok(simulation)
    }

    /// Adds a task whose classes have these lines, which there is room for (see [`Simulation::make_room`]).
    pub(in crate::exact) fn add(&mut self, spec: TaskSpec, regions: Vec<Region>) {
        let index = self.tasks.len();
        self.space.regions.push(regions);
        self.add_task(index, spec);
    }

    /// Lets the directories know coherent lines up to one, and pages of other lines be homed up to another.
    pub(in crate::exact) fn make_room(&mut self, coherent_end: u32, private_end: u64) {
        let pages = (private_end >> self.context.page_shift) as usize;
        if let Some(paging) = &mut self.paging {
            return paging.make_room(pages);
        }
        for domain in &mut self.domains {
            domain.directory.resize(coherent_end as usize, Entry::NONE);
        }
        self.home.entries.resize(coherent_end as usize, HomeEntry::NONE);
        self.context.homes.resize(pages, NO_HOME);
        self.context.page_core.resize(pages, NO_CORE);
    }

    /// Says of a page of a task to be on which node it shall be, and whether the directories know its lines.
    pub(in crate::exact) fn describe_page(&mut self, page: usize, home: u8, coherent: bool) {
        match &mut self.paging {
            Some(paging) => paging.describe(page, home, coherent),
            None => (self.context.homes[page], self.context.page_core[page]) = (home, NO_CORE),
        }
    }

    /// From now on a page is on another node.
    pub(in crate::exact) fn set_home(&mut self, page: usize, node: u8) {
        match &mut self.paging {
            Some(paging) => paging.set_home(&mut self.context, page, node),
            None => self.context.homes[page] = node,
        }
    }

    /// A task is gone, with these regions of its own.
    pub(in crate::exact) fn remove(&mut self, task: usize, regions: &[Region]) {
        if let Some(paging) = &mut self.paging {
            let pages = distinct_pages(&self.space, regions.iter().copied());
            paging.remove_task(&self.context, task, &pages);
        }
    }

    /// The task goes on with other touches, of these lines.
    pub(in crate::exact) fn change(&mut self, task: usize, profile: Profile, regions: Vec<Region>) {
        let cpu = self.tasks[task].cpu;
        self.park(task);
        self.space.regions[task] = regions;
        let (stream, fill) = self.stream(task, &profile);
        let code = code_of(&profile);
        let state = &mut self.tasks[task];
        state.spec.profile = profile;
        (state.homed, state.last_seat) = (false, None);
        let parked = self.task_mut(task);
        parked.set_code(code);
        (parked.stream, parked.fill, parked.touches, parked.touches_wanted) = (stream, fill, 0, 0);
        if let Some(cpu) = cpu {
            self.seat(task, cpu);
        }
    }

    /// Instructions that the task has executed with its present touches.
    pub(in crate::exact) fn executed(&self, task: usize) -> f64 {
        let task = self.task(task);
        task.touches as f64 / task.stream.rate()
    }

    /// The time that the task has reached.
    pub(in crate::exact) fn clock_fs(&self, task: usize) -> u64 {
        self.task(task).clock_fs
    }

    /// From now on the task is idle for a time, then executes so many instructions, if infinite without end. When it begins.
    pub(in crate::exact) fn begin_share(&mut self, task: usize, idle_ns: u64, instructions: f64) -> u64 {
        let now_fs = self.now_fs;
        let task = self.task_mut(task);
        task.clock_fs = task.clock_fs.max(now_fs + idle_ns * FS_PER_NS);
        let touches = (instructions * task.stream.rate()).ceil();
        task.touches_wanted = if touches.is_finite() { task.touches + touches as u64 } else { u64::MAX };
        task.clock_fs
    }

    /// Pages of a region.
    pub(in crate::exact) fn pages(&self, region: Region) -> std::ops::Range<usize> {
        self.space.pages(region)
    }
}
