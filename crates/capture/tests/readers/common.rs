//! What the tests of readers share: pages as the kernel writes them, files around them, public samples.

use std::path::Path;
use std::sync::Arc;

use warmcore_capture::trace_dat::Contents;
use warmcore_capture::{CaptureError, Recording, Source};

pub const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";

const STATES: &str =
    "\"%s %s\", { 0x00000001, \"S\" }, { 0x00000002, \"D\" }, { 0x00000010, \"X\" }, { 0x00000020, \"Z\" }";

/// A field: its name, declaration and length.
type Field = (&'static str, &'static str, u32);

/// Events with their numbers and fields.
const EVENTS: [(&str, u32, &[Field]); 8] = [
    (
        "sched_switch",
        316,
        &[
            ("prev_comm", "char prev_comm[16]", 16),
            ("prev_pid", "pid_t prev_pid", 4),
            ("prev_prio", "int prev_prio", 4),
            ("prev_state", "long prev_state", 8),
            ("next_comm", "char next_comm[16]", 16),
            ("next_pid", "pid_t next_pid", 4),
            ("next_prio", "int next_prio", 4),
        ],
    ),
    ("sched_waking", 318, WOKEN),
    ("sched_wakeup", 319, WOKEN),
    (
        "sched_migrate_task",
        317,
        &[
            ("comm", "char comm[16]", 16),
            ("pid", "pid_t pid", 4),
            ("prio", "int prio", 4),
            ("orig_cpu", "int orig_cpu", 4),
            ("dest_cpu", "int dest_cpu", 4),
        ],
    ),
    ("sched_process_exit", 320, &[("comm", "char comm[16]", 16), ("pid", "pid_t pid", 4), ("prio", "int prio", 4)]),
    (
        "sched_process_fork",
        321,
        &[
            ("parent_comm", "char parent_comm[16]", 16),
            ("parent_pid", "pid_t parent_pid", 4),
            ("child_comm", "char child_comm[16]", 16),
            ("child_pid", "pid_t child_pid", 4),
        ],
    ),
    (
        "task_newtask",
        323,
        &[("comm", "char comm[16]", 16), ("pid", "pid_t pid", 4), ("clone_flags", "unsigned long clone_flags", 8)],
    ),
    ("sched_stat_runtime", 322, &[("pid", "pid_t pid", 4), ("runtime", "u64 runtime", 8)]),
];

const WOKEN: &[Field] = &[
    ("comm", "char comm[16]", 16),
    ("pid", "pid_t pid", 4),
    ("prio", "int prio", 4),
    ("target_cpu", "int target_cpu", 4),
];

/// `SYSTEM/EVENT` and `format` of all events.
pub fn formats() -> Vec<(String, String)> {
    let format = |(name, id, fields): &(&str, u32, &[Field])| {
        let mut text = format!(
            "name: {name}\nID: {id}\nformat:\n\
             \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
             \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
        );
        let mut offset = 8;
        for (_, declaration, size) in *fields {
            let signed = u8::from(!declaration.starts_with("char"));
            text += &format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n");
            offset += size;
        }
        let letter = |declaration: &str| if declaration.starts_with("char") { 's' } else { 'd' };
        let words = fields.iter().map(|(name, declaration, _)| format!("{name}=%{}", letter(declaration)));
        let values = fields.iter().map(|(name, ..)| format!(", REC->{name}"));
        let print = match *name {
            "sched_switch" => STATES.to_owned(),
            _ => format!("\"{}\"{}", words.collect::<Vec<_>>().join(" "), values.collect::<String>()),
        };
        let system = if *name == "task_newtask" { "task" } else { "sched" };
        (format!("{system}/{name}"), format!("{text}\nprint fmt: {print}\n"))
    };
    EVENTS.iter().map(format).collect()
}

/// A record's bytes: common fields, then values in order; a text for a name.
pub fn record(event: &str, flags: u8, by: i32, values: &[i64]) -> Vec<u8> {
    let (_, id, fields) = EVENTS.iter().find(|(name, ..)| *name == event).expect("a known event");
    let mut bytes = (*id as u16).to_le_bytes().to_vec();
    bytes.extend([flags, 0]);
    bytes.extend(by.to_le_bytes());
    let mut values = values.iter();
    let mut pending: Vec<usize> = Vec::new();
    for (_, declaration, size) in *fields {
        if declaration.starts_with("char") {
            pending.push(bytes.len());
            bytes.extend([0; 16]);
            continue;
        }
        let value = values.next().expect("a value for each number");
        bytes.extend(&value.to_le_bytes()[..*size as usize]);
        // A name stands before the number that it belongs to.
        if let Some(at) = pending.pop() {
            let name = format!("thread-{value}");
            bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        }
    }
    bytes
}

