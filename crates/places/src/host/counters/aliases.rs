//! What counters are called, and how each processor counts them.
//!
//! Software counters are the kernel's and there everywhere. `cycles` and `instructions` are the kernel's generic events. Which events of a
//! processor count misses and where lines came from is its maker's knowledge: a table by family and model. A counter that a model has no
//! event for is not to be had there, and says so.
//!
//! Sources: AMD, *Processor Programming Reference* of family 17h models 31h (PMCx043, PMCx064), 19h models 01h and 11h, 1Ah model 02h
//! (PMCx043, PMCx064: the same masks); Intel, *perfmon* event lists SKX, CLX, ICX, SPR (`L2_RQSTS.MISS`, `LONGEST_LAT_CACHE.MISS`,
//! `OCR.DEMAND_RFO.L3_MISS`, `MEM_LOAD_L3_MISS_RETIRED`). AMD's cores count no writes that miss the L3.

use super::perf::{CONTEXT_SWITCHES, CPU_MIGRATIONS, Encoding, PAGE_FAULTS_MAJOR, PAGE_FAULTS_MINOR};

/// Counters of the kernel, which need no processor: name, and encoding.
pub(crate) const SOFTWARE: [(&str, Encoding); 4] = [
    ("context_switches", CONTEXT_SWITCHES),
    ("cpu_migrations", CPU_MIGRATIONS),
    ("page_faults_minor", PAGE_FAULTS_MINOR),
    ("page_faults_major", PAGE_FAULTS_MAJOR),
];

/// Counters of a processor, in the order in which they are asked for if nothing is named; the names are those of simulated traces.
pub(crate) const HARDWARE: [&str; 7] =
    ["cycles", "instructions", "l2_misses", "l3_misses", "l3_rfo_misses", "dram_local", "dram_remote"];

/// `PERF_TYPE_HARDWARE` and its first two events.
const GENERIC: u32 = 0;
/// `PERF_TYPE_RAW`.
const RAW: u32 = 4;

/// Which processor: maker, family and model as `/proc/cpuinfo` has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processor {
    /// `vendor_id`.
    pub vendor: String,
    /// `cpu family`.
    pub family: u32,
    /// `model`.
    pub model: u32,
}

/// A row: maker, family, models, its name, and event, mask and `config1` of each counter from `l2_misses` on.
struct AliasRow {
    vendor: &'static str,
    family: u32,
    models: &'static [std::ops::RangeInclusive<u32>],
    name: &'static str,
    events: [Option<(u8, u8, u64)>; 5],
}

const AMD: &str = "AuthenticAMD";
const INTEL: &str = "GenuineIntel";

/// L2 misses of code and data; demand fills from beyond the L3; from memory of the own node and of others.
const ZEN: [Option<(u8, u8, u64)>; 5] =
    [Some((0x64, 0x09, 0)), Some((0x43, 0x5c, 0)), None, Some((0x43, 0x08, 0)), Some((0x43, 0x40, 0))];
/// Zen 2 has no bit for caches of the same node: 0x10 is any cache of another complex.
const ZEN_2: [Option<(u8, u8, u64)>; 5] =
    [Some((0x64, 0x09, 0)), Some((0x43, 0x58, 0)), None, Some((0x43, 0x08, 0)), Some((0x43, 0x40, 0))];
const SKYLAKE: [Option<(u8, u8, u64)>; 5] = [
    Some((0x24, 0x3f, 0)),
    Some((0x2e, 0x41, 0)),
    Some((0xb7, 0x01, 0x3f_bc00_0002)),
    Some((0xd3, 0x01, 0)),
    Some((0xd3, 0x02, 0)),
];
/// Ice Lake's `L2_RQSTS.MISS` is not supported: `L2_LINES_IN.ALL` counts what the L2 got instead.
const ICE_LAKE: [Option<(u8, u8, u64)>; 5] = [
    Some((0xf1, 0x1f, 0)),
    Some((0x2e, 0x41, 0)),
    Some((0xb7, 0x01, 0x3f_3fc0_0002)),
    Some((0xd3, 0x01, 0)),
    Some((0xd3, 0x02, 0)),
];
const SAPPHIRE_RAPIDS: [Option<(u8, u8, u64)>; 5] = [
    Some((0x24, 0x3f, 0)),
    Some((0x2e, 0x41, 0)),
    Some((0x2a, 0x01, 0x3f_3fc0_0002)),
    Some((0xd3, 0x01, 0)),
    Some((0xd3, 0x02, 0)),
];

