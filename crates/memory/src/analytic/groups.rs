//! Lines that several tasks share: who had them last (`docs/spec/memory-model.md` section 4.4).
//!
//! Per class and sharing scope one group. For every line, touches of its members are independent random processes, so
//! "did somebody in another domain touch (write) this line since we last owned (touched) it" is a race of exponentials
//! whose outcome depends on the sums of rates per LLC domain only. A member that leaves its CPU keeps its share of the
//! last touches until the others' touches have replaced it.
//!
//! Members share uniformly: who reads whose lines is not distinguished.

use crate::math::{exp, least, most};

use super::geometry::NONE;
use super::mixes::Standing;
use super::window::Shape;

/// A window of so many touches of each line has them all.
const LONGEST: f64 = 40.0;

/// Sums over the members of a group in one LLC domain. Rates are per line and nanosecond.
#[derive(Clone, Copy, Default)]
pub(super) struct Domain {
    /// Touches and writes of the running members.
    pub touch: f64,
    pub write: f64,
    /// Of members that left, decaying.
    left_touch: f64,
    left_write: f64,
    /// Running members.
    pub members: u32,
    /// Lines that come to a private cache come to its LLC too.
    with_private: bool,
    /// Latency and share from other sockets of reads and writes that need another domain.
    pub read_ns: f64,
    pub read_far: f64,
    pub write_ns: f64,
    pub write_far: f64,
    /// Chance that a line this domain lacks is in another one, and in one alone, which then hands it to readers.
    pub elsewhere: f64,
    pub alone: f64,
    /// Part of the reads lost to other domains' writes that find one domain alone with the line.
    pub owned: f64,
    /// Part of the lines touched here that others have written since.
    pub invalid: f64,
    /// Touch rate when the members were last told.
    told_touch: f64,
    /// For which of the group's standings the latencies were last mixed; 0 if never.
    pub mixed: u64,
}

impl Domain {
    /// Touches of all that count, those of members that left included.
    #[inline]
    pub fn touches(&self) -> f64 {
        self.touch + self.left_touch
    }

    /// Their writes.
    #[inline]
    pub fn writes(&self) -> f64 {
        self.write + self.left_write
    }
}

pub(super) struct Group {
    /// W.
    pub lines: f64,
    pub domains: Vec<Domain>,
    /// The group's window in each LLC, or [`NONE`].
    pub slots: Vec<u32>,
    pub touch: f64,
    pub write: f64,
    /// Of members that left, over the domains.
    left: (f64, f64),
    decayed_ns: u64,
    /// What the domains' mixes are made of.
    pub standing: Standing,
    /// Share of its pages by node, and how many members have touched them first.
    pub home: Vec<f64>,
    pub touched_by: u32,
    /// The driver says where its pages are.
    pub told: bool,
}

/// A member's outcome of the race. Probabilities per touch.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Race {
    /// A write misses the core's private caches; a write needs another domain.
    pub write_private: f64,
    pub write_domain: f64,
    /// The same of reads.
    pub read_private: f64,
    pub read_domain: f64,
    /// A read misses the core's private caches and finds the line in the LLC, where an earlier reader's request has put it.
    pub read_llc: f64,
}

/// a / (a + b), 0 if both are. Differences of sums may leave a rounding error below 0 for nothing.
#[inline]
pub(super) fn wins(a: f64, b: f64) -> f64 {
    if a > 0.0 { a / (a + most(b, 0.0)) } else { 0.0 }
}

impl Group {
    /// A group without members on a machine with these LLCs, each of which is filled `with_private` caches or by what these
    /// evict, and so many nodes.
    pub fn new(with_private: impl Iterator<Item = bool>, nodes: usize) -> Self {
        let domain = |with_private| Domain { owned: 1.0, with_private, ..Domain::default() };
        let domains: Vec<Domain> = with_private.map(domain).collect();
        let llcs = domains.len();
        Self {
            lines: 1.0,
            domains,
            slots: vec![NONE; llcs],
            touch: 0.0,
            write: 0.0,
            left: (0.0, 0.0),
            decayed_ns: 0,
            standing: Standing::new(llcs, nodes),
            home: vec![0.0; nodes],
            touched_by: 0,
            told: false,
        }
    }

