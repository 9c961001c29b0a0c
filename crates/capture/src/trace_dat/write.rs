//! Writes version 6.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use super::{Contents, MAGIC, PAGE_BYTES, option};
use crate::extras;
use crate::pages::PageLayout;

/// Writes a file that `trace-cmd report`, KernelShark and [`super::read`] open.
///
/// # Errors
/// Of `out`, and `InvalidInput` for pages that are not whole, a header of pages that cannot be read, an event without its
/// system, or a file of more CPUs than such files have.
pub fn write(out: &mut impl Write, contents: &Contents) -> io::Result<()> {
    let lengths: Vec<u64> = contents.pages.iter().map(|pages| pages.len() as u64).collect();
    write_from(out, contents, &lengths, |out, cpu| out.write_all(&contents.pages[cpu]))
}

/// The same with pages that are elsewhere: so many bytes of each CPU, which `copy` writes when it is their turn. Those of `contents` are left out.
///
/// # Errors
/// As those of [`write()`], and of `copy`.
pub fn write_from<W: Write>(
    out: &mut W,
    contents: &Contents,
    lengths: &[u64],
    mut copy: impl FnMut(&mut W, usize) -> io::Result<()>,
) -> io::Result<()> {
    let head = head(contents, lengths)?;
    let cpus = lengths.len();
    let clock = format!("[{}]", contents.clock);
    // The table of pages, and the clock after it, end the head.
    let end = head.len() + b"flyrecord\0".len() + cpus * 16 + 8 + clock.len();
    let mut table = Vec::new();
    let mut at = end.next_multiple_of(PAGE_BYTES) as u64;
    for length in lengths {
        table.extend(at.to_le_bytes());
        table.extend(length.to_le_bytes());
        at += length;
    }
    out.write_all(&head)?;
    out.write_all(b"flyrecord\0")?;
    out.write_all(&table)?;
    out.write_all(&(clock.len() as u64).to_le_bytes())?;
    out.write_all(clock.as_bytes())?;
    out.write_all(&vec![0; end.next_multiple_of(PAGE_BYTES) - end])?;
    (0..cpus).try_for_each(|cpu| copy(out, cpu))
}

/// All that comes before the table of pages.
fn head(contents: &Contents, lengths: &[u64]) -> io::Result<Vec<u8>> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
    let layout = PageLayout::parse(&contents.header_page).map_err(invalid)?;
    if let Some(cpu) = lengths.iter().position(|length| length % PAGE_BYTES as u64 != 0) {
        return Err(invalid(format!("the pages of CPU {cpu} are not whole pages of {PAGE_BYTES} bytes")));
    }
    let cpus = u32::try_from(lengths.len()).map_err(|_| invalid("too many CPUs".into()))?;
    let mut head = MAGIC.to_vec();
    head.extend(b"6\0");
    head.push(0); // little-endian
    head.push(layout.long_bytes() as u8);
    head.extend((PAGE_BYTES as u32).to_le_bytes());
    for (name, text) in [(&b"header_page\0"[..], &contents.header_page), (b"header_event\0", &contents.header_event)] {
        head.extend(name);
        sized(&mut head, text);
    }
    head.extend(0_u32.to_le_bytes()); // formats of tracers, which recorded nothing
    formats(&mut head, &contents.events).map_err(invalid)?;
    head.extend(0_u32.to_le_bytes()); // functions' addresses
    head.extend(0_u32.to_le_bytes()); // formats of printk
    sized(&mut head, &lines(&contents.cmdlines));
    head.extend(cpus.to_le_bytes());
    head.extend(b"options  \0");
    options(&mut head, contents, cpus);
    Ok(head)
}

fn formats(head: &mut Vec<u8>, events: &[(String, String)]) -> Result<(), String> {
    let mut systems: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, text) in events {
        let system = name.split_once('/').map(|(system, _)| system);
        systems.entry(system.ok_or_else(|| format!("event `{name}` lacks its system"))?).or_default().push(text);
    }
    head.extend((systems.len() as u32).to_le_bytes());
    for (system, texts) in systems {
        head.extend(system.as_bytes());
        head.push(0);
        head.extend((texts.len() as u32).to_le_bytes());
        texts.iter().for_each(|text| sized(head, text));
    }
    Ok(())
}

fn options(head: &mut Vec<u8>, contents: &Contents, cpus: u32) {
    let mut add = |kind: u16, data: &[u8]| {
        head.extend(kind.to_le_bytes());
        head.extend((data.len() as u32).to_le_bytes());
        head.extend(data);
    };
    add(option::CLOCK, format!("[{}]\0", contents.clock).as_bytes());
    for (cpu, lost) in contents.lost.iter().enumerate().take(cpus as usize) {
        add(option::CPU_STATISTICS, format!("CPU: {cpu}\noverrun: {lost}\ncommit overrun: 0\n\0").as_bytes());
    }
    add(option::CPU_COUNT, &cpus.to_le_bytes());
    if !contents.processes.is_empty() {
        add(option::PROCESSES, lines(&contents.processes).as_bytes());
    }
    if let Some(counters) = &contents.counters {
        add(option::COUNTERS, &extras::counters(counters));
    }
    if !contents.files.is_empty() {
        add(option::FILES, &extras::files(&contents.files));
    }
    if !contents.homes.is_empty() {
        add(option::HOMES, &extras::homes(&contents.homes));
    }
    if !contents.notes.is_empty() {
        add(option::NOTES, &extras::notes(&contents.notes));
    }
    head.extend(option::DONE.to_le_bytes());
}

fn lines(entries: &BTreeMap<i32, impl std::fmt::Display>) -> String {
    entries.iter().fold(String::new(), |mut text, (thread, value)| {
        let _ = writeln!(text, "{thread} {value}");
        text
    })
}

fn sized(head: &mut Vec<u8>, text: &str) {
    head.extend((text.len() as u64).to_le_bytes());
    head.extend(text.as_bytes());
}
