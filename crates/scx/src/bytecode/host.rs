//! The kernel as programs see it: structures in memory, and the state of helpers and kfuncs.

use std::collections::BTreeMap;
use std::sync::Arc;

use warmcore_bpf::btf::Btf;
use warmcore_bpf::maps::MapsImage;
use warmcore_bpf::{Frame, Maps, MemoryError};
use warmcore_kernel::State;
use warmcore_topology::{CpuId, CpuSet, Machine};
use warmcore_trace::TaskId;

use crate::bytecode::cids::Cids;
use crate::bytecode::collections::Collections;
use crate::bytecode::counters::{Counter, CounterId};
use crate::bytecode::groups::{GROUPS_BYTES, Groups};
use crate::bytecode::layout::Layout;
use crate::bytecode::object::Loaded;
use crate::bytecode::samples::Sampler;
use crate::entities::EntityLayout;
use crate::kfuncs::Kfuncs;

/// Tasks that there may be, the idle one apart.
pub(super) const TASKS: u32 = 65_000;

/// Process number of the first task.
const FIRST_PID: u32 = 1000;

/// The same of a loader, whose threads have the numbers from there on.
pub const LOADER_PID: u32 = 500;

/// Bytes of per-CPU variables of each CPU, the run queue included.
pub(super) const PERCPU_BYTES: u64 = 64 << 10;

/// What the clocks say at the start of a run: programs take 0 for a time that is not known yet, and no kernel attaches one at 0.
pub(super) const UPTIME_NS: u64 = 100_000_000_000;

/// How long a scheduler has been loaded when a run begins: long enough for what it adapts in the first moments, as its averages and the CPUs
/// that it uses at no load.
pub(super) const LOADED_BEFORE_NS: u64 = 1_000_000_000;

/// What the clocks say.
pub(super) fn clock_ns(kernel: &Kfuncs<'_, '_>) -> u64 {
    UPTIME_NS - kernel.before_ns() + kernel.now_ns()
}

/// Bytes for masks and other objects that programs make.
const HEAP_BYTES: u64 = 64 << 20;

const SCRATCH_BYTES: u64 = 256 << 10;

/// Priority of idle tasks, as of a nice value of 0 (`init_task`).
const IDLE_PRIORITY: u32 = 120;

/// `PF_IDLE | PF_KTHREAD`.
const IDLE_FLAGS: u32 = 0x0000_0002 | 0x0020_0000;

/// `PF_KTHREAD`.
const KERNEL_THREAD_FLAG: u32 = 0x0020_0000;

/// Where address spaces lie, that of a process by the number of its first task, and bytes of each. Their members read as 0, being nowhere.
const ADDRESS_SPACES: u64 = 0xffff_8880_0000_0000;
const ADDRESS_SPACE_BYTES: u64 = 4096;

/// No queue was said yet (`SCX_DSQ_INVALID`).
const DSQ_INVALID: u64 = 1 << 63;

/// An armed or stopped `bpf_timer`.
#[derive(Clone, Debug, Default)]
pub(super) struct Timer {
    pub address: u64,
    pub map: u64,
    pub callback: u64,
    /// Number of the last start or stop: an older one that runs out is ignored.
    pub generation: u32,
    /// It was started and has not run out since.
    pub is_armed: bool,
}