/// A page in the making.
#[derive(Clone)]
pub struct Page {
    time: u64,
    flags: u8,
    bytes: Vec<u8>,
    missed: Option<u64>,
}

impl Page {
    pub fn at(time: u64) -> Self {
        Self { time, flags: 0, bytes: Vec::new(), missed: None }
    }

    /// Flags of the records that follow.
    pub fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    /// So many records are missing before this page.
    pub fn missed(mut self, events: u64) -> Self {
        self.missed = Some(events);
        self
    }

    pub fn add(mut self, delta: u32, event: &str, by: i32, values: &[i64]) -> Self {
        let mut bytes = record(event, self.flags, by, values);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let words = bytes.len() as u32 / 4;
        self.bytes.extend((delta << 5 | words).to_le_bytes());
        self.bytes.extend(bytes);
        self
    }

    pub fn switch(self, delta: u32, prev: i32, state: i64, next: i32) -> Self {
        self.add(delta, "sched_switch", prev, &[prev.into(), 120, state, next.into(), 120])
    }

    pub fn waking(self, delta: u32, by: i32, thread: i32, target_cpu: u32) -> Self {
        self.add(delta, "sched_waking", by, &[thread.into(), 120, target_cpu.into()])
    }

    pub fn wakeup(self, delta: u32, by: i32, thread: i32, target_cpu: u32) -> Self {
        self.add(delta, "sched_wakeup", by, &[thread.into(), 120, target_cpu.into()])
    }

    pub fn migrate(self, delta: u32, by: i32, thread: i32, from: u32, to: u32) -> Self {
        self.add(delta, "sched_migrate_task", by, &[thread.into(), 120, from.into(), to.into()])
    }

    pub fn birth(self, delta: u32, by: i32, child: i32, clone_flags: i64) -> Self {
        self.add(delta, "task_newtask", by, &[child.into(), clone_flags])
    }

    pub fn exit(self, delta: u32, thread: i32) -> Self {
        self.add(delta, "sched_process_exit", thread, &[thread.into(), 120])
    }
}

/// The page as the kernel gives it, 4096 bytes.
pub fn page(page: &Page) -> Vec<u8> {
    let missed = if page.missed.is_some() { 0b11 << 30 } else { 0 };
    let mut bytes = page.time.to_le_bytes().to_vec();
    bytes.extend((page.bytes.len() as u64 | missed).to_le_bytes());
    bytes.extend(&page.bytes);
    bytes.extend(page.missed.unwrap_or(0).to_le_bytes());
    assert!(bytes.len() <= 4096, "it does not fit");
    bytes.resize(4096, 0);
    bytes
}

