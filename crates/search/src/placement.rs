//! The best static placement of threads that run all the time, by the analytic memory model: each thread on one CPU, for good.
//!
//! The search begins with placements that people try (one LLC after the other, spread, node by node, partners together), moves single
//! threads and swaps pairs, takes what is better, and ends when nothing is. Placements that differ only by the names of equal CPUs,
//! caches or nodes, or by which of equal threads is where, are one placement and are evaluated once. Nothing is random.
//!
//! It does not know what a wakeup or a message costs, or that a thread sleeps: every thread is taken to run always. Of who waits for whom
//! it knows that threads meet at barriers, and how much each works until then. `docs/models/oracle.md` says what comes of that.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use warmcore_memory::analytic::{Player, TaskSpec};
use warmcore_memory::{HierarchyError, Profile};
use warmcore_topology::{CpuId, LlcId, Machine, NodeId};

/// Most evaluations of one search; what is found by then is the result.
pub const MAX_EVALUATIONS: usize = 600;

/// How long threads of one CPU take turns of, in simulated nanoseconds.
const TURN_NS: u64 = 2_000_000;
/// Turns before the measurement, in which caches fill, and least turns of the measurement.
const TURNS: usize = 4;

/// Where there are at most so many ways to move two threads at once, they are tried too: a slowest thread can be stuck
/// where no single move helps it.
const MOST_PAIR_MOVES: usize = 4_096;

/// A placement is better only by more than this part. The model brings CPUs up to date in the order of their numbers, so that one placement
/// by two names differs by some 1e-5, by 2 % where siblings take turns; one of its names stands for it (`docs/models/oracle.md`).
const TOLERANCE: f64 = 1e-4;

/// A thread to place.
#[derive(Clone, PartialEq, Debug)]
pub struct Thread {
    /// Index of its profile.
    pub profile: usize,
    /// Its process: threads of one share what is the process's.
    pub process: u32,
    /// Data groups it belongs to: number and name.
    pub data: Vec<(u32, String)>,
    /// Its work between barriers, in parts of what a thread has in the mean; 1 where it comes to none.
    pub share: f64,
}

/// What makes a placement good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// Work of all threads together.
    Total,
    /// Rounds of the slowest CPU: threads that meet at barriers wait until all of its own have worked their shares. Equal ones are told apart by
    /// the total.
    Slowest,
}

/// Threads, a machine, and a goal.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// Where.
    pub machine: &'a Machine,
    /// What threads do to memory.
    pub profiles: Vec<Profile>,
    /// Who is placed.
    pub threads: Vec<Thread>,
    /// Pairs of threads that have something in common (a pipe, a lock), by index, with how much.
    pub partners: BTreeMap<(usize, usize), u32>,
    /// What is wanted.
    pub goal: Goal,
}

/// Work per time: 1 is a thread alone and warm on a CPU of full capacity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Score {
    /// Of the slowest CPU's threads, one after the other, each its share.
    pub slowest: f64,
    /// Of all.
    pub total: f64,
}

/// A placement the search began with.
#[derive(Clone, PartialEq, Debug)]
pub struct Start {
    /// What it is called.
    pub name: &'static str,
    /// CPU of each thread.
    pub cpus: Vec<CpuId>,
    /// How good it is.
    pub score: Score,
}

/// What a search found.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// CPU of each thread.
    pub cpus: Vec<CpuId>,
    /// How good it is.
    pub score: Score,
    /// Where the search began.
    pub starts: Vec<Start>,
    /// Placements evaluated, equal ones once.
    pub evaluations: usize,
    /// Whether no move and no swap would help; otherwise [`MAX_EVALUATIONS`] ended it.
    pub finished: bool,
}