/// Everything but memory that goes from loading into each run.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub layout: Arc<Layout>,
    pub btf: Arc<Btf>,
    pub cpus: u32,
    pub nodes: u32,
    pub node_of_cpu: Arc<[u32]>,
    pub llc_of_cpu: Arc<[u32]>,
    pub llc_sizes: Arc<[u32]>,
    pub tasks: u64,
    pub percpu: u64,
    percpu_names: BTreeMap<String, u64>,
    percpu_next: u64,
    pub idle_mask: u64,
    pub idle_cores_mask: u64,
    /// Each node's part of both.
    pub idle_masks_of_nodes: Vec<[u64; 2]>,
    /// The CPUs that are online; the same as the next until one goes offline.
    pub online_mask: u64,
    pub possible_mask: u64,
    /// Without a CPU.
    pub none_mask: u64,
    /// By CPU the mask with it alone.
    pub lone_masks: u64,
    /// Where objects that programs make begin; below are the kernel's own.
    objects: u64,
    heap_next: u64,
    heap_end: u64,
    heap_free: Vec<u64>,
    /// Control groups.
    pub groups: Groups,
    /// Arguments of calls.
    pub scratch: u64,
    /// Compact numbers of CPUs.
    pub cids: Cids,
    /// What programs keep in trees and lists.
    pub collections: Collections,
    /// The type information of the object that was loaded last: programs name the types of their objects by it.
    pub types: Option<Arc<Btf>>,
    pub timers: Vec<Timer>,
    pub timer_at: BTreeMap<u64, u32>,
    /// Counters that the loader has opened.
    pub counters: Vec<Counter>,
    /// Those whose samples a program is called at.
    pub samplers: Vec<Sampler>,
}

/// A kernel for programs. Begins with the frame that translated code knows.
#[repr(C)]
pub struct Host {
    pub(super) frame: Frame,
    /// The running kernel, during an operation.
    pub(super) kernel: Option<*mut Kfuncs<'static, 'static>>,
    /// Programs run with interrupts off: in operations under a run queue's lock, that is in all but those that may sleep, and not in timers.
    pub(super) interrupts_off: bool,
    /// The timer whose callback runs.
    pub(super) running_timer: Option<u32>,
    /// The task that leaves its CPU, while programs are told of that.
    pub(super) leaves: Option<TaskId>,
    /// The counter whose sample is taken, while its program runs.
    pub(super) sampled: Option<CounterId>,
    /// The programs that it runs, while it does.
    pub(super) programs: *const [Loaded],
    /// The tasks that threads of the loader are.
    pub(super) loader_tasks: std::ops::Range<u32>,
    /// Memory and maps.
    pub maps: Maps,
    pub(super) kept: Kept,
    pub(super) random: u64,
    pub(super) cursor: u32,
    /// What the present call of an operation has called, if that is noted.
    pub(super) called: Option<Vec<&'static str>>,
    /// What the present call has printed.
    pub(super) printed: String,
    /// Set of CPUs that a mask was copied to, so that nothing is allocated.
    pub(super) set: CpuSet,
    /// Where each task's affinity was when it was written down last.
    pub(super) affinities: Vec<*const CpuSet>,
    /// How often a CPU has gone offline or come online.
    pub(super) hotplug_seq: u64,
}

impl Host {
    /// A kernel without tasks on a machine, as a loader finds it.
    ///
    /// # Errors
    /// When the system has no memory.
    pub fn new(machine: &Machine, btf: Arc<Btf>, layout: Arc<Layout>) -> Result<Self, MemoryError> {
        let cpus = machine.cpu_count() as u32;
        let mut maps = Maps::new(cpus)?;
        let (tasks, _) = maps.memory.add("tasks", (u64::from(TASKS) + 1) * layout.task_size)?;
        let (percpu, _) = maps.memory.add("percpu", u64::from(cpus) * PERCPU_BYTES)?;
        let (heap, _) = maps.memory.add("heap", HEAP_BYTES)?;
        let (scratch, _) = maps.memory.add("scratch", SCRATCH_BYTES)?;
        let (groups, _) = maps.memory.add("groups", GROUPS_BYTES)?;
        let (lone_masks, _) = maps.memory.add("lone", u64::from(cpus) * layout.cpumask_size)?;
        let ids = |of: &dyn Fn(CpuId) -> u32| machine.cpus().map(of).collect::<Arc<[u32]>>();
        let kept = Kept {
            cpus,
            nodes: machine.node_count() as u32,
            node_of_cpu: ids(&|cpu| machine.node_of(cpu).index() as u32),
            llc_of_cpu: ids(&|cpu| machine.llc_of(cpu).index() as u32),
            llc_sizes: machine.llcs().map(|llc| machine.cpus_of_llc(llc).len() as u32).collect(),
            tasks,
            percpu,
            percpu_names: BTreeMap::new(),
            percpu_next: 0,
            idle_mask: 0,
            idle_cores_mask: 0,
            idle_masks_of_nodes: Vec::new(),
            online_mask: 0,
            possible_mask: 0,
            none_mask: 0,
            lone_masks,
            objects: 0,
            heap_next: heap,
            heap_end: heap + HEAP_BYTES,
            heap_free: Vec::new(),
            groups: Groups::new(groups),
            scratch,
            cids: Cids::new(machine),
            collections: Collections::default(),
            types: None,
            timers: Vec::new(),
            timer_at: BTreeMap::new(),
            counters: Vec::new(),
            samplers: Vec::new(),
            layout,
            btf,
        };
        let mut host = Self::with(maps, kept, 0);
        host.make_objects();
        Ok(host)
    }

