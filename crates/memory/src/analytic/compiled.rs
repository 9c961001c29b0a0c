//! A profile prepared for a machine: curves, tables, and the speed that counts as nominal.

use crate::curves::{Curves, PerClass, Replacement};
use crate::hierarchy::{Fill, Hierarchy};
use crate::profile::{Class, Home, MAX_CLASSES, Profile};
use crate::tables::{CurveTable, FateTable, MissTable};

use super::geometry::{CoreKind, Geometry};
use super::rate::{self, Access, COHERENCE_OVERLAP};

/// Parts of a write-shared class that survive in a private cache until they are touched again, for which there are
/// curves. Lines that others write leave early and make room.
const VALID_SHARES: [f64; 6] = [1.0, 0.6, 0.35, 0.2, 0.1, 0.05];

/// By how much of a class of code an L2 has to hold for a task alone, and for each of two siblings that share it: the lines count once,
/// and each thread fetches them for both. More siblings count as two.
const CODE_SHARES: [f64; 2] = [1.0, 0.5];

/// Part of an L1 in which a task's lines stay, beside a sibling thread and with few sets that overflow.
const RESIDENT: f64 = 0.5;

/// Closed forms of everything in a private L2.
pub(super) struct L2Curves {
    pub curves: Curves,
    pub quick: CurveTable,
}

/// What depends on the caches of a core.
pub(super) struct OfCore {
    /// Misses of a whole and of half an L1, the latter beside a sibling thread: classes of code miss the one for instructions.
    pub l1: PerClass,
    pub l1_half: PerClass,
    /// Misses of the L2 by its room, by how much of the write-shared classes stays valid: as in [`Compiled::l2`].
    pub l2_tables: Vec<MissTable>,
    /// Instructions that fill an L2, or fetch nine tenths of what there is.
    pub warm: f64,
}

/// What the hot path needs of a profile.
pub(super) struct Compiled {
    pub profile: Profile,
    pub count: usize,
    /// By class.
    pub touches: PerClass,
    pub writes: PerClass,
    /// Part of a miss's latency that is waited for, and of a transfer between caches of a shared class.
    pub exposed: PerClass,
    pub transfer_exposed: PerClass,
    pub lambda: PerClass,
    pub lines: PerClass,
    pub shared: [bool; MAX_CLASSES],
    pub any_shared: bool,
    /// The first class of code: these are the last ones.
    pub first_code: usize,
    /// Private classes whose pages are where the task first ran.
    pub own_home: [bool; MAX_CLASSES],
    /// Lines of shared classes.
    pub shared_lines: PerClass,
    /// By kind of core: [`Geometry::core_kinds`].
    pub cores: Vec<OfCore>,
    /// All classes, what the L2 holds, by [`CODE_SHARES`] and by how much of the write-shared ones stays valid:
    /// [`VALID_SHARES`]. One entry of each if there are none such.
    pub l2: Vec<L2Curves>,
    /// How many of the latter.
    valid_shares: usize,
    /// Private classes: what the task itself holds in the LLC.
    pub private: Curves,
    pub private_quick: CurveTable,
    /// By kind of LLC: [`Geometry::llc_ways`].
    pub llc_tables: Vec<MissTable>,
    /// What becomes of lines of private classes; those of shared ones stay untouched.
    pub fates: FateTable,
    /// Instructions per nanosecond, alone and warm on a CPU of capacity 1024.
    pub nominal: f64,
    /// It touches memory beyond an L1: not if it has no classes, or only private ones that fit half an L1 together.
    pub touches_memory: bool,
}