impl Problem<'_> {
    /// Whether the first score is better than the second for the goal.
    pub(crate) fn is_better(&self, a: Score, b: Score) -> bool {
        let more = |a: f64, b: f64| a > b * (1.0 + TOLERANCE);
        match self.goal {
            Goal::Total => more(a.total, b.total),
            Goal::Slowest => more(a.slowest, b.slowest) || (!more(b.slowest, a.slowest) && more(a.total, b.total)),
        }
    }

    /// How good a placement is.
    ///
    /// # Errors
    /// Machines whose caches the model refuses.
    pub fn evaluate(&self, cpus: &[CpuId]) -> Result<Score, HierarchyError> {
        let mut player = Player::new(self.machine, &self.profiles)?;
        let mut queues: Vec<Vec<u32>> = vec![Vec::new(); self.machine.cpu_count()];
        for (thread, cpu) in self.threads.iter().zip(cpus) {
            let data: Vec<(u32, &str)> = thread.data.iter().map(|(number, name)| (*number, name.as_str())).collect();
            let task = player.add_task(&TaskSpec { profile: thread.profile, process: thread.process, data: &data });
            queues[cpu.index()].push(task);
        }
        let measured = queues.iter().map(Vec::len).max().unwrap_or(0).max(TURNS);
        let mut before = vec![0.0; self.threads.len()];
        let mut turns = vec![0_u32; self.threads.len()];
        for turn in 0..TURNS + measured {
            if turn == TURNS {
                before = (0..self.threads.len()).map(|task| player.counters(task as u32).instructions).collect();
            }
            for (cpu, queue) in queues.iter().enumerate().filter(|(_, queue)| !queue.is_empty()) {
                let task = queue[turn % queue.len()];
                if turn == 0 {
                    player.switch_in(CpuId::from_index(cpu), task);
                } else if queue.len() > 1 {
                    player.switch_out(CpuId::from_index(cpu));
                    player.switch_in(CpuId::from_index(cpu), task);
                }
                turns[task as usize] += u32::from(turn >= TURNS);
            }
            player.advance((turn as u64 + 1) * TURN_NS);
        }
        let mut score = Score { slowest: f64::INFINITY, total: 0.0 };
        let mut round = vec![0.0_f64; queues.len()];
        for (task, cpu) in cpus.iter().enumerate() {
            let instructions = player.counters(task as u32).instructions - before[task];
            let ran_ns = f64::from(turns[task].max(1)) * TURN_NS as f64;
            let alone = player.model().nominal_rate(self.threads[task].profile);
            let speed = instructions / ran_ns / alone;
            round[cpu.index()] += self.threads[task].share / speed;
            score.total += speed / queues[cpu.index()].len() as f64;
        }
        score.slowest = round.iter().map(|round| 1.0 / round).fold(f64::INFINITY, f64::min);
        Ok(score)
    }

    /// The best of all placements: a judge of the search on small machines.
    ///
    /// # Errors
    /// As [`Problem::evaluate`].
    #[cfg(test)]
    pub(crate) fn exhaustive(&self) -> Result<Option<(Vec<CpuId>, Score)>, HierarchyError> {
        let (cpus, threads) = (self.machine.cpu_count(), self.threads.len());
        let mut memory = ScoreCache::new(self);
        let mut best: Option<(Vec<CpuId>, Score)> = None;
        let mut digits = vec![0; threads];
        loop {
            let placement: Vec<CpuId> = digits.iter().copied().map(CpuId::from_index).collect();
            let score = memory.score(&placement)?;
            if best.as_ref().is_none_or(|(_, known)| self.is_better(score, *known)) {
                best = Some((placement, score));
            }
            let Some(position) = digits.iter().position(|digit| digit + 1 < cpus) else { return Ok(best) };
            digits[..position].fill(0);
            digits[position] += 1;
        }
    }

    /// Searches.
    ///
    /// # Errors
    /// As [`Problem::evaluate`].
    pub fn search(&self) -> Result<Found, HierarchyError> {
        let mut memory = ScoreCache::new(self);
        let mut starts = Vec::new();
        for (name, cpus) in self.starts() {
            let score = memory.score(&cpus)?;
            starts.push(Start { name, cpus, score });
        }
        let mut order: Vec<&Start> = starts.iter().collect();
        // The best first, so that a search that is ended has climbed from there.
        order.sort_by(|a, b| match (self.is_better(a.score, b.score), self.is_better(b.score, a.score)) {
            (true, _) => std::cmp::Ordering::Less,
            (_, true) => std::cmp::Ordering::Greater,
            _ => std::cmp::Ordering::Equal,
        });
        let mut best = (order[0].cpus.clone(), order[0].score);
        let mut finished = true;
        for start in order {
            let (cpus, score, ended) = self.climb(&mut memory, start.cpus.clone(), start.score)?;
            finished &= ended;
            if self.is_better(score, best.1) {
                best = (cpus, score);
            }
        }
        Ok(Found { cpus: best.0, score: best.1, evaluations: memory.scores.len(), starts, finished })
    }

    /// Moves and swaps until none helps. Whether that is how it ended.
    fn climb(
        &self,
        memory: &mut ScoreCache<'_, '_>,
        mut cpus: Vec<CpuId>,
        mut score: Score,
    ) -> Result<(Vec<CpuId>, Score, bool), HierarchyError> {
        loop {
            let before = score;
            for thread in 0..cpus.len() {
                for to in self.machine.cpus() {
                    let from = std::mem::replace(&mut cpus[thread], to);
                    let Some(found) = memory.affordable(&cpus)? else {
                        return Ok((restored(cpus, thread, from), score, false));
                    };
                    if self.is_better(found, score) {
                        score = found;
                    } else {
                        cpus[thread] = from;
                    }
                }
            }
            for first in 0..cpus.len() {
                for second in first + 1..cpus.len() {
                    if memory.kinds[first] == memory.kinds[second] {
                        continue;
                    }
                    cpus.swap(first, second);
                    let found = memory.affordable(&cpus)?;
                    match found {
                        Some(found) if self.is_better(found, score) => score = found,
                        _ => cpus.swap(first, second),
                    }
                    if found.is_none() {
                        return Ok((cpus, score, false));
                    }
                }
            }
            if self.is_better(score, before) {
                continue;
            }
            match self.pair_move(memory, &cpus, score)? {
                PairMove::Better(better, found) => (cpus, score) = (better, found),
                PairMove::None => return Ok((cpus, score, true)),
                PairMove::TooMany => return Ok((cpus, score, false)),
            }
        }
    }

    /// The first move of two threads at once that helps.
    fn pair_move(
        &self,
        memory: &mut ScoreCache<'_, '_>,
        cpus: &[CpuId],
        score: Score,
    ) -> Result<PairMove, HierarchyError> {
        if (cpus.len() * self.machine.cpu_count()).pow(2) > MOST_PAIR_MOVES {
            return Ok(PairMove::None);
        }
        for first in 0..cpus.len() {
            for second in first + 1..cpus.len() {
                for (to_first, to_second) in self.machine.cpus().flat_map(|a| self.machine.cpus().map(move |b| (a, b)))
                {
                    let mut moved = cpus.to_vec();
                    (moved[first], moved[second]) = (to_first, to_second);
                    match memory.affordable(&moved)? {
                        None => return Ok(PairMove::TooMany),
                        Some(found) if self.is_better(found, score) => return Ok(PairMove::Better(moved, found)),
                        Some(_) => {}
                    }
                }
            }
        }
        Ok(PairMove::None)
    }

    /// The placements the search begins with.
    pub(crate) fn starts(&self) -> Vec<(&'static str, Vec<CpuId>)> {
        let machine = self.machine;
        let take = |order: Vec<CpuId>| -> Vec<CpuId> {
            (0..self.threads.len()).map(|thread| order[thread % order.len()]).collect()
        };
        // The largest come first, so that threads which fit one LLC are gathered there; equal ones in the order of their numbers.
        let of_node = |node: NodeId| -> Vec<LlcId> {
            let mut llcs = machine.llcs_of_node(node).to_vec();
            llcs.sort_by_key(|llc| Reverse(machine.size_of_llc(*llc)));
            llcs
        };
        let cpus_of = |llcs: Vec<LlcId>| llcs.into_iter().map(|llc| cores_first(machine, llc)).collect::<Vec<_>>();
        let mut by_llc: Vec<NodeId> = machine.nodes().collect();
        by_llc.sort_by_key(|node| Reverse(of_node(*node).first().map(|llc| machine.size_of_llc(*llc))));
        let llcs: Vec<Vec<CpuId>> = by_llc.into_iter().flat_map(|node| cpus_of(of_node(node))).collect();
        let mut by_cpus: Vec<NodeId> = machine.nodes().collect();
        by_cpus.sort_by_key(|node| Reverse(machine.cpus_of_node(*node).len()));
        let nodes: Vec<Vec<CpuId>> =
            by_cpus.into_iter().map(|node| cores_before_siblings(machine, in_turn(cpus_of(of_node(node))))).collect();
        let spread = cores_before_siblings(machine, in_turn(nodes.clone()));
        let mut starts = vec![
            ("gathered", take(llcs.concat())),
            ("gathered, a core each", take(cores_before_siblings(machine, llcs.concat()))),
            ("by node", take(nodes.concat())),
            ("spread", take(spread.clone())),
            ("partners together", self.partners_together(&llcs)),
        ];
        if self.threads.iter().any(|thread| thread.share != self.threads[0].share) {
            starts.push(("by work", self.by_work(&spread)));
        }
        starts
    }

    /// Whoever has the most work next, each on the CPU that has the least so far.
    fn by_work(&self, order: &[CpuId]) -> Vec<CpuId> {
        let share = |thread: &usize| self.threads[*thread].share;
        let mut threads: Vec<usize> = (0..self.threads.len()).collect();
        threads.sort_by(|a, b| share(b).total_cmp(&share(a)));
        let (mut given, mut cpus) = (vec![0.0_f64; order.len()], vec![CpuId(0); threads.len()]);
        for thread in threads {
            let Some(least) = (0..order.len()).min_by(|a, b| given[*a].total_cmp(&given[*b])) else { break };
            given[least] += share(&thread);
            cpus[thread] = order[least];
        }
        cpus
    }

    /// Each thread with the one it has most in common with, the pairs dealt to LLCs in turn.
    fn partners_together(&self, llcs: &[Vec<CpuId>]) -> Vec<CpuId> {
        let mut pairs: Vec<(u32, usize, usize)> = self.partners.iter().map(|((a, b), much)| (*much, *a, *b)).collect();
        pairs.sort_by_key(|(much, a, b)| (Reverse(*much), *a, *b));
        let mut single = vec![true; self.threads.len()];
        let mut teams: Vec<Vec<usize>> = Vec::new();
        for (_, a, b) in pairs {
            if single[a] && single[b] {
                (single[a], single[b]) = (false, false);
                teams.push(vec![a, b]);
            }
        }
        teams.extend((0..self.threads.len()).filter(|thread| single[*thread]).map(|thread| vec![thread]));
        let (mut used, mut cpus) = (vec![0; llcs.len()], vec![CpuId(0); self.threads.len()]);
        for team in teams {
            let share = |llc: usize| used[llc] as f64 / llcs[llc].len() as f64;
            let Some(llc) = (0..llcs.len()).min_by(|a, b| share(*a).total_cmp(&share(*b))) else { break };
            for thread in team {
                cpus[thread] = llcs[llc][used[llc] % llcs[llc].len()];
                used[llc] += 1;
            }
        }
        cpus
    }
}