    /// As it was when kept.
    pub(super) fn again(image: &MapsImage, kept: &Kept, seed: u64) -> Result<Self, MemoryError> {
        Ok(Self::with(Maps::copy(image)?, kept.clone(), seed))
    }

    /// A program calls a helper or a kernel function, by the pattern of its names. Functions of the class are noted, by their first name.
    #[inline]
    pub(super) fn note(&mut self, names: &'static str) {
        if let Some(called) = &mut self.called {
            let name = names.split('"').nth(1).filter(|name| name.trim_start_matches('_').starts_with("scx_bpf_"));
            called.extend(name);
        }
    }

    /// Sets what programs draw at random.
    pub(super) fn seed(&mut self, seed: u64) {
        self.random = seed ^ 0x9e37_79b9_7f4a_7c15;
    }

    fn with(maps: Maps, kept: Kept, seed: u64) -> Self {
        let set = CpuSet::with_capacity(kept.cpus as usize);
        let mut host = Self {
            frame: Frame { call_back: crate::bytecode::callbacks::call_back, ..Frame::default() },
            kernel: None,
            interrupts_off: false,
            running_timer: None,
            leaves: None,
            sampled: None,
            loader_tasks: 0..0,
            programs: &[],
            maps,
            kept,
            random: 0,
            cursor: 0,
            called: None,
            printed: String::new(),
            set,
            affinities: Vec::new(),
            hotplug_seq: 0,
        };
        host.seed(seed);
        host
    }

    pub(super) fn keep(&self) -> (MapsImage, Kept) {
        (self.maps.image(), self.kept.clone())
    }

    /// The run queues, the idle task, the masks and the root group.
    fn make_objects(&mut self) {
        let layout = Arc::clone(&self.kept.layout);
        let runqueues = self.percpu("runqueues", layout.rq_size);
        let cpus = self.kept.cpus;
        for cpu in 0..cpus {
            let run_queue = runqueues + u64::from(cpu) * PERCPU_BYTES;
            self.store_u64(run_queue + layout.rq_curr, self.kept.tasks);
            self.store_member(run_queue, layout.rq_cpu, cpu);
        }
        self.percpu("__preempt_count", 4);
        let [online, idle, cores, none] = [(); 4].map(|()| self.allocate());
        (self.kept.online_mask, self.kept.possible_mask, self.kept.none_mask) = (online, online, none);
        (self.kept.idle_mask, self.kept.idle_cores_mask) = (idle, cores);
        self.kept.idle_masks_of_nodes = (0..self.kept.nodes).map(|_| [(); 2].map(|()| self.allocate())).collect();
        for word in 0..cpus.div_ceil(64) {
            let bits = if cpus - word * 64 >= 64 { u64::MAX } else { (1 << (cpus - word * 64)) - 1 };
            self.store_u64(online + 8 * u64::from(word), bits);
        }
        let idle_task = self.kept.tasks;
        self.store_u32(idle_task + layout.task_flags, IDLE_FLAGS);
        self.store_u32(idle_task + layout.prio, IDLE_PRIORITY);
        self.store_u32(idle_task + layout.static_prio, IDLE_PRIORITY);
        self.store_u64(idle_task + layout.cpus_ptr, idle_task + layout.cpus_mask);
        self.store_u64(idle_task + layout.real_parent, idle_task);
        self.store_u64(idle_task + layout.group_leader, idle_task);
        self.store_text(idle_task + layout.comm, "swapper/0", 16);
        self.make_group(0, "");
        let all = (0..cpus).map(CpuId).collect::<CpuSet>();
        self.make_cpuset(0, [all.clone(), all]);
        self.kept.objects = self.kept.heap_next;
    }

