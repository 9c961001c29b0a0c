//! Virtual LLCs: a last-level cache divided into groups of cores, as schedulers do with large ones.
//!
//! A division is asked for, not a property of hardware: [`Machine`] does not carry one. The rule is that of
//! `scx_lavd` 1.1 with `--virt-llc=MIN-MAX`: of an LLC with `n` cores of one kind the group size is `n` if that is at most `MIN`, else the first
//! size from `MIN` to `MAX` that leaves the smallest remainder of `n`; the remainder goes to the last group.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{CoreId, CpuId, Machine};

/// How many cores a virtual LLC shall have: `4`, or a range such as `2-8`, of which the first number that divides the
/// cores of an LLC is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VirtualLlcSize {
    least: u32,
    most: u32,
}

/// A text that names no size of virtual LLCs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("virtual LLCs of `{0}` cores make no sense; write a number from 1 on, such as 4, or a range, such as 2-8")]
pub struct VirtualLlcSizeError(String);

impl VirtualLlcSize {
    /// Virtual LLCs of `cores` cores.
    pub const fn exactly(cores: NonZeroU32) -> Self {
        Self { least: cores.get(), most: cores.get() }
    }

    /// Cores of each virtual LLC but the last, of an LLC with `cores` cores.
    fn of(self, cores: u32) -> u32 {
        if cores <= self.least {
            return cores;
        }
        // The first with the smallest remainder; an exact divisor has none.
        (self.least..=self.most).min_by_key(|size| cores % size).unwrap_or(cores)
    }
}

impl FromStr for VirtualLlcSize {
    type Err = VirtualLlcSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || VirtualLlcSizeError(text.to_owned());
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let number = |part: &str| part.trim().parse::<u32>().map_err(|_| error());
        let size = Self { least: number(least)?, most: number(most)? };
        if size.least == 0 || size.most < size.least { Err(error()) } else { Ok(size) }
    }
}

impl fmt::Display for VirtualLlcSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.least == self.most { write!(f, "{}", self.least) } else { write!(f, "{}-{}", self.least, self.most) }
    }
}

impl TryFrom<String> for VirtualLlcSize {
    type Error = VirtualLlcSizeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<VirtualLlcSize> for String {
    fn from(size: VirtualLlcSize) -> Self {
        size.to_string()
    }
}

/// A machine's CPUs by virtual LLC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VirtualLlcs {
    of_cpu: Vec<u32>,
    count: usize,
}

impl VirtualLlcs {
    /// Divides each LLC, cores of different capacity apart, in the order of cores. Hardware threads of a core stay together; the
    /// last virtual LLC takes the cores that are left over.
    pub fn divide(machine: &Machine, size: VirtualLlcSize) -> Self {
        let mut of_cpu = vec![0; machine.cpu_count()];
        let mut count = 0_u32;
        for llc in machine.llcs() {
            let mut kinds: BTreeMap<u32, Vec<CoreId>> = BTreeMap::new();
            for cpu in machine.cpus_of_llc(llc).iter() {
                let cores = kinds.entry(machine.capacity(cpu)).or_default();
                let core = machine.core_of(cpu);
                if let Err(place) = cores.binary_search(&core) {
                    cores.insert(place, core);
                }
            }
            // Fast cores first.
            for cores in kinds.into_values().rev() {
                let each = size.of(cores.len() as u32);
                let groups = (cores.len() as u32 / each).max(1);
                for (position, core) in cores.into_iter().enumerate() {
                    let group = (position as u32 / each).min(groups - 1);
                    machine.cpus_of_core(core).iter().for_each(|cpu| of_cpu[cpu.index()] = count + group);
                }
                count += groups;
            }
        }
        Self { of_cpu, count: count as usize }
    }

    /// The virtual LLC of a CPU: a number from 0 on, ascending with the LLCs.
    #[inline]
    pub fn of(&self, cpu: CpuId) -> usize {
        self.of_cpu[cpu.index()] as usize
    }

    /// Number of virtual LLCs.
    pub fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve;

    /// Cores of each virtual LLC of a machine of one LLC with so many cores.
    fn sizes(cores: u32, size: &str) -> Vec<usize> {
        let machine = resolve(&format!("1s1n1l{cores}c1t")).unwrap();
        let division = VirtualLlcs::divide(&machine, size.parse().unwrap());
        let of = |group| machine.cpus().filter(|cpu| division.of(*cpu) == group).count();
        (0..division.count()).map(of).collect()
    }

    #[test]
    fn llcs_are_divided_as_the_specification_has_them() {
        assert_eq!(sizes(8, "2-8"), [2; 4]);
        assert_eq!(sizes(8, "4"), [4; 2]);
        assert_eq!(sizes(10, "4-4"), [4, 6]);
        assert_eq!(sizes(10, "4-8"), [5; 2]);
        assert_eq!(sizes(11, "2-8"), [2, 2, 2, 2, 3]);
        assert_eq!(sizes(11, "4"), [4, 7]);
        assert_eq!(sizes(11, "4-8"), [5, 6]);
        assert_eq!(sizes(30, "4-4"), [4, 4, 4, 4, 4, 4, 6]);
        assert_eq!(sizes(30, "4-8"), [5; 6]);
        assert_eq!(sizes(40, "2-8"), [2; 20]);
        assert_eq!(sizes(3, "4"), [3]);
    }

    #[test]
    fn threads_of_a_core_stay_together_and_no_virtual_llc_spans_two_llcs() {
        let machine = resolve("2s1n2l4c2t").unwrap();
        let division = VirtualLlcs::divide(&machine, "2".parse().unwrap());
        assert_eq!(division.count(), 8);
        for a in machine.cpus() {
            for b in machine.cpus() {
                if machine.core_of(a) == machine.core_of(b) {
                    assert_eq!(division.of(a), division.of(b));
                }
                if machine.llc_of(a) != machine.llc_of(b) {
                    assert_ne!(division.of(a), division.of(b));
                }
            }
        }
    }

    #[test]
    fn cores_of_different_capacity_are_apart() {
        let machine = resolve("adl12").unwrap();
        let division = VirtualLlcs::divide(&machine, "16".parse().unwrap());
        for a in machine.cpus() {
            for b in machine.cpus() {
                assert!(division.of(a) != division.of(b) || machine.capacity(a) == machine.capacity(b));
            }
        }
    }

    #[test]
    fn a_size_is_a_number_or_a_range() {
        assert_eq!("2-8".parse::<VirtualLlcSize>().unwrap().to_string(), "2-8");
        assert_eq!("4-4".parse::<VirtualLlcSize>().unwrap().to_string(), "4");
        for wrong in ["", "0", "4-2", "a", "-1", "4-", "1-2-3"] {
            assert!(wrong.parse::<VirtualLlcSize>().is_err(), "{wrong}");
        }
    }
}
