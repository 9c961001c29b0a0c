//! Records the scheduling of this computer while a command runs.
//!
//! Events come from a tracefs instance of its own, of all CPUs: a migration is often decided by somebody else's thread. They are read
//! while the command runs, by a thread that sleeps between two readings.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use warmcore_agent::tracefs::{Instance, Pages};
use warmcore_capture::Recording;
use warmcore_capture::trace_dat::{self, Contents, PAGE_BYTES};

use crate::place::{PlaceError, Trouble};

/// Where tracefs is, or may be mounted.
pub const TRACEFS: &str = "/sys/kernel/tracing";
/// Time between two readings of the buffers.
pub const BETWEEN_READINGS: Duration = Duration::from_millis(50);

const CODE: &str = "warmcore::record";

fn failed(reason: String) -> PlaceError {
    PlaceError::new(Trouble::Failed, CODE, reason, "`warmcore host doctor` says what this computer has")
}

/// A tracefs instance, removed on every way out.
#[derive(Debug)]
pub struct Recorder {
    instance: Instance,
    header_page: String,
    /// Names with their subsystems, and formats.
    events: Vec<(String, String)>,
    /// Whether tracefs was mounted for this.
    mounted: bool,
    ended: bool,
}

impl Recorder {
    /// Makes the instance, and mounts tracefs until the end if it is not mounted. With `calls`, system calls through which threads wake each
    /// other are recorded too, where the kernel has events for them.
    ///
    /// # Errors
    /// When this computer, or this user, cannot.
    pub fn begin(calls: bool) -> Result<Self, PlaceError> {
        let mut mounted = false;
        if !Path::new(TRACEFS).join("instances").is_dir() {
            let status = Command::new("mount").args(["-t", "tracefs", "tracefs", TRACEFS]).output();
            mounted = status.is_ok_and(|output| output.status.success());
            if !mounted {
                let message = format!("tracefs is not mounted at {TRACEFS}, and cannot be");
                let advice = "as root: `mount -t tracefs tracefs /sys/kernel/tracing`";
                return Err(PlaceError::new(Trouble::Unable, CODE, message, advice));
            }
        }
        let instance = Instance::at(TRACEFS, &format!("warmcore-{}", std::process::id()));
        let prepared = instance.prepare().and_then(|formats| {
            let calls = if calls { instance.with_calls()? } else { Vec::new() };
            Ok((formats, instance.with_new_threads()?, calls))
        });
        match prepared {
            Ok((formats, new_threads, calls)) => {
                let mut events: Vec<(String, String)> =
                    formats.events.into_iter().map(|(name, format)| (format!("sched/{name}"), format)).collect();
                events.extend(new_threads.into_iter().chain(calls));
                Ok(Self { instance, header_page: formats.header_page, events, mounted, ended: false })
            }
            Err(reason) => {
                let _ = instance.remove();
                unmount(mounted);
                let advice = match rustix::process::geteuid().is_root() {
                    true => "`warmcore host doctor` says what this computer has",
                    false => "recording needs root, or group and mode of /sys/kernel/tracing that let you write there",
                };
                Err(PlaceError::new(Trouble::Unable, CODE, reason, advice))
            }
        }
    }

    /// Whether it records system calls: none where the kernel has no events for them.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.events.iter().any(|(name, _)| name.starts_with("syscalls/"))
    }

    /// Whether tracefs was mounted for it.
    #[must_use]
    pub fn mounted(&self) -> bool {
        self.mounted
    }

    /// Records from now on a process that does not run yet, or what it does from now on.
    ///
    /// # Errors
    /// What the kernel refuses, such as buffers that it has no memory for.
    pub fn start(&self, buffer_kib: u32, root: i32) -> Result<Reading<'_>, PlaceError> {
        let instance = &self.instance;
        let readers: Vec<Pages> =
            (0..instance.cpus()).map(|cpu| instance.pages(cpu)).collect::<Result<_, _>>().map_err(failed)?;
        let pages = vec![Vec::new(); readers.len()];
        instance.start(buffer_kib).map_err(failed)?;
        let mut processes = BTreeMap::new();
        let before = schedstats(root, &mut processes);
        Ok(Reading { recorder: self, root, readers, pages, processes, before })
    }

    /// Puts everything back.
    ///
    /// # Errors
    /// While somebody has files of the instance open.
    pub fn end(mut self) -> Result<(), PlaceError> {
        self.ended = true;
        let removed = self.instance.remove();
        unmount(self.mounted);
        removed.map_err(failed)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.instance.stop();
            let _ = self.instance.remove();
            unmount(self.mounted);
        }
    }
}