    /// Address of a per-CPU variable on CPU 0, made if it does not exist.
    pub(super) fn percpu(&mut self, name: &str, bytes: u64) -> u64 {
        if let Some(&offset) = self.kept.percpu_names.get(name) {
            return self.kept.percpu + offset;
        }
        let offset = self.kept.percpu_next;
        let next = offset + bytes.next_multiple_of(64);
        if next > PERCPU_BYTES {
            // No variable of this name: a program that uses it reads zeros.
            return 0;
        }
        self.kept.percpu_next = next;
        self.kept.percpu_names.insert(name.to_owned(), offset);
        let base = self.kept.percpu + offset;
        for cpu in 0..self.kept.cpus {
            let llc = self.kept.llc_of_cpu[cpu as usize];
            let value = match name {
                "sd_llc_id" => llc,
                "sd_llc_size" => self.kept.llc_sizes[llc as usize],
                _ => continue,
            };
            self.store_u32(base + u64::from(cpu) * PERCPU_BYTES, value);
        }
        base
    }

    /// Address of a per-CPU variable on a CPU, from that on CPU 0; 0 if there is no such CPU.
    pub(super) fn on_cpu(&mut self, variable: u64, cpu: u32) -> u64 {
        if variable == 0 || cpu >= self.kept.cpus {
            return 0;
        }
        if variable == self.kept.percpu {
            self.write_run_queue(CpuId(cpu));
        }
        variable + u64::from(cpu) * PERCPU_BYTES
    }

    /// Address of a CPU's run queue, up to date.
    pub(super) fn run_queue(&mut self, cpu: u32) -> u64 {
        // It was made first, so it is the first variable.
        self.on_cpu(self.kept.percpu, cpu)
    }

    /// Whether the code runs in an interrupt, which programs read from the count of preemption.
    pub(super) fn write_context(&mut self, cpu: CpuId, in_interrupt: bool) {
        if let Some(&offset) = self.kept.percpu_names.get("__preempt_count") {
            let place = self.kept.percpu + offset + u64::from(cpu.0) * PERCPU_BYTES;
            self.store_u32(place, if in_interrupt { 1 << 16 } else { 0 });
        }
    }

    /// The running kernel. None while a loader sets things up.
    #[inline]
    pub(super) fn kernel<'a>(&self) -> Option<&'a mut Kfuncs<'static, 'static>> {
        // SAFETY: the pointer is set for the time of one operation only, during which its target lives and nobody else uses it; no result is
        // kept beyond a helper or kfunc, and none of those asks twice at a time.
        self.kernel.map(|kernel| unsafe { &mut *kernel })
    }

    /// Where slices and virtual times lie.
    pub(super) fn entities(&self) -> EntityLayout {
        let layout = &self.kept.layout;
        EntityLayout {
            base: self.kept.tasks + layout.task_size,
            stride: layout.task_size,
            tasks: TASKS,
            slice: layout.slice,
            vtime: layout.vtime,
            runtime: layout.runtime,
        }
    }

    /// The structure of a task.
    #[inline]
    pub(super) fn task_address(&self, task: TaskId) -> u64 {
        if task.is_idle() {
            return self.kept.tasks;
        }
        self.kept.tasks + (u64::from(task.0) + 1) * self.kept.layout.task_size
    }