    /// Lines in an LLC and misses per touch for lack of room, of a window of `n` touches there.
    #[inline]
    pub fn at(&self, llc: u32, n: f64) -> Shape {
        // A line leaves by the next touch or by an outsider's write: of all that were touched only so many are there.
        let lines = self.lines * (1.0 - self.domains[llc as usize].invalid);
        let kept = exp(-n / lines);
        Shape { n: least(n, LONGEST * self.lines), lines: lines * (1.0 - kept), misses: kept }
    }

    /// Whether anybody writes its lines, or did lately; if not, nobody loses any to another.
    #[inline]
    pub(crate) fn is_written(&self) -> bool {
        self.write + self.left.1 > 0.0
    }

    /// Changes a domain's rates.
    #[inline]
    fn alter(&mut self, llc: usize, change: impl FnOnce(&mut Domain)) {
        let domain = &mut self.domains[llc];
        let before = domain.touches();
        change(domain);
        self.standing.note(llc, before, domain.touches());
    }

    /// A member's rates in a domain change from old to new (touch, write).
    pub fn change(&mut self, llc: u32, old: (f64, f64), new: (f64, f64)) {
        self.alter(llc as usize, |domain| {
            domain.touch += new.0 - old.0;
            domain.write += new.1 - old.1;
        });
        self.touch += new.0 - old.0;
        self.write += new.1 - old.1;
    }

    /// A member starts running in a domain. It takes over what members that left there still count for.
    pub fn enter(&mut self, llc: u32, rates: (f64, f64)) {
        self.alter(llc as usize, |domain| {
            domain.members += 1;
            domain.left_touch = (domain.left_touch - rates.0).max(0.0);
            domain.left_write = (domain.left_write - rates.1).max(0.0);
            domain.touch += rates.0;
            domain.write += rates.1;
        });
        self.touch += rates.0;
        self.write += rates.1;
        self.sum_left();
    }

    /// A member stops running in a domain.
    pub fn leave(&mut self, llc: u32, rates: (f64, f64)) {
        self.alter(llc as usize, |domain| {
            domain.members -= 1;
            domain.touch -= rates.0;
            domain.write -= rates.1;
            domain.left_touch += rates.0;
            domain.left_write += rates.1;
            if domain.members == 0 {
                // Nothing of the rounding of many sums is left behind.
                (domain.touch, domain.write) = (0.0, 0.0);
            }
        });
        self.touch -= rates.0;
        self.write -= rates.1;
        if self.domains.iter().all(|domain| domain.members == 0) {
            (self.touch, self.write) = (0.0, 0.0);
        }
        self.sum_left();
    }

    fn sum_left(&mut self) {
        let add = |sum: (f64, f64), domain: &Domain| (sum.0 + domain.left_touch, sum.1 + domain.left_write);
        self.left = self.domains.iter().fold((0.0, 0.0), add);
    }

    /// Lets what members that left still count for decay: others' touches replace theirs.
    pub fn decay(&mut self, now_ns: u64) {
        let elapsed = (now_ns - self.decayed_ns) as f64;
        self.decayed_ns = now_ns;
        if self.left == (0.0, 0.0) || elapsed == 0.0 {
            return;
        }
        let kept = exp(-self.touch * elapsed);
        let least = 1e-3 * self.touch;
        for llc in 0..self.domains.len() {
            self.alter(llc, |domain| {
                domain.left_touch *= kept;
                domain.left_write *= kept;
                if domain.left_touch < least {
                    (domain.left_touch, domain.left_write) = (0.0, 0.0);
                }
            });
        }
        self.sum_left();
    }

    /// Sums inside a domain and over all of them, those that left included.
    fn sums(&self, llc: u32) -> ((f64, f64), (f64, f64)) {
        let inside = &self.domains[llc as usize];
        let inside = (inside.touches(), inside.writes());
        (inside, (self.touch + self.left.0, self.write + self.left.1))
    }

