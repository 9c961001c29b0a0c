//! An interactive shell on the console.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Runs `/bin/sh` until it ends.
pub fn run() -> Result<(), String> {
    let console = || {
        let opened = OpenOptions::new().read(true).write(true).open("/dev/ttyS0");
        opened.map_err(|error| format!("cannot open the console: {error}"))
    };
    let mut command = Command::new("/bin/sh");
    command.env("PATH", "/bin:/usr/bin:/sbin:/usr/sbin").env("TERM", "vt100").env("HOME", "/").env("PS1", "guest# ");
    command.stdin(console()?).stdout(console()?).stderr(console()?);
    // SAFETY: between fork and exec only system calls are made: a session of its own, and the console as its terminal.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(std::io::stdin())?;
            Ok(())
        });
    }
    let status = command.status().map_err(|error| format!("cannot run /bin/sh: {error}"))?;
    println!("warmcore-agent: the shell ended ({status})");
    Ok(())
}
