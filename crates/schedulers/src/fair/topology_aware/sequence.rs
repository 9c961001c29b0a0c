//! In which order a process takes LLCs, given its home: its LLC, those of its node, then node by node outwards
//! (`docs/spec/linux-fair.md` section 8.4, \[O\], the idea \[P\] from the second RFC).

use warmcore_topology::Machine;

use crate::domains::Domains;

/// How far a scope reaches, for names in reports and for the ladder's steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Reach {
    /// The home LLC.
    Llc,
    /// LLCs of the home node.
    Node,
    /// LLCs of the home socket.
    Socket,
    /// LLCs beyond it.
    System,
}

/// The order for every home, and the distances it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Sequences {
    llcs: usize,
    /// By home, then position: LLC.
    order: Vec<u32>,
    /// By home, then LLC: position.
    position: Vec<u32>,
    /// By home: LLCs of its node, of its socket.
    steps: Vec<[u32; 2]>,
    /// Node of each LLC.
    node: Vec<u32>,
    /// By LLC, then LLC: distance of their nodes.
    distance: Vec<u32>,
}

impl Sequences {
    /// The orders on a machine.
    pub fn new(machine: &Machine, domains: &Domains) -> Self {
        let llcs = domains.llc_count();
        let first = |llc: usize| domains.first_cpu_of_llc(llc as u32);
        let node: Vec<u32> = (0..llcs).map(|llc| machine.node_of(first(llc)).0).collect();
        let socket: Vec<_> = (0..llcs).map(|llc| machine.socket_of(first(llc))).collect();
        let index_in_node: Vec<usize> =
            (0..llcs).map(|llc| (0..llc).filter(|&other| node[other] == node[llc]).count()).collect();
        let in_node: Vec<usize> =
            (0..llcs).map(|llc| (0..llcs).filter(|&other| node[other] == node[llc]).count()).collect();
        let of = |a: usize, b: usize| machine.node_distance(machine.node_of(first(a)), machine.node_of(first(b)));
        let mut sequences = Self {
            llcs,
            order: Vec::with_capacity(llcs * llcs),
            position: vec![0; llcs * llcs],
            steps: Vec::with_capacity(llcs),
            distance: (0..llcs * llcs).map(|pair| of(pair / llcs, pair % llcs)).collect(),
            node,
        };
        for home in 0..llcs {
            let ring = |llc: usize| {
                let size = in_node[llc];
                (index_in_node[llc] + size - index_in_node[home] % size) % size
            };
            let key = |&llc: &usize| {
                let (there, here) = (sequences.node[llc], sequences.node[home]);
                (sequences.distance[home * llcs + llc], there.abs_diff(here), there, ring(llc))
            };
            let mut order: Vec<usize> = (0..llcs).collect();
            order.sort_by_key(key);
            for (position, &llc) in order.iter().enumerate() {
                sequences.position[home * llcs + llc] = position as u32;
            }
            sequences.order.extend(order.into_iter().map(|llc| llc as u32));
            let in_socket = socket.iter().filter(|&&other| other == socket[home]).count();
            sequences.steps.push([in_node[home] as u32, in_socket as u32]);
        }
        sequences
    }

    /// LLCs in the order of a home.
    pub fn order(&self, home: u32) -> &[u32] {
        &self.order[home as usize * self.llcs..][..self.llcs]
    }

    /// Place of an LLC in the order of a home.
    #[inline]
    pub fn position(&self, home: u32, llc: u32) -> u32 {
        self.position[home as usize * self.llcs + llc as usize]
    }

    /// Distance between the nodes of two LLCs.
    #[inline]
    pub fn distance(&self, a: u32, b: u32) -> u32 {
        self.distance[a as usize * self.llcs + b as usize]
    }

    /// Node of an LLC.
    pub fn node(&self, llc: u32) -> u32 {
        self.node[llc as usize]
    }

    /// How far so many LLCs reach from a home.
    pub fn reach(&self, home: u32, size: u32) -> Reach {
        let [node, socket] = self.steps[home as usize];
        match size {
            0 | 1 => Reach::Llc,
            size if size <= node => Reach::Node,
            size if size <= socket => Reach::Socket,
            _ => Reach::System,
        }
    }

    /// Size of a scope that takes whole steps of the ladder.
    pub fn rounded(&self, home: u32, size: u32) -> u32 {
        let [node, socket] = self.steps[home as usize];
        match self.reach(home, size) {
            Reach::Llc => 1,
            Reach::Node => node,
            Reach::Socket => socket,
            Reach::System => self.llcs as u32,
        }
    }

    /// The step of the ladder below a size.
    pub(crate) fn one_step_less(&self, home: u32, size: u32) -> u32 {
        let [node, socket] = self.steps[home as usize];
        [socket, node, 1].into_iter().find(|&step| step < size).unwrap_or(1)
    }
}
