//! Who made a machine's CPUs, and of which family they are: what a kernel's own constants depend on.
//!
//! Two do so far. The node distances of scheduling domains are one ([`Machine::scheduling_distances`](crate::Machine::scheduling_distances)).
//! The other is `node_reclaim_distance`, beyond which the fair class neither places tasks at fork and exec nor pulls
//! wakees. Sources: Linux `include/linux/topology.h` (`RECLAIM_DISTANCE` 30), `arch/powerpc/include/asm/topology.h` (10), and
//! `arch/x86/kernel/cpu/amd.c`, whose `init_amd_zen_common` (`init_amd_zn` before 6.8) raises it to 32 since 5.4.
//! `arch/x86/kernel/cpu/hygon.c` does not, although it takes its CPUs for Zen otherwise; a kernel that does so is a machine
//! with a stated distance.

use std::fmt;

use crate::{Basis, Origin};

/// `RECLAIM_DISTANCE` of kernels whose architecture names none.
pub const RECLAIM_DISTANCE: u32 = 30;
/// What it is on AMD's Zen, because sockets of EPYC machines say that they are 32 apart.
const RECLAIM_DISTANCE_ZEN: u32 = 32;
/// What it is on POWER: no node reaches another.
const RECLAIM_DISTANCE_POWER: u32 = 10;
/// The family of the first Zen in CPUID; those of later ones are larger.
const FIRST_ZEN_FAMILY: u32 = 0x17;

/// The family of Intel's processors since the Pentium Pro.
const INTEL_FAMILY: u32 = 6;
/// Its models whose distances between packages are averaged: `INTEL_GRANITERAPIDS_X` and `INTEL_ATOM_DARKMONT_X` of
/// `arch/x86/include/asm/intel-family.h`.
const AVERAGED_MODELS: [u32; 2] = [0xad, 0xdd];

/// A maker of CPUs, as kernels tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Vendor {
    /// AMD.
    Amd,
    /// Cores by Arm, or of its architecture.
    Arm,
    /// Hygon.
    Hygon,
    /// Intel.
    Intel,
    /// IBM's POWER.
    Power,
}

impl Vendor {
    /// With the name in machine files and the one that CPUID, or else hwloc, has.
    pub(crate) const NAMED: [(Vendor, &'static str, &'static str); 5] = [
        (Vendor::Amd, "amd", "AuthenticAMD"),
        (Vendor::Arm, "arm", "ARM"),
        (Vendor::Hygon, "hygon", "HygonGenuine"),
        (Vendor::Intel, "intel", "GenuineIntel"),
        (Vendor::Power, "power", "POWER"),
    ];

    /// The name in machine files.
    pub fn name(self) -> &'static str {
        Self::NAMED[self as usize].1
    }

    /// The name in CPUID (`vendor_id` of `/proc/cpuinfo`).
    pub(crate) fn cpuid_name(self) -> &'static str {
        Self::NAMED[self as usize].2
    }

    /// Whether kernels tell its CPUs apart by family.
    fn has_families(self) -> bool {
        !matches!(self, Vendor::Arm | Vendor::Power)
    }
}

/// The make of a machine's CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processor {
    vendor: Vendor,
    family: Option<u32>,
    model: Option<u32>,
}

impl Processor {
    /// CPUs of a vendor and, on x86, of a family as `/proc/cpuinfo` counts them (the basic and the extended one added).
    ///
    /// # Errors
    /// With a reason, for a family that is missing on x86, given elsewhere, or larger than CPUID can say.
    pub fn new(vendor: Vendor, family: Option<u32>) -> Result<Self, String> {
        const LARGEST_FAMILY: u32 = 0xf + 0xff;
        let name = vendor.name();
        match family {
            None if vendor.has_families() => {
                Err(format!("vendor `{name}` needs the `family` that /proc/cpuinfo has, such as 25"))
            }
            Some(family) if !vendor.has_families() => {
                Err(format!("family = {family}: CPUs of vendor `{name}` have no family"))
            }
            Some(family) if family > LARGEST_FAMILY => {
                Err(format!("family = {family} is more than the {LARGEST_FAMILY} that CPUID can say"))
            }
            _ => Ok(Self { vendor, family, model: None }),
        }
    }

    /// The same CPUs of a model, as `/proc/cpuinfo` counts it (the basic and the extended one together).
    ///
    /// # Errors
    /// With a reason, for a model of CPUs without families, or one larger than CPUID can say.
    pub fn with_model(self, model: Option<u32>) -> Result<Self, String> {
        const LARGEST_MODEL: u32 = 0xff;
        match model {
            Some(model) if !self.vendor.has_families() => {
                Err(format!("model = {model}: CPUs of vendor `{}` have no model", self.vendor.name()))
            }
            Some(model) if model > LARGEST_MODEL => {
                Err(format!("model = {model} is more than the {LARGEST_MODEL} that CPUID can say"))
            }
            _ => Ok(Self { model, ..self }),
        }
    }

    /// Who made them.
    pub fn vendor(self) -> Vendor {
        self.vendor
    }

