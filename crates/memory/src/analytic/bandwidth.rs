//! How much slower memory is because it is loaded (`docs/spec/memory-model.md` sections 4.6 and 4.7).
//!
//! Resources are the memory of each node, the link between each two sockets per direction, and where they are known the ports to memory
//! of each LLC, each cluster of cores and each core, and the link between each two nodes of a socket per direction. Each has a latency factor that follows a measured curve of its load; the load follows from
//! how fast the tasks run with that factor. Demand falls with latency and latency rises with demand, so for each
//! resource the crossing is unique; resources are solved one after the other until nothing moves.
//!
//! Reads load the link on their way to the CPU, the lines written back the other direction of it; ports are loaded by reads.
//!
//! Beyond the measured maximum the factor grows until demand equals the maximum.

use crate::hierarchy::Hierarchy;

use super::geometry::Geometry;

/// A CPU's use of memory, for one solution.
#[derive(Clone, Copy, Default)]
pub(super) struct Stream {
    /// Nanoseconds per instruction without memory.
    pub base_ns: f64,
    pub node: u32,
    pub llc: u32,
    pub cpu: u32,
    /// Written back per byte read.
    pub write_back: f64,
}

pub(super) struct Bandwidth {
    nodes: usize,
    sockets: usize,
    /// Latency factors: nodes, then links by (from socket, to socket), then ports of LLCs, clusters and cores, then links by (from node, to
    /// node).
    factors: Vec<f64>,
    /// Highest bandwidth of each resource at read share 1, and at half reads.
    limits: Vec<(f64, f64)>,
    curves: Vec<(f64, Vec<(f64, f64)>)>,
    socket_of_node: Vec<u32>,
    /// The first link between nodes of a socket; none where such links are not limited.
    first_node_link: Option<usize>,
    /// By CPU the ports of its cluster and of its core; empty where neither is limited.
    near: Vec<[u32; 2]>,
    /// Bytes per nanosecond used at the last solution, for reports.
    pub used: Vec<f64>,
    /// Solutions that did not settle; the last factors were kept.
    pub not_converged: u64,
    /// Solutions asked for.
    pub solved: u64,
    terms: Vec<(f64, f64, f64)>,
    /// Streams that use each resource, one resource after the other, and where each one's begin.
    users: Vec<u32>,
    first_user: Vec<u32>,
}

/// Sweeps over the resources before a solution counts as not converging.
const MAX_SWEEPS: usize = 48;

/// Relative change of a factor that counts as none.
const TOLERANCE: f64 = 2e-3;

/// From this sweep on changes are halved.
const DAMP_FROM: usize = 4;

/// A resource used less than this has its idle latency.
const NEGLIGIBLE: f64 = 0.01;

impl Bandwidth {
    pub fn new(hierarchy: &Hierarchy, geometry: &Geometry) -> Self {
        let nodes = hierarchy.node_bandwidth.len();
        let sockets = geometry.sockets;
        let mut limits: Vec<(f64, f64)> =
            hierarchy.node_bandwidth.iter().copied().zip(hierarchy.node_mixed_bandwidth.iter().copied()).collect();
        limits.extend(std::iter::repeat_n((hierarchy.socket_link, hierarchy.socket_link), sockets * sockets));
        limits.extend(std::iter::repeat_n((hierarchy.llc_port, hierarchy.llc_port), hierarchy.llc.len()));
        let (of_cluster, of_core) = (hierarchy.cluster_port, hierarchy.core_port);
        let mut near = Vec::new();
        if of_cluster.is_finite() || of_core.is_finite() {
            let cores = hierarchy.cluster_of_core.len();
            let clusters = hierarchy.cluster_of_core.iter().max().map_or(0, |last| *last as usize + 1);
            let (first_cluster, first_core) = (limits.len() as u32, (limits.len() + clusters) as u32);
            let ports = |core: u32| [first_cluster + hierarchy.cluster_of_core[core as usize], first_core + core];
            near.extend(geometry.core.iter().map(|core| ports(*core)));
            limits.extend(std::iter::repeat_n((of_cluster, of_cluster), clusters));
            limits.extend(std::iter::repeat_n((of_core, of_core), cores));
        }
        let first_node_link = hierarchy.node_link.is_finite().then_some(limits.len());
        if first_node_link.is_some() {
            limits.extend(std::iter::repeat_n((hierarchy.node_link, hierarchy.node_link), nodes * nodes));
        }
        Self {
            nodes,
            sockets,
            first_node_link,
            factors: vec![1.0; limits.len()],
            used: vec![0.0; limits.len()],
            limits,
            curves: hierarchy.loaded_latency.clone(),
            socket_of_node: geometry.socket_of_node.clone(),
            near,
            not_converged: 0,
            solved: 0,
            terms: Vec::new(),
            users: Vec::new(),
            first_user: Vec::new(),
        }
    }