    /// The race of a member with the rates `own` whose core's other threads add `siblings`.
    ///
    /// A read that another core of the domain caused to miss is served by that core if the last touch of any other was its
    /// write. If another core of the domain has read the line since, it took the line to the LLC. Lines that go to or come
    /// from other domains are in the LLC only if it is filled with the private caches.
    pub(crate) fn race(&self, llc: u32, own: (f64, f64), siblings: (f64, f64)) -> Race {
        let (inside, total) = self.sums(llc);
        let outside = ((total.0 - inside.0).max(0.0), (total.1 - inside.1).max(0.0));
        let core = (own.0 + siblings.0, own.1 + siblings.1);
        let others = ((total.0 - core.0).max(0.0), (total.1 - core.1).max(0.0));
        let (read_private, read_domain) = (wins(others.1, core.0), wins(outside.1, inside.0.max(own.0)));
        // The domain's other threads, each with an equal part of the rest.
        let rest = ((inside.0 - core.0).max(0.0), (inside.1 - core.1).max(0.0));
        let threads =
            (f64::from(self.domains[llc as usize].members) - if siblings.0 > 0.0 { 2.0 } else { 1.0 }).max(1.0);
        let each = (rest.0 / threads, rest.1 / threads);
        let from_writer = threads * wins(each.1, total.0 - each.0);
        let read_since = (wins(rest.1, core.0 + outside.1) - from_writer).max(0.0);
        let read_llc = if self.domains[llc as usize].with_private {
            read_since + (wins(outside.1, core.0 + rest.1) - read_domain).max(0.0)
        } else {
            // Who reads first after the write: a thread of the domain, or an outsider, to whom the line is handed directly.
            read_since * wins((rest.0 - each.0 - (rest.1 - each.1)).max(0.0), (outside.0 - outside.1).max(0.0))
        };
        Race {
            write_private: wins(others.0, core.1),
            write_domain: wins(outside.0, inside.1.max(own.1)),
            read_private,
            read_domain,
            read_llc: read_llc.min((read_private - read_domain).max(0.0)),
        }
    }

    /// Of the reads and writes that another core of the domain makes miss, the parts that find the line in that core's private
    /// caches still. What these have dropped since is in the LLC, which answers as for any line.
    ///
    /// A member's private caches keep a line for a time T after its touch: of its own touches, at the rate λ per line, e^(−λT)
    /// miss for lack of room, `missing`. Others', at the rate Λ, came within T and after its own with the part
    /// 1 − e^(−(Λ + λ) T). Others' caches are taken to be as crowded.
    pub(crate) fn in_front(&self, llc: u32, own: (f64, f64), siblings: (f64, f64), missing: f64) -> (f64, f64) {
        if own.0 <= 0.0 || missing <= 0.0 {
            return (1.0, 1.0);
        }
        let inside = &self.domains[llc as usize];
        let core = (own.0 + siblings.0, own.1 + siblings.1);
        let rest = ((inside.touches() - core.0).max(0.0), (inside.writes() - core.1).max(0.0));
        let kept = libm::log(least(missing, 1.0)) / own.0;
        (1.0 - exp((rest.1 + core.0) * kept), 1.0 - exp((rest.0 + core.1) * kept))
    }

    /// Stall per touch of a member with a mean part of the domain's touches, of which `write_fraction` write, for lines that
    /// others have; transfers under an LLC take `same_llc_ns`.
    pub(crate) fn mean_stall_ns(&self, llc: u32, write_fraction: f64, same_llc_ns: f64) -> f64 {
        let domain = &self.domains[llc as usize];
        let members = f64::from(domain.members.max(1));
        let race = self.race(llc, (domain.touch / members, domain.write / members), (0.0, 0.0));
        let written_ns = race.write_domain * domain.write_ns + (race.write_private - race.write_domain) * same_llc_ns;
        let read_ns =
            race.read_domain * domain.read_ns + (race.read_private - race.read_domain - race.read_llc) * same_llc_ns;
        write_fraction * written_ns + (1.0 - write_fraction) * read_ns
    }

    /// Chances that an outsider's write, and an outsider's touch, which came after all of this domain's touches and writes,
    /// is less than `age_ns` ago: lines live so long in LLCs.
    pub fn kept(&self, llc: u32, age_ns: f64) -> (f64, f64) {
        let (inside, total) = self.sums(llc);
        let outside = ((total.0 - inside.0).max(0.0), (total.1 - inside.1).max(0.0));
        (1.0 - exp(-(outside.1 + inside.0) * age_ns), 1.0 - exp(-(outside.0 + inside.1) * age_ns))
    }