    /// The task that a structure is of; `None` for the idle one and for what is none.
    #[inline]
    pub(super) fn task_of(&self, address: u64) -> Option<TaskId> {
        let distance = address.checked_sub(self.kept.tasks)?;
        let size = self.kept.layout.task_size;
        let index = distance / size;
        let exists = distance % size == 0 && index > 0 && index <= self.affinities.len() as u64;
        exists.then(|| TaskId(index as u32 - 1))
    }

    /// Whether a task is not gone.
    pub(super) fn lives(&self, task: TaskId) -> bool {
        self.kernel().is_some_and(|kernel| kernel.task(task).state() != State::Dead)
    }

    /// Number of the storage that belongs to a task's structure, the idle one included.
    pub(super) fn storage_owner(&self, address: u64) -> Option<u32> {
        if address == self.kept.tasks { Some(0) } else { self.task_of(address).map(|task| task.0 + 1) }
    }

    /// Number of tasks so far.
    pub(super) fn task_count(&self) -> u32 {
        self.affinities.len() as u32
    }

    /// Makes a new task's structure. Its parent is who forked it, or for a thread of that task's process whose child the process is; of what
    /// a launcher forks it is the launcher, and the launcher's is the idle task.
    pub(super) fn add_task(
        &mut self,
        (task, comm): (TaskId, &str),
        leader: TaskId,
        forker: Option<TaskId>,
        is_thread: bool,
    ) {
        let layout = Arc::clone(&self.kept.layout);
        let at = self.task_address(task);
        let (leader_at, pid) = (self.task_address(leader), self.pid_of(task));
        self.affinities.resize(task.index() + 1, std::ptr::null());
        self.store_u32(at + layout.pid, pid);
        self.store_u32(at + layout.tgid, self.pid_of(leader));
        self.store_text(at + layout.comm, comm, 16);
        self.store_u64(at + layout.cpus_ptr, at + layout.cpus_mask);
        let parent = match forker.map(|forker| self.task_address(forker)) {
            None => self.kept.tasks,
            Some(forker) if is_thread => self.maps.memory.load_u64(forker + layout.real_parent),
            Some(forker) => forker,
        };
        self.store_u64(at + layout.real_parent, parent);
        self.store_u64(at + layout.group_leader, leader_at);
        if let Some(member) = layout.mm {
            self.store_u64(at + member, ADDRESS_SPACES + u64::from(leader.0) * ADDRESS_SPACE_BYTES);
        }
        if let Some(cpu) = self.kernel().map(|kernel| kernel.task_cpu(task).0) {
            self.store_member(at, layout.recent_used_cpu, cpu);
        }
        self.store_u64(at + layout.slice, crate::SLICE_DEFAULT_NS);
        self.store_u64(at + layout.vtime, 0);
        if let Some(byte) = layout.disallow.and_then(|member| self.maps.memory.write(at + member, 1)) {
            byte[0] = 0;
        }
        self.set_group(task, self.kernel().and_then(|kernel| kernel.group(task)));
        let links = [(layout.ddsp_dsq_id, DSQ_INVALID), (layout.scx_tid, u64::from(task.0) + 1)];
        for (member, value) in links {
            if let Some(member) = member {
                self.store_u64(at + member, value);
            }
        }
    }

    /// Number of a task (`p->pid`).
    fn pid_of(&self, task: TaskId) -> u32 {
        if self.loader_tasks.contains(&task.0) {
            LOADER_PID + task.0 - self.loader_tasks.start
        } else {
            FIRST_PID + task.0
        }
    }

    /// The task of a number.
    pub(super) fn task_by_pid(&self, pid: u32) -> u64 {
        self.task_of_pid(pid).map_or(0, |task| self.task_address(task))
    }