/// What came of moving two threads at once.
enum PairMove {
    Better(Vec<CpuId>, Score),
    None,
    /// [`MAX_EVALUATIONS`] ended it.
    TooMany,
}

fn restored(mut cpus: Vec<CpuId>, thread: usize, from: CpuId) -> Vec<CpuId> {
    cpus[thread] = from;
    cpus
}

/// CPUs of an LLC: one of each core, then their siblings.
fn cores_first(machine: &Machine, llc: LlcId) -> Vec<CpuId> {
    cores_before_siblings(machine, machine.cpus_of_llc(llc).iter().collect())
}

/// The same CPUs, siblings of earlier ones behind all cores.
fn cores_before_siblings(machine: &Machine, mut cpus: Vec<CpuId>) -> Vec<CpuId> {
    let rank = |cpu: &CpuId| machine.cpus_of_core(machine.core_of(*cpu)).iter().position(|sibling| sibling == *cpu);
    cpus.sort_by_key(rank);
    cpus
}

fn in_turn(lists: Vec<Vec<CpuId>>) -> Vec<CpuId> {
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|position| lists.iter().filter_map(move |list| list.get(position).copied())).collect()
}

/// Scores of placements evaluated, by what they are but for names.
struct ScoreCache<'p, 'm> {
    problem: &'p Problem<'m>,
    /// Equal threads have equal numbers.
    kinds: Vec<u32>,
    /// Whether nodes of a socket, and sockets, are as far from each other as any others: then their names do not matter.
    nodes_are_alike: bool,
    /// CPUs as the name of no placement lists them.
    order: Vec<CpuId>,
    scores: BTreeMap<Vec<u32>, Score>,
}