    /// The family, as `/proc/cpuinfo` counts it; `None` where there are no families.
    pub fn family(self) -> Option<u32> {
        self.family
    }

    /// The model in its family, as `/proc/cpuinfo` counts it, when known.
    pub fn model(self) -> Option<u32> {
        self.model
    }

    /// Whether Linux averages node distances between packages for its scheduling domains (`arch_sched_node_distance` in
    /// `arch/x86/kernel/smpboot.c`).
    pub(crate) fn averages_distances(self) -> bool {
        let is_listed = self.model.is_some_and(|model| AVERAGED_MODELS.contains(&model));
        self.vendor == Vendor::Intel && self.family == Some(INTEL_FAMILY) && is_listed
    }

    /// From `vendor_id`, `cpu family` and `model` as `/proc/cpuinfo` and hwloc have them.
    ///
    /// # Errors
    /// With what cannot be used of them and what that means.
    pub(crate) fn read(vendor: &str, family: Option<&str>, model: Option<&str>) -> Result<Self, String> {
        let Some((vendor, ..)) = Vendor::NAMED.into_iter().find(|(_, _, cpuid)| *cpuid == vendor.trim()) else {
            let shown: String = vendor.trim().chars().take(40).collect();
            return Err(format!("nothing is known of CPUs of the vendor `{shown}`: the kernel's usual constants hold"));
        };
        let number =
            |text: Option<&str>| text.filter(|_| vendor.has_families()).and_then(|text| text.trim().parse().ok());
        let read = Self::new(vendor, number(family)).and_then(|read| read.with_model(number(model)));
        read.map_err(|reason| format!("the make of the CPUs is not used: {reason}"))
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.vendor.name())?;
        self.family.map_or(Ok(()), |family| write!(f, " family {family} (0x{family:x})"))
    }
}

/// The `node_reclaim_distance` that Linux has since 5.4 on CPUs of a make, and why.
pub(crate) fn reclaim_distance(processor: Option<Processor>) -> (u32, Origin) {
    let derived = |note: &str| Origin::new(Basis::Derived, note);
    match processor.map(|processor| (processor.vendor, processor.family)) {
        Some((Vendor::Amd, Some(family))) if family >= FIRST_ZEN_FAMILY => {
            (RECLAIM_DISTANCE_ZEN, derived("Linux raises it on AMD's Zen"))
        }
        Some((Vendor::Power, _)) => (RECLAIM_DISTANCE_POWER, derived("Linux has its own on POWER")),
        Some(_) => (RECLAIM_DISTANCE, derived("Linux has the usual one for these CPUs")),
        None => (RECLAIM_DISTANCE, Origin::new(Basis::Assumed, "the make of the CPUs is not known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(vendor: Vendor, family: Option<u32>) -> u32 {
        reclaim_distance(Some(Processor::new(vendor, family).unwrap())).0
    }

    /// Naples and Rome are 0x17, Milan and Genoa 0x19, Turin 0x1a; Magny-Cours was 0x10, Piledriver 0x15, Jaguar 0x16.
    #[test]
    fn zen_reaches_farther_than_what_was_before_it_and_than_others() {
        for family in [0x17, 0x19, 0x1a] {
            assert_eq!(distance(Vendor::Amd, Some(family)), 32, "{family}");
        }
        for family in [0xf, 0x10, 0x15, 0x16] {
            assert_eq!(distance(Vendor::Amd, Some(family)), 30, "{family}");
        }
        assert_eq!(distance(Vendor::Intel, Some(6)), 30);
        assert_eq!(distance(Vendor::Hygon, Some(0x18)), 30);
        assert_eq!(distance(Vendor::Power, None), 10);
        assert_eq!(reclaim_distance(None).0, 30);
    }

    #[test]
    fn names_of_vendors_are_in_the_order_of_the_vendors() {
        for (position, (vendor, name, cpuid)) in Vendor::NAMED.into_iter().enumerate() {
            assert_eq!((vendor as usize, vendor.name(), vendor.cpuid_name()), (position, name, cpuid));
        }
    }

    #[test]
    fn a_make_that_cannot_be_used_says_why() {
        let read = Processor::read;
        assert!(read("CentaurHauls", Some("6"), None).unwrap_err().contains("CentaurHauls"));
        assert!(read("AuthenticAMD", None, None).unwrap_err().contains("needs the `family`"));
        assert!(read("AuthenticAMD", Some("9999"), None).unwrap_err().contains("more than the 270"));
        assert!(read("AuthenticAMD", Some("25"), Some("999")).unwrap_err().contains("more than the 255"));
        assert_eq!(read("AuthenticAMD", Some("25"), None), Processor::new(Vendor::Amd, Some(25)));
        assert_eq!(read("AuthenticAMD", Some("25"), Some("17")).unwrap().model(), Some(17));
        assert!(Processor::new(Vendor::Arm, Some(8)).unwrap_err().contains("no family"));
        let arm = Processor::new(Vendor::Arm, None).unwrap();
        assert!(arm.with_model(Some(8)).unwrap_err().contains("no model") && arm.with_model(None) == Ok(arm));
    }
}
