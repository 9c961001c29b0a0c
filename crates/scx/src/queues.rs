//! Dispatch queues: lists that run through an array of links by task, so that nothing is allocated per event.
//!
//! Source: `docs/spec/sched-ext.md` section 4.

use warmcore_kernel::QueueLock;
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

/// Number of a dispatch queue as programs say it. Bit 63 marks those that are built in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DsqId(pub u64);

impl DsqId {
    /// The global queue of the node (`SCX_DSQ_GLOBAL`).
    pub const GLOBAL: Self = Self(1 << 63 | 1);
    /// The local queue of the CPU in question (`SCX_DSQ_LOCAL`).
    pub const LOCAL: Self = Self(1 << 63 | 2);
    const LOCAL_ON: u64 = 1 << 63 | 1 << 62;

    /// The local queue of a CPU (`SCX_DSQ_LOCAL_ON | cpu`).
    #[must_use]
    pub const fn local_on(cpu: CpuId) -> Self {
        Self(Self::LOCAL_ON | cpu.0 as u64)
    }

    /// The CPU that [`DsqId::local_on`] named.
    #[must_use]
    pub(crate) fn named_cpu(self) -> Option<CpuId> {
        (self.0 & Self::LOCAL_ON == Self::LOCAL_ON).then_some(CpuId(self.0 as u32))
    }

    /// Whether a program may create a queue of this number.
    #[must_use]
    pub(crate) const fn is_user(self) -> bool {
        self.0 >> 63 == 0
    }
}

/// Dense number of a queue.
pub(crate) type QueueIndex = u32;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    queue: QueueIndex,
    prev: u32,
    next: u32,
    vtime: u64,
    by_vtime: bool,
    /// Number of the insertion, for iterators.
    sequence: u64,
}

const UNLINKED: Link = Link { queue: NONE, prev: NONE, next: NONE, vtime: 0, by_vtime: false, sequence: 0 };

#[derive(Clone, Copy)]
struct Queue {
    id: DsqId,
    head: u32,
    tail: u32,
    len: u32,
    /// Tasks in it that are ordered by vtime.
    by_vtime: u32,
    exists: bool,
    lock: QueueLock,
}

/// A way through a queue. Tasks that are inserted after it began are not seen.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub queue: QueueIndex,
    /// Number of the last insertion before it began.
    pub until: u64,
    /// The task that comes next.
    next: Option<TaskId>,
    backwards: bool,
}

/// All queues of a class.
#[derive(Default)]
pub(crate) struct Queues {
    queues: Vec<Queue>,
    /// User queues by id, sorted.
    user: Vec<(DsqId, QueueIndex)>,
    /// The same, each at the first free place from [`place`] of its id on; at least half of them, a power of two, are free.
    places: Vec<Option<(DsqId, QueueIndex)>>,
    links: Vec<Link>,
    insertions: u64,
    /// Ways that have begun and not ended, by number; the last one is there.
    ways: Vec<Option<Way>>,
}

/// Tasks ordered both ways in one queue.
pub(crate) struct Mixed;

impl Queues {
    /// Adds a queue.
    pub fn add(&mut self, id: DsqId) -> QueueIndex {
        let lock = QueueLock::default();
        self.queues.push(Queue { id, head: NONE, tail: NONE, len: 0, by_vtime: 0, exists: true, lock });
        self.queues.len() as u32 - 1
    }

    /// Adds a user queue; false if there is one of that id.
    pub fn create(&mut self, id: DsqId) -> bool {
        let Err(position) = self.user.binary_search_by_key(&id, |(id, _)| *id) else { return false };
        let queue = self.add(id);
        self.user.insert(position, (id, queue));
        self.arrange();
        true
    }

    /// Removes a user queue; false if it does not exist or has tasks.
    pub(crate) fn destroy(&mut self, id: DsqId) -> bool {
        let Ok(position) = self.user.binary_search_by_key(&id, |(id, _)| *id) else { return false };
        let queue = self.user[position].1;
        if self.len(queue) > 0 {
            return false;
        }
        self.queues[queue as usize].exists = false;
        self.user.remove(position);
        self.arrange();
        true
    }

    /// A user queue.
    #[inline]
    pub fn find(&self, id: DsqId) -> Option<QueueIndex> {
        let count = self.places.len();
        if count == 0 {
            return None;
        }
        let mut at = place(id, count);
        loop {
            let (known, queue) = self.places[at]?;
            if known == id {
                return Some(queue);
            }
            at = (at + 1) & (count - 1);
        }
    }

    fn arrange(&mut self) {
        let count = (2 * self.user.len()).next_power_of_two();
        self.places.clear();
        self.places.resize(count, None);
        for &entry in &self.user {
            let mut at = place(entry.0, count);
            while self.places[at].is_some() {
                at = (at + 1) & (count - 1);
            }
            self.places[at] = Some(entry);
        }
    }

    pub fn add_task(&mut self) {
        self.links.push(UNLINKED);
    }

