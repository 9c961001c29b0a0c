//! Simulated physical memory: which lines the classes of all tasks have, and on which nodes their pages are.
//!
//! Lines that the directories know come first. Every class begins on a page of its own.

use std::collections::BTreeMap;

use warmcore_topology::split_mix;

use super::domain::NO_HOME;
use super::error::ExactError;
use super::lanes::MAX_LINES;
use super::options::{MIN_SAMPLED_LINES, Options};
use crate::hierarchy::Hierarchy;
use crate::profile::{Class, Home, Profile, Sharing};

/// Bytes of a page where addresses are not translated.
pub const PAGE_BYTES: u64 = 4096;

/// A task as it is described.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskSpec {
    /// What it touches.
    pub profile: Profile,
    /// Its process: tasks of one process share classes of equal names that are shared by process.
    pub process: u32,
    /// Its data group, for classes that are shared by data group without naming one.
    pub data_group: Option<String>,
}

/// The lines of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    pub(crate) first: u32,
    pub(crate) lines: u32,
    /// Lines that one stands for.
    pub(crate) scale: u64,
    /// Whether the directories know the lines.
    pub(crate) coherent: bool,
}

/// Who owns a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Task(u32),
    Group(u32),
}

/// All regions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// By task and class.
    pub(crate) regions: Vec<Vec<Region>>,
    /// First lines of regions, ascending, with their owners.
    pub(crate) owners: Vec<(u32, Owner)>,
    pub(crate) coherent_end: u32,
    pub(crate) hot_end: u32,
    pub(crate) page_shift: u32,
    pub(crate) homes: Vec<u8>,
    pub(crate) groups: usize,
    next: u64,
}

type GroupKey<'a> = (u32, &'a str, &'a str);

struct Group<'a> {
    class: &'a Class,
    members: Vec<(usize, usize)>,
}

impl Space {
    pub(crate) fn new(specs: &[TaskSpec], hierarchy: &Hierarchy, options: &Options) -> Result<Self, ExactError> {
        let mut space = Self {
            regions: specs.iter().map(|spec| vec![EMPTY_REGION; spec.profile.classes.len()]).collect(),
            page_shift: page_shift(hierarchy, options),
            ..Self::default()
        };
        let groups = groups(specs)?;
        space.groups = groups.len();
        let shift = options.sampling_shift;
        let lines = |class: &Class| class.lines(hierarchy.line_bytes).round() as u64;
        // Code misses an L1 that has as many lines as few classes of data.
        let is_hot = |class: &Class| shift > 0 && lines(class) < MIN_SAMPLED_LINES && !class.code;
        let nodes = hierarchy.node_bandwidth.len();
        for hot in [true, false] {
            for (number, group) in groups.values().enumerate().filter(|(_, group)| is_hot(group.class) == hot) {
                let region = space.allocate(
                    group.class,
                    lines(group.class),
                    if hot { 0 } else { shift },
                    true,
                    Owner::Group(number as u32),
                    nodes,
                )?;
                for (task, class) in &group.members {
                    space.regions[*task][*class] = region;
                }
            }
            if hot {
                space.hot_end = space.next as u32;
            }
        }
        let llc_lines = hierarchy.llc.iter().map(|llc| llc.lines).max().unwrap_or(0);
        let followed = |class: &Class| options.follow_migrations && lines(class) <= FOLLOWED_LLCS * llc_lines;
        for coherent in [true, false] {
            for (task, spec) in specs.iter().enumerate() {
                for (index, class) in spec.profile.classes.iter().enumerate() {
                    if !class.is_shared() && followed(class) == coherent {
                        space.regions[task][index] =
                            space.allocate(class, lines(class), shift, coherent, Owner::Task(task as u32), nodes)?;
                    }
                }
            }
            if coherent {
                space.coherent_end = space.next as u32;
            }
        }
        Ok(space)
    }

    /// Of tasks whose lines are given to them one by one.
    pub(crate) fn open(hierarchy: &Hierarchy, options: &Options) -> Self {
        Self { page_shift: page_shift(hierarchy, options), ..Self::default() }
    }