/// The same contents in a file of version 7: sections in an order of their own, packed as said, the pages in two buffers of which
/// one is empty.
pub fn version_7(contents: &Contents, packing: &str) -> Vec<u8> {
    let pack = |bytes: &[u8]| match packing {
        "zstd" => zstd::encode_all(bytes, 1).unwrap(),
        "zlib" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut encoder, bytes).unwrap();
            encoder.finish().unwrap()
        }
        _ => bytes.to_vec(),
    };
    let packed = packing != "none";
    let chunk = |bytes: &[u8]| {
        let inside = pack(bytes);
        [&(inside.len() as u32).to_le_bytes()[..], &(bytes.len() as u32).to_le_bytes(), &inside].concat()
    };
    let sized = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut file = [MAGIC, b"7\0\0\x08\0\x10\0\0", packing.as_bytes(), b"\0", b"1\0"].concat();
    let pointer = file.len();
    file.extend([0; 8]);
    let section = |file: &mut Vec<u8>, id: u16, data: Vec<u8>, packed: bool| {
        let at = file.len() as u64;
        let data = if packed { chunk(&data) } else { data };
        file.extend(id.to_le_bytes());
        file.extend(u16::from(packed).to_le_bytes());
        file.extend([0; 4]);
        file.extend((data.len() as u64).to_le_bytes());
        file.extend(data);
        at
    };
    let mut events = 1_u32.to_le_bytes().to_vec();
    events.extend(b"sched\0");
    events.extend((contents.events.len() as u32).to_le_bytes());
    contents.events.iter().for_each(|(_, text)| events.extend(sized(text)));
    let names: String = contents.cmdlines.iter().map(|(thread, name)| format!("{thread} {name}\n")).collect();
    let processes: String =
        contents.processes.iter().map(|(thread, process)| format!("{thread} {process}\n")).collect();
    let header =
        [b"header_page\0".to_vec(), sized(&contents.header_page), b"header_event\0".to_vec(), sized("")].concat();
    let formats_at = section(&mut file, 18, events, packed);
    let names_at = section(&mut file, 21, sized(&names), packed);
    let header_at = section(&mut file, 16, header, packed);
    let option = |id: u16, data: &[u8]| [&id.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), data].concat();
    let mut first = [option(18, &formats_at.to_le_bytes()), option(21, &names_at.to_le_bytes())].concat();
    let mut second = option(16, &header_at.to_le_bytes());
    for (cpu, lost) in contents.lost.iter().enumerate() {
        second.extend(option(2, format!("CPU: {cpu}\noverrun: {lost}\n\0").as_bytes()));
    }
    second.extend(option(0x5743, processes.as_bytes()));
    for (name, pages) in [("empty", vec![]), ("", contents.pages.clone())] {
        let buffer_at = section(&mut file, 3, vec![], packed);
        let clock = contents.clock.as_bytes();
        let mut data = [&buffer_at.to_le_bytes()[..], name.as_bytes(), b"\0", clock, b"\0"].concat();
        data.extend(4096_u32.to_le_bytes());
        data.extend((pages.len() as u32).to_le_bytes());
        for (cpu, pages) in pages.iter().enumerate() {
            data.extend((cpu as u32).to_le_bytes());
            data.extend((file.len() as u64).to_le_bytes());
            let chunks: Vec<u8> = pages.chunks(4096).flat_map(chunk).collect();
            let length = if packed { chunks.len() } else { pages.len() };
            data.extend((length as u64).to_le_bytes());
            if packed {
                file.extend((pages.len() as u32 / 4096).to_le_bytes());
                file.extend(chunks);
            } else {
                file.extend(pages);
            }
        }
        second.extend(option(3, &data));
    }
    second.extend(option(0, &0_u64.to_le_bytes()));
    let second_at = section(&mut file, 0, second, false);
    first.extend(option(0, &second_at.to_le_bytes()));
    let first_at = section(&mut file, 0, first, packed);
    file[pointer..pointer + 8].copy_from_slice(&first_at.to_le_bytes());
    file
}

/// What one reader makes of a file's bytes, and the other of the file that stays where it is: the same.
pub fn both_ways(
    file: &[u8],
    read: fn(&[u8]) -> Result<Recording, CaptureError>,
    open: fn(Arc<dyn Source>) -> Result<Recording, CaptureError>,
) -> Result<Recording, CaptureError> {
    let whole = read(file);
    match (&whole, open(Arc::new(file.to_vec()))) {
        (Ok(whole), Ok(open)) => {
            assert_eq!((open.span_ns(), open.record_count()), (whole.span_ns(), whole.records.len() as u64));
            let records = open.in_order().collect();
            assert_eq!(open.pages.as_ref().and_then(|pages| pages.fault()), None);
            let of_whole = Recording { records: whole.in_order().collect(), ..whole.clone() };
            assert_eq!(Recording { records, pages: None, ..open }, of_whole);
        }
        (whole, open) => {
            let words = |result: Result<Recording, CaptureError>| result.map_err(|error| error.to_string());
            assert_eq!(words(open), words(whole.clone()));
        }
    }
    whole
}

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// A public sample, from the directory `shared/data` beside the repository, or that it is not there.
pub fn sample(name: &str) -> Result<Vec<u8>, String> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).ok_or("nothing is beside the repository")?;
    std::fs::read(beside.join("shared/data").join(name)).map_err(|error| format!("no public sample {name}: {error}"))
}
