//! The target that the environment variable `WARMCORE_FUZZ_TARGET` names, under libFuzzer: one program, so that it is linked once. What
//! the target begins with is written into the directory that `WARMCORE_FUZZ_SEEDS` names, if it names one.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use warmcore_fuzz_targets::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("WARMCORE_FUZZ_TARGET").expect("WARMCORE_FUZZ_TARGET names a target");
    *TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no target is named {name}"))
});

fuzz_target!(
    init: {
        if let Some(directory) = std::env::var_os("WARMCORE_FUZZ_SEEDS") {
            for (number, seed) in TARGET.seeds().iter().enumerate() {
                let path = PathBuf::from(&directory).join(number.to_string());
                std::fs::write(path, seed).expect("room for a file");
            }
        }
    },
    |bytes: &[u8]| (TARGET.run)(bytes)
);
