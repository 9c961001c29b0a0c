//! Where the lines of a group are, seen from one LLC domain: which of the others have them, and how far away those are.
//!
//! All that a domain has to know of the others is sums over nodes and products over all, less its own part. They are formed
//! once for a *standing* of the group, which is another one when rates or chances have moved; a domain's mix then costs as
//! much as the machine has nodes.

use super::geometry::Geometry;
use super::groups::{Domain, Group, wins};

/// A standing is good while the domains' rates are together within this part of what it has, and the chances that lines are
/// not in LLCs within as much.
const SAME_STANDING: f64 = 0.002;

/// No line is surely in an LLC: chances that it is not are at least this, so that odds are finite.
const LEAST_ABSENT: f64 = 1e-9;

/// A domain's part of a standing, or a sum of such parts. Rates are per line and nanosecond, those of members that left included.
#[derive(Clone, Copy, Default)]
struct Part {
    touch: f64,
    write: f64,
    /// Chance that the last touch of a line was its write: it owns the line.
    owner: f64,
    /// Chance that its LLC has a line, in relation to that it has not.
    odds: f64,
}

/// What mixes are made of.
pub(super) struct Standing {
    parts: Vec<Part>,
    by_node: Vec<Part>,
    all: Part,
    /// By LLC the chance that a line is not in it, as of the LLC's last update.
    absent: Vec<f64>,
    /// The same as the parts have it, and the product of all.
    known_absent: Vec<f64>,
    in_none: f64,
    /// By how much rates and chances differ from what the parts have.
    moved_touch: f64,
    moved_held: f64,
    /// 0 before the first.
    pub number: u64,
}

/// A mean latency, and the part of it that crosses sockets.
#[derive(Clone, Copy, Default)]
struct Mean {
    weight: f64,
    ns: f64,
    far: f64,
}

impl Mean {
    fn add(&mut self, weight: f64, ns: f64, far: bool) {
        self.weight += weight;
        self.ns += weight * ns;
        self.far += weight * f64::from(u8::from(far));
    }

    fn mean(&self) -> Option<(f64, f64)> {
        (self.weight > 0.0).then(|| (self.ns / self.weight, self.far / self.weight))
    }
}

impl Standing {
    pub fn new(llcs: usize, nodes: usize) -> Self {
        Self {
            parts: vec![Part::default(); llcs],
            by_node: vec![Part::default(); nodes],
            all: Part::default(),
            absent: vec![1.0; llcs],
            known_absent: vec![1.0; llcs],
            in_none: 1.0,
            moved_touch: 0.0,
            moved_held: 0.0,
            number: 0,
        }
    }

    /// The domain's touches are others than before.
    #[inline]
    pub fn note(&mut self, llc: usize, before: f64, after: f64) {
        let known = self.parts[llc].touch;
        self.moved_touch += (after - known).abs() - (before - known).abs();
    }

    /// The LLC has a part of the lines.
    #[inline]
    pub fn hold(&mut self, llc: usize, part: f64) {
        let (known, before) = (self.known_absent[llc], self.absent[llc]);
        self.absent[llc] = 1.0 - part;
        self.moved_held += (self.absent[llc] - known).abs() - (before - known).abs();
    }

    /// Takes over what the domains are like.
    fn renew(&mut self, domains: &[Domain], geometry: &Geometry) {
        self.number += 1;
        (self.moved_touch, self.moved_held) = (0.0, 0.0);
        self.known_absent.copy_from_slice(&self.absent);
        self.by_node.fill(Part::default());
        (self.all, self.in_none) = (Part::default(), 1.0);
        let touches: f64 = domains.iter().map(Domain::touches).sum();
        for (llc, (part, domain)) in self.parts.iter_mut().zip(domains).enumerate() {
            let (touch, write, absent) = (domain.touches(), domain.writes(), self.absent[llc]);
            let odds = (1.0 - absent) / absent.max(LEAST_ABSENT);
            *part = Part { touch, write, owner: wins(write, touches - touch), odds };
            self.in_none *= absent.max(LEAST_ABSENT);
            self.all.add(part);
            self.by_node[geometry.node_of_llc[llc] as usize].add(part);
        }
    }
}

impl Part {
    #[inline]
    fn add(&mut self, other: &Part) {
        self.touch += other.touch;
        self.write += other.write;
        self.owner += other.owner;
        self.odds += other.odds;
    }

