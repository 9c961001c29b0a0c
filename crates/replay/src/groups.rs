//! Which threads belong together: groups of threads that wake each other far more than they wake others.
//!
//! A connected part of the graph is cut in two where the cut is sparsest (conductance: wakeups across it over wakeups of the smaller
//! side), and the halves again. A cut is kept if it is sparse, and much sparser than the best cut of any piece that is left: a pipeline
//! can be cut anywhere and stays whole, two services that talk now and then come apart. The cut is found by a sweep over the second eigenvector of
//! the normalised graph, which is the usual approximation of a problem that has no fast exact solution.
//!
//! Source: Shi and Malik, Normalized Cuts and Image Segmentation, IEEE PAMI 22(8), 2000, its second section; Kannan, Vempala, Vetta, On
//! Clusterings: Good, Bad and Spectral, J. ACM 51(3), 2004, its third section (recursive cuts by conductance).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use warmcore_statistics::adjusted_rand_index;

use crate::graph::{Graph, PARTS};

/// A cut of more than this share of the smaller side's wakeups is none.
const SPARSE: f64 = 0.15;
/// A cut must be sparser than this share of the sparsest cut of any piece that is left.
const SPARSER: f64 = 0.3;
/// Steps of the power iteration: the vector need not be exact, only in order.
const STEPS: usize = 300;

/// Threads that belong together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ThreadGroup {
    /// By thread id.
    pub threads: Vec<i32>,
    /// Wakeups between them.
    pub wakes_inside: u64,
    /// Wakeups between them and other threads.
    pub wakes_across: u64,
    /// Share of their wakeups that is inside, in each part of the recording; `None` where there are none.
    pub inside: [Option<f64>; PARTS],
}

/// What was found.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Groups {
    /// Groups of two and more threads, those with the most wakeups inside first.
    pub groups: Vec<ThreadGroup>,
    /// Threads that belong to nobody, by id.
    pub alone: Vec<i32>,
    /// How far the groups of the recording's first half are those of its second (adjusted Rand index; 1 if they are equal), over the
    /// threads that wake or are woken in both; `None` if there are none.
    pub stability: Option<f64>,
}

impl Groups {
    /// Groups of a graph.
    pub fn of(graph: &Graph) -> Self {
        let whole = partition(&graph.threads, &graph.in_parts(0..PARTS));
        let (together, alone): (Vec<_>, Vec<_>) = whole.into_iter().partition(|threads| threads.len() > 1);
        let mut groups: Vec<ThreadGroup> =
            together.into_iter().map(|threads| ThreadGroup::of(graph, threads)).collect();
        groups.sort_by_key(|group| (std::cmp::Reverse(group.wakes_inside), group.threads.clone()));
        let mut alone: Vec<i32> = alone.into_iter().flatten().collect();
        alone.sort_unstable();
        Self { groups, alone, stability: stability(graph) }
    }

    /// Number of the group of each thread, threads in the order given; a thread that is alone has a number of its own.
    pub fn labels(&self, threads: &[i32]) -> Vec<u32> {
        let mut sets: Vec<Vec<i32>> = self.groups.iter().map(|group| group.threads.clone()).collect();
        sets.extend(self.alone.iter().map(|thread| vec![*thread]));
        labels(threads, &sets)
    }
}

impl ThreadGroup {
    fn of(graph: &Graph, threads: Vec<i32>) -> Self {
        let mut group = Self { threads, wakes_inside: 0, wakes_across: 0, inside: [None; PARTS] };
        let mut parts = [[0; 2]; PARTS];
        for edge in &graph.edges {
            let has = |thread: i32| group.threads.binary_search(&thread).is_ok();
            let across = match (has(edge.a), has(edge.b)) {
                (true, true) => 0,
                (false, false) => continue,
                _ => 1,
            };
            *(if across == 0 { &mut group.wakes_inside } else { &mut group.wakes_across }) += edge.wakes();
            for (part, wakes) in parts.iter_mut().zip(edge.parts) {
                part[across] += wakes;
            }
        }
        for (share, [inside, across]) in group.inside.iter_mut().zip(parts) {
            *share = (inside + across > 0).then(|| inside as f64 / (inside + across) as f64);
        }
        group
    }
}

fn stability(graph: &Graph) -> Option<f64> {
    let halves = [0..PARTS / 2, PARTS / 2..PARTS].map(|parts| graph.in_parts(parts));
    let [first, second] = halves.each_ref().map(|half| -> BTreeSet<i32> {
        half.iter().filter(|(.., wakes)| *wakes > 0).flat_map(|(a, b, _)| [*a, *b]).collect()
    });
    let both: Vec<i32> = first.intersection(&second).copied().collect();
    let [first, second] = halves.map(|half| labels(&both, &partition(&graph.threads, &half)));
    (!both.is_empty()).then(|| adjusted_rand_index(&first, &second))
}

