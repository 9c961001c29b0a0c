// SPDX-License-Identifier: GPL-2.0-only
//! The schedulers in BPF C beside the same policies in Rust, in the simulator: the loader runs unmodified before the simulated machine, and
//! what it loads decides the same to the last event.
//!
//! They need a kernel in the cache, for its type information, and system calls that can be answered.

use warmcore_kernel::Setup;
use warmcore_places::sim::programs;
use warmcore_schedulers::{Bytecode, SchedulerSpec, ScxProgram, bytecode_trial, simulate};
use warmcore_testing::skip;
use warmcore_topology::Machine;
use warmcore_trace::Event;
use warmcore_workload::{Options, Workload};

const POLICIES: [(&str, &str); 3] = [
    (env!("CARGO_BIN_EXE_scx_fifo"), "fifo"),
    (env!("CARGO_BIN_EXE_scx_fifo_llc"), "fifo-llc"),
    (env!("CARGO_BIN_EXE_scx_vtime"), "vtime"),
];

fn program(path: &str) -> ScxProgram {
    ScxProgram { program: path.to_owned(), arguments: Vec::new(), is_ended: false }
}

fn machine(text: &str) -> Machine {
    warmcore_topology::resolve(text).unwrap()
}

fn workload(text: &str) -> Workload {
    let no_files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    warmcore_workload::resolve(text, &Options::default(), no_files).unwrap()
}

/// Whether a loader can be run here, or why not.
fn can_load() -> Result<(), String> {
    let Err(error) = programs::load(&program(POLICIES[0].0), &machine("1s1n1l2c1t")) else { return Ok(()) };
    let reason = error.to_string();
    let known = ["there is none", "cannot be answered here", "x86-64 computers only"];
    assert!(known.iter().any(|known| reason.contains(known)), "{reason}");
    Err(format!("no loader can be run here: {reason}"))
}

#[test]
fn each_program_in_bpf_schedules_as_the_same_policy_in_rust_to_the_last_event() {
    skip!(unless can_load());
    let cases = [
        ("1s1n2l4c1t", "hackbench:-f3,-g2,-l50"),
        ("2s1n2l2c2t", "spin:-n24,-p0,-u100ms,-d1s"),
        ("1s1n3l2c1t", "schbench:-m2,-t6,-r1"),
    ];
    for (path, policy) in POLICIES {
        for (shape, load) in cases {
            let (machine, workload) = (machine(shape), workload(load));
            let setup = Setup::new(&machine, &workload, 7).unwrap();
            let capture = programs::capture(&program(path), &machine).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(capture.missing().next().is_none(), "{path}: {:?}", capture.needs);
            assert_eq!(capture.object.name(), policy.replace('-', "_"));
            let (mut events, mut native): (Vec<Event>, Vec<Event>) = Default::default();
            let (outcome, _) =
                bytecode_trial(Bytecode::new(&capture.object, setup.seed, false).unwrap(), &setup, Some(&mut events))
                    .unwrap();
            let spec = SchedulerSpec::parse(&format!("scx-native:policy={policy}")).unwrap();
            let expected = simulate(&spec, &setup, Some(&mut native)).unwrap();
            assert!(native.len() > 100, "there is something to compare: {}", native.len());
            assert_eq!(outcome.elapsed_ns, expected.elapsed_ns, "{policy} on {shape}");
            let differs = events.iter().zip(&native).position(|(one, other)| one != other);
            assert_eq!(differs.map(|at| (at, &events[at], &native[at])), None, "{policy} on {shape}");
            assert_eq!(events.len(), native.len(), "{policy} on {shape}");
        }
    }
}
