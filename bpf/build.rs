// SPDX-License-Identifier: GPL-2.0-only
//! Leaves the objects for the library to embed: what `WARMCORE_CLANG` makes of the sources if that names a compiler, otherwise the ones that
//! are checked in, so that a build needs no compiler for BPF and gives the same bytes everywhere.

use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 4] = ["fifo", "fifo_llc", "recorder", "vtime"];
const COMPILER: &str = "WARMCORE_CLANG";

fn main() {
    println!("cargo:rerun-if-env-changed={COMPILER}");
    println!("cargo:rerun-if-changed=programs");
    println!("cargo:rerun-if-changed=objects");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where to"));
    let clang = std::env::var(COMPILER).ok().filter(|name| !name.is_empty());
    for program in PROGRAMS {
        let object = format!("{program}.bpf.o");
        match &clang {
            Some(clang) => compile(clang, program, &out.join(object)),
            None => {
                std::fs::copy(Path::new("objects").join(&object), out.join(&object)).expect("the object is checked in");
            }
        }
    }
}

fn compile(clang: &str, program: &str, object: &Path) {
    let status = Command::new("programs/compile").arg(clang).arg(program).arg(object).status();
    assert!(status.is_ok_and(|status| status.success()), "{clang} cannot compile programs/{program}.bpf.c");
}