impl Compiled {
    pub fn new(profile: &Profile, hierarchy: &Hierarchy, geometry: &Geometry, replacement: Replacement) -> Self {
        let profile = &*profile.on(hierarchy);
        let line = hierarchy.line_bytes;
        let all = Curves::new(profile, line);
        let private = Curves::of_classes(&profile.classes, line, |class| !class.is_shared());
        let per_class = |value: &dyn Fn(&Class) -> f64| {
            let mut values = [0.0; MAX_CLASSES];
            for (slot, class) in values.iter_mut().zip(&profile.classes) {
                *slot = value(class);
            }
            values
        };
        let mut shared = [false; MAX_CLASSES];
        let mut own_home = [false; MAX_CLASSES];
        for (index, class) in profile.classes.iter().enumerate() {
            shared[index] = class.is_shared();
            own_home[index] = !class.is_shared() && class.home == Home::FirstTouch;
        }
        let touches = per_class(&|class| class.touches_per_instruction);
        let lambda = per_class(&|class| class.touches_per_instruction / class.lines(line));
        let own = |rate: &dyn Fn(&Class) -> f64| {
            per_class(&|class| {
                if class.is_shared() { 0.0 } else { rate(class) * class.touches_per_instruction / class.lines(line) }
            })
        };
        let fates = FateTable::new(&own(&|_| 1.0), &own(&|class| class.write_fraction));
        let valid_shares = if profile.classes.iter().any(is_written) { VALID_SHARES.len() } else { 1 };
        let beside =
            if profile.has_code() && geometry.siblings.iter().any(|siblings| !siblings.is_empty()) { 2 } else { 1 };
        let variants: Vec<(f64, f64)> = CODE_SHARES[..beside]
            .iter()
            .flat_map(|code| VALID_SHARES[..valid_shares].iter().map(|valid| (*code, *valid)))
            .collect();
        let data = Curves::of_classes(&profile.classes, line, |class| !class.code);
        let code = Curves::of_classes(&profile.classes, line, |class| class.code);
        let l1_misses = |kind: &CoreKind, part: f64| {
            let mut misses = data.steady_in_sets(part * kind.l1.lines as f64, kind.l1.ways);
            let of_code = kind.l1i.map(|l1i| code.steady_in_sets(part * l1i.lines as f64, l1i.ways));
            for (misses, of_code) in misses.iter_mut().zip(of_code.into_iter().flatten()) {
                *misses += of_code;
            }
            misses
        };
        let of_core = |kind: &CoreKind| {
            let behind = kind.behind;
            let whole = l1_misses(kind, 1.0);
            // An L2 knows only the touches that the L1 misses.
            let mut filtered = profile.classes.clone();
            for (class, misses) in filtered.iter_mut().zip(whole) {
                class.touches_per_instruction =
                    misses.clamp(1e-9 * class.touches_per_instruction, class.touches_per_instruction);
            }
            let l2_table =
                |shares: &_| MissTable::new(&Curves::scaled(&filtered, line, held(*shares)), behind.ways, replacement);
            OfCore {
                l1: whole,
                l1_half: l1_misses(kind, 0.5),
                l2_tables: variants.iter().map(l2_table).collect(),
                warm: all.window((0.9 * all.total_lines()).min(behind.lines as f64)),
            }
        };
        let smallest_l1 = geometry.core_kinds.iter().map(|kind| kind.l1.lines).min().unwrap_or(0);
        let smallest_l1i = geometry.core_kinds.iter().filter_map(|kind| Some(kind.l1i?.lines)).min().unwrap_or(0);
        let overlap = 1.0 / profile.mlp;
        let mut compiled = Self {
            count: profile.classes.len(),
            touches,
            writes: per_class(&|class| class.write_fraction),
            // Nothing runs on while instructions are missing.
            exposed: per_class(&|class| class.exposure * if class.code { 1.0 } else { overlap }),
            transfer_exposed: per_class(&|class| if class.code { class.exposure } else { 1.0 / COHERENCE_OVERLAP }),
            first_code: profile.classes.iter().take_while(|class| !class.code).count(),
            lambda,
            fates,
            lines: per_class(&|class| class.lines(line)),
            any_shared: profile.has_shared_classes(),
            shared,
            own_home,
            shared_lines: per_class(&|class| if class.is_shared() { class.lines(line) } else { 0.0 }),
            cores: geometry.core_kinds.iter().map(of_core).collect(),
            valid_shares,
            l2: variants
                .iter()
                .map(|shares| {
                    let curves = Curves::scaled(&profile.classes, line, held(*shares));
                    L2Curves { quick: CurveTable::new(&curves), curves }
                })
                .collect(),
            llc_tables: geometry.llc_ways.iter().map(|ways| MissTable::new(&all, *ways, replacement)).collect(),
            private_quick: CurveTable::new(&private),
            private,
            nominal: 0.0,
            touches_memory: profile.has_shared_classes()
                || data.total_lines() > RESIDENT * smallest_l1 as f64
                || code.total_lines() > RESIDENT * smallest_l1i as f64,
            profile: profile.clone(),
        };
        compiled.nominal = compiled.solo_rate(hierarchy);
        compiled
    }

    /// The curves nearest to a share of the write-shared lines that stay valid, with code shared with a sibling or not: index into `l2`.
    pub(crate) fn l2_variant(&self, valid: f64, beside_sharer: bool) -> u8 {
        let nearer = |pair: &[f64]| valid * valid < pair[0] * pair[1];
        let variant = VALID_SHARES.windows(2).take_while(|pair| nearer(pair)).count().min(self.valid_shares - 1);
        (variant + if beside_sharer { self.valid_shares } else { 0 }) as u8
    }

    /// Whether there are classes of code.
    #[inline]
    pub(crate) fn has_code(&self) -> bool {
        self.first_code < self.count
    }

    /// Instructions per nanosecond, alone and warm on a CPU of capacity 1024 with its data on its own node.
    fn solo_rate(&self, hierarchy: &Hierarchy) -> f64 {
        let compute_ns = self.profile.core_cpi() / hierarchy.frequency_ghz;
        if !self.touches_memory {
            return 1.0 / compute_ns;
        }
        // Of the first kind.
        let core = &self.cores[0];
        let mut access = Access { l1: core.l1, l2: core.l1, ..Access::default() };
        let mut capacity = hierarchy.llc[0].lines as f64;
        if let Some(l2) = hierarchy.l2.first() {
            let lines = l2.lines as f64;
            access.l2 = core.l2_tables[0].at(lines).0;
            if hierarchy.fill[0] == Fill::Victim {
                capacity += self.l2[0].curves.total_lines().min(lines);
            }
        }
        access.llc = self.llc_tables[0].at(capacity).0;
        access.order();
        let place = rate::CpuLatencies {
            l2_ns: hierarchy.l2.first().map(|l2| l2.latency_ns),
            llc_ns: hierarchy.llc[0].latency_ns,
            same_llc_ns: 0.0,
        };
        let mut components = rate::Components::new(1);
        components.compose(self, &access, &place, |_, misses, memory| {
            for (sum, misses) in memory.into_iter().zip(misses) {
                sum[0] += misses;
            }
        });
        let memory_ns = hierarchy.memory_ns[0][0];
        let stall: f64 = components.stall_ns.iter().sum::<f64>() + components.memory_exposed[0] * memory_ns;
        1.0 / (compute_ns + stall)
    }
}

/// How much of a class an L2 holds where so much of code counts, and so much of what others may invalidate is valid.
fn held((code, valid): (f64, f64)) -> impl Fn(&Class) -> f64 {
    move |class| match class {
        Class { code: true, .. } if class.is_shared() => code,
        _ if is_written(class) => valid,
        _ => 1.0,
    }
}

/// Whether others may invalidate a class's lines.
pub(super) fn is_written(class: &Class) -> bool {
    class.is_shared() && class.write_fraction > 0.0
}