fn labels(threads: &[i32], sets: &[Vec<i32>]) -> Vec<u32> {
    let by_thread: BTreeMap<i32, u32> =
        (0..).zip(sets).flat_map(|(label, set)| set.iter().map(move |thread| (*thread, label))).collect();
    threads.iter().map(|thread| by_thread.get(thread).copied().unwrap_or(u32::MAX)).collect()
}

/// Cuts a weighted graph into parts, each in order of threads.
fn partition(threads: &[i32], edges: &[(i32, i32, u64)]) -> Vec<Vec<i32>> {
    let index: BTreeMap<i32, usize> = threads.iter().enumerate().map(|(index, thread)| (*thread, index)).collect();
    let mut neighbours: Vec<Vec<(usize, f64)>> = vec![Vec::new(); threads.len()];
    for (a, b, wakes) in edges.iter().filter(|(.., wakes)| *wakes > 0) {
        let (a, b) = (index[a], index[b]);
        neighbours[a].push((b, *wakes as f64));
        neighbours[b].push((a, *wakes as f64));
    }
    let pieces = components(&neighbours).into_iter().flat_map(|part| decompose(&neighbours, part));
    let mut parts: Vec<Vec<i32>> =
        pieces.map(|piece| piece.nodes.into_iter().map(|node| threads[node]).collect()).collect();
    parts.sort();
    parts
}

/// Threads that stay together.
struct Piece {
    /// In ascending order.
    nodes: Vec<usize>,
    /// Conductance of its sparsest cut; 1, as dense as can be, for a single thread.
    inner: f64,
}

/// A part, or the pieces that it comes apart into.
fn decompose(neighbours: &[Vec<(usize, f64)>], nodes: Vec<usize>) -> Vec<Piece> {
    let Some(cut) = sparsest_cut(neighbours, &nodes) else { return vec![Piece { nodes, inner: 1.0 }] };
    if cut.conductance <= SPARSE {
        let pieces: Vec<Piece> = cut.halves.into_iter().flat_map(|half| decompose(neighbours, half)).collect();
        let least = pieces.iter().map(|piece| piece.inner).fold(1.0, f64::min);
        if cut.conductance <= SPARSER * least {
            return pieces;
        }
    }
    vec![Piece { nodes, inner: cut.conductance }]
}

fn components(neighbours: &[Vec<(usize, f64)>]) -> Vec<Vec<usize>> {
    let mut seen = vec![false; neighbours.len()];
    let mut components = Vec::new();
    for start in 0..neighbours.len() {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        let mut component = vec![start];
        let mut next = 0;
        while let Some(node) = component.get(next).copied() {
            next += 1;
            for (other, _) in &neighbours[node] {
                if !std::mem::replace(&mut seen[*other], true) {
                    component.push(*other);
                }
            }
        }
        component.sort_unstable();
        components.push(component);
    }
    components
}

struct Cut {
    conductance: f64,
    halves: [Vec<usize>; 2],
}

/// The sparsest cut of a part that a sweep over its second eigenvector finds; `None` for fewer than two threads.
fn sparsest_cut(neighbours: &[Vec<(usize, f64)>], part: &[usize]) -> Option<Cut> {
    if part.len() < 2 {
        return None;
    }
    let local: BTreeMap<usize, usize> = part.iter().enumerate().map(|(local, node)| (*node, local)).collect();
    let inside: Vec<Vec<(usize, f64)>> = part
        .iter()
        .map(|node| neighbours[*node].iter().filter_map(|(to, wakes)| Some((*local.get(to)?, *wakes))).collect())
        .collect();
    let volume: Vec<f64> = inside.iter().map(|edges| edges.iter().map(|(_, wakes)| wakes).sum()).collect();
    let vector = second_eigenvector(&inside, &volume);
    let mut order: Vec<usize> = (0..part.len()).collect();
    order.sort_by(|a, b| vector[*a].total_cmp(&vector[*b]).then(a.cmp(b)));
    let total: f64 = volume.iter().sum();
    let (mut taken, mut crossing, mut left) = (vec![false; part.len()], 0.0, 0.0);
    let mut best: Option<(f64, usize)> = None;
    for (position, node) in order.iter().enumerate().take(part.len() - 1) {
        taken[*node] = true;
        left += volume[*node];
        for (to, wakes) in &inside[*node] {
            crossing += if taken[*to] { -wakes } else { *wakes };
        }
        let smaller = left.min(total - left);
        let conductance = if smaller > 0.0 { crossing / smaller } else { 0.0 };
        if best.is_none_or(|(least, _)| conductance < least) {
            best = Some((conductance, position + 1));
        }
    }
    let (conductance, size) = best?;
    let mut halves = [order[..size].to_vec(), order[size..].to_vec()];
    for half in &mut halves {
        half.iter_mut().for_each(|node| *node = part[*node]);
        half.sort_unstable();
    }
    Some(Cut { conductance, halves })
}

