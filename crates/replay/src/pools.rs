//! Pools: threads that wait for the same object and take whatever comes, so that each could have done what another did.
//!
//! *By calls*, where the recording has them: several threads waited for one futex, pipe, socket or event counter, and threads that never
//! wait for it woke them, one with each call. A mutex is no such object, because its waiters wake each other, and a broadcast is none,
//! because one call wakes many.
//!
//! *By wakeups alone*: the kernel lets the thread that has waited longest for an object go first. So threads of one role and one process, or of
//! processes of one thread each that one process created, which the same others woke, are a pool if it was nearly always the one of them that had waited longest. How much oftener than by chance it was is the
//! [confidence](Evidence::Wakeups). Threads that a dispatcher wakes in turn, each through an object of its own, look the same if their work takes
//! equal times; it makes no difference then.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::drawn::role_name;
use crate::history::{Action, Histories, History};
use crate::signals::Object;

/// Fewer requests than this are no evidence.
pub(crate) const FEWEST: usize = 8;
/// The least share of an object's requests that must be one thread's waking one other that waits, in place of each other's.
pub(crate) const SINGLE: f64 = 0.9;
/// From this confidence on a pool that is found by wakeups alone is believed.
pub const CONFIDENT: f64 = 0.8;
/// Of how many standard deviations of a share its lower bound is (Wilson's interval, 95 %).
const DEVIATIONS: f64 = 1.96;
/// A condition variable of glibc has its waiters at two addresses of its 48 bytes, in turn (`struct __pthread_cond_s`, `__g_signals`).
const CONDITION_BYTES: u64 = 48;

/// Threads that take requests of one queue.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pool {
    /// The threads, by id.
    pub workers: Vec<i32>,
    /// Name of the first.
    pub name: String,
    /// Waits that a request ended.
    pub requests: u64,
    /// How it is known.
    pub evidence: Evidence,
    /// Whether the threads of a replay share the requests.
    pub replayed: bool,
}

/// How a pool is known.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum Evidence {
    /// By the object of recorded calls.
    Calls {
        /// What the threads waited for.
        object: String,
    },
    /// By who was woken.
    Wakeups {
        /// Requests that came while several waited.
        several: u64,
        /// Those that went to the one that had waited longest.
        longest: u64,
        /// How much oftener than by chance, at least: 0 if not oftener, 1 if always.
        confidence: f64,
    },
}

impl Evidence {
    /// Whether a replay lets the threads share their requests.
    fn is_enough(&self) -> bool {
        match self {
            Self::Calls { .. } => true,
            Self::Wakeups { confidence, .. } => *confidence >= CONFIDENT,
        }
    }
}

/// Pools of a recording.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pools {
    /// In order of their first threads. No thread is in two.
    pub pools: Vec<Pool>,
    /// Which pool's request each of [`Histories::signals`] was.
    pub of_signal: Vec<Option<u32>>,
}

impl Pools {
    /// Finds them.
    pub fn of(histories: &Histories) -> Self {
        let mut found = by_calls(histories);
        found.extend(by_wakeups(histories));
        // The strongest evidence first, then the most requests: no thread is in two.
        found.sort_by_key(|(pool, signals)| {
            (matches!(pool.evidence, Evidence::Wakeups { .. }), std::cmp::Reverse(signals.len()), pool.workers[0])
        });
        let mut taken: BTreeSet<i32> = BTreeSet::new();
        found.retain(|(pool, _)| {
            let free = pool.workers.iter().all(|worker| !taken.contains(worker));
            if free {
                taken.extend(&pool.workers);
            }
            free
        });
        found.sort_by_key(|(pool, _)| pool.workers[0]);
        let mut pools = Self { pools: Vec::new(), of_signal: vec![None; histories.signals.len()] };
        for (number, (pool, signals)) in (0..).zip(found) {
            signals.into_iter().for_each(|signal| pools.of_signal[signal] = Some(number));
            pools.pools.push(pool);
        }
        pools
    }
}