    /// Lists the streams of each resource.
    fn list_users(&mut self, streams: &[Stream], bytes: &[f64]) {
        let mut counts = std::mem::take(&mut self.first_user);
        let mut users = std::mem::take(&mut self.users);
        counts.clear();
        counts.resize(self.factors.len() + 1, 0);
        // Counted first, then put where the counts say.
        for put in [false, true] {
            for (index, stream) in streams.iter().enumerate() {
                let row = &bytes[index * self.nodes..(index + 1) * self.nodes];
                let used = |home: &usize| row[*home] > 0.0;
                let link_of = |home: usize| self.link(stream.node as usize, home);
                let mut note = |resource: usize| {
                    if put {
                        users[counts[resource] as usize] = index as u32;
                    }
                    counts[resource] += 1;
                };
                for home in (0..self.nodes).filter(used) {
                    note(home);
                    let link = link_of(home);
                    let first = (0..home).filter(used).all(|earlier| link_of(earlier) != link);
                    if let Some(link) = link.filter(|_| first) {
                        note(link);
                        if stream.write_back > 0.0 {
                            note(self.other_way(link));
                        }
                    }
                }
                if (0..self.nodes).any(|home| used(&home)) {
                    note(self.port(stream.llc));
                    self.near_ports(stream.cpu).iter().for_each(|port| note(*port as usize));
                }
            }
            if !put {
                let mut sum = 0;
                for count in &mut counts {
                    sum += std::mem::replace(count, sum);
                }
                users.clear();
                users.resize(sum as usize, 0);
            }
        }
        // Each entry has moved on to where the next one's begins.
        counts.rotate_right(1);
        counts[0] = 0;
        (self.first_user, self.users) = (counts, users);
    }

    /// Link that reads from `home` use, for a CPU of `node`; `None` inside a node, and inside a socket whose nodes' links are not limited.
    #[inline]
    fn link(&self, node: usize, home: usize) -> Option<usize> {
        let (to, from) = (self.socket_of_node[node] as usize, self.socket_of_node[home] as usize);
        if to == from {
            return self.first_node_link.filter(|_| node != home).map(|first| first + home * self.nodes + node);
        }
        Some(self.nodes + from * self.sockets + to)
    }

    fn is_link(&self, resource: usize) -> bool {
        let of_sockets = self.nodes..self.nodes + self.sockets * self.sockets;
        of_sockets.contains(&resource) || self.first_node_link.is_some_and(|first| resource >= first)
    }

    /// The same link in the other direction.
    #[inline]
    fn other_way(&self, link: usize) -> usize {
        let (first, side) = match self.first_node_link {
            Some(first) if link >= first => (first, self.nodes),
            _ => (self.nodes, self.sockets),
        };
        let (from, to) = ((link - first) / side, (link - first) % side);
        first + to * side + from
    }

    fn port(&self, llc: u32) -> usize {
        self.nodes + self.sockets * self.sockets + llc as usize
    }

    /// The limited ports between a CPU and its LLC, of its cluster and its core; none where there are no limits.
    #[inline]
    pub fn near_ports(&self, cpu: u32) -> &[u32] {
        self.near.get(cpu as usize).map_or(&[], |ports| ports)
    }

    /// Latency factor of all memory for a CPU by the ports between it and its LLC.
    #[inline]
    pub fn near_factor(&self, cpu: u32) -> f64 {
        self.near_ports(cpu).iter().map(|port| self.factors[*port as usize]).product()
    }

