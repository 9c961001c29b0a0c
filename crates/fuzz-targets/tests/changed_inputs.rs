//! Each target, fed changed inputs of its kind: parts are replaced, put in, taken out and copied from another.
//!
//! The inputs are the same in every run; libFuzzer looks for new ones.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use warmcore_fuzz_targets::{TARGETS, Target};

/// As long as libFuzzer's inputs.
const LONGEST: usize = 4096;

/// What texts and binary formats stumble over.
const WORDS: [&[u8]; 16] = [
    b"0",
    b"-1",
    b"18446744073709551615",
    b"1e400",
    b"nan",
    b"\"",
    b"[",
    b"}",
    b"=",
    b"\n",
    b"\0\0\0\0\0\0\0\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\x7f",
    b"\xc3\xa9",
    b"..",
];

/// A part of the input from a place on becomes something else.
#[derive(Debug, Clone)]
struct Change {
    at: Index,
    removed: usize,
    put: Put,
}

#[derive(Debug, Clone)]
enum Put {
    Bytes(Vec<u8>),
    Word(usize),
    /// As many bytes from a place of a seed.
    Seed(Index, Index, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let put = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..8).prop_map(Put::Bytes),
        (0..WORDS.len()).prop_map(Put::Word),
        (any::<Index>(), any::<Index>(), 0_usize..64).prop_map(|(seed, at, length)| Put::Seed(seed, at, length)),
    ];
    (any::<Index>(), prop_oneof![Just(0_usize), 0_usize..4, 0_usize..200], put).prop_map(|(at, removed, put)| Change {
        at,
        removed,
        put,
    })
}

fn changed(seeds: &[Vec<u8>], seed: Index, changes: &[Change]) -> Vec<u8> {
    let mut bytes = seeds[seed.index(seeds.len())].clone();
    bytes.truncate(LONGEST);
    for change in changes {
        let at = change.at.index(bytes.len() + 1);
        let end = (at + change.removed).min(bytes.len());
        let put = match &change.put {
            Put::Bytes(bytes) => bytes.clone(),
            Put::Word(word) => WORDS[*word].to_vec(),
            Put::Seed(seed, from, length) => {
                let seed = &seeds[seed.index(seeds.len())];
                let from = from.index(seed.len() + 1);
                seed[from..(from + length).min(seed.len())].to_vec()
            }
        };
        bytes.splice(at..end, put);
    }
    bytes
}

fn feed(name: &str, cases: u32) {
    let target: Target = *TARGETS.iter().find(|target| target.name == name).expect("a target");
    let mut seeds = target.seeds();
    // Bytes of no kind at all.
    seeds.push((0..64_u8).map(|byte| byte.wrapping_mul(151)).collect());
    for seed in &seeds {
        (target.run)(seed);
    }
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let inputs = (any::<Index>(), prop::collection::vec(change(), 1..6))
        .prop_map(|(seed, changes)| changed(&seeds, seed, &changes));
    let fed = runner.run(&inputs, |bytes| {
        (target.run)(&bytes);
        Ok(())
    });
    fed.unwrap_or_else(|error| panic!("{error}"));
}

/// A test for each target, and the number of its inputs: about a second's.
macro_rules! targets {
    ($($name:ident: $cases:expr,)*) => {
        $(#[test]
        fn $name() {
            feed(stringify!($name), $cases);
        })*

        #[test]
        fn every_target_is_fed() {
            assert_eq!(TARGETS.map(|target| target.name), [$(stringify!($name)),*]);
        }
    };
}

targets! {
    address_trace: 2000,
    bytecode: 2000,
    experiment_text: 300,
    ftrace_text: 2000,
    generator_text: 2000,
    guest_frames: 2000,
    host_journal: 1000,
    kernel_calls: 500,
    machine_text: 200,
    perf_data: 2000,
    perfetto_trace: 2000,
    profile_text: 1000,
    recording: 2000,
    rtapp_json: 300,
    run_directory: 40,
    schedstat_text: 2000,
    schedviz_archive: 2000,
    sysfs_tree: 50,
    trace_dat: 2000,
    type_information: 2000,
}
