//! A tracefs instance of its own, so that nobody else's tracing is disturbed and loss is our own.
//!
//! A full buffer takes nothing more (`overwrite` off), and what it did not take is counted. Time stamps are of the monotonic clock.
//!
//! Source: `Documentation/trace/ftrace.rst`, Linux 6.18: `instances`, `trace_pipe_raw`, `per_cpu/cpuN/stats`.

use std::fs::{self, File};
use std::io::Read;

use warmcore_capture::EventFormats;

use crate::files;

/// Event by which CPUs go offline and come online: none while none does.
const HOTPLUG: &str = "cpuhp/cpuhp_enter";
/// Events of the `sched` subsystem that are recorded. The last ones depend on the kernel's configuration.
const EVENTS: [&str; 11] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_migrate_task",
    "sched_process_fork",
    "sched_process_exit",
    "sched_process_exec",
    "sched_move_numa",
    "sched_swap_numa",
    "sched_stick_numa",
];
const REQUIRED: usize = 7;
/// Events of the `syscalls` subsystem: calls through which threads wake each other, and those that wait for a time or for any of several
/// files.
const CALLS: [&str; 22] = [
    "futex",
    "write",
    "sendto",
    "sendmsg",
    "read",
    "recvfrom",
    "recvmsg",
    "accept",
    "accept4",
    "connect",
    "nanosleep",
    "clock_nanosleep",
    "timerfd_settime",
    "writev",
    "sendfile64",
    "readv",
    "epoll_wait",
    "epoll_pwait",
    "poll",
    "ppoll",
    "select",
    "pselect6",
];
/// Events of the `sock` subsystem (Linux 6.3): something may be received, and a thread received it. Together they say since when it was there.
const SOCKETS: [&str; 2] = ["sk_data_ready", "sock_recv_length"];
/// Event of the `task` subsystem.
const NEW_THREAD: &str = "task_newtask";

/// Page of the ring buffer.
pub const PAGE_BYTES: usize = 4096;
/// Time stamp and commit counter at the head of a page.
const PAGE_HEAD: usize = 16;
/// Bits of the commit counter that are the length.
const COMMIT_LENGTH: u64 = 0xf_ffff;

/// An instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    tracefs: String,
    root: String,
}

impl Instance {
    /// The clock of its time stamps, as `trace_clock` names it.
    pub const CLOCK: &str = "mono";

    /// The instance of that name below a mounted tracefs; it need not exist.
    #[must_use]
    pub fn at(tracefs: &str, name: &str) -> Self {
        Self { tracefs: tracefs.to_owned(), root: format!("{tracefs}/instances/{name}") }
    }

    /// Makes it and describes its events.
    ///
    /// # Errors
    /// What the kernel refuses, with the file.
    pub fn prepare(&self) -> Result<EventFormats, String> {
        fs::create_dir_all(&self.root)
            .map_err(|error| format!("cannot make the tracefs instance {}: {error}", self.root))?;
        files::write(&self.file("trace_clock"), Self::CLOCK)?;
        files::write(&self.file("options/overwrite"), "0")?;
        let header_page = files::read(&format!("{}/events/header_page", self.tracefs))?;
        let mut formats = EventFormats { header_page, events: Vec::new() };
        for (position, name) in EVENTS.iter().enumerate() {
            let event = format!("sched/{name}");
            match files::read(&self.file(&format!("events/{event}/format"))) {
                Ok(format) => formats.events.push((event, format)),
                Err(reason) if position < REQUIRED => return Err(reason),
                Err(_) => {}
            }
        }
        if let Ok(format) = files::read(&self.file(&format!("events/{HOTPLUG}/format"))) {
            formats.events.push((HOTPLUG.to_owned(), format));
        }
        files::write(&self.file("tracing_on"), "0")?;
        for (event, _) in &formats.events {
            files::write(&self.file(&format!("events/{event}/enable")), "1")?;
        }
        Ok(formats)
    }

    /// Records the creation of threads too, with what tells threads of a process from new processes. To be called after
    /// [`prepare`](Self::prepare); `None` on a kernel without that event.
    ///
    /// # Errors
    /// When it is there and cannot be switched on.
    pub fn with_new_threads(&self) -> Result<Option<(String, String)>, String> {
        let event = format!("task/{NEW_THREAD}");
        let Ok(format) = files::read(&self.file(&format!("events/{event}/format"))) else { return Ok(None) };
        files::write(&self.file(&format!("events/{event}/enable")), "1")?;
        Ok(Some((event, format)))
    }

    /// Records system calls too, through which threads wake each other or wait for a time, and when sockets have something to receive, as far
    /// as the kernel has events for them. System calls of one thread are left out: of the one that reads the pages, whose every reading would
    /// fill them. After [`prepare`](Self::prepare).
    ///
    /// # Errors
    /// When one is there and cannot be switched on.
    pub fn with_calls(&self, reader: i32) -> Result<Vec<(String, String)>, String> {
        let mut events = Vec::new();
        let calls = CALLS.map(|call| (format!("syscalls/sys_enter_{call}"), true));
        for (event, is_call) in calls.into_iter().chain(SOCKETS.map(|name| (format!("sock/{name}"), false))) {
            let Ok(format) = files::read(&self.file(&format!("events/{event}/format"))) else { continue };
            // An event of a socket is often in an interrupt, of which the thread that runs then knows nothing.
            if is_call {
                files::write(&self.file(&format!("events/{event}/filter")), &format!("common_pid != {reader}"))?;
            }
            files::write(&self.file(&format!("events/{event}/enable")), "1")?;
            events.push((event, format));
        }
        Ok(events)
    }

