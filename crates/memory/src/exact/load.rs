//! Latency under load: how much longer memory and links take, from what they carried in the last epoch.

use crate::hierarchy::Hierarchy;

/// Latency factor of a resource, followed from epoch to epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadFactor {
    /// From the measured curve.
    curve: f64,
    /// Waiting beyond it while demand exceeds the bandwidth.
    queue: f64,
}

/// Share of the way to the new value per epoch: demand falls when latency rises, and undamped they would swing.
const DAMPING: f64 = 0.5;

impl LoadFactor {
    pub(crate) const IDLE: LoadFactor = LoadFactor { curve: 1.0, queue: 1.0 };

    pub(crate) fn value(&self) -> f64 {
        self.curve * self.queue
    }

    /// Takes the load of an epoch into account: its share of the highest bandwidth, and the share of reads.
    pub(crate) fn update(&mut self, hierarchy: &Hierarchy, utilisation: f64, read_share: f64) {
        self.curve += DAMPING * (curve_factor(hierarchy, utilisation, read_share) - self.curve);
        // Tasks that wait for memory demand in inverse proportion to latency, so this settles where demand is met.
        self.queue = (self.queue * (1.0 + DAMPING * (utilisation - 1.0))).max(1.0);
    }
}

/// Loaded latency over idle latency, between the curves whose read shares enclose the given one.
fn curve_factor(hierarchy: &Hierarchy, utilisation: f64, read_share: f64) -> f64 {
    let curves = &hierarchy.loaded_latency;
    let at = |index: usize| interpolate(&curves[index].1, utilisation);
    // Curves are ordered by falling read share.
    let Some(below) = curves.iter().position(|curve| curve.0 <= read_share) else { return at(curves.len() - 1) };
    if below == 0 {
        return at(0);
    }
    let (high, low) = (curves[below - 1].0, curves[below].0);
    let part = (high - read_share) / (high - low);
    at(below - 1) + part * (at(below) - at(below - 1))
}

/// Piecewise linear, constant beyond the ends.
fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let Some(after) = points.iter().position(|point| point.0 >= x) else {
        return points.last().map_or(1.0, |point| point.1);
    };
    if after == 0 {
        return points[0].1;
    }
    let ((x0, y0), (x1, y1)) = (points[after - 1], points[after]);
    y0 + (x - x0) / (x1 - x0) * (y1 - y0)
}

/// Highest bandwidth of a node at a share of reads, in bytes per nanosecond: between all reads and one write per read.
pub(crate) fn node_bandwidth(hierarchy: &Hierarchy, node: usize, read_share: f64) -> f64 {
    let (read, mixed) = (hierarchy.node_bandwidth[node], hierarchy.node_mixed_bandwidth[node]);
    if read.is_infinite() {
        return read;
    }
    mixed + (2.0 * read_share - 1.0).clamp(0.0, 1.0) * (read - mixed)
}
