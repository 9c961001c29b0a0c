//! What a recording of ours has besides the kernel's pages, as options of a `trace.dat` that other readers pass over: counters, files, page
//! homes. Texts end with a zero; numbers are little-endian.

use crate::bytes::Bytes;
use crate::counters::{Counted, CounterLog, CounterSample};
use crate::error::CaptureError;
use crate::files::{OpenFiles, Socket};
use crate::homes::{HomeSample, PageHomes};

fn text(out: &mut Vec<u8>, text: &str) {
    // A zero would end it early.
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.push(0);
}

fn texts(out: &mut Vec<u8>, all: &[String]) {
    out.extend((all.len() as u32).to_le_bytes());
    all.iter().for_each(|one| text(out, one));
}

fn read_texts(at: &mut Bytes<'_>, what: &str) -> Result<Vec<String>, CaptureError> {
    (0..at.u32(what)?).map(|_| at.text(what).map(str::to_owned)).collect()
}

pub(crate) fn notes(notes: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    texts(&mut out, notes);
    out
}

pub(crate) fn read_notes(at: &mut Bytes<'_>) -> Result<Vec<String>, CaptureError> {
    read_texts(at, "the notes")
}

/// Origin, groups, loss and notes; then samples to the end.
pub(crate) fn counters(log: &CounterLog) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, &log.origin);
    out.extend((log.groups.len() as u32).to_le_bytes());
    log.groups.iter().for_each(|names| texts(&mut out, names));
    out.extend(log.lost.to_le_bytes());
    texts(&mut out, &log.notes);
    for sample in &log.samples {
        out.extend(sample.time_ns.to_le_bytes());
        out.extend(sample.cpu.to_le_bytes());
        out.extend(sample.thread.number().to_le_bytes());
        out.extend(sample.group.to_le_bytes());
        out.extend(sample.span_ns.to_le_bytes());
        sample.values.iter().for_each(|value| out.extend(value.to_le_bytes()));
    }
    out
}

pub(crate) fn read_counters(at: &mut Bytes<'_>) -> Result<CounterLog, CaptureError> {
    let what = "the counters";
    let origin = at.text(what)?.to_owned();
    let groups: Vec<Vec<String>> =
        (0..at.u32(what)?).map(|_| read_texts(at, "the names of counters")).collect::<Result<_, _>>()?;
    let mut log = CounterLog { origin, groups, lost: at.u64(what)?, ..CounterLog::default() };
    log.notes = read_texts(at, "the notes on counters")?;
    while !at.is_empty() {
        let here = *at;
        let (time_ns, cpu) = (at.u64(what)?, at.u32(what)?);
        let thread = Counted::of(at.u32(what)? as i32);
        let (group, span_ns) = (at.u32(what)?, at.u64(what)?);
        let Some(names) = log.groups.get(group as usize) else {
            return Err(here.damaged(format!("a sample is of group {group} of counters, which is not there")));
        };
        let values = names.iter().map(|_| at.u64(what)).collect::<Result<_, _>>()?;
        log.samples.push(CounterSample { time_ns, cpu, thread, group, span_ns, values });
    }
    Ok(log)
}

/// What was seen, then what is known of sockets.
pub(crate) fn files(files: &OpenFiles) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((files.seen().count() as u32).to_le_bytes());
    for (time_ns, process, number, target) in files.seen() {
        out.extend(time_ns.to_le_bytes());
        out.extend(process.to_le_bytes());
        out.extend(number.to_le_bytes());
        text(&mut out, target);
    }
    for (target, socket) in &files.sockets {
        text(&mut out, target);
        text(&mut out, socket.peer.as_deref().unwrap_or_default());
        text(&mut out, &socket.name);
    }
    out
}

pub(crate) fn read_files(at: &mut Bytes<'_>) -> Result<OpenFiles, CaptureError> {
    let what = "the open files";
    let mut files = OpenFiles::default();
    for _ in 0..at.u32(what)? {
        let (time_ns, process, number) = (at.u64(what)?, at.u32(what)? as i32, at.u64(what)?);
        files.saw(time_ns, process, number, at.text(what)?);
    }
    while !at.is_empty() {
        let (target, peer, name) = (at.text(what)?, at.text(what)?, at.text(what)?);
        let peer = (!peer.is_empty()).then(|| peer.to_owned());
        files.sockets.insert(target.to_owned(), Socket { peer, name: name.to_owned() });
    }
    Ok(files)
}

/// Nodes and notes; then samples to the end.
pub(crate) fn homes(homes: &PageHomes) -> Vec<u8> {
    let mut out = homes.nodes.to_le_bytes().to_vec();
    texts(&mut out, &homes.notes);
    for sample in &homes.samples {
        out.extend(sample.time_ns.to_le_bytes());
        out.extend(sample.process.to_le_bytes());
        out.extend((sample.kib.len() as u32).to_le_bytes());
        for (node, kib) in &sample.kib {
            out.extend(node.to_le_bytes());
            out.extend(kib.to_le_bytes());
        }
    }
    out
}

pub(crate) fn read_homes(at: &mut Bytes<'_>) -> Result<PageHomes, CaptureError> {
    let what = "the homes of pages";
    let (nodes, notes) = (at.u32(what)?, read_texts(at, what)?);
    let mut homes = PageHomes { nodes, notes, ..PageHomes::default() };
    while !at.is_empty() {
        let (time_ns, process) = (at.u64(what)?, at.u32(what)? as i32);
        let kib =
            (0..at.u32(what)?).map(|_| Ok((at.u32(what)?, at.u64(what)?))).collect::<Result<_, CaptureError>>()?;
        homes.samples.push(HomeSample { time_ns, process, kib });
    }
    Ok(homes)
}