    fn allocate(
        &mut self,
        class: &Class,
        lines: u64,
        shift: u32,
        coherent: bool,
        owner: Owner,
        nodes: usize,
    ) -> Result<Region, ExactError> {
        let lines = ((lines + (1 << shift) / 2) >> shift).max(1);
        let page = 1_u64 << self.page_shift;
        let pages = lines.div_ceil(page);
        let first = self.next;
        self.next += pages * page;
        if self.next > MAX_LINES {
            return Err(ExactError::TooManyLines { lines: self.next, most: MAX_LINES });
        }
        let home_of = home_rule(class, nodes)?;
        self.homes.extend((0..pages).map(home_of));
        self.owners.push((first as u32, owner));
        Ok(Region { first: first as u32, lines: lines as u32, scale: 1 << shift, coherent })
    }

    /// Who owns a line.
    pub(crate) fn owner(&self, line: u32) -> Option<Owner> {
        let after = self.owners.partition_point(|(first, _)| *first <= line);
        after.checked_sub(1).map(|index| self.owners[index].1)
    }

    /// Pages of a region.
    pub(crate) fn pages(&self, region: Region) -> std::ops::Range<usize> {
        let first = region.first >> self.page_shift;
        first as usize..((region.first + region.lines - 1) >> self.page_shift) as usize + 1
    }
}

/// log2 of the lines of a page.
fn page_shift(hierarchy: &Hierarchy, options: &Options) -> u32 {
    let page_bytes = options.paging.map_or(PAGE_BYTES, |paging| paging.page_bytes);
    (page_bytes / u64::from(hierarchy.line_bytes)).max(1).trailing_zeros()
}

/// Lines that the directories can know where tasks come and go, or addresses are translated: 8 GiB with lines of 64 bytes. Others come
/// behind them.
pub(super) const COHERENT_ROOM: u32 = 1 << 27;

const EMPTY_REGION: Region = Region { first: 0, lines: 1, scale: 1, coherent: false };

/// Private classes up to this many times the largest LLC are followed when their task moves; of larger ones next to
/// nothing would be found again.
pub(super) const FOLLOWED_LLCS: u64 = 4;

fn groups(specs: &[TaskSpec]) -> Result<BTreeMap<GroupKey<'_>, Group<'_>>, ExactError> {
    let mut groups: BTreeMap<GroupKey<'_>, Group<'_>> = BTreeMap::new();
    for (task, spec) in specs.iter().enumerate() {
        for (index, class) in spec.profile.classes.iter().enumerate() {
            let key = match &class.sharing {
                Sharing::Private => continue,
                Sharing::Process => (spec.process, "", class.name.as_str()),
                Sharing::Data(name) => {
                    let Some(group) = name.as_deref().or(spec.data_group.as_deref()) else {
                        return Err(ExactError::NoGroup { class: class.name.clone(), task });
                    };
                    (u32::MAX, group, class.name.as_str())
                }
            };
            let group = groups.entry(key).or_insert_with(|| Group { class, members: Vec::new() });
            if group.class.bytes != class.bytes || group.class.home != class.home {
                let reason = "its members give it different sizes or homes".to_owned();
                return Err(ExactError::Group { class: class.name.clone(), reason });
            }
            group.members.push((task, index));
        }
    }
    Ok(groups)
}

/// The home node of each page of a class, before anybody has touched it.
pub(super) fn home_rule(class: &Class, nodes: usize) -> Result<Box<dyn Fn(u64) -> u8>, ExactError> {
    match &class.home {
        Home::FirstTouch => Ok(Box::new(|_| NO_HOME)),
        Home::Interleave => Ok(Box::new(move |page| (page % nodes as u64) as u8)),
        Home::Shares(shares) => {
            if shares.len() != nodes {
                return Err(ExactError::HomeNodes { class: class.name.clone(), given: shares.len(), nodes });
            }
            let shares = shares.clone();
            Ok(Box::new(move |page| {
                let at = (split_mix(page + 1) >> 11) as f64 / (1_u64 << 53) as f64;
                let mut sum = 0.0;
                let node = shares.iter().position(|share| {
                    sum += share;
                    at < sum
                });
                node.unwrap_or(shares.len() - 1) as u8
            }))
        }
    }
}