const ROWS: [AliasRow; 7] = [
    AliasRow { vendor: AMD, family: 0x17, models: &[0x30..=0x3f, 0x70..=0x7f], name: "Zen 2", events: ZEN_2 },
    AliasRow { vendor: AMD, family: 0x19, models: &[0x00..=0x0f, 0x20..=0x2f], name: "Zen 3", events: ZEN },
    AliasRow {
        vendor: AMD,
        family: 0x19,
        models: &[0x10..=0x1f, 0x60..=0x6f, 0xa0..=0xaf],
        name: "Zen 4",
        events: ZEN,
    },
    AliasRow { vendor: AMD, family: 0x1a, models: &[0x00..=0x1f, 0x40..=0x4f], name: "Zen 5", events: ZEN },
    AliasRow { vendor: INTEL, family: 6, models: &[0x55..=0x55], name: "Skylake-SP", events: SKYLAKE },
    AliasRow { vendor: INTEL, family: 6, models: &[0x6a..=0x6a, 0x6c..=0x6c], name: "Ice Lake-SP", events: ICE_LAKE },
    AliasRow {
        vendor: INTEL,
        family: 6,
        models: &[0x8f..=0x8f, 0xcf..=0xcf],
        name: "Sapphire Rapids",
        events: SAPPHIRE_RAPIDS,
    },
];

impl Processor {
    /// The first processor in the text of `/proc/cpuinfo`.
    pub fn parse(cpuinfo: &str) -> Option<Self> {
        let value = |key: &str| {
            let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
            line.split_once(':').map(|(_, value)| value.trim())
        };
        let number = |key: &str| value(key)?.parse().ok();
        Some(Self { vendor: value("vendor_id")?.into(), family: number("cpu family")?, model: number("model")? })
    }

    fn row(&self) -> Option<&'static AliasRow> {
        let has = |row: &&AliasRow| {
            row.vendor == self.vendor
                && row.family == self.family
                && row.models.iter().any(|models| models.contains(&self.model))
        };
        ROWS.iter().find(has)
    }

    /// What its design is called, if it is in the table.
    pub fn name(&self) -> Option<&'static str> {
        self.row().map(|row| row.name)
    }
}

/// How a processor counts something.
///
/// # Errors
/// Why it cannot, in words.
pub fn encoding(name: &str, processor: Option<&Processor>) -> Result<Encoding, String> {
    if let Some((_, encoding)) = SOFTWARE.iter().find(|(known, _)| *known == name) {
        return Ok(*encoding);
    }
    match HARDWARE.iter().position(|known| *known == name) {
        Some(event @ 0..=1) => Ok(Encoding { unit: GENERIC, config: event as u64, config1: 0 }),
        Some(position) => {
            let row = processor.and_then(Processor::row).ok_or_else(|| match processor {
                Some(Processor { vendor, family, model }) => {
                    format!("no event is known for it on {vendor} family {family:#x} model {model:#x}")
                }
                None => "the processor is not known".to_owned(),
            })?;
            let event = row.events[position - 2];
            let (event, mask, config1) = event.ok_or_else(|| format!("cores of {} have no event for it", row.name))?;
            Ok(Encoding { unit: RAW, config: u64::from(mask) << 8 | u64::from(event), config1 })
        }
        None => Err("there is no counter of that name".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processor(vendor: &str, family: u32, model: u32) -> Processor {
        Processor { vendor: vendor.into(), family, model }
    }

    #[test]
    fn a_processor_is_read_from_the_kernels_list() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: EPYC\n";
        let found = Processor::parse(text).unwrap();
        assert_eq!((found.name(), found.clone()), (Some("Zen 4"), processor(AMD, 25, 17)));
        assert_eq!(Processor::parse("CPU implementer : 0x41\n"), None);
    }

    #[test]
    fn every_name_is_an_event_or_a_reason() {
        let zen = processor(AMD, 0x1a, 2);
        let raw = |config, config1| Ok(Encoding { unit: RAW, config, config1 });
        assert_eq!(encoding("l2_misses", Some(&zen)), raw(0x0964, 0));
        assert_eq!(encoding("dram_remote", Some(&zen)), raw(0x4043, 0));
        assert!(encoding("l3_rfo_misses", Some(&zen)).unwrap_err().contains("Zen 5"));
        let intel = processor(INTEL, 6, 0x8f);
        assert_eq!(encoding("l3_rfo_misses", Some(&intel)), raw(0x012a, 0x3f_3fc0_0002));
        assert_eq!(encoding("cycles", None), Ok(Encoding { unit: 0, config: 0, config1: 0 }));
        assert!(encoding("l2_misses", Some(&processor(AMD, 0x15, 2))).unwrap_err().contains("0x15"));
        assert!(encoding("page_faults_minor", None).is_ok() && encoding("nonsense", None).is_err());
    }

    #[test]
    fn no_processor_is_in_two_rows() {
        for family in [6, 0x17, 0x19, 0x1a] {
            for (model, vendor) in (0..=0xff).flat_map(|model| [(model, AMD), (model, INTEL)]) {
                let wanted = processor(vendor, family, model);
                let has = |row: &&AliasRow| {
                    (row.vendor, row.family) == (vendor, family) && row.models.iter().any(|m| m.contains(&model))
                };
                assert!(ROWS.iter().filter(has).count() <= 1, "{wanted:?}");
            }
        }
    }
}
