//! Queues of 64 first-come-first-served buckets, and the calendar that batch threads wait in.
//!
//! Source: `docs/spec/ule.md` section 6 (`runq_*`, `tdq_runq_add`, `tdq_runq_rem`, `sched_clock`). A task is in at most one bucket of
//! one queue, so the links of all queues are one array by task.

use warmcore_trace::TaskId;

/// Buckets of a queue.
pub(crate) const BUCKETS: u32 = 64;

/// No task.
const NONE: u32 = u32::MAX;

/// Where a queued task stands between others, by task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links(Vec<Link>);

#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    previous: u32,
}

impl Links {
    /// Makes room for a task.
    pub(crate) fn admit(&mut self, task: TaskId) {
        if self.0.len() <= task.index() {
            self.0.resize(task.index() + 1, Link { next: NONE, previous: NONE });
        }
    }
}

/// 64 buckets, each first come, first served.
#[derive(Clone, Debug)]
pub(crate) struct RunQueue {
    heads: [u32; BUCKETS as usize],
    tails: [u32; BUCKETS as usize],
    /// Bit by bucket: somebody is in it.
    occupied: u64,
}

impl Default for RunQueue {
    fn default() -> Self {
        Self { heads: [NONE; BUCKETS as usize], tails: [NONE; BUCKETS as usize], occupied: 0 }
    }
}

impl RunQueue {
    /// Whether nobody is in the bucket.
    pub(crate) fn bucket_is_empty(&self, bucket: u32) -> bool {
        self.occupied & (1 << bucket) == 0
    }

    /// Whether nobody is in a bucket or in those after it, up to the last.
    pub(crate) fn none_from(&self, bucket: u32) -> bool {
        self.occupied >> bucket == 0
    }

    /// Adds a task behind all others of the bucket.
    pub fn push_back(&mut self, links: &mut Links, bucket: u32, task: TaskId) {
        let last = std::mem::replace(&mut self.tails[bucket as usize], task.0);
        links.0[task.index()] = Link { next: NONE, previous: last };
        match last {
            NONE => self.heads[bucket as usize] = task.0,
            last => links.0[last as usize].next = task.0,
        }
        self.occupied |= 1 << bucket;
    }

    /// Adds a task before all others of the bucket.
    pub(crate) fn push_front(&mut self, links: &mut Links, bucket: u32, task: TaskId) {
        let first = std::mem::replace(&mut self.heads[bucket as usize], task.0);
        links.0[task.index()] = Link { next: first, previous: NONE };
        match first {
            NONE => self.tails[bucket as usize] = task.0,
            first => links.0[first as usize].previous = task.0,
        }
        self.occupied |= 1 << bucket;
    }

    /// Takes a task out of the bucket that it is in.
    pub fn remove(&mut self, links: &mut Links, bucket: u32, task: TaskId) {
        let Link { next, previous } = links.0[task.index()];
        match previous {
            NONE => self.heads[bucket as usize] = next,
            previous => links.0[previous as usize].next = next,
        }
        match next {
            NONE => self.tails[bucket as usize] = previous,
            next => links.0[next as usize].previous = previous,
        }
        if self.heads[bucket as usize] == NONE {
            self.occupied &= !(1 << bucket);
        }
    }

    /// First task of the first bucket that has one, going round from `from`.
    pub(crate) fn first_from(&self, from: u32) -> Option<TaskId> {
        let bucket = self.occupied_from(from)?;
        Some(TaskId(self.heads[bucket as usize]))
    }

    /// First bucket with somebody in it, going round from `from`.
    fn occupied_from(&self, from: u32) -> Option<u32> {
        (self.occupied != 0).then(|| (self.occupied.rotate_right(from).trailing_zeros() + from) % BUCKETS)
    }

    /// All tasks in order of the buckets, going round from `from`.
    pub(crate) fn tasks_from<'a>(&'a self, links: &'a Links, from: u32) -> impl Iterator<Item = TaskId> + 'a {
        let buckets = (0..BUCKETS).map(move |step| (from + step) % BUCKETS);
        buckets.filter(|&bucket| !self.bucket_is_empty(bucket)).flat_map(move |bucket| {
            let follow = |task: &TaskId| Some(links.0[task.index()].next).filter(|&next| next != NONE).map(TaskId);
            std::iter::successors(Some(TaskId(self.heads[bucket as usize])), follow)
        })
    }
}

/// The bucket of a queue that is ordered by priority.
pub(crate) fn priority_bucket(priority: u32) -> u32 {
    (priority / 4).min(BUCKETS - 1)
}