impl Pool {
    fn new(histories: &Histories, workers: BTreeSet<i32>, signals: &[usize], evidence: Evidence) -> Self {
        let workers: Vec<i32> = workers.into_iter().collect();
        let name = histories.threads.get(&workers[0]).map_or_else(String::new, |history| role_name(&history.name));
        Self { workers, name, requests: signals.len() as u64, replayed: evidence.is_enough(), evidence }
    }

    /// What a reader of a replay must know.
    pub(crate) fn sentence(&self) -> String {
        let Self { workers, name, requests, evidence, replayed } = self;
        let count = workers.len();
        let how = match evidence {
            Evidence::Calls { object } => format!("they waited for {object}"),
            Evidence::Wakeups { several, longest, confidence } => format!(
                "of {several} wakeups while several waited, {longest} woke the one that had waited longest (confidence {confidence:.2})"
            ),
        };
        format!(
            "{count} threads {name} (from {} on) took {requests} requests of a common queue: {how}; {}",
            workers[0],
            if *replayed { "who is free takes the next" } else { "each waits for those that it took" }
        )
    }
}

/// A pool and the waits that were its threads' for a request: indices of [`Histories::signals`].
type Found = (Pool, Vec<usize>);

fn by_calls(histories: &Histories) -> Vec<Found> {
    let mut waits: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, signal) in histories.signals.iter().enumerate() {
        signal.object.into_iter().for_each(|object| waits.entry(object).or_default().push(index));
    }
    let mut by_object: Vec<(&Object, Vec<usize>)> = waits
        .into_iter()
        .filter_map(|(object, waits)| Some((histories.objects.get(object as usize)?, waits)))
        .collect();
    by_object.sort();
    // Both addresses of a condition variable are one object.
    let mut merged: Vec<(&Object, Vec<usize>)> = Vec::new();
    for (object, waits) in by_object {
        match (merged.last_mut(), object) {
            (Some((Object::Futex(process, first), known)), Object::Futex(here, address))
                if process == here
                    && address - first < CONDITION_BYTES
                    && workers(histories, known) == workers(histories, &waits) =>
            {
                known.extend(waits);
            }
            _ => merged.push((object, waits)),
        }
    }
    let pool = |(object, mut waits): (&Object, Vec<usize>)| {
        waits.sort_unstable();
        let workers = workers(histories, &waits);
        let single = |index: &&usize| {
            let signal = &histories.signals[**index];
            !signal.more && !workers.contains(&signal.waker)
        };
        let enough = workers.len() > 1
            && waits.len() >= FEWEST
            && waits.iter().filter(single).count() as f64 >= SINGLE * waits.len() as f64;
        let evidence = Evidence::Calls { object: object.to_string() };
        enough.then(|| (Pool::new(histories, workers, &waits, evidence), waits))
    };
    merged.into_iter().filter_map(pool).collect()
}

fn workers(histories: &Histories, waits: &[usize]) -> BTreeSet<i32> {
    waits.iter().map(|index| histories.signals[*index].woken).collect()
}

fn by_wakeups(histories: &Histories) -> Vec<Found> {
    let parents = parents(histories);
    let role = |(thread, history): (&i32, &History)| {
        let process = history.process?;
        let family = parents.get(thread).map_or(Family::Process(process), |parent| Family::Children(*parent));
        Some((*thread, (family, role_name(&history.name))))
    };
    let roles: BTreeMap<i32, (Family, String)> = histories.threads.iter().filter_map(role).collect();
    // By role: who was woken by which others, in order of time.
    let mut woken: BTreeMap<&(Family, String), BTreeMap<i32, Vec<usize>>> = BTreeMap::new();
    for (index, signal) in histories.signals.iter().enumerate().filter(|(_, signal)| signal.object.is_none()) {
        if let Some(role) = roles.get(&signal.woken).filter(|role| roles.get(&signal.waker) != Some(*role)) {
            woken.entry(role).or_default().entry(signal.waker).or_default().push(index);
        }
    }
    woken.into_values().filter_map(|by_waker| of_role(histories, by_waker)).collect()
}

/// Which threads of one name have one role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Family {
    Process(i32),
    /// Those that are processes of their own, of one thread, and that this process created: a server's that forked before requests came.
    Children(i32),
}