    /// Resources in all.
    pub fn resources(&self) -> usize {
        self.factors.len()
    }

    /// Latency factor of memory of `home` for a CPU of `node` under `llc`, without the ports below the LLC.
    #[inline]
    pub fn factor(&self, node: u32, llc: u32, home: usize) -> f64 {
        let link = self.link(node as usize, home).map_or(1.0, |link| self.factors[link]);
        self.factors[home] * link * self.factors[self.port(llc)]
    }

    /// Bytes per nanosecond used of a node's memory at the last solution.
    #[cfg(test)]
    pub(crate) fn node_use(&self, node: usize) -> f64 {
        self.used[node]
    }

    /// Solves all factors. Per stream, `exposed` and `bytes` have one entry per home node: idle stall nanoseconds and
    /// bytes per instruction. Whether any factor moved noticeably; `None` if they did not settle and are what they were.
    pub(crate) fn solve(&mut self, streams: &[Stream], exposed: &[f64], bytes: &[f64]) -> Option<bool> {
        self.solve_within(MAX_SWEEPS, streams, exposed, bytes)
    }

    fn solve_within(&mut self, sweeps: usize, streams: &[Stream], exposed: &[f64], bytes: &[f64]) -> Option<bool> {
        self.solved += 1;
        let before = self.factors.clone();
        self.list_users(streams, bytes);
        let mut converged = false;
        for sweep in 0..sweeps {
            let mut largest = 0.0_f64;
            for resource in 0..self.factors.len() {
                let old = self.factors[resource];
                let solved = self.solve_one(resource, streams, exposed, bytes);
                let new = if sweep >= DAMP_FROM { 0.5 * (old + solved) } else { solved };
                largest = largest.max((new / old - 1.0).abs());
                self.factors[resource] = new;
            }
            if largest < TOLERANCE {
                converged = true;
                break;
            }
        }
        if !converged {
            self.not_converged += 1;
            self.factors.copy_from_slice(&before);
            return None;
        }
        Some(self.factors.iter().zip(&before).any(|(new, old)| (new / old - 1.0).abs() > TOLERANCE))
    }

    /// The factor of one resource with all others as they are.
    fn solve_one(&mut self, resource: usize, streams: &[Stream], exposed: &[f64], bytes: &[f64]) -> f64 {
        let limits = self.limits[resource];
        if limits.0.is_infinite() {
            return 1.0;
        }
        let is_node = resource < self.nodes;
        let is_link = self.is_link(resource);
        // Whoever uses a port does so for memory of all nodes.
        let is_port = !is_node && !is_link;
        let back = is_link.then(|| self.other_way(resource));
        let (mut read_sum, mut write_sum) = (0.0, 0.0);
        let mut terms = std::mem::take(&mut self.terms);
        terms.clear();
        for user in self.first_user[resource]..self.first_user[resource + 1] {
            let index = self.users[user as usize] as usize;
            let stream = &streams[index];
            let row = index * self.nodes..(index + 1) * self.nodes;
            let near = self.near_factor(stream.cpu);
            let (mut through, mut beside, mut used) = (0.0, stream.base_ns, 0.0);
            // Read over the link's other direction, so that what is written back comes here.
            let mut returned = 0.0;
            for home in 0..self.nodes {
                let (stall, bytes) = (exposed[row.start + home], bytes[row.start + home]);
                if bytes <= 0.0 {
                    continue;
                }
                let factor = self.factor(stream.node, stream.llc, home) * near;
                let link = self.link(stream.node as usize, home);
                let uses = resource == home || link == Some(resource) || is_port;
                if link.is_some() && link == back {
                    returned += bytes;
                }
                if uses {
                    through += stall * factor / self.factors[resource];
                    used += bytes;
                } else {
                    beside += stall * factor;
                }
            }
            if used > 0.0 {
                let written = if is_node { stream.write_back } else { 0.0 };
                terms.push((beside, through, used * (1.0 + written)));
                let rate = used / (beside + through * self.factors[resource]);
                read_sum += rate;
                write_sum += rate * written;
            }
            if returned > 0.0 {
                // At a rate that this direction's latency does not change.
                terms.push((beside + through * self.factors[resource], 0.0, returned * stream.write_back));
                read_sum += returned * stream.write_back / (beside + through * self.factors[resource]);
            }
        }
        let total = read_sum + write_sum;
        let read_share = if total > 0.0 { read_sum / total } else { 1.0 };
        // Half writes is as far as was measured.
        let limit = limits.0 + (limits.1 - limits.0) * (2.0 * (1.0 - read_share)).min(1.0);
        let demand = |factor: f64| -> f64 {
            terms.iter().map(|(beside, through, bytes)| bytes / (beside + through * factor)).sum::<f64>() / limit
        };
        let solved = if demand(1.0) < NEGLIGIBLE { 1.0 } else { self.crossing(read_share, demand) };
        self.used[resource] = demand(solved) * limit;
        self.terms = terms;
        solved
    }

