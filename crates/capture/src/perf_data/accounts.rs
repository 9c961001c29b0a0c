//! Accounts of scheduling by CPU and by scheduling domain, as `perf sched stats record` keeps them: two readings of `/proc/schedstat`, each
//! a record for every CPU with one for each of its domains behind it. A feature of the header names the domains and their CPUs.
//!
//! Source: Linux 7.0 `tools/lib/perf/include/perf/event.h` (`perf_record_schedstat_cpu`, `perf_record_schedstat_domain`),
//! `schedstat-v15.h` to `-v17.h`, `tools/perf/util/header.c` (`write_cpu_domain_info`, `do_write_string`).

use std::collections::BTreeMap;

use warmcore_topology::CpuSet;
use warmcore_trace::schedstat::{CPU_FIELDS, Schedstat, counters_of};

use super::records::header;
use crate::bytes::{Bytes, text_of};
use crate::error::CaptureError;

/// `PERF_RECORD_SCHEDSTAT_CPU` and `PERF_RECORD_SCHEDSTAT_DOMAIN`.
pub(super) const CPU: u32 = 85;
pub(super) const DOMAIN: u32 = 86;
/// `HEADER_CPU_DOMAIN_INFO`.
pub(super) const FEATURE: u32 = 32;
/// Of a CPU's counters so many take four bytes, the others eight.
const SHORT: usize = 6;

const AGAIN: &str = "record again with `perf sched stats record` of Linux 7.0 or later, into a file";

/// Name and CPUs of a domain, by CPU and level.
type Domains = BTreeMap<(u32, u32), (String, CpuSet)>;

/// What was counted between the first and the last reading among these records.
pub(super) fn read(mut at: Bytes<'_>, is_pipe: bool, domains: Option<Bytes<'_>>) -> Result<Schedstat, CaptureError> {
    if is_pipe {
        return Err(at.unsupported("a pipe without a header", AGAIN));
    }
    let domains = domains.map(names).transpose()?.unwrap_or_default();
    let mut first: Option<Schedstat> = None;
    let mut reading = Schedstat::default();
    while !at.is_empty() {
        let here = at;
        let Some((kind, _, mut body)) = header(&mut at)? else {
            return Err(here.damaged("the last record is not whole"));
        };
        if kind != CPU && kind != DOMAIN {
            continue;
        }
        let timestamp = body.u64("a time")?;
        let cpu = body.u32("a CPU")?;
        let version = body.u16("a version")?;
        if !(15..=17).contains(&version) {
            return Err(here.unsupported(format!("schedstat version {version}"), "versions 15 to 17 are"));
        }
        // Padding, or the level of the domain.
        let level = body.u16("a domain")?;
        let damaged = |reason: &str| here.damaged(reason);
        if kind == CPU {
            // The next reading begins where CPUs do.
            if reading.cpus.last().is_some_and(|last| last.cpu >= cpu) {
                let ended = std::mem::take(&mut reading);
                first.get_or_insert(ended);
            }
            let mut values = [0; CPU_FIELDS.len()];
            for (place, value) in values.iter_mut().enumerate() {
                let what = "a counter of a CPU";
                *value = if place < SHORT { body.u32(what)?.into() } else { body.u64(what)? };
            }
            reading.timestamp = timestamp;
            reading.add_cpu(cpu, values).map_err(damaged)?;
            continue;
        }
        if reading.cpus.last().is_none_or(|last| last.cpu != cpu) {
            return Err(here.damaged(format!("a domain of CPU {cpu} does not follow that CPU")));
        }
        let mut counted = Vec::with_capacity(counters_of(version.into()));
        for _ in 0..counters_of(version.into()) {
            counted.push(u64::from(body.u32("a counter of a domain")?));
        }
        let (name, span) = domains.get(&(cpu, level.into())).cloned().unwrap_or_default();
        reading.add_domain(&name, span, &counted, version.into()).map_err(damaged)?;
    }
    match first {
        Some(first) => {
            let counted = reading.since(&first);
            if counted.cpus.is_empty() { Err(at.damaged("no CPU is in both readings")) } else { Ok(counted) }
        }
        None if reading.cpus.is_empty() => Err(at.unsupported("a file without accounts of scheduling", AGAIN)),
        None => Err(at.damaged("it has one reading of the counters, and the difference of two is needed")),
    }
}

/// The names: version, number of levels, and for each CPU its number, how many domains it has, and for each its level, its name from
/// version 17 on, and its CPUs as a mask and as a list.
fn names(mut at: Bytes<'_>) -> Result<Domains, CaptureError> {
    let version = at.u32("the version of the names")?;
    at.u32("the number of levels")?;
    let mut found = Domains::new();
    while !at.is_empty() {
        let (cpu, count) = (at.u32("a CPU")?, at.u32("a number of domains")?);
        for _ in 0..count {
            let level = at.u32("a domain")?;
            let name = if version >= 17 { text(&mut at)? } else { String::new() };
            if name.contains(char::is_whitespace) {
                return Err(at.damaged(format!("`{name}` is not the name of a domain")));
            }
            text(&mut at)?;
            let list = text(&mut at)?;
            let span = CpuSet::parse_list(&list).map_err(|error| at.damaged(error.to_string()))?;
            found.insert((cpu, level), (name, span));
        }
    }
    Ok(found)
}

/// A text behind its length, with zeros at its end.
fn text(at: &mut Bytes<'_>) -> Result<String, CaptureError> {
    let length = at.u32("the length of a text")?;
    Ok(text_of(at.take(length.into(), "a text")?))
}