    #[inline]
    pub fn len(&self, queue: QueueIndex) -> u32 {
        self.queues[queue as usize].len
    }

    pub fn lock(&mut self, queue: QueueIndex) -> &mut QueueLock {
        &mut self.queues[queue as usize].lock
    }

    pub fn id(&self, queue: QueueIndex) -> DsqId {
        self.queues[queue as usize].id
    }

    /// The queue that a task is in.
    #[inline]
    pub fn of(&self, task: TaskId) -> Option<QueueIndex> {
        let queue = self.links[task.index()].queue;
        (queue != NONE).then_some(queue)
    }

    #[inline]
    pub fn first(&self, queue: QueueIndex) -> Option<TaskId> {
        as_task(self.queues[queue as usize].head)
    }

    #[inline]
    pub fn last(&self, queue: QueueIndex) -> Option<TaskId> {
        as_task(self.queues[queue as usize].tail)
    }

    #[inline]
    pub fn after(&self, task: TaskId) -> Option<TaskId> {
        as_task(self.links[task.index()].next)
    }

    #[inline]
    pub fn before(&self, task: TaskId) -> Option<TaskId> {
        as_task(self.links[task.index()].prev)
    }

    /// Begins a way through a queue, from its end if `backwards`; gives its number.
    pub fn begin_way(&mut self, queue: QueueIndex, backwards: bool) -> usize {
        let next = if backwards { self.last(queue) } else { self.first(queue) };
        let number = self.ways.iter().position(Option::is_none).unwrap_or(self.ways.len());
        if number == self.ways.len() {
            self.ways.push(None);
        }
        self.ways[number] = Some(Way { queue, until: self.insertions, next, backwards });
        number
    }

    /// A way that has not ended.
    pub fn way(&self, number: usize) -> Option<Way> {
        *self.ways.get(number)?
    }

    /// The next task on a way, which may be moved before it goes on.
    pub fn go_on(&mut self, number: usize) -> Option<TaskId> {
        let mut way = self.way(number)?;
        let found = loop {
            let Some(task) = way.next else { break None };
            way.next = if way.backwards { self.before(task) } else { self.after(task) };
            if self.sequence(task) <= way.until {
                break Some(task);
            }
        };
        self.ways[number] = Some(way);
        found
    }

    pub fn end_way(&mut self, number: usize) {
        if let Some(way) = self.ways.get_mut(number) {
            *way = None;
        }
        while let Some(None) = self.ways.last() {
            self.ways.pop();
        }
    }

    /// Number of the insertion that brought a task to its queue.
    pub fn sequence(&self, task: TaskId) -> u64 {
        self.links[task.index()].sequence
    }

    /// Inserts at one of the ends.
    pub fn insert(&mut self, queue: QueueIndex, task: TaskId, at_head: bool) -> Result<(), Mixed> {
        if self.queues[queue as usize].by_vtime > 0 {
            return Err(Mixed);
        }
        let before = if at_head { NONE } else { self.queues[queue as usize].tail };
        self.link(queue, task, before, None);
        Ok(())
    }

    /// Inserts behind all whose vtime is not greater, by signed difference.
    pub(crate) fn insert_vtime(&mut self, queue: QueueIndex, task: TaskId, vtime: u64) -> Result<(), Mixed> {
        let Queue { len, by_vtime, tail, .. } = self.queues[queue as usize];
        if by_vtime < len {
            return Err(Mixed);
        }
        let mut before = tail;
        while before != NONE && (vtime.wrapping_sub(self.links[before as usize].vtime) as i64) < 0 {
            before = self.links[before as usize].prev;
        }
        self.link(queue, task, before, Some(vtime));
        Ok(())
    }

    fn link(&mut self, queue: QueueIndex, task: TaskId, prev: u32, vtime: Option<u64>) {
        debug_assert!(self.of(task).is_none());
        self.insertions += 1;
        let next = if prev == NONE { self.queues[queue as usize].head } else { self.links[prev as usize].next };
        let by_vtime = vtime.is_some();
        let sequence = self.insertions;
        self.links[task.index()] = Link { queue, prev, next, vtime: vtime.unwrap_or(0), by_vtime, sequence };
        self.join(queue, prev, task.0, next);
        let queue = &mut self.queues[queue as usize];
        queue.len += 1;
        queue.by_vtime += u32::from(by_vtime);
    }

    /// Takes a task out of its queue; false if it is in none.
    pub fn remove(&mut self, task: TaskId) -> bool {
        let Link { queue, prev, next, by_vtime, .. } = std::mem::replace(&mut self.links[task.index()], UNLINKED);
        if queue == NONE {
            return false;
        }
        for way in self.ways.iter_mut().flatten().filter(|way| way.next == Some(task)) {
            way.next = as_task(if way.backwards { prev } else { next });
        }
        let state = &mut self.queues[queue as usize];
        state.len -= 1;
        state.by_vtime -= u32::from(by_vtime);
        match (prev, next) {
            (NONE, _) => state.head = next,
            _ => self.links[prev as usize].next = next,
        }
        match next {
            NONE => self.queues[queue as usize].tail = prev,
            _ => self.links[next as usize].prev = prev,
        }
        true
    }

