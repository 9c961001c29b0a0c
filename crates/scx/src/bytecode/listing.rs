//! What a loader has loaded, as text: to be read when the loader is long gone.

use std::fmt::Write as _;

use warmcore_bpf::{MapKind, Maps};

use crate::bytecode::object::Object;
use crate::bytecode::sites::Site;
use crate::operations::Operation;

/// Bytes of an array that are listed; of a larger one none are.
const MOST_OF_AN_ARRAY: u64 = 1 << 20;
/// Bytes of all arrays that are listed.
const MOST: u64 = 16 << 20;
/// Bytes in a line.
const LINE: usize = 32;

impl Object {
    /// The table of operations, the values of arrays, which global variables are among, and all programs, with what they were translated from. `maps`
    /// are those of the host that it was loaded into, as they are now.
    ///
    /// Bytes are hexadecimal, 32 in a line behind the offset of the first; lines of zeros are left out. Where an instruction names a map, it has the map's
    /// number here instead of the loader's descriptor. Kinds of maps are numbers of `enum bpf_map_type`.
    #[must_use]
    pub fn listing(&self, maps: &Maps) -> String {
        let table = &self.table;
        let mut text = format!(
            "scheduler {}\nflags {:#x}\ntimeout_ms {}\ndispatch_max_batch {}\nexit_dump_len {}\n",
            table.name, table.flags.0, table.timeout_ms, table.dispatch_max_batch, table.exit_dump_bytes
        );
        for (name, operation) in Operation::ALL {
            if let Some(program) = self.operations[operation as usize] {
                add(&mut text, format_args!("operation {name} program {}\n", program.0));
            }
        }
        for (how, target, site) in Site::ALL {
            for (program, _) in &self.at[site as usize] {
                add(&mut text, format_args!("tracing {how:?} {target} program {}\n", program.0));
            }
        }
        let mut left = MOST;
        for (number, map) in (1..).zip(maps.iter()) {
            let spec = &map.spec;
            add(&mut text, format_args!("map {number} kind {} name {:?}", spec.kind as u32, spec.name));
            let (keys, values) = (spec.key_bytes, spec.value_bytes);
            add(&mut text, format_args!(" key {keys} value {values} entries {} flags {:#x}", spec.entries, spec.flags));
            let bytes = u64::from(spec.entries).saturating_mul(map.stride);
            let values = match spec.kind {
                MapKind::Array if bytes <= left.min(MOST_OF_AN_ARRAY) => maps.memory.read(map.address, bytes),
                _ => None,
            };
            text.push_str(if values.is_some() { "\n" } else { ", values not listed\n" });
            left -= values.map_or(0, |values| values.len() as u64);
            add_bytes(&mut text, values.unwrap_or_default());
        }
        for (number, program) in self.programs.iter().enumerate() {
            let functions = &program.functions;
            add(&mut text, format_args!("program {number} name {:?} functions at {functions:?}\n", program.name));
            add_bytes(&mut text, &program.bytes);
        }
        text
    }
}

fn add(text: &mut String, more: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(more);
}

fn add_bytes(text: &mut String, bytes: &[u8]) {
    for (number, line) in bytes.chunks(LINE).enumerate().filter(|(_, line)| line.iter().any(|&byte| byte != 0)) {
        add(text, format_args!("{:x} ", number * LINE));
        line.iter().for_each(|byte| add(text, format_args!("{byte:02x}")));
        text.push('\n');
    }
}