/// Ends a list in a placement's name; no number of anything.
const END: u32 = u32::MAX;

impl<'p, 'm> ScoreCache<'p, 'm> {
    fn new(problem: &'p Problem<'m>) -> Self {
        let (machine, threads) = (problem.machine, &problem.threads);
        let kinds = threads.iter().map(|thread| threads.iter().position(|known| known == thread).unwrap_or(0) as u32);
        let socket = |node: NodeId| machine.cpus_of_node(node).first().map(|cpu| machine.socket_of(cpu));
        let mut distances = [None; 2];
        let mut nodes_are_alike = true;
        for a in machine.nodes() {
            for b in machine.nodes().filter(|b| *b != a) {
                let known = &mut distances[usize::from(socket(a) == socket(b))];
                nodes_are_alike &= *known.get_or_insert(machine.node_distance(a, b)) == machine.node_distance(a, b);
            }
        }
        let mut memory =
            Self { problem, kinds: kinds.collect(), nodes_are_alike, order: Vec::new(), scores: BTreeMap::new() };
        memory.order = memory.name(&[]).1;
        memory
    }

    /// The score of a placement: that of the one which stands for all of its name, evaluated if it was not yet.
    fn score(&mut self, cpus: &[CpuId]) -> Result<Score, HierarchyError> {
        let (name, order) = self.name(cpus);
        if let Some(score) = self.scores.get(&name) {
            return Ok(*score);
        }
        let score = self.problem.evaluate(&self.representative(cpus, &order))?;
        self.scores.insert(name, score);
        Ok(score)
    }