fn unmount(mounted: bool) {
    if mounted {
        let _ = Command::new("umount").arg(TRACEFS).status();
    }
}

/// A recording in progress.
pub struct Reading<'a> {
    recorder: &'a Recorder,
    root: i32,
    readers: Vec<Pages>,
    pages: Vec<Vec<u8>>,
    processes: BTreeMap<i32, i32>,
    before: BTreeMap<i32, u64>,
}

impl Reading<'_> {
    /// Takes what there is. To be called every [`BETWEEN_READINGS`] or so.
    ///
    /// # Errors
    /// Buffers that cannot be read.
    pub fn take(&mut self) -> Result<(), PlaceError> {
        self.drain()?;
        schedstats(self.root, &mut self.processes);
        Ok(())
    }

    /// Records no more. With it CPU time by the kernel's own accounts since the beginning, of threads that were there at both, ns.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn stop(mut self) -> Result<(Contents, BTreeMap<i32, u64>), PlaceError> {
        let mut accounts = schedstats(self.root, &mut self.processes);
        let instance = &self.recorder.instance;
        instance.stop().map_err(failed)?;
        self.drain()?;
        let (_, lost) = instance.counts().map_err(failed)?;
        drop(self.readers);
        accounts.retain(|thread, _| self.before.contains_key(thread));
        accounts.iter_mut().for_each(|(thread, ns)| *ns -= self.before[thread].min(*ns));
        let contents = Contents {
            header_page: self.recorder.header_page.clone(),
            header_event: instance.header_event().map_err(failed)?,
            events: self.recorder.events.clone(),
            cmdlines: names(&self.processes),
            clock: Instance::CLOCK.into(),
            processes: self.processes,
            pages: self.pages,
            lost,
        };
        Ok((contents, accounts))
    }

    fn drain(&mut self) -> Result<(), PlaceError> {
        for (reader, kept) in self.readers.iter_mut().zip(&mut self.pages) {
            while let Some(page) = reader.read().map_err(failed)? {
                kept.extend_from_slice(page);
                // A page may be handed over shorter than it is.
                kept.resize(kept.len().next_multiple_of(PAGE_BYTES), 0);
            }
        }
        Ok(())
    }
}

/// What was recorded, as readers of files see it.
///
/// # Errors
/// When it cannot be read.
pub fn recording(contents: &Contents) -> Result<Recording, PlaceError> {
    let mut bytes = Vec::new();
    let written = trace_dat::write(&mut bytes, contents).map_err(|error| error.to_string());
    let read = written.and_then(|()| trace_dat::read(&bytes).map_err(|error| error.to_string()));
    read.map_err(|reason| failed(format!("the recording cannot be read: {reason}")))
}

/// CPU time of the threads of a process and its children, by thread, and which process they are of.
fn schedstats(root: i32, processes: &mut BTreeMap<i32, i32>) -> BTreeMap<i32, u64> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root];
    while let Some(process) = waiting.pop() {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for thread in threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
            processes.insert(thread, process);
            let file =
                |name: &str| fs::read_to_string(format!("/proc/{process}/task/{thread}/{name}")).unwrap_or_default();
            if let Some(ns) = file("schedstat").split_whitespace().next().and_then(|ns| ns.parse().ok()) {
                found.insert(thread, ns);
            }
            waiting.extend(file("children").split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        }
    }
    found
}

fn names(processes: &BTreeMap<i32, i32>) -> BTreeMap<i32, String> {
    let name = |thread: &i32, process: &i32| fs::read_to_string(format!("/proc/{process}/task/{thread}/comm")).ok();
    processes
        .iter()
        .filter_map(|(thread, process)| Some((*thread, name(thread, process)?.trim_end().to_owned())))
        .collect()
}
