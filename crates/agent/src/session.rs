//! Sessions: the processes of one application, started by a leader as a shell starts a program's.
//!
//! A kernel with autogroups puts every session into a task group of its own (`sched_autogroup_create_attach` at `setsid`), which
//! processes inherit from who starts them. So the leader makes the session and starts the application's workers; it waits for them
//! and does nothing else. Workers find process 1 at a socket ([`Session::accept`]).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::worker;

/// The argument that makes this program a leader; the numbers of its workers follow.
pub const ARGUMENT: &str = "session";

/// Where workers find process 1.
pub(crate) const SOCKET: &str = "/run/warmcore-workers";

/// How often a worker that was started is looked for, and how many times.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS: u32 = 6_000;

/// Starts the workers of these numbers in a new session and waits for their end.
pub fn run(numbers: impl Iterator<Item = String>) -> Result<(), String> {
    rustix::process::setsid().map_err(|error| format!("cannot begin a session: {error}"))?;
    let start = |number: String| {
        let spawned = Command::new("/init").args([worker::ARGUMENT, &number]).stdin(Stdio::null()).spawn();
        spawned.map_err(|error| format!("cannot start a process of the workload: {error}"))
    };
    let mut workers: Vec<Child> = numbers.map(start).collect::<Result<_, _>>()?;
    let mut failed = Ok(());
    for worker in &mut workers {
        let status = worker.wait().map_err(|error| format!("waiting for a process: {error}"))?;
        if !status.success() {
            failed = Err(format!("a process of the workload failed ({status})"));
        }
    }
    failed
}

/// The sessions of a run, seen from process 1.
pub struct Sessions {
    listener: UnixListener,
    leaders: Vec<Child>,
}

impl Sessions {
    /// Starts a leader for each session, which starts the workers of its numbers.
    pub fn start(sessions: &[Vec<usize>]) -> Result<Self, String> {
        // From an earlier run of this boot.
        let _ = std::fs::remove_file(SOCKET);
        let listener = UnixListener::bind(SOCKET).map_err(|error| format!("cannot listen at {SOCKET}: {error}"))?;
        listener.set_nonblocking(true).map_err(|error| format!("{SOCKET}: {error}"))?;
        let leader = |numbers: &Vec<usize>| {
            let mut command = Command::new("/init");
            command.arg(ARGUMENT).args(numbers.iter().map(ToString::to_string));
            let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
            spawned.map_err(|error| format!("cannot start a session: {error}"))
        };
        let leaders = sessions.iter().map(leader).collect::<Result<_, _>>()?;
        Ok(Self { listener, leaders })
    }

    /// The next worker that reports, and its number.
    pub fn accept(&mut self) -> Result<(usize, Worker), String> {
        for _ in 0..LOOKS {
            match self.listener.accept() {
                Ok((stream, _)) => return Worker::greet(stream).map_err(|error| self.died(&error)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(format!("{SOCKET}: {error}")),
            }
            if self.leaders.iter_mut().any(|leader| matches!(leader.try_wait(), Ok(Some(_)))) {
                return Err(self.died("a session ended before its processes were ready"));
            }
            std::thread::sleep(LOOK);
        }
        Err("a process of the workload did not come up".into())
    }

    /// Waits for the end of all sessions, whose workers have reported.
    pub fn wait(&mut self) -> Result<(), String> {
        for position in 0..self.leaders.len() {
            let status = self.leaders[position].wait().map_err(|error| format!("waiting for a session: {error}"))?;
            if !status.success() {
                return Err(self.died(&status.to_string()));
            }
        }
        Ok(())
    }

    /// What went wrong in a worker, in its own words if it had any.
    pub fn died(&mut self, fallback: &str) -> String {
        let mut words = String::new();
        for leader in &mut self.leaders {
            // Its workers hold its standard error too, and one that still runs would be waited for.
            if ends(leader)
                && let Some(stderr) = &mut leader.stderr
            {
                let _ = stderr.read_to_string(&mut words);
            }
        }
        let words = if words.trim().is_empty() { fallback } else { words.trim() };
        format!("a process of the workload failed: {words}")
    }
}

/// Whether a process has ended within a second.
fn ends(child: &mut Child) -> bool {
    (0..100).any(|_| {
        let ended = matches!(child.try_wait(), Ok(Some(_)));
        if !ended {
            std::thread::sleep(LOOK);
        }
        ended
    })
}

/// A process of the workload, seen from process 1.
pub struct Worker {
    /// Its number in the system.
    pub process: u32,
    lines: BufReader<UnixStream>,
}

impl Worker {
    /// A worker says its number and its process id first.
    fn greet(stream: UnixStream) -> Result<(usize, Self), String> {
        stream.set_nonblocking(false).map_err(|error| error.to_string())?;
        let mut worker = Self { process: 0, lines: BufReader::new(stream) };
        let line = worker.line()?;
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(number)), Some(Ok(process))) = (numbers.next(), numbers.next()) else {
            return Err(format!("a process of the workload introduced itself as `{}`", line.trim()));
        };
        worker.process = process;
        Ok((number as usize, worker))
    }

    /// Says a line to it.
    pub fn tell(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.lines.get_mut(), "{line}").map_err(|error| error.to_string())
    }

    /// The next line of it.
    pub fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => Err("it ended".into()),
            Ok(_) => match line.strip_prefix(worker::FAILED) {
                Some(reason) => Err(reason.trim().to_owned()),
                None => Ok(line),
            },
            Err(error) => Err(error.to_string()),
        }
    }
}