    /// The same, unless enough was evaluated.
    fn affordable(&mut self, cpus: &[CpuId]) -> Result<Option<Score>, HierarchyError> {
        if self.scores.len() >= MAX_EVALUATIONS && !self.scores.contains_key(&self.name(cpus).0) {
            return Ok(None);
        }
        self.score(cpus).map(Some)
    }

    /// What placements that differ by names only have in common, and the CPUs in the order in which it lists them.
    fn name(&self, cpus: &[CpuId]) -> (Vec<u32>, Vec<CpuId>) {
        let machine = self.problem.machine;
        let mut of_cpu: Vec<Vec<u32>> = vec![Vec::new(); machine.cpu_count()];
        for (kind, cpu) in self.kinds.iter().zip(cpus) {
            of_cpu[cpu.index()].push(*kind);
        }
        of_cpu.iter_mut().for_each(|kinds| kinds.sort_unstable());
        let thread = |cpu: CpuId| {
            let (shape, kinds) = (vec![machine.capacity(cpu), END], &of_cpu[cpu.index()]);
            let name = [&shape[..], kinds, &[END]].concat();
            NamePart { shape: [&shape[..], &[END]].concat(), name, cpus: vec![cpu] }
        };
        let core = |cpu: CpuId| joined(machine.cpus_of_core(machine.core_of(cpu)).iter().map(thread).collect(), true);
        let cluster = |cpu: CpuId| {
            let cpus = machine.cpus_of_cluster(machine.cluster_of(cpu));
            let first = |cpu: &CpuId| machine.cpus_of_core(machine.core_of(*cpu)).first() == Some(*cpu);
            joined(cpus.iter().filter(first).map(core).collect(), true)
        };
        let llc = |llc: &LlcId| {
            let cpus = machine.cpus_of_llc(*llc);
            let first = |cpu: &CpuId| machine.cpus_of_cluster(machine.cluster_of(*cpu)).first() == Some(*cpu);
            let bytes = machine.llc_cache(*llc).map_or(0, |cache| cache.size_bytes);
            let mut unit = joined(cpus.iter().filter(first).map(cluster).collect(), true);
            unit.shape.insert(0, (bytes >> 16) as u32);
            unit.name.insert(0, (bytes >> 16) as u32);
            unit
        };
        let node = |node: &NodeId| joined(machine.llcs_of_node(*node).iter().map(llc).collect(), true);
        let socket = |socket| joined(machine.nodes_of_socket(socket).iter().map(node).collect(), self.nodes_are_alike);
        let whole = joined(machine.sockets().map(socket).collect(), self.nodes_are_alike);
        (whole.name, whole.cpus)
    }

