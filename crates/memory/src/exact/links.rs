//! Links between sockets, and between the nodes of a socket where they are limited: lines that they carry in an epoch, and how much
//! slower they are for it (`docs/spec/memory-model.md` section 4.7).

use super::load::LoadFactor;
use crate::hierarchy::Hierarchy;

/// An end of a way: a socket and a node in it.
pub(crate) type End = (usize, usize);

pub(crate) struct Links {
    sockets: usize,
    /// Nodes of the machine; 0 where links inside sockets are not limited.
    nodes: usize,
    /// By rows of the socket that sends, then by rows of the node that sends.
    load: Vec<LoadFactor>,
    /// Carried in this epoch.
    bytes: Vec<f64>,
}

impl Links {
    pub(crate) fn new(hierarchy: &Hierarchy, sockets: usize, nodes: usize) -> Self {
        let nodes = if hierarchy.node_link.is_finite() { nodes } else { 0 };
        let count = sockets * sockets + nodes * nodes;
        Self { sockets, nodes, load: vec![LoadFactor::IDLE; count], bytes: vec![0.0; count] }
    }

    /// The link on the way; none where nothing limits it.
    fn between(&self, from: End, to: End) -> Option<usize> {
        if from.0 != to.0 {
            return Some(from.0 * self.sockets + to.0);
        }
        (self.nodes > 0 && from.1 != to.1).then(|| self.sockets * self.sockets + from.1 * self.nodes + to.1)
    }

    pub(crate) fn carry(&mut self, from: End, to: End, bytes: f64) {
        if let Some(link) = self.between(from, to) {
            self.bytes[link] += bytes;
        }
    }

    /// Takes what was carried in an epoch of `epoch_ns` nanoseconds into account.
    pub(crate) fn end_epoch(&mut self, hierarchy: &Hierarchy, epoch_ns: f64) {
        for (link, (load, bytes)) in self.load.iter_mut().zip(&mut self.bytes).enumerate() {
            let of_sockets = link < self.sockets * self.sockets;
            let limit = if of_sockets { hierarchy.socket_link } else { hierarchy.node_link };
            load.update(hierarchy, std::mem::take(bytes) / epoch_ns / limit, 1.0);
        }
    }

    /// Latency factor of the way.
    pub(crate) fn factor(&self, from: End, to: End) -> f64 {
        self.between(from, to).map_or(1.0, |link| self.load[link].value())
    }
}