/// The creators of processes that have one thread, as far as both are known.
fn parents(histories: &Histories) -> BTreeMap<i32, i32> {
    let mut threads: BTreeMap<i32, u32> = BTreeMap::new();
    for process in histories.threads.values().filter_map(|history| history.process) {
        *threads.entry(process).or_default() += 1;
    }
    let children = histories.threads.values().flat_map(|history| {
        let created = |action: &Action| match (*action, history.process) {
            (Action::Fork { child }, Some(parent)) if threads.get(&child) == Some(&1) => Some((child, parent)),
            _ => None,
        };
        history.actions.iter().filter_map(created)
    });
    children.collect()
}

/// The pool that threads of a role are, with their waits by waker.
fn of_role(histories: &Histories, by_waker: BTreeMap<i32, Vec<usize>>) -> Option<Found> {
    let all: BTreeSet<i32> = by_waker.values().flat_map(|waits| workers(histories, waits)).collect();
    // One that wakes a few of many has business of its own with them.
    let common = by_waker.into_values().filter(|waits| workers(histories, waits).len() * 2 > all.len());
    let mut waits: Vec<usize> = common.flatten().collect();
    waits.sort_unstable();
    let workers = workers(histories, &waits);
    if workers.len() < 2 || waits.len() < FEWEST {
        return None;
    }
    // Of each worker its waits, so that those who wait at a time are found.
    let (mut several, mut longest, mut chance) = (0_u64, 0_u64, 0.0);
    let mut next: BTreeMap<i32, std::collections::VecDeque<u64>> = BTreeMap::new();
    for index in &waits {
        let signal = &histories.signals[*index];
        next.entry(signal.woken).or_default().push_back(signal.asleep_ns);
    }
    for index in &waits {
        let signal = &histories.signals[*index];
        let since = |worker: &i32| next[worker].front().copied().filter(|since| *since <= signal.at_ns);
        let waiting: Vec<u64> = workers.iter().filter_map(since).collect();
        if waiting.len() > 1 {
            several += 1;
            longest += u64::from(waiting.iter().all(|since| signal.asleep_ns <= *since));
            chance += 1.0 / waiting.len() as f64;
        }
        next.entry(signal.woken).and_modify(|times| _ = times.pop_front());
    }
    if several < FEWEST as u64 {
        return None;
    }
    let chance = chance / several as f64;
    let confidence = ((lower_bound(longest, several) - chance) / (1.0 - chance)).max(0.0);
    let evidence = Evidence::Wakeups { several, longest, confidence };
    // What is no better than chance is not worth a word.
    (confidence >= 0.5).then(|| (Pool::new(histories, workers, &waits, evidence), waits))
}

