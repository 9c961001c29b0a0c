//! The machine's files by mounts of the loader's own: `/sys`, `/proc` and `/boot` are then what it finds there, and no call with a path needs an answer.
//!
//! Where user namespaces are allowed a process can have mounts that nobody else sees. `/proc` becomes a directory of the machine's files and of links to this
//! computer's for all others, which lies below it as `.host`: a process looks there for itself.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Where this computer's `/proc` lies in the loader's.
const HOST: &str = ".host";

/// What `mount_setattr` is to set (`struct mount_attr`).
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// `MOUNT_ATTR_RDONLY`.
const READ_ONLY: u64 = 1;
/// `AT_RECURSIVE`.
const WITH_ALL_BELOW: u32 = 0x8000;

/// Mounts that are to be made.
pub struct Mounts {
    /// What is shown, and where.
    binds: Vec<(CString, CString)>,
    /// Files of the process and what is written to them: it keeps its user and group.
    identity: [(CString, CString); 3],
    /// No file can be changed then, and there is no network.
    are_confined: bool,
}

impl Mounts {
    /// Of the files below `root`, which get links to this computer's; confined or not.
    ///
    /// # Errors
    /// When they cannot be made, or there is no `/boot` to show anything in.
    pub fn prepare(root: &Path, are_confined: bool) -> io::Result<Self> {
        let proc = root.join("proc");
        fs::create_dir_all(proc.join(HOST))?;
        link_others(Path::new("/proc"), &proc, Path::new("/proc").join(HOST).as_path())?;
        link_others(Path::new("/proc/sys"), &proc.join("sys"), &Path::new("/proc").join(HOST).join("sys"))?;
        fs::metadata("/boot")?;
        let bind = |from: &Path, to: &Path| -> io::Result<_> { Ok((text(from.as_os_str())?, text(to.as_os_str())?)) };
        let binds = vec![
            bind(Path::new("/proc"), &proc.join(HOST))?,
            bind(&proc, Path::new("/proc"))?,
            bind(&root.join("sys"), Path::new("/sys"))?,
            bind(&root.join("boot"), Path::new("/boot"))?,
        ];
        // SAFETY: plain system calls.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let file = |path: &str, content: String| -> io::Result<_> {
            Ok((text(OsStr::new(path))?, text(OsStr::new(&content))?))
        };
        let identity = [
            file("/proc/self/setgroups", "deny".into())?,
            file("/proc/self/uid_map", format!("{user} {user} 1"))?,
            file("/proc/self/gid_map", format!("{group} {group} 1"))?,
        ];
        Ok(Self { binds, identity, are_confined })
    }

    /// Makes them, in a process that has one thread. Nothing but system calls is made.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn enter(&self) -> io::Result<()> {
        let checked = |result: i32| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: system calls with texts that end with a zero and live as long as the calls.
        unsafe {
            let network = if self.are_confined { libc::CLONE_NEWNET } else { 0 };
            checked(libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS | network))?;
            for (file, content) in &self.identity {
                let descriptor = libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                let bytes = content.as_bytes();
                let written = libc::write(descriptor, bytes.as_ptr().cast(), bytes.len());
                if written != bytes.len() as isize {
                    return Err(io::Error::last_os_error());
                }
                libc::close(descriptor);
            }
            let nothing = std::ptr::null();
            let private = libc::MS_REC | libc::MS_PRIVATE;
            checked(libc::mount(nothing, c"/".as_ptr(), nothing, private, std::ptr::null()))?;
            for (from, to) in &self.binds {
                let bind = libc::MS_BIND | libc::MS_REC;
                checked(libc::mount(from.as_ptr(), to.as_ptr(), nothing, bind, std::ptr::null()))?;
            }
            if self.are_confined {
                let attributes = Attributes { set: READ_ONLY, clear: 0, propagation: 0, user_namespace: 0 };
                let (at, bytes) = (&raw const attributes, size_of::<Attributes>());
                let root = c"/".as_ptr();
                let result = libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, root, WITH_ALL_BELOW, at, bytes);
                checked(result as i32)?;
            }
        }
        Ok(())
    }

    /// Whether this computer allows it: tried in a process that ends at once.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn try_out(&self) -> io::Result<()> {
        // SAFETY: the new process makes system calls only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let result = self.enter();
            let code = result.err().and_then(|error| error.raw_os_error()).unwrap_or(0);
            // SAFETY: as above.
            unsafe { libc::_exit(code.min(255)) };
        }
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut status = 0;
        // SAFETY: a process of ours; waiting is tried again where a signal comes between.
        while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            (true, 0) => Ok(()),
            (true, code) => Err(io::Error::from_raw_os_error(code)),
            _ => Err(io::Error::other("the process that tried it was ended")),
        }
    }
}

/// Links in `ours` to what `theirs` has and it has not, by the path that `theirs` will have.
fn link_others(theirs: &Path, ours: &Path, by: &Path) -> io::Result<()> {
    for entry in fs::read_dir(theirs)? {
        let name = entry?.file_name();
        // Processes come and go: a loader that asks for one by its number finds those of now.
        match symlink(by.join(&name), ours.join(&name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    // What is hidden from a loader stays so.
    match fs::remove_file(ours.join("config.gz")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn text(path: &OsStr) -> io::Result<CString> {
    CString::new(path.as_bytes()).map_err(io::Error::other)
}