    /// Chance that an outsider who has a line owns it, if this domain's last touch was longer than `age_ns` ago, the age at
    /// which lines are evicted: unless both had it at a time and no outsider has written it since.
    ///
    /// An outsider keeps a line while its touches are less than the age apart, (e^(Λ age) − 1) / Λ on average; this domain's
    /// touches are independent of when that began.
    pub fn taken(&self, llc: u32, age_ns: f64) -> f64 {
        let (inside, total) = self.sums(llc);
        let outside = ((total.0 - inside.0).max(0.0), (total.1 - inside.1).max(0.0));
        let unwritten = if outside.1 > 0.0 { exp(-outside.1 * age_ns) * wins(inside.0, outside.1) } else { 1.0 };
        let aged = outside.0 * age_ns;
        if aged <= 0.0 || inside.0 <= 0.0 {
            return 1.0;
        }
        let kept = (inside.0 / outside.0 * (exp(aged.min(30.0)) - 1.0)).min(1e3);
        let together = if kept < 1e-6 { 0.5 * kept } else { 1.0 - (1.0 - exp(-kept)) / kept };
        1.0 - together * unwritten
    }

    /// Whether a domain's sum moved so far that members should look again; then remembers the new ones.
    pub fn moved(&mut self, llc: u32) -> bool {
        let domain = &self.domains[llc as usize];
        let moved = (domain.touch - domain.told_touch).abs() > 0.02 * self.touch;
        if moved {
            for domain in &mut self.domains {
                domain.told_touch = domain.touch;
            }
        }
        moved
    }
}

/// Extra wait per transfer of a line that `contenders` tasks want, each after `think_ns` of other things, when a
/// transfer takes `transfer_ns` and one line's transfers come one after the other: a closed queue
/// (`docs/spec/memory-model.md` section 4.4).
pub fn queue_wait_ns(contenders: f64, think_ns: f64, transfer_ns: f64) -> f64 {
    queue_wait_beside_hits_ns(contenders, think_ns, transfer_ns, 1.0)
}