/// Lower bound of a share, Wilson's.
fn lower_bound(part: u64, whole: u64) -> f64 {
    let (n, z) = (whole as f64, DEVIATIONS);
    let share = part as f64 / n;
    let middle = share + z * z / (2.0 * n);
    (middle - z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt()) / (1.0 + z * z / n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Signal;

    /// Threads 1 to 3 are workers, 9 wakes them.
    fn of(signals: Vec<Signal>, objects: Vec<Object>) -> Pools {
        let thread = |id: i32| {
            let name = if id < 9 { format!("worker-{id}") } else { format!("main-{id}") };
            (id, History { name, process: Some(7), ..History::default() })
        };
        let threads = [1, 2, 3, 9, 10].into_iter().map(thread).collect();
        Pools::of(&Histories { threads, signals, objects, ..Histories::default() })
    }

    fn signal(number: u64, waker: i32, woken: i32, since: u64) -> Signal {
        Signal { waker, woken, asleep_ns: since, at_ns: 1_000 + 100 * number, object: None, more: false }
    }

    /// Requests every 100; each worker waits again after its own time, so they do not come round in turn.
    fn queue(next: impl Fn(&[(u64, i32)]) -> usize) -> Vec<Signal> {
        let mut waiting = [(0, 1), (1, 2), (2, 3)];
        let request = |number: u64| {
            waiting.sort_unstable();
            let now = 1_000 + 100 * number;
            let asleep: Vec<_> = waiting.iter().copied().filter(|(since, _)| *since < now).collect();
            let (since, worker) = asleep[next(&asleep)];
            let known = waiting.iter_mut().find(|(_, other)| *other == worker).unwrap();
            known.0 = now + 20 + 47 * (number * number % 3);
            signal(number, 9, worker, since)
        };
        (0..60).map(request).collect()
    }

    #[test]
    fn threads_of_which_the_longest_waiting_is_woken_are_a_pool() {
        let pools = of(queue(|_| 0), Vec::new());
        let [pool] = &pools.pools[..] else { panic!("{pools:?}") };
        assert_eq!((&pool.workers[..], pool.requests, pool.name.as_str()), (&[1, 2, 3][..], 60, "worker"));
        assert!(pool.evidence.is_enough(), "{pool:?}");
        assert!(pools.of_signal.iter().all(|number| *number == Some(0)));
    }

    #[test]
    fn threads_that_are_woken_by_chance_are_none_without_calls_and_one_by_calls() {
        let by_chance =
            || queue(|asleep| asleep.iter().map(|(since, _)| *since as usize * 7 % 11).sum::<usize>() % asleep.len());
        assert_eq!(of(by_chance(), Vec::new()).pools, []);
        let through =
            |object: u32| by_chance().into_iter().map(move |signal| Signal { object: Some(object), ..signal });
        let pipe = || vec![Object::File("pipe:[77]".into())];
        let pools = of(through(0).collect(), pipe());
        let object = "pipe:[77]".to_owned();
        assert_eq!(pools.pools[0].evidence, Evidence::Calls { object });
        // Waiters of a mutex wake each other, and a broadcast wakes several.
        let mutex = through(0).map(|signal| Signal { waker: 1 + signal.woken % 3, ..signal });
        assert_eq!(of(mutex.collect(), pipe()).pools, []);
        assert_eq!(of(through(0).map(|signal| Signal { more: true, ..signal }).collect(), pipe()).pools, []);
    }

    #[test]
    fn both_addresses_of_a_condition_variable_are_one_object() {
        let through = |(number, signal): (usize, Signal)| Signal { object: Some(number as u32 % 2), ..signal };
        let signals: Vec<Signal> = queue(|_| 0).into_iter().enumerate().map(through).collect();
        let of_addresses = |addresses: [u64; 2]| {
            of(signals.clone(), addresses.map(|address| Object::Futex(7, address)).to_vec()).pools.len()
        };
        assert_eq!((of_addresses([0x7f20, 0x7f24]), of_addresses([0x7f20, 0x9f20])), (1, 1), "and no thread is in two");
    }

    #[test]
    fn processes_that_one_process_created_are_a_pool_as_threads_of_one_are() {
        let of = |creators: [i32; 3]| {
            let thread = |id: i32| {
                let created = (1..4).filter(|child| creators[*child as usize - 1] == id);
                let actions = created.map(|child| Action::Fork { child }).collect();
                (id, History { name: "worker".into(), process: Some(id), actions, ..History::default() })
            };
            let threads = [1, 2, 3, 8, 9, 20].into_iter().map(thread).collect();
            Pools::of(&Histories { threads, signals: queue(|_| 0), ..Histories::default() }).pools
        };
        let [pool] = &of([8, 8, 8])[..] else { panic!("{:?}", of([8, 8, 8])) };
        assert_eq!((&pool.workers[..], pool.replayed), (&[1, 2, 3][..], true));
        assert_eq!(of([0, 0, 0]), [], "nobody's children are of no family");
        assert!(of([8, 20, 20]).iter().all(|pool| pool.workers == [2, 3]), "two families: {:?}", of([8, 20, 20]));
    }

    #[test]
    fn workers_with_a_waker_each_are_no_pool() {
        let own = queue(|_| 0).into_iter().map(|signal| Signal { waker: 8 + signal.woken % 2, ..signal });
        let pools = of(own.filter(|signal| signal.woken != 3).collect(), Vec::new());
        assert_eq!(pools.pools, []);
    }
}