    /// The sum without one of its parts. Exactly nothing if that was all there is.
    #[inline]
    fn without(&self, part: &Part) -> Part {
        let less = |sum: f64, part: f64| (sum - part).max(0.0);
        Part {
            touch: less(self.touch, part.touch),
            write: less(self.write, part.write),
            owner: less(self.owner, part.owner),
            odds: less(self.odds, part.odds),
        }
    }
}

impl Group {
    /// Whether the domain's mix is not for the group's standing of now; it is to be made anew then.
    pub(crate) fn is_mix_old(&mut self, llc: usize, geometry: &Geometry) -> bool {
        let standing = &mut self.standing;
        if standing.number == 0
            || standing.moved_touch > SAME_STANDING * self.touch
            || standing.moved_held > SAME_STANDING
        {
            standing.renew(&self.domains, geometry);
        }
        self.domains[llc].mixed != self.standing.number
    }

    /// Sets the latency mixes of a domain, and which lines are elsewhere.
    pub fn mix(&mut self, llc: usize, geometry: &Geometry) {
        let standing = &self.standing;
        let own = &standing.parts[llc];
        let others = standing.all.without(own);
        let absent = standing.in_none / standing.known_absent[llc].max(LEAST_ABSENT);
        let (mut by_owner, mut to_sharers, mut reached) = (Mean::default(), Mean::default(), 0.0);
        let (mut farther_touch, mut farther_write) = (0.0, 0.0);
        let written = self.is_written();
        let node = geometry.node_of_llc[llc];
        for place in &geometry.farthest_nodes[node as usize] {
            let there = &standing.by_node[place.node as usize];
            let there = if place.node == node { there.without(own) } else { *there };
            if !written {
                // Nobody owns a line that nobody writes; a write would have to reach the farthest of all.
                if there.touch > 0.0 && to_sharers.weight <= 0.0 {
                    to_sharers.add(1.0, place.transfer_ns, place.far);
                }
                continue;
            }
            // Backwards in time their write comes before anybody else's touch: they own the line.
            by_owner.add(there.owner, place.transfer_ns, place.far);
            // Acknowledgements are collected in parallel, so the farthest domain that has the line counts. One of those
            // so far or farther has it if, backwards in time, a touch of theirs comes before a write of all the rest.
            (farther_touch, farther_write) = (farther_touch + there.touch, farther_write + there.write);
            let now = wins(farther_touch, (own.write + others.write - farther_write).max(0.0));
            to_sharers.add((now - reached).max(0.0), place.transfer_ns, place.far);
            reached = reached.max(now);
        }
        let lost = wins(others.write, own.touch);
        let domain = &mut self.domains[llc];
        domain.mixed = standing.number;
        domain.elsewhere = 1.0 - absent;
        domain.alone = others.odds * absent;
        domain.owned = if lost > 0.0 { (by_owner.weight / lost).min(1.0) } else { 1.0 };
        domain.invalid = if own.touch > 0.0 { lost } else { 0.0 };
        if let Some(mean) = to_sharers.mean() {
            (domain.write_ns, domain.write_far) = mean;
        }
        (domain.read_ns, domain.read_far) = by_owner.mean().unwrap_or((domain.write_ns, domain.write_far));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hierarchy;

    /// Four nodes with two LLCs each; some have no members, some all lines and some none.
    const RATES: [f64; 8] = [1.0, 0.0, 2.5, 0.25, 0.0, 0.0, 3.0, 0.125];
    const ABSENT: [f64; 8] = [0.5, 1.0, 0.25, 0.9, 1.0, 0.75, 0.125, 0.99];

    fn hold(group: &mut Group, absent: &[f64; 8]) {
        absent.iter().enumerate().for_each(|(llc, absent)| group.standing.hold(llc, 1.0 - absent));
    }

    fn standing(write_fraction: f64) -> (Group, Geometry) {
        let machine = warmcore_topology::resolve("2s2n2l4c1t").unwrap();
        let geometry = Geometry::new(&machine, &Hierarchy::new(&machine).unwrap());
        let mut group = Group::new(RATES.iter().map(|_| false), 4);
        for (llc, rate) in RATES.into_iter().enumerate().filter(|(_, rate)| *rate > 0.0) {
            group.enter(llc as u32, (rate, write_fraction * rate));
        }
        hold(&mut group, &ABSENT);
        (group, geometry)
    }

    #[test]
    fn mixes_from_sums_over_nodes_are_those_of_llcs_looked_at_one_by_one() {
        let w = 0.3;
        let (mut group, geometry) = standing(w);
        let all: f64 = RATES.iter().sum();
        for (llc, own) in RATES.into_iter().enumerate() {
            assert!(group.is_mix_old(llc, &geometry));
            group.mix(llc, &geometry);
            let mut others: Vec<usize> = (0..RATES.len()).filter(|other| *other != llc).collect();
            let ns = |other: usize| geometry.transfer_ns(llc as u32, other as u32);
            others.sort_by(|a, b| ns(*b).total_cmp(&ns(*a)));
            let in_none: f64 = others.iter().map(|&other| ABSENT[other]).product();
            let in_one: f64 = others.iter().map(|&other| in_none / ABSENT[other] * (1.0 - ABSENT[other])).sum();
            let (mut owned, mut read_ns, mut write_ns, mut farther, mut reached) = (0.0, 0.0, 0.0, 0.0, 0.0);
            for &other in &others {
                let owner = wins(w * RATES[other], all - RATES[other]);
                owned += owner;
                read_ns += owner * ns(other);
                farther += RATES[other];
                let now = wins(farther, w * (all - farther));
                write_ns += (now - reached) * ns(other);
                reached = now;
            }
            let lost = wins(w * (all - own), own);
            let domain = &group.domains[llc];
            for (what, found, expected) in [
                ("elsewhere", domain.elsewhere, 1.0 - in_none),
                ("alone", domain.alone, in_one),
                ("owned", domain.owned, owned / lost),
                ("invalid", domain.invalid, if own > 0.0 { lost } else { 0.0 }),
                ("read", domain.read_ns, read_ns / owned),
                ("write", domain.write_ns, write_ns / reached),
            ] {
                assert!(
                    (found / expected - 1.0).abs() < 1e-9 || found == expected,
                    "{what}, LLC {llc}: {found}, {expected}"
                );
            }
        }
    }

    #[test]
    fn a_write_to_lines_that_all_read_reaches_the_farthest_reader() {
        let (mut group, geometry) = standing(0.0);
        assert!(group.is_mix_old(0, &geometry));
        group.mix(0, &geometry);
        assert_eq!((group.domains[0].write_ns, group.domains[0].write_far), (geometry.transfer_ns(0, 6), 1.0));
        assert_eq!((group.domains[0].invalid, group.domains[0].owned), (0.0, 1.0));
    }

    /// A group that has moved left all its lines behind: they come from there, not from memory.
    #[test]
    fn an_llc_that_has_every_line_hands_them_over_if_it_is_the_only_one() {
        let (mut group, geometry) = standing(0.3);
        let alone = |group: &mut Group, absent: [f64; 8]| {
            hold(group, &absent);
            assert!(group.is_mix_old(3, &geometry));
            group.mix(3, &geometry);
            (group.domains[3].alone, group.domains[3].elsewhere)
        };
        let only = alone(&mut group, [0.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0]);
        assert!((only.0 - 1.0).abs() < 1e-6 && (only.1 - 1.0).abs() < 1e-6, "{only:?}");
        let two = alone(&mut group, [0.0, 1.0, 1.0, 0.5, 1.0, 1.0, 0.0, 1.0]);
        assert!(two.0 < 1e-6 && (two.1 - 1.0).abs() < 1e-6, "{two:?}");
    }

    #[test]
    fn mixes_are_made_anew_when_rates_have_moved_by_a_fifth_of_a_percent() {
        let (mut group, geometry) = standing(0.3);
        let is_old = |group: &mut Group| {
            let old = group.is_mix_old(2, &geometry);
            group.mix(2, &geometry);
            old
        };
        assert!(is_old(&mut group) && !is_old(&mut group));
        // To and fro does not add up.
        for _ in 0..100 {
            group.change(6, (3.0, 0.9), (3.01, 0.9));
            group.change(6, (3.01, 0.9), (3.0, 0.9));
        }
        assert!(!is_old(&mut group));
        group.change(6, (3.0, 0.9), (3.02, 0.9));
        assert!(is_old(&mut group));
    }
}