/// The batch threads of a CPU: a ring in which worse threads are put farther ahead of the bucket in turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calendar {
    pub queue: RunQueue,
    /// Bucket that offsets count from (`tdq_idx`).
    insert: u32,
    /// Bucket in turn (`tdq_ridx`).
    run: u32,
}

impl Calendar {
    /// Bucket in turn.
    pub fn in_turn(&self) -> u32 {
        self.run
    }

    /// The bucket that offsets count from, and the one in turn.
    #[cfg(test)]
    pub fn indices(&self) -> (u32, u32) {
        (self.insert, self.run)
    }

    /// Bucket of a thread so many priorities into a range of `range`. Newcomers do not slip into the bucket in turn ahead of time.
    pub fn bucket(&self, ahead: u32, range: u32) -> u32 {
        let bucket = (BUCKETS * ahead / range + self.insert) % BUCKETS;
        if self.insert != self.run && bucket == self.run { (bucket + BUCKETS - 1) % BUCKETS } else { bucket }
    }

    /// A thread has left a bucket.
    pub fn removed(&mut self) {
        if self.insert != self.run && self.queue.bucket_is_empty(self.run) {
            self.run = (self.run + 1) % BUCKETS;
        }
    }

    /// An accounting tick has passed: the ring turns by one bucket, but never by two while one is in turn.
    pub fn tick(&mut self) {
        if self.insert != self.run {
            return;
        }
        self.insert = (self.insert + 1) % BUCKETS;
        if self.queue.bucket_is_empty(self.run) {
            self.run = self.insert;
        }
    }

    /// The thread that is next.
    pub fn first(&self) -> Option<TaskId> {
        self.queue.first_from(self.run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(tasks: u32) -> Links {
        let mut links = Links::default();
        (0..tasks).for_each(|task| links.admit(TaskId(task)));
        links
    }

    #[test]
    fn a_bucket_is_first_come_first_served_and_can_be_joined_at_its_head() {
        let (mut queue, mut links) = (RunQueue::default(), links(4));
        queue.push_back(&mut links, 5, TaskId(0));
        queue.push_back(&mut links, 5, TaskId(1));
        queue.push_front(&mut links, 5, TaskId(2));
        queue.push_back(&mut links, 3, TaskId(3));
        let order =
            |queue: &RunQueue, links: &Links, from| queue.tasks_from(links, from).map(|t| t.0).collect::<Vec<_>>();
        assert_eq!(order(&queue, &links, 0), [3, 2, 0, 1]);
        assert_eq!(order(&queue, &links, 4), [2, 0, 1, 3], "round from there");
        queue.remove(&mut links, 5, TaskId(0));
        queue.remove(&mut links, 5, TaskId(1));
        assert_eq!(order(&queue, &links, 0), [3, 2]);
        queue.remove(&mut links, 5, TaskId(2));
        queue.remove(&mut links, 3, TaskId(3));
        assert!(queue.first_from(7).is_none());
    }

    #[test]
    fn the_first_bucket_is_found_going_round() {
        let (mut queue, mut links) = (RunQueue::default(), links(2));
        queue.push_back(&mut links, 2, TaskId(0));
        queue.push_back(&mut links, 63, TaskId(1));
        let first = |from| queue.first_from(from).unwrap().0;
        assert_eq!([first(0), first(2), first(3), first(63)], [0, 0, 1, 1]);
    }

    #[test]
    fn newcomers_do_not_slip_into_the_bucket_in_turn() {
        let (mut calendar, mut links) = (Calendar::default(), links(1));
        calendar.queue.push_back(&mut links, 0, TaskId(0));
        calendar.tick();
        assert_eq!((calendar.insert, calendar.run), (1, 0), "the bucket in turn is not empty");
        calendar.tick();
        assert_eq!((calendar.insert, calendar.run), (1, 0), "the ring waits for it");
        assert_eq!(calendar.bucket(71, 72), 63, "the farthest priority would have come to bucket 0, in turn");
        assert_eq!(calendar.bucket(0, 72), 1);
        calendar.queue.remove(&mut links, 0, TaskId(0));
        calendar.removed();
        assert_eq!(calendar.in_turn(), 1);
    }

    #[test]
    fn an_empty_ring_turns_with_the_ticks() {
        let mut calendar = Calendar::default();
        (0..100).for_each(|_| calendar.tick());
        assert_eq!((calendar.insert, calendar.run), (36, 36));
    }

    #[test]
    fn use_of_the_cpu_puts_threads_farther_ahead() {
        let calendar = Calendar::default();
        // Priorities 172, 203 and 223 of a range that begins at 152.
        assert_eq!([20, 51, 71, 0].map(|ahead| calendar.bucket(ahead, 72)), [17, 45, 63, 0]);
    }
}
