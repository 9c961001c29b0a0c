//! Slices and virtual times of tasks. A program in bytecode reads and writes them as members of `task_struct`, so they lie where it looks.

use warmcore_trace::TaskId;

use crate::operations::{Operations, SLICE_DEFAULT_NS};

/// Where the members lie that class and program share. Only this crate makes one: whoever does must keep the memory mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntityLayout {
    /// Address of the first task's structure.
    pub(crate) base: u64,
    /// Bytes from one to the next.
    pub(crate) stride: u64,
    /// How many there is room for.
    pub(crate) tasks: u32,
    /// Where `scx.slice` lies in it, 64 bits.
    pub(crate) slice: u64,
    /// Where `scx.dsq_vtime` lies, 64 bits.
    pub(crate) vtime: u64,
    /// Where `se.sum_exec_runtime` lies, 64 bits.
    pub(crate) runtime: u64,
}

/// One task's, where no program looks.
#[derive(Clone, Copy)]
pub(crate) struct Entity {
    slice_ns: u64,
    vtime: u64,
}

/// Slices and virtual times.
pub(crate) enum Entities {
    /// In an array of our own.
    Own(Vec<Entity>),
    /// In structures that programs see.
    Shared(EntityLayout),
}

impl Default for Entities {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl EntityLayout {
    fn place(&self, task: TaskId, member: u64) -> *mut u64 {
        // With one task too many the program is ejected; until then that one has the last one's place.
        let number = task.0.min(self.tasks - 1);
        (self.base + u64::from(number) * self.stride + member) as *mut u64
    }

    fn load(&self, task: TaskId, member: u64) -> u64 {
        // SAFETY: the program that gave the layout keeps this memory mapped as long as it lives, and it lives as long as the class; only this
        // thread runs it.
        unsafe { self.place(task, member).read_unaligned() }
    }

    fn store(&self, task: TaskId, member: u64, value: u64) {
        // SAFETY: as above.
        unsafe { self.place(task, member).write_unaligned(value) }
    }
}

impl Entities {
    /// Where a program's slices and virtual times lie.
    pub(crate) fn of(program: &dyn Operations) -> Self {
        program.entities().map_or_else(Self::default, Self::Shared)
    }

    /// Whether programs see them.
    pub(crate) fn are_shared(&self) -> bool {
        matches!(self, Entities::Shared(_))
    }

    pub fn add_task(&mut self) {
        match self {
            Entities::Own(entities) => entities.push(Entity { slice_ns: SLICE_DEFAULT_NS, vtime: 0 }),
            // The program makes the structure itself.
            Entities::Shared(_) => {}
        }
    }

    #[inline]
    pub fn slice_ns(&self, task: TaskId) -> u64 {
        match self {
            Entities::Own(entities) => entities[task.index()].slice_ns,
            Entities::Shared(layout) => layout.load(task, layout.slice),
        }
    }

    #[inline]
    pub fn set_slice_ns(&mut self, task: TaskId, slice_ns: u64) {
        match self {
            Entities::Own(entities) => entities[task.index()].slice_ns = slice_ns,
            Entities::Shared(layout) => layout.store(task, layout.slice, slice_ns),
        }
    }

    #[inline]
    pub fn vtime(&self, task: TaskId) -> u64 {
        match self {
            Entities::Own(entities) => entities[task.index()].vtime,
            Entities::Shared(layout) => layout.load(task, layout.vtime),
        }
    }

    #[inline]
    pub(crate) fn set_vtime(&mut self, task: TaskId, vtime: u64) {
        match self {
            Entities::Own(entities) => entities[task.index()].vtime = vtime,
            Entities::Shared(layout) => layout.store(task, layout.vtime, vtime),
        }
    }

    /// The task ran for so long.
    #[inline]
    pub(crate) fn add_runtime_ns(&mut self, task: TaskId, ran_ns: u64) {
        if let Entities::Shared(layout) = self {
            layout.store(task, layout.runtime, layout.load(task, layout.runtime) + ran_ns);
        }
    }
}
