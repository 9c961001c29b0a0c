//! What the host and the program `/init` of a guest kernel say to each other.
//!
//! - [`plan`]: what the guest is told, as `/plan.json` in its initial file system.
//! - [`report`]: what it sends back through its one channel, as a stream of frames.
//! - [`programs`]: programs that the kernel runs by itself, and what came of them.
//! - [`tracefs`]: the recorder, which a host uses too. [`costs`]: what the kernel's own actions cost. [`files`]: small files of the kernel.
//!
//! The program itself (`src/main.rs`) mounts what it needs, applies settings and reads them back, runs the workload with
//! real threads (crate `native`), records scheduling events through a tracefs instance of its own, and powers off. It is
//! linked statically, so that a guest needs no other file. Nothing here interprets the trace of a run: pages of the kernel's ring
//! buffer travel as they are, with the kernel's own description of their events.

pub mod costs;
pub mod files;
pub mod plan;
pub mod programs;
pub mod report;
pub mod tracefs;

/// Version of the protocol. Both sides are built together; a difference is a fault of the build.
pub const PROTOCOL: u32 = 11;

/// Name of the virtio-serial port that carries the frames.
pub const PORT_NAME: &str = "org.warmcore.frames";

/// Path of the plan in the guest.
pub const PLAN_PATH: &str = "/plan.json";

/// Path of the kernel's configuration in the guest; libbpf looks for `/boot/config-RELEASE`.
pub const CONFIG_PATH: &str = "/kernel-config";
