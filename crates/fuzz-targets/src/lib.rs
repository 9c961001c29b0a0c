//! What every reader of foreign bytes must do, whatever the bytes: it reads them or refuses them, and what it read holds together.
//!
//! libFuzzer looks for bytes that break a target (`scripts/fuzz-short`, `fuzz/`), and the tests of this crate feed each target changed
//! files of its kind. Neither knows more than the list of targets here.

mod address_trace;
mod bytecode;
mod experiment_text;
mod generator_text;
mod guest_frames;
mod host_journal;
mod kernel_calls;
mod machine_text;
mod profile_text;
mod recordings;
mod rtapp_json;
mod run_directory;
mod schedstat_text;
mod seeds;
mod sysfs_tree;
mod type_information;
#[path = "../../loader/tests/types/mod.rs"]
mod types;

use warmcore_capture as capture;

/// One target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// As on the command line of `scripts/fuzz-short`.
    pub name: &'static str,
    /// Panics where a reader does not do what it must.
    pub run: fn(&[u8]),
}

impl Target {
    /// Inputs of its kind that are well formed, to begin with: files of this repository, or small ones made here.
    #[must_use]
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        seeds::of(self.name)
    }
}

/// All targets, in the order of their names.
pub const TARGETS: [Target; 20] = [
    Target { name: "address_trace", run: address_trace::run },
    Target { name: "bytecode", run: bytecode::run },
    Target { name: "experiment_text", run: experiment_text::run },
    Target {
        name: "ftrace_text",
        run: |bytes| recordings::run(bytes, |bytes| capture::ftrace_text::read(&String::from_utf8_lossy(bytes))),
    },
    Target { name: "generator_text", run: generator_text::run },
    Target { name: "guest_frames", run: guest_frames::run },
    Target { name: "host_journal", run: host_journal::run },
    Target { name: "kernel_calls", run: kernel_calls::run },
    Target { name: "machine_text", run: machine_text::run },
    Target { name: "perf_data", run: |bytes| recordings::run(bytes, capture::perf_data::read) },
    Target { name: "perfetto_trace", run: |bytes| recordings::run(bytes, capture::perfetto::read) },
    Target { name: "profile_text", run: profile_text::run },
    Target { name: "recording", run: |bytes| recordings::run(bytes, capture::read) },
    Target { name: "rtapp_json", run: rtapp_json::run },
    Target { name: "run_directory", run: run_directory::run },
    Target { name: "schedstat_text", run: schedstat_text::run },
    Target { name: "schedviz_archive", run: |bytes| recordings::run(bytes, capture::schedviz::read) },
    Target { name: "sysfs_tree", run: sysfs_tree::run },
    Target { name: "trace_dat", run: |bytes| recordings::run(bytes, capture::trace_dat::read) },
    Target { name: "type_information", run: type_information::run },
];