    fn join(&mut self, queue: QueueIndex, prev: u32, task: u32, next: u32) {
        match prev {
            NONE => self.queues[queue as usize].head = task,
            _ => self.links[prev as usize].next = task,
        }
        match next {
            NONE => self.queues[queue as usize].tail = task,
            _ => self.links[next as usize].prev = task,
        }
    }
}

/// Where to begin to look for a queue among a power of two places. Programs number queues from zero, in families that upper bits tell apart: the
/// product with a large odd number spreads them.
#[inline]
fn place(id: DsqId, places: usize) -> usize {
    (id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (places - 1)
}

fn as_task(number: u32) -> Option<TaskId> {
    (number != NONE).then_some(TaskId(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_tasks(count: usize) -> (Queues, QueueIndex) {
        let mut queues = Queues::default();
        let queue = queues.add(DsqId(0));
        (0..count).for_each(|_| queues.add_task());
        (queues, queue)
    }

    fn order(queues: &Queues, queue: QueueIndex) -> Vec<u32> {
        std::iter::successors(queues.first(queue), |&task| queues.after(task)).map(|task| task.0).collect()
    }

    #[test]
    fn who_is_inserted_at_the_head_is_first_and_who_leaves_leaves_no_gap() {
        let (mut queues, queue) = with_tasks(4);
        for (task, at_head) in [(0, false), (1, false), (2, true), (3, false)] {
            assert!(queues.insert(queue, TaskId(task), at_head).is_ok());
        }
        assert_eq!(order(&queues, queue), [2, 0, 1, 3]);
        for gone in [0, 3, 2] {
            assert!(queues.remove(TaskId(gone)));
        }
        assert_eq!((order(&queues, queue), queues.len(queue)), (vec![1], 1));
        assert!(!queues.remove(TaskId(0)), "it is in no queue any more");
    }

    #[test]
    fn a_way_goes_on_behind_a_task_that_is_taken_before_it_comes_to_it() {
        let (mut queues, queue) = with_tasks(5);
        for task in 0..4 {
            assert!(queues.insert(queue, TaskId(task), false).is_ok());
        }
        let [there, back] = [false, true].map(|backwards| queues.begin_way(queue, backwards));
        assert_eq!((queues.go_on(there), queues.go_on(back)), (Some(TaskId(0)), Some(TaskId(3))));
        for taken in [1, 0, 2] {
            assert!(queues.remove(TaskId(taken)));
        }
        assert!(queues.insert(queue, TaskId(4), false).is_ok(), "too late to be seen");
        assert_eq!((queues.go_on(there), queues.go_on(there), queues.go_on(back)), (Some(TaskId(3)), None, None));
        queues.end_way(there);
        assert_eq!((queues.begin_way(queue, false), queues.go_on(there)), (there, Some(TaskId(3))));
        [back, there].into_iter().for_each(|way| queues.end_way(way));
        assert!(queues.ways.is_empty());
    }

    #[test]
    fn vtimes_are_compared_across_their_wrap_and_equals_keep_their_order() {
        let (mut queues, queue) = with_tasks(4);
        for (task, vtime) in [(0, 5), (1, u64::MAX - 5), (2, 5), (3, 0)] {
            assert!(queues.insert_vtime(queue, TaskId(task), vtime).is_ok());
        }
        assert_eq!(order(&queues, queue), [1, 3, 0, 2]);
    }

    #[test]
    fn queues_are_found_by_their_number_as_long_as_they_are_there() {
        let mut queues = Queues::default();
        assert_eq!(queues.find(DsqId(0)), None);
        let ids = [0, 1, 2, 1 << 10, 1 << 20, 1 << 20 | 1, 1 << 32, u64::MAX >> 1].map(DsqId);
        let made = ids.map(|id| (queues.create(id), queues.find(id).unwrap()));
        assert!(made.iter().all(|&(is_new, queue)| is_new && queues.id(queue) == ids[queue as usize]));
        assert!(!queues.create(ids[3]) && queues.destroy(ids[3]) && !queues.destroy(ids[3]));
        assert_eq!(ids.map(|id| queues.find(id).is_some()), ids.map(|id| id != ids[3]));
    }

    #[test]
    fn a_queue_is_ordered_in_one_way_only() {
        let (mut queues, queue) = with_tasks(2);
        assert!(queues.insert_vtime(queue, TaskId(0), 1).is_ok());
        assert!(queues.insert(queue, TaskId(1), false).is_err());
        assert!(queues.remove(TaskId(0)));
        assert!(queues.insert(queue, TaskId(1), false).is_ok(), "an empty one takes either");
        assert!(queues.insert_vtime(queue, TaskId(0), 1).is_err());
    }
}