/// The same per touch, of which only the part `transfers` needs a transfer where all wait: whoever touches the line again
/// before anybody else has asked for it keeps it.
pub(super) fn queue_wait_beside_hits_ns(contenders: f64, think_ns: f64, transfer_ns: f64, transfers: f64) -> f64 {
    // Transfers all take the same time, so the one under way is half done on average: R = s (1 + (1 − 1 / n) (X R − X s / 2))
    // with X = n / (Z + R) is a quadratic in R. The specification leaves the half out. Nobody exceeds one per transfer.
    let b = think_ns - transfer_ns * contenders;
    let c = transfer_ns * (think_ns - 0.5 * transfer_ns * (contenders - 1.0));
    let response = 0.5 * (-b + (b * b + 4.0 * c).max(0.0).sqrt());
    (response.max(contenders * transfer_ns * transfers - think_ns) - transfer_ns).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytic::geometry::Geometry;

    fn group(domains: &[&[f64]], w: f64) -> Group {
        group_of(domains.len(), domains, w)
    }

    /// On a machine with more LLCs, in two nodes.
    fn group_of(llcs: usize, domains: &[&[f64]], w: f64) -> Group {
        let mut group = Group::new(std::iter::repeat_n(false, llcs), 2);
        for (llc, members) in domains.iter().enumerate() {
            for rate in *members {
                group.enter(llc as u32, (*rate, rate * w));
            }
        }
        group
    }

    /// `docs/spec/memory-model.md` section 4.4: two equal halves of 8 threads with w = 0.3 give PW = 0.77 and PR =
    /// 0.23.
    #[test]
    fn two_halves_fight_over_their_lines() {
        let group = group(&[&[1.0; 4], &[1.0; 4]], 0.3);
        let race = group.race(0, (1.0, 0.3), (0.0, 0.0));
        assert!((race.write_domain - 0.77).abs() < 0.005, "{race:?}");
        assert!((race.read_domain - 0.23).abs() < 0.005, "{race:?}");
    }

    /// `docs/spec/memory-model.md` section 4.4: one stray thread of 8 makes the other seven see PW = 0.32 (w = 0.3) or
    /// 0.74 (w = 0.05).
    #[test]
    fn one_stray_thread_hurts_the_other_seven() {
        for (w, expected) in [(0.3, 0.32), (0.05, 0.74)] {
            let group = group(&[&[1.0; 7], &[1.0]], w);
            let race = group.race(0, (1.0, w), (0.0, 0.0));
            assert!((race.write_domain - expected).abs() < 0.005, "w = {w}: {race:?}");
        }
    }

    /// Evicted at once, a line is its only holder's; where nothing is evicted, writes decide: of lines last touched long ago, all
    /// have been written since.
    #[test]
    fn lines_left_alone_belong_to_who_has_them_alone_or_has_written_them() {
        let group = group(&[&[1.0; 3], &[2.0]], 0.3);
        let taken = |age_ns| group.taken(0, age_ns);
        assert_eq!(self::group(&[&[1.0], &[]], 0.3).taken(0, 10.0), 1.0);
        assert!(taken(1e-9) > 0.999_999 && taken(1e3) > 0.999_999, "{} {}", taken(1e-9), taken(1e3));
        let readers = self::group(&[&[1.0; 3], &[2.0]], 0.0);
        assert!(readers.taken(0, 1e3) < 0.002, "nobody owns what all have read");
        assert!((0.5..0.999).contains(&taken(1.0)), "{}", taken(1.0));
    }

    /// What is left of rates after members came and went may be below nothing by a rounding error.
    #[test]
    fn rounding_errors_are_no_competitors() {
        assert_eq!(wins(1e-22, -1e-22), 1.0);
        assert_eq!(wins(0.0, 0.0), 0.0);
    }

    /// By hand: two cores whose private caches hold a twelfth of the lines. Of a core's touches the other's came last in half of
    /// the cases, and its cache has the line still with the chance 1 − (11/12)²; with room for all lines it always has.
    #[test]
    fn another_core_hands_over_only_what_its_private_caches_hold_still() {
        let group = group(&[&[1.0; 2], &[]], 1.0);
        let (read, write) = group.in_front(0, (1.0, 1.0), (0.0, 0.0), 11.0 / 12.0);
        assert!((write - 23.0 / 144.0).abs() < 1e-12 && (read - write).abs() < 1e-12, "{read} {write}");
        assert_eq!(group.in_front(0, (1.0, 1.0), (0.0, 0.0), 0.0), (1.0, 1.0));
    }

    #[test]
    fn one_domain_needs_no_other() {
        let group = group(&[&[1.0; 8], &[]], 0.3);
        let race = group.race(0, (1.0, 0.3), (0.0, 0.0));
        assert_eq!((race.write_domain, race.read_domain), (0.0, 0.0));
        assert!(race.write_private > 0.9);
    }

    /// `docs/spec/memory-model.md` section 4.4: verified to 0.0015 against exact coherence; here lines, owners and
    /// sharers are simulated one by one.
    #[test]
    fn the_race_agrees_with_lines_simulated_one_by_one() {
        let cases: [(&[&[f64]], f64); 4] = [
            (&[&[1.0, 1.0], &[1.0, 1.0]], 0.3),
            (&[&[1.0, 2.0, 0.5], &[1.0], &[3.0, 1.0]], 0.1),
            (&[&[1.0; 4], &[1.0; 4], &[1.0; 4], &[1.0; 4]], 0.05),
            (&[&[1.0; 7], &[1.0]], 0.6),
        ];
        for (domains, w) in cases {
            let mut group = group_of(4, domains, w);
            // Two LLCs in each socket.
            let machine = warmcore_topology::resolve("2s1n2l8c1t").unwrap();
            let geometry = Geometry::new(&machine, &crate::Hierarchy::new(&machine).unwrap());
            assert!(group.is_mix_old(0, &geometry));
            group.mix(0, &geometry);
            let threads: Vec<(usize, f64)> = domains
                .iter()
                .enumerate()
                .flat_map(|(llc, rates)| rates.iter().map(move |rate| (llc, *rate)))
                .collect();
            let total: f64 = threads.iter().map(|(_, rate)| rate).sum();
            let lines = 256;
            let mut sharers = vec![1_u32 << threads[0].0; lines];
            let mut cores = vec![1_u32; lines];
            // Thread 0's domain has the line in its LLC.
            let mut in_llc = vec![false; lines];
            let (mut write_far, mut read_llc) = (0.0, 0.0);
            let inside = |thread: usize| threads[thread].0 == threads[0].0;
            let (mut writes, mut write_cross, mut write_miss) = (0.0, 0.0, 0.0);
            let (mut reads, mut read_cross, mut read_miss) = (0.0, 0.0, 0.0);
            let mut state = 88_172_645_463_325_252_u64;
            let mut next = move || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
            };
            for step in 0..4_000_000 {
                let mut choice = next() * total;
                let mut thread = 0;
                while thread + 1 < threads.len() && choice >= threads[thread].1 {
                    choice -= threads[thread].1;
                    thread += 1;
                }
                let line = (next() * lines as f64) as usize;
                let write = next() < w;
                let (domain_bit, core_bit) = (1_u32 << threads[thread].0, 1_u32 << thread);
                if step > 100_000 && thread == 0 {
                    if write {
                        writes += 1.0;
                        write_cross += f64::from(u8::from(sharers[line] != domain_bit));
                        // Domains from 2 on are farther away.
                        write_far += f64::from(u8::from(sharers[line] >> 2 != 0));
                        write_miss += f64::from(u8::from(cores[line] != core_bit));
                    } else {
                        reads += 1.0;
                        read_cross += f64::from(u8::from(sharers[line] & domain_bit == 0));
                        read_miss += f64::from(u8::from(cores[line] & core_bit == 0));
                        read_llc += f64::from(u8::from(cores[line] & core_bit == 0 && in_llc[line]));
                    }
                }
                if write {
                    (sharers[line], cores[line], in_llc[line]) = (domain_bit, core_bit, false);
                } else {
                    // Writers are told apart from readers by being alone: nobody else has touched the line since.
                    let dirty = cores[line].count_ones() == 1;
                    let by_insider =
                        threads.iter().enumerate().any(|(index, _)| cores[line] == 1 << index && inside(index));
                    in_llc[line] |= inside(thread) && dirty && by_insider && cores[line] != core_bit;
                    sharers[line] |= domain_bit;
                    cores[line] |= core_bit;
                }
            }
            let rate = threads[0].1;
            let race = group.race(0, (rate, rate * w), (0.0, 0.0));
            for (what, formula, exact) in [
                ("write, domain", race.write_domain, write_cross / writes),
                ("read, domain", race.read_domain, read_cross / reads),
                ("write, private", race.write_private, write_miss / writes),
                ("read, private", race.read_private, read_miss / reads),
                ("read, LLC", race.read_llc, read_llc / reads),
                ("write, far", race.write_domain * group.domains[0].write_far, write_far / writes),
            ] {
                assert!((formula - exact).abs() < 0.01, "{what} of {domains:?}, w = {w}: {formula}, exact {exact}");
            }
        }
    }

    #[test]
    fn rates_of_a_member_that_left_fade_as_the_others_touch() {
        let mut group = group(&[&[1e-6; 4], &[1e-6; 4]], 0.3);
        for _ in 0..4 {
            group.leave(1, (1e-6, 0.3e-6));
        }
        let own = (1e-6, 0.3e-6);
        let before = group.race(0, own, (0.0, 0.0)).write_domain;
        group.decay(250_000);
        let after = group.race(0, own, (0.0, 0.0)).write_domain;
        group.decay(10_000_000);
        let end = group.race(0, own, (0.0, 0.0)).write_domain;
        assert!(before > 0.7 && after < before && after > 0.3 && end < 1e-9, "{before} {after} {end}");
    }

    #[test]
    fn a_hot_line_is_free_when_alone_and_a_queue_when_contended() {
        assert!(queue_wait_ns(1.0, 1_000.0, 50.0) < 1e-6);
        // Limits of `docs/spec/memory-model.md` section 4.4: X = n / (Z + s) when idle and 1 / s when saturated.
        let throughput = |n: f64, think: f64, transfer: f64| n / (think + transfer + queue_wait_ns(n, think, transfer));
        assert!((throughput(2.0, 100_000.0, 50.0) / (2.0 / 100_050.0) - 1.0).abs() < 1e-3);
        assert!((throughput(64.0, 100.0, 50.0) * 50.0 - 1.0).abs() < 0.05);
    }
}