    /// The placement by which all of one name are evaluated, so that scores do not depend on which of them was met first: `order` lists
    /// the placement's CPUs as its name does, and the CPUs of a machine without threads take their places.
    fn representative(&self, cpus: &[CpuId], order: &[CpuId]) -> Vec<CpuId> {
        let mut stand_in = vec![CpuId(0); cpus.len().max(self.problem.machine.cpu_count())];
        order.iter().zip(&self.order).for_each(|(cpu, other)| stand_in[cpu.index()] = *other);
        let mut chosen: Vec<CpuId> = cpus.iter().map(|cpu| stand_in[cpu.index()]).collect();
        // Which of equal threads is where does not matter either: the first is on the lowest CPU.
        for kind in 0..cpus.len() as u32 {
            let equal: Vec<usize> = (0..cpus.len()).filter(|thread| self.kinds[*thread] == kind).collect();
            let mut theirs: Vec<CpuId> = equal.iter().map(|thread| chosen[*thread]).collect();
            theirs.sort_unstable();
            equal.into_iter().zip(theirs).for_each(|(thread, cpu)| chosen[thread] = cpu);
        }
        chosen
    }
}

/// A part of a machine in a placement's name.
struct NamePart {
    /// What it is without threads: decides first when units are sorted, so that unlike ones keep their places.
    shape: Vec<u32>,
    name: Vec<u32>,
    /// Its CPUs in the order of the name.
    cpus: Vec<CpuId>,
}

/// Units as one, each with an end; sorted if their order does not matter.
fn joined(mut units: Vec<NamePart>, sorted: bool) -> NamePart {
    if sorted {
        units.sort_by(|a, b| (&a.shape, &a.name).cmp(&(&b.shape, &b.name)));
    }
    let mut all = NamePart { shape: Vec::new(), name: Vec::new(), cpus: Vec::new() };
    for unit in units {
        all.shape.extend(unit.shape);
        all.shape.push(END);
        all.name.extend(unit.name);
        all.name.push(END);
        all.cpus.extend(unit.cpus);
    }
    all
}

#[cfg(test)]
mod tests;
