//! What threads of pools did for each request, as a program that whoever of the pool is free carries out.
//!
//! A request is what ended a wait of a [pool](crate::pools)'s thread; what that thread did until its next wait for a request was on the
//! request's behalf, and moves with it: its work, its sleeps, whom it woke, and whom it waited for.

use std::collections::{BTreeMap, VecDeque};

use warmcore_workload::{ProgramId, RecorderId, SemaphoreId, Step};

use crate::history::Histories;
use crate::pools::{Pool, Pools};
use crate::sleeps::Sleeps;

#[derive(Clone, Copy)]
struct Request {
    /// Which of the pools that are replayed.
    pool: usize,
    /// Which of all requests.
    number: usize,
}

/// Requests of a recording, while a workload is made of it.
#[derive(Default)]
pub(crate) struct Requests {
    /// All that were found.
    pub(crate) pools: Vec<Pool>,
    /// Queue of each that is replayed.
    pub(crate) queues: Vec<SemaphoreId>,
    /// Where to write how long each took, from being added to its end.
    pub(crate) recorder: Option<RecorderId>,
    /// When each was added, and how long it took until its thread waited for the next, as recorded, ns.
    pub(crate) samples: Vec<(u64, u64)>,
    /// Pool that is replayed, by thread.
    of_thread: BTreeMap<i32, usize>,
    /// First thread and number of requests of each that is replayed.
    replayed: Vec<(i32, u64)>,
    /// What is still to come: for each waker and woken thread, and for each woken thread, whether it is a request.
    wakes: BTreeMap<(i32, i32), VecDeque<Option<Request>>>,
    waits: BTreeMap<i32, VecDeque<Option<Request>>>,
    /// The request that a thread carries out at present.
    present: BTreeMap<i32, usize>,
    bodies: Vec<Vec<Step>>,
    /// Program of the first request.
    first: u32,
}

impl Requests {
    /// `programs` come before those of requests.
    pub(crate) fn of(histories: &Histories, programs: u32) -> Self {
        let Pools { mut pools, of_signal } = Pools::of(histories);
        // Threads that are woken at times of their own have more to do than to take requests.
        let keeps_times = |worker: &i32| {
            let history = histories.threads.get(worker);
            history.is_some_and(Sleeps::keeps_times)
        };
        let mut made = Self { first: programs, ..Self::default() };
        let mut numbers: Vec<Option<usize>> = Vec::with_capacity(pools.len());
        for pool in &mut pools {
            pool.replayed &= !pool.workers.iter().any(keeps_times);
            numbers.push(pool.replayed.then_some(made.replayed.len()));
            if pool.replayed {
                let number = made.replayed.len();
                made.of_thread.extend(pool.workers.iter().map(|worker| (*worker, number)));
                made.replayed.push((pool.workers[0], pool.requests));
            }
        }
        made.pools = pools;
        if made.replayed.is_empty() {
            return made;
        }
        let mut present: BTreeMap<i32, usize> = BTreeMap::new();
        let end = |sample: &mut (u64, u64), at_ns: u64| sample.1 = at_ns.saturating_sub(sample.0);
        for (signal, pool) in histories.signals.iter().zip(of_signal) {
            let pool = pool.and_then(|pool| numbers[pool as usize]);
            let request = pool.map(|pool| {
                if let Some(before) = present.insert(signal.woken, made.samples.len()) {
                    end(&mut made.samples[before], signal.asleep_ns);
                }
                made.samples.push((signal.at_ns, 0));
                made.bodies.push(Vec::new());
                Request { pool, number: made.bodies.len() - 1 }
            });
            made.wakes.entry((signal.waker, signal.woken)).or_default().push_back(request);
            made.waits.entry(signal.woken).or_default().push_back(request);
        }
        for (thread, last) in present {
            end(&mut made.samples[last], histories.threads.get(&thread).map_or(0, |history| history.end_ns));
        }
        made
    }

    /// The thread that stands for all of its pool in what others wait for: any of them may have the request.
    pub(crate) fn in_place_of(&self, waker: i32) -> i32 {
        self.of_thread.get(&waker).map_or(waker, |pool| self.replayed[*pool].0)
    }

    /// The next wakeup of one thread by another, if it is a request.
    pub(crate) fn submitted(&mut self, waker: i32, woken: i32) -> Option<Step> {
        let request = self.wakes.get_mut(&(waker, woken))?.pop_front()??;
        let program = ProgramId(self.first + request.number as u32);
        Some(Step::Submit { semaphore: self.queues[request.pool], program })
    }

    /// The end of a thread's next wait for another: if a request ended it, what was done until then is put away. Before its first
    /// request that is its program.
    pub(crate) fn begun(&mut self, thread: i32, steps: &mut Vec<Step>) -> Option<Vec<Step>> {
        let request = self.waits.get_mut(&thread)?.pop_front()??;
        let done = std::mem::take(steps);
        match self.present.insert(thread, request.number) {
            Some(before) => {
                self.bodies[before] = done;
                Some(Vec::new())
            }
            None => {
                let (_, requests) = self.replayed[request.pool];
                let work = Step::Work { semaphore: self.queues[request.pool], requests, recorder: self.recorder };
                Some(done.into_iter().chain([work]).collect())
            }
        }
    }

    /// A thread's program, when all that it did is known.
    pub(crate) fn ended(&mut self, thread: i32, first: Vec<Step>, steps: Vec<Step>) -> Vec<Step> {
        match self.present.get(&thread) {
            Some(request) => {
                self.bodies[*request] = steps;
                first
            }
            None => steps,
        }
    }

    /// What is done for each request, in their order.
    pub(crate) fn take_bodies(&mut self) -> Vec<Vec<Step>> {
        std::mem::take(&mut self.bodies)
    }
}