    /// The same, if there is one by now.
    #[must_use]
    pub fn task_of_pid(&self, pid: u32) -> Option<TaskId> {
        let own = pid.checked_sub(LOADER_PID).map(|number| self.loader_tasks.start + number);
        let other = || pid.checked_sub(FIRST_PID).filter(|&task| task < self.task_count());
        let task = own.filter(|task| self.loader_tasks.contains(task)).or_else(other);
        task.map(TaskId)
    }

    /// Says of a task that it is a thread of the kernel itself, which has no address space of its own.
    pub(super) fn mark_kernel_thread(&mut self, task: TaskId) {
        let at = self.task_address(task);
        self.store_u32(at + self.kept.layout.task_flags, KERNEL_THREAD_FLAG);
        if let Some(member) = self.kept.layout.mm {
            self.store_u64(at + member, 0);
        }
    }

    /// Bytes of an object that programs make: a mask of CPUs, and behind it how many hold it.
    fn object_bytes(&self) -> u64 {
        (self.kept.layout.cpumask_size + 8).next_multiple_of(64)
    }

    /// A CPU has gone offline or come online; these are online now.
    pub(super) fn set_online(&mut self, online: &CpuSet) {
        self.hotplug_seq += 1;
        if self.kept.online_mask == self.kept.possible_mask {
            self.kept.online_mask = self.allocate();
        }
        let mask = self.kept.online_mask;
        for word in (0..self.kept.cpus.div_ceil(64) as usize).filter(|_| mask != 0) {
            self.store_u64(mask + 8 * word as u64, online.word(word));
        }
    }

    /// Room for a mask; 0 if there is none left.
    pub(super) fn allocate(&mut self) -> u64 {
        let bytes = self.object_bytes();
        let address = match self.kept.heap_free.pop() {
            Some(address) => address,
            None if self.kept.heap_next + bytes > self.kept.heap_end => return 0,
            None => {
                let address = self.kept.heap_next;
                self.kept.heap_next += bytes;
                address
            }
        };
        if let Some(place) = self.maps.memory.write(address, bytes) {
            place.fill(0);
        }
        self.store_u64(address + self.kept.layout.cpumask_size, 1);
        address
    }

    /// Where an object's count of holders lies; `None` for what is no object or is held by nobody.
    fn holders(&self, address: u64) -> Option<u64> {
        let distance = address.checked_sub(self.kept.objects)?;
        let place = address + self.kept.layout.cpumask_size;
        let exists = distance % self.object_bytes() == 0 && address < self.kept.heap_next;
        (exists && self.maps.memory.load_u64(place) > 0).then_some(place)
    }

    /// One more holds an object.
    pub(super) fn acquire(&mut self, address: u64) -> u64 {
        let Some(place) = self.holders(address) else { return 0 };
        let holders = self.maps.memory.load_u64(place);
        self.store_u64(place, holders + 1);
        address
    }

    /// One less holds an object; the last one gives it back.
    pub(super) fn release(&mut self, address: u64) {
        let Some(place) = self.holders(address) else { return };
        let holders = self.maps.memory.load_u64(place) - 1;
        self.store_u64(place, holders);
        if holders == 0 {
            self.kept.heap_free.push(address);
        }
    }

    #[inline]
    pub(super) fn store_u64(&mut self, address: u64, value: u64) {
        self.maps.memory.store_u64(address, value);
    }

    #[inline]
    pub(super) fn store_u32(&mut self, address: u64, value: u32) {
        self.maps.memory.store_u32(address, value);
    }

    /// Writes a member of a structure, if the kernel has it.
    #[inline]
    pub(super) fn store_member(&mut self, structure: u64, member: Option<u64>, value: u32) {
        if let Some(member) = member {
            self.store_u32(structure + member, value);
        }
    }

    /// Writes text with a zero behind it, cut to `room` bytes.
    pub(super) fn store_text(&mut self, address: u64, text: &str, room: u64) {
        if let Some(bytes) = self.maps.memory.write(address, room) {
            bytes.fill(0);
            let length = text.len().min(room as usize - 1);
            bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        }
    }
}