    /// The text of `events/header_event`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn header_event(&self) -> Result<String, String> {
        files::read(&format!("{}/events/header_event", self.tracefs))
    }

    /// Empties the buffers and records from now on.
    ///
    /// # Errors
    /// What the kernel refuses, such as buffers that it has no memory for.
    pub fn start(&self, buffer_kib: u32) -> Result<(), String> {
        files::write(&self.file("tracing_on"), "0")?;
        files::write(&self.file("buffer_size_kb"), &buffer_kib.to_string())?;
        // Opening it for writing empties the buffers.
        File::create(self.file("trace")).map_err(|error| format!("cannot empty the trace: {error}"))?;
        files::write(&self.file("tracing_on"), "1")
    }

    /// Records no more.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn stop(&self) -> Result<(), String> {
        files::write(&self.file("tracing_on"), "0")
    }

    /// What each CPU's buffer took and did not take, by CPU.
    ///
    /// # Errors
    /// A CPU whose counts cannot be read.
    pub fn counts(&self) -> Result<(Vec<u64>, Vec<u64>), String> {
        let (mut entries, mut lost) = (Vec::new(), Vec::new());
        for cpu in 0..self.cpus() {
            let stats = files::read(&self.file(&format!("per_cpu/cpu{cpu}/stats")))?;
            let count = |name: &str| {
                let line = stats.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|value| value.trim_start_matches(':').trim().parse::<u64>().ok()).unwrap_or(0)
            };
            entries.push(count("entries"));
            lost.push(count("overrun") + count("commit overrun") + count("dropped events"));
        }
        Ok((entries, lost))
    }

    /// Opens the pages of a CPU's buffer.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pages(&self, cpu: usize) -> Result<Pages, String> {
        let path = self.file(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, rustix::fs::Mode::empty());
        let file = File::from(opened.map_err(|error| format!("cannot open {path}: {error}"))?);
        Ok(Pages { file, path, page: vec![0; PAGE_BYTES] })
    }

    /// Number of CPUs.
    #[must_use]
    pub fn cpus(&self) -> usize {
        files::names(&self.file("per_cpu")).len()
    }

    /// Removes it.
    ///
    /// # Errors
    /// While somebody has its files open.
    pub fn remove(&self) -> Result<(), String> {
        fs::remove_dir(&self.root).map_err(|error| format!("cannot remove the tracefs instance {}: {error}", self.root))
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }
}

/// Pages of a CPU's buffer. A page that was read is gone from the buffer.
#[derive(Debug)]
pub struct Pages {
    file: File,
    path: String,
    page: Vec<u8>,
}

impl Pages {
    /// The next page, of [`PAGE_BYTES`], with what is behind its end being no part of it; `None` if nothing is there now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&mut self) -> Result<Option<&[u8]>, String> {
        match self.file.read(&mut self.page) {
            Ok(0) => Ok(None),
            Ok(length) => Ok(Some(&self.page[..length])),
            // Nothing more is there.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", self.path)),
        }
    }
}

/// How much of a page holds something.
#[must_use]
pub fn used_bytes(page: &[u8]) -> usize {
    let commit = page.get(8..16).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    (PAGE_HEAD + (commit & COMMIT_LENGTH) as usize).min(page.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_thread_that_reads_the_pages_are_not_recorded() {
        let directory = std::env::temp_dir().join(format!("warmcore-tracefs-{}", std::process::id()));
        let tracefs = directory.to_str().unwrap();
        let event = |name: &str| format!("{tracefs}/instances/own/events/{name}");
        for name in ["syscalls/sys_enter_read", "syscalls/sys_enter_futex", "sock/sk_data_ready"] {
            fs::create_dir_all(event(name)).unwrap();
            for (file, text) in [("format", "name: it\n"), ("filter", ""), ("enable", "")] {
                fs::write(format!("{}/{file}", event(name)), text).unwrap();
            }
        }
        let events = Instance::at(tracefs, "own").with_calls(123).unwrap();
        let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["syscalls/sys_enter_futex", "syscalls/sys_enter_read", "sock/sk_data_ready"]);
        let text = |name: &str, file: &str| fs::read_to_string(format!("{}/{file}", event(name))).unwrap();
        for (name, filter) in [
            ("syscalls/sys_enter_read", "common_pid != 123"),
            ("syscalls/sys_enter_futex", "common_pid != 123"),
            ("sock/sk_data_ready", ""),
        ] {
            assert_eq!((text(name, "filter").as_str(), text(name, "enable").as_str()), (filter, "1"), "{name}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
