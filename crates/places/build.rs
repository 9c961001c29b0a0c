//! Builds the program that becomes `/init` of guest kernels (crate `agent`) and leaves it for `src/vm/agent.rs` to embed.
//!
//! It must be linked statically, which takes a flag for the whole build and so a build of its own: cargo is run once
//! more, in its own directory below ours. That needs no network, because all it depends on is needed by this program
//! too. Where it fails (no static C library, another architecture), the rest is built all the same, and the reason is
//! told by `warmcore doctor vm`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Set to anything but the empty text, it leaves the program out: a build for work on other parts is shorter by a release build
/// of nine crates.
const WITHOUT_AGENT: &str = "WARMCORE_WITHOUT_AGENT";
/// Guests are x86-64 machines.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Crates the program is made of.
const SOURCES: [&str; 9] =
    ["agent", "native", "capture", "options", "workload", "memory", "trace", "statistics", "topology"];

fn main() {
    let out = PathBuf::from(variable("OUT_DIR"));
    let crates = Path::new(&variable("CARGO_MANIFEST_DIR")).join("..");
    for source in SOURCES {
        println!("cargo:rerun-if-changed={}", crates.join(source).join("src").display());
        println!("cargo:rerun-if-changed={}", crates.join(source).join("Cargo.toml").display());
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={WITHOUT_AGENT}");
    let (agent, reason) = match build(&out, &crates) {
        Ok(bytes) => (bytes, String::new()),
        Err(reason) => {
            if variable(WITHOUT_AGENT).is_empty() {
                println!("cargo:warning=no guest agent, so `warmcore vm` will not work: {}", first_line(&reason));
            }
            (Vec::new(), reason)
        }
    };
    write(&out.join("agent"), &agent);
    write(&out.join("agent-reason"), reason.as_bytes());
}

fn build(out: &Path, crates: &Path) -> Result<Vec<u8>, String> {
    if !variable(WITHOUT_AGENT).is_empty() {
        return Err(format!("{WITHOUT_AGENT} was set when it was built"));
    }
    if variable("TARGET") != TARGET {
        return Err(format!("the guest agent is built on {TARGET} only, this is {}", variable("TARGET")));
    }
    let directory = out.join("guest");
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--package", "warmcore-agent", "--profile", "guest"]);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(&directory).current_dir(crates);
    // The flags and wrappers of the build around this one are not for this program (sanitizers, clippy, coverage).
    for name in ["CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let output = cargo.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let program = directory.join(TARGET).join("guest").join("warmcore-agent");
    std::fs::read(&program).map_err(|error| format!("cannot read {}: {error}", program.display()))
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn write(path: &Path, bytes: &[u8]) {
    if let Err(error) = std::fs::write(path, bytes) {
        panic!("cannot write {}: {error}", path.display());
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
