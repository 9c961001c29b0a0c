//! A program of the host in the guest: what it prints goes to the host as it comes, and the files that it leaves when it has ended.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use warmcore_agent::plan::CommandPlan;
use warmcore_agent::report::{CommandEnd, FrameKind, write_document, write_frame};

/// Most of a file, or of what is printed, in one frame.
const PART_BYTES: usize = 1 << 20;

/// How long a program that is asked to end may take for it.
const GRACE: Duration = Duration::from_secs(10);

/// Runs it to its end, or until the host asks for that: then what it left so far is sent.
pub fn run(plan: &CommandPlan, channel: &mut File) -> Result<(), String> {
    let (program, arguments) = plan.words.split_first().ok_or("there is no command")?;
    fs::create_dir_all(&plan.directory).map_err(|error| format!("cannot make {}: {error}", plan.directory))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&plan.directory).stdin(Stdio::null());
    command.env("PATH", "/bin:/usr/bin:/sbin:/usr/sbin").env("HOME", "/").env("TERM", "dumb");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("cannot run {program}: {error}"))?;
    let (output, words) = (child.stdout.take(), child.stderr.take());
    let asked = channel.try_clone().map_err(|error| format!("cannot listen to the host: {error}"))?;
    let group = Pid::from_child(&child);
    // It goes on when the program has ended, and ends with the guest.
    std::thread::spawn(move || end_when_asked(asked, group));
    let shared = Mutex::new(&mut *channel);
    std::thread::scope(|scope| {
        scope.spawn(|| pass(output, FrameKind::Output, &shared));
        scope.spawn(|| pass(words, FrameKind::Words, &shared));
    });
    let status = child.wait().map_err(|error| format!("cannot wait for {program}: {error}"))?;
    let root = Path::new(&plan.directory);
    send_files(root, root, channel)?;
    let exit_code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    write_document(channel, FrameKind::CommandEnd, &CommandEnd { exit_code }).map_err(|error| error.to_string())
}

/// A byte from the host asks the program to end.
fn end_when_asked(mut host: File, group: Pid) {
    if host.read_exact(&mut [0]).is_ok() {
        for signal in [Signal::TERM, Signal::KILL] {
            // A group that is gone has ended.
            let _ = kill_process_group(group, signal);
            std::thread::sleep(GRACE);
        }
    }
}

/// Passes on what is printed until nobody has the pipe open any more.
fn pass(pipe: Option<impl Read>, kind: FrameKind, channel: &Mutex<&mut File>) {
    let Some(mut pipe) = pipe else { return };
    let mut part = vec![0; PART_BYTES];
    while let Ok(length) = pipe.read(&mut part) {
        let mut channel = channel.lock().unwrap_or_else(PoisonError::into_inner);
        // A host that is gone ends the guest.
        if length == 0 || write_frame(&mut **channel, kind, &part[..length]).is_err() {
            return;
        }
    }
}

/// Sends the files below a directory, in order of their names.
fn send_files(root: &Path, directory: &Path, channel: &mut File) -> Result<(), String> {
    let failed = |path: &Path, error: std::io::Error| format!("cannot send {}: {error}", path.display());
    let entries = fs::read_dir(directory).map_err(|error| failed(directory, error))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let kind = fs::symlink_metadata(&path).map_err(|error| failed(&path, error))?.file_type();
        if kind.is_dir() {
            send_files(root, &path, channel)?;
        } else if kind.is_file() {
            send_file(root, &path, channel).map_err(|error| failed(&path, error))?;
        }
    }
    Ok(())
}

fn send_file(root: &Path, path: &Path, channel: &mut File) -> std::io::Result<()> {
    let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
    let mut file = File::open(path)?;
    let mut first = true;
    loop {
        let mut payload = Vec::with_capacity(PART_BYTES + name.len() + 4);
        payload.extend((name.len() as u32).to_le_bytes());
        payload.extend(name.bytes());
        let head = payload.len();
        (&mut file).take(PART_BYTES as u64).read_to_end(&mut payload)?;
        // An empty file has one part, of nothing.
        if payload.len() == head && !first {
            return Ok(());
        }
        first = false;
        write_frame(channel, FrameKind::File, &payload)?;
    }
}
