//! Trials run by the workers of a Dask cluster, and other work of the Python package, which is another process: `python3 -m warmcore._service`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use serde::Deserialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::trial::Trial;
use warmcore_study::chunk::{self, ChunkedRun, GatherError};
use warmcore_study::plan::Plan;

use crate::commands::study::{study_failure, with_means};
use crate::console::Console;
use crate::failure::Failure;
use crate::signals::Signals;

const CODE: &str = "warmcore::python";

/// A line of what the package says.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Said {
    version: String,
    workers: usize,
    name: String,
    answer: String,
    /// The result in words.
    pub text: Option<String>,
    /// The result as a document.
    pub json: Option<String>,
    error: Option<String>,
    advice: Option<String>,
}

/// The Python package at work.
pub struct Package {
    child: Child,
    lines: Receiver<std::io::Result<String>>,
}

/// How often signals are looked at while it works.
const EVERY: Duration = Duration::from_millis(50);

impl Package {
    /// Starts it, with the interpreter that runs this program if one does.
    pub fn start(words: &[&str], console: &Console) -> Result<Self, Failure> {
        let mut command = Command::new(console.python().unwrap_or(Path::new("python3")));
        command.args(["-m", "warmcore._service"]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| lacking(&format!("cannot start python3: {error}")))?;
        let output = child.stdout.take().ok_or_else(|| lacking("python3 has no output"))?;
        // One line ahead: it waits where the lines are not taken. The thread ends with the lines, or with who takes them.
        let (says, lines) = mpsc::sync_channel(1);
        std::thread::spawn(move || BufReader::new(output).lines().try_for_each(|line| says.send(line)));
        Ok(Self { child, lines })
    }

    /// The next line; `None` once it has ended well.
    pub fn next(&mut self, signals: &Signals) -> Result<Option<Said>, Failure> {
        let line = loop {
            let line = self.lines.recv_timeout(EVERY);
            if signals.stop.load(Ordering::Relaxed) {
                return Err(signals.failure("interrupted; what came back is kept if there is an --out"));
            }
            match line {
                Ok(line) => break Some(line),
                Err(RecvTimeoutError::Disconnected) => break None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        let Some(line) = line.transpose().map_err(|error| Failure::failed(CODE, format!("python3: {error}")))? else {
            let status = self.child.wait().map_err(|error| Failure::failed(CODE, format!("python3: {error}")))?;
            return match status.success() {
                true => Ok(None),
                false => Err(lacking("the Python package does not work here; what it says is above")),
            };
        };
        let said: Said = serde_json::from_str(&line)
            .map_err(|_| Failure::failed(CODE, format!("the Python package says: {line}")))?;
        match said.error {
            None => Ok(Some(said)),
            Some(error) => {
                let failure = Failure::failed(CODE, error);
                Err(said.advice.into_iter().fold(failure, Failure::help))
            }
        }
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        // One that has ended needs no end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lacking(words: &str) -> Failure {
    Failure::unable(CODE, words)
        .help("pip install 'warmcore[dask,tune]': this command has the Python package work for it")
}

fn failure(error: GatherError, out: Option<&Path>, signals: &Signals) -> Failure {
    let advice = error.advice();
    match error {
        GatherError::Study(error) => study_failure(error, out, signals),
        error => advice.into_iter().fold(Failure::failed("warmcore::study", error), Failure::help),
    }
}

/// Trials of every experiment of a plan, run by the workers of a scheduler.
pub fn gather(
    plan: &Plan,
    out: Option<&Path>,
    address: &str,
    signals: &Signals,
    console: &Console,
) -> Result<Vec<Vec<Vec<Trial>>>, Failure> {
    let experiments = &plan.experiments;
    let mut package = Package::start(&["relay", address], console)?;
    let Some(ready) = package.next(signals)? else { return Err(lacking("the Python package ends too early")) };
    if ready.version != TOOL_VERSION {
        let words = format!("the Python package is version {}, this program is {TOOL_VERSION}", ready.version);
        return Err(Failure::unable(CODE, words).help("install the program and the package of one wheel"));
    }
    let begun = ChunkedRun::begin(experiments, out, &|words| console.warn(words));
    let mut gathering = begun.map_err(|error| failure(error, out, signals))?;
    let missing = gathering.missing(experiments);
    let size = chunk::size(missing, ready.workers);
    let tasks = gathering.tasks(experiments, size, &plan.names());
    console.note(&format!("{missing} simulations in {} chunks, {} workers at {address}", tasks.len(), ready.workers));
    let input = package.child.stdin.take();
    with_means(missing, out, signals, console, |means, bar| {
        std::thread::scope(|scope| {
            let sent = &tasks;
            // Its pipe is full while as many chunks as it wants are on their way.
            scope.spawn(move || {
                let Some(mut input) = input else { return };
                for task in sent {
                    let line = serde_json::json!({ "name": task.name, "chunk": task.chunk.to_json() });
                    if writeln!(input, "{line}").is_err() {
                        // Why it has gone, its last line says.
                        return;
                    }
                }
            });
            let mut taken = || -> Result<(), Failure> {
                let mut open: std::collections::BTreeMap<&str, _> =
                    tasks.iter().map(|task| (task.name.as_str(), task)).collect();
                while !open.is_empty() {
                    let Some(said) = package.next(signals)? else {
                        return Err(Failure::failed(CODE, "the Python package ended before the last chunk"));
                    };
                    let Some(task) = open.remove(said.name.as_str()) else { continue };
                    gathering.take(task, &said.answer).map_err(|error| failure(error, out, signals))?;
                    bar.inc(task.chunk.positions.len() as u64);
                }
                Ok(())
            };
            let taken = taken();
            // The sender must not wait for a reader that has no use for more.
            drop(package);
            taken
        })?;
        gathering.finish(experiments, means).map_err(|error| study_failure(error, out, signals))
    })
}