/// Power iteration on (I + D^-1/2 A D^-1/2) / 2, orthogonal to its first eigenvector; given as D^-1/2 times the vector.
fn second_eigenvector(inside: &[Vec<(usize, f64)>], volume: &[f64]) -> Vec<f64> {
    let root: Vec<f64> = volume.iter().map(|volume| volume.max(f64::MIN_POSITIVE).sqrt()).collect();
    let norm = |vector: &[f64]| vector.iter().map(|value| value * value).sum::<f64>().sqrt();
    let length = norm(&root);
    // Any start that is not orthogonal to the answer: multiples of the golden ratio, modulo 1, repeat nowhere.
    let mut vector: Vec<f64> =
        (1..=inside.len()).map(|index| (index as f64 * 0.618_033_988_749_895).fract() - 0.5).collect();
    for _ in 0..STEPS {
        let along: f64 = vector.iter().zip(&root).map(|(value, root)| value * root / length).sum();
        vector.iter_mut().zip(&root).for_each(|(value, root)| *value -= along * root / length);
        let next: Vec<f64> = (0..inside.len())
            .map(|node| {
                let spread: f64 = inside[node].iter().map(|(to, wakes)| wakes * vector[*to] / root[*to]).sum();
                (vector[node] + spread / root[node]) / 2.0
            })
            .collect();
        let size = norm(&next);
        if size <= f64::MIN_POSITIVE {
            break;
        }
        vector = next.into_iter().map(|value| value / size).collect();
    }
    vector.iter().zip(&root).map(|(value, root)| value / root).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(threads: i32, edges: &[(i32, i32, u64)]) -> Vec<Vec<i32>> {
        let threads: Vec<i32> = (0..threads).collect();
        partition(&threads, edges)
    }

    fn chain(first: i32, threads: i32) -> Vec<(i32, i32, u64)> {
        (first..first + threads - 1).map(|thread| (thread, thread + 1, 100)).collect()
    }

    fn clique(first: i32, threads: i32, wakes: u64) -> Vec<(i32, i32, u64)> {
        let all = first..first + threads;
        all.clone().flat_map(|a| all.clone().filter(move |b| *b > a).map(move |b| (a, b, wakes))).collect()
    }

    #[test]
    fn a_pipeline_stays_whole_however_long_it_is() {
        for stages in 2..50 {
            assert_eq!(parts(stages, &chain(0, stages)).len(), 1, "{stages} stages");
        }
    }

    #[test]
    fn a_pool_and_a_dispatcher_with_its_workers_stay_whole() {
        assert_eq!(parts(12, &clique(0, 12, 7)).len(), 1);
        let star: Vec<(i32, i32, u64)> = (1..20).map(|worker| (0, worker, 50)).collect();
        assert_eq!(parts(20, &star).len(), 1);
    }

    #[test]
    fn services_that_talk_now_and_then_come_apart() {
        let mut edges = clique(0, 6, 100);
        edges.extend(clique(6, 6, 100));
        edges.push((0, 6, 150));
        assert_eq!(parts(12, &edges), [(0..6).collect::<Vec<_>>(), (6..12).collect()]);
        let pairs = [(0, 1, 1000), (2, 3, 1000), (4, 5, 1000), (1, 2, 60), (3, 4, 60)];
        assert_eq!(parts(6, &pairs), [[0, 1], [2, 3], [4, 5]]);
    }

    #[test]
    fn threads_without_edges_are_alone_and_order_does_not_matter() {
        let mut edges = chain(0, 4);
        edges.extend(clique(5, 4, 30));
        let found = parts(12, &edges);
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [4, 1, 4, 1, 1, 1]);
        edges.reverse();
        assert_eq!(parts(12, &edges), found);
    }

    /// Threads 1 and 2 are quiet in the first quarter; in the last one 2 and 3 wake each other too.
    #[test]
    fn a_quarter_without_wakeups_has_no_share_inside() {
        use crate::graph::Edge;
        let edge = |a, b, parts: [u64; PARTS]| Edge {
            a,
            b,
            a_wakes_b: parts.iter().sum(),
            b_wakes_a: 0,
            by_softirq: 0,
            parts,
        };
        let edges = vec![edge(1, 2, [0, 30, 30, 30]), edge(2, 3, [0, 0, 0, 10])];
        let group = ThreadGroup::of(&Graph { threads: vec![1, 2, 3], edges, ..Graph::default() }, vec![1, 2]);
        assert_eq!((group.wakes_inside, group.wakes_across), (90, 10));
        assert_eq!(group.inside, [None, Some(1.0), Some(1.0), Some(0.75)]);
    }
}