    /// Where the factor that a load causes is the factor that causes the load.
    fn crossing(&self, read_share: f64, load: impl Fn(f64) -> f64) -> f64 {
        let too_low = |factor: f64| {
            let load = load(factor);
            load > 1.0 || self.curve(read_share, load) > factor
        };
        let mut high = 2.0;
        while too_low(high) && high < 1e6 {
            high *= 2.0;
        }
        let mut low = if high > 2.0 { 0.5 * high } else { 1.0 };
        while high / low > 1.0 + 0.25 * TOLERANCE {
            let middle = 0.5 * (low + high);
            if too_low(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        0.5 * (low + high)
    }

    /// Measured latency factor at a load of 0 to 1, between the curves of the nearest read shares.
    fn curve(&self, read_share: f64, load: f64) -> f64 {
        let below = self.curves.iter().rfind(|(share, _)| *share >= read_share).unwrap_or(&self.curves[0]);
        let above = self.curves.iter().find(|(share, _)| *share <= read_share);
        let above = above.unwrap_or(&self.curves[self.curves.len() - 1]);
        let (first, second) = (interpolate(&below.1, load), interpolate(&above.1, load));
        let span = below.0 - above.0;
        let part = if span > 0.0 { (below.0 - read_share) / span } else { 0.0 };
        first + part * (second - first)
    }
}

fn interpolate(points: &[(f64, f64)], load: f64) -> f64 {
    let mut last = points[0];
    for &point in points {
        if point.0 >= load {
            let span = point.0 - last.0;
            let part = if span > 0.0 { (load - last.0) / span } else { 1.0 };
            return last.1 + part.max(0.0) * (point.1 - last.1);
        }
        last = point;
    }
    last.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::resolve;

    fn solver(machine: &str) -> (Hierarchy, Bandwidth) {
        let machine = resolve(machine).unwrap();
        let hierarchy = Hierarchy::new(&machine).unwrap();
        let geometry = Geometry::new(&machine, &hierarchy);
        let bandwidth = Bandwidth::new(&hierarchy, &geometry);
        (hierarchy, bandwidth)
    }

    /// `count` streams on node 0 that read `home`: each does nothing but miss.
    fn streams(count: usize, home: usize) -> (Vec<Stream>, Vec<f64>, Vec<f64>) {
        let streams = vec![Stream { base_ns: 0.5, ..Stream::default() }; count];
        let mut exposed = vec![0.0; 2 * count];
        let mut bytes = vec![0.0; 2 * count];
        for index in 0..count {
            exposed[2 * index + home] = 10.0;
            bytes[2 * index + home] = 64.0;
        }
        (streams, exposed, bytes)
    }

    #[test]
    fn light_load_costs_little_and_heavy_load_saturates_at_the_limit() {
        let (_, mut bandwidth) = solver("spr32");
        let (one, exposed, bytes) = streams(1, 0);
        bandwidth.solve(&one, &exposed, &bytes);
        assert!(bandwidth.factor(0, 0, 0) < 1.03);
        let (many, exposed, bytes) = streams(200, 0);
        bandwidth.solve(&many, &exposed, &bytes);
        assert!(bandwidth.factor(0, 0, 0) > 2.0);
        assert!((bandwidth.node_use(0) / 255.0 - 1.0).abs() < 0.01, "{} GB/s", bandwidth.node_use(0));
        assert_eq!(bandwidth.not_converged, 0);
    }

    /// All CPUs of a socket read what one die's memory can hardly give, through a link that can hardly carry it.
    #[test]
    fn a_solution_that_does_not_settle_is_counted_and_changes_nothing() {
        let (_, mut bandwidth) = solver("spr32");
        let (many, exposed, bytes) = streams(200, 1);
        assert_eq!(bandwidth.solve_within(2, &many, &exposed, &bytes), None);
        assert_eq!((bandwidth.solved, bandwidth.not_converged, bandwidth.factor(0, 0, 1)), (1, 1, 1.0));
        assert_eq!(bandwidth.solve(&many, &exposed, &bytes), Some(true));
        assert_eq!((bandwidth.solved, bandwidth.not_converged), (2, 1));
        assert!(bandwidth.factor(0, 0, 1) > 2.0);
    }

    #[test]
    fn the_factor_lies_on_the_measured_curve() {
        let (_, mut bandwidth) = solver("spr32");
        for count in [10, 20, 30, 40] {
            let (streams, exposed, bytes) = streams(count, 0);
            bandwidth.solve(&streams, &exposed, &bytes);
            let load = bandwidth.node_use(0) / 255.0;
            let expected = bandwidth.curve(1.0, load);
            let factor = bandwidth.factor(0, 0, 0);
            assert!((factor / expected - 1.0).abs() < 0.02, "{count}: load {load}, {factor} for {expected}");
        }
    }

    #[test]
    fn remote_reads_are_limited_by_the_link() {
        let (hierarchy, mut bandwidth) = solver("spr32");
        let (many, exposed, bytes) = streams(200, 1);
        bandwidth.solve(&many, &exposed, &bytes);
        let used = bandwidth.node_use(1);
        assert!((used / hierarchy.socket_link - 1.0).abs() < 0.02, "{used} of {} GB/s", hierarchy.socket_link);
        assert_eq!(bandwidth.not_converged, 0);
    }

    /// The four dies of two packages, two a package, with 12.8 GB/s between the dies of one (`machines/opteron32.toml`): reads of the
    /// other die's memory take what the link gives, and written lines load the other direction.
    #[test]
    fn reads_from_another_node_of_the_socket_are_limited_by_their_link() {
        let machine = resolve("opteron32").unwrap();
        let hierarchy = Hierarchy { node_bandwidth: vec![100.0; 8], ..Hierarchy::new(&machine).unwrap() };
        let hierarchy = Hierarchy { node_mixed_bandwidth: vec![100.0; 8], ..hierarchy };
        assert_eq!(hierarchy.node_link, 12.8);
        let geometry = Geometry::new(&machine, &hierarchy);
        let nodes = hierarchy.node_bandwidth.len();
        let used = |home: usize, write_back: f64| {
            let mut bandwidth = Bandwidth::new(&hierarchy, &geometry);
            let streams = vec![Stream { base_ns: 0.5, write_back, ..Stream::default() }; 200];
            let (mut exposed, mut bytes) = (vec![0.0; nodes * 200], vec![0.0; nodes * 200]);
            for index in 0..200 {
                exposed[nodes * index + home] = 10.0;
                bytes[nodes * index + home] = 64.0;
            }
            bandwidth.solve(&streams, &exposed, &bytes);
            assert_eq!(bandwidth.not_converged, 0);
            bandwidth.node_use(home)
        };
        assert_eq!((geometry.socket_of_node[0], geometry.socket_of_node[1]), (0, 0));
        assert!((used(1, 0.0) / 12.8 - 1.0).abs() < 0.02, "{} of 12.8 GB/s", used(1, 0.0));
        assert!(used(0, 0.0) > 90.0, "its own memory has no link: {}", used(0, 0.0));
        // One line is written for each that is read: the memory sees both, each direction of the link one.
        assert!((used(1, 1.0) / 25.6 - 1.0).abs() < 0.02, "{} of 25.6 GB/s", used(1, 1.0));
    }
}