#[cfg(test)]
mod tests {
    use crate::perf_data;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (body.len() + 8) as u16;
        [&kind.to_le_bytes()[..], &[0, 0], &length.to_le_bytes(), body].concat()
    }

    /// Head of both kinds of records.
    fn head(cpu: u32, version: u16, level: u16) -> Vec<u8> {
        let parts = [&4_294_000_000_u64.to_le_bytes()[..], &cpu.to_le_bytes(), &version.to_le_bytes()];
        [&parts.concat()[..], &level.to_le_bytes()].concat()
    }

    /// Counters 1 to 9.
    fn cpu(cpu: u32, version: u16, plus: u64) -> Vec<u8> {
        let short = (1..7).flat_map(|value| (value + plus as u32).to_le_bytes());
        let long = (7..10).flat_map(|value| (value + plus).to_le_bytes());
        record(super::CPU, &head(cpu, version, 0).into_iter().chain(short).chain(long).collect::<Vec<u8>>())
    }

    /// Counters from 100 on. The record is as long as that of the version with the most, and a multiple of eight.
    fn domain(cpu: u32, version: u16, counters: u32, plus: u32) -> Vec<u8> {
        let values = (0..counters).flat_map(|value| (100 + value * plus).to_le_bytes());
        let mut body: Vec<u8> = head(cpu, version, 0).into_iter().chain(values).collect();
        body.resize(200, 0);
        record(super::DOMAIN, &body)
    }

    fn text(text: &str) -> Vec<u8> {
        let mut bytes = 64_u32.to_le_bytes().to_vec();
        bytes.extend(text.bytes());
        bytes.resize(68, 0);
        bytes
    }

    /// A file with these records, and names of one domain of CPUs 0 and 2.
    fn file(version: u32, records: &[u8]) -> Vec<u8> {
        let mut names = [version, 1].map(u32::to_le_bytes).concat();
        for cpu in [0_u32, 2] {
            names.extend([cpu, 1, 0].map(u32::to_le_bytes).concat());
            names.extend(if version >= 17 { text("MC") } else { Vec::new() });
            names.extend(text("00000005").into_iter().chain(text("0,2")));
        }
        let (start, length) = (104_u64, records.len() as u64);
        let mut bytes = b"PERFILE2".to_vec();
        for word in [104, 136, start, 0, start, length, start, 0, 1 << 32, 0, 0, 0] {
            bytes.extend(u64::to_le_bytes(word));
        }
        bytes.extend(records);
        bytes.extend((start + length + 16).to_le_bytes());
        bytes.extend((names.len() as u64).to_le_bytes());
        bytes.extend(names);
        bytes
    }

    fn readings(version: u16, counters: u32) -> Vec<u8> {
        let reading = |plus: u32| {
            let of_cpu =
                move |number| [cpu(number, version, plus.into()), domain(number, version, counters, plus)].concat();
            [of_cpu(0), of_cpu(2)].concat()
        };
        [record(82, &[]), reading(0), reading(3)].concat()
    }

    #[test]
    fn what_was_counted_between_both_readings_is_told_by_cpu_and_domain() {
        let read = perf_data::schedstat(&file(17, &readings(17, 45))).unwrap();
        assert_eq!(read.cpus.iter().map(|cpu| (cpu.cpu, cpu.values)).collect::<Vec<_>>(), [(0, [3; 9]), (2, [3; 9])]);
        let domain = &read.cpus[1].domains[0];
        assert_eq!((domain.name.as_str(), domain.span.to_string().as_str()), ("MC", "0,2"));
        assert_eq!(domain.values.map(Option::unwrap), std::array::from_fn(|place| 3 * place as u64));
        let kernels = warmcore_trace::schedstat::Schedstat::parse(&read.to_string()).unwrap();
        assert_eq!(
            (&kernels.cpus, kernels.to_string()),
            (&read.cpus, read.to_string()),
            "the kernel's form has all of it"
        );
    }

    #[test]
    fn older_versions_have_their_own_order() {
        for (version, busy) in [(15, 8), (16, 0)] {
            let read = perf_data::schedstat(&file(version.into(), &readings(version, 36))).unwrap();
            let domain = &read.cpus[0].domains[0];
            assert_eq!((domain.name.as_str(), domain.values[0], domain.values[3]), ("", Some(3 * busy), None));
        }
    }

    #[test]
    fn what_is_no_account_is_refused_by_name() {
        let refused = |bytes: &[u8]| perf_data::schedstat(bytes).unwrap_err().to_string();
        let once = [cpu(0, 17, 0), domain(0, 17, 45, 0)].concat();
        assert!(refused(&file(17, &once)).contains("one reading"), "{}", refused(&file(17, &once)));
        assert!(refused(&file(17, &record(82, &[]))).contains("without accounts"));
        assert!(refused(&file(17, &cpu(0, 18, 0))).contains("version 18 cannot be read; versions 15"));
        assert!(refused(&file(17, &[cpu(5, 17, 0), cpu(0, 17, 0)].concat())).contains("no CPU is in both"));
        assert!(refused(&file(17, &[cpu(0, 17, 0), domain(1, 17, 45, 0)].concat())).contains("a domain of CPU 1"));
        let told = perf_data::read(&file(17, &once)).unwrap_err().to_string();
        assert!(told.contains("explain schedstat:FILE"), "{told}");
        let whole = file(17, &readings(17, 45));
        for length in 0..whole.len() {
            let _ = perf_data::schedstat(&whole[..length]);
        }
    }
}
