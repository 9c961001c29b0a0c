//! What the files of recorded processes are: their links in `/proc/PID/fd`, looked at while they run, which event counter is which, and which socket
//! is connected to which.
//!
//! Sources: `proc_pid_fd(5)`; `eventfd-id` of `/proc/PID/fdinfo` (`fs/eventfd.c`, Linux 5.2 and newer); `sock_diag(7)` for sockets of the domain unix, `UNIX_DIAG_PEER`; `proc_pid_net(5)` for those of TCP, where the other
//! end has the two addresses the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use warmcore_capture::OpenFiles;
use warmcore_capture::files::Socket;

/// Files seen so far.
#[derive(Debug, Default)]
pub(super) struct Peers(OpenFiles);

impl Peers {
    /// Looks at the files that these threads' processes have open. What was opened and closed between two looks is missed.
    pub(super) fn look(&mut self, time_ns: u64, processes: &BTreeMap<i32, i32>) {
        for process in processes.values().collect::<BTreeSet<_>>() {
            let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { continue };
            for file in files.flatten() {
                let number = file.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
                if let (Some(number), Ok(target)) = (number, fs::read_link(file.path())) {
                    let target = target.to_string_lossy();
                    let counter = if target == EVENT_COUNTER { event_counter(*process, number) } else { None };
                    self.0.saw(time_ns, *process, number, counter.as_deref().unwrap_or(&target));
                }
            }
        }
        let known = |files: &OpenFiles, target: &str| files.sockets.contains_key(target);
        let sockets: BTreeSet<String> = self
            .0
            .seen()
            .map(|(.., target)| target)
            .filter(|target| target.starts_with("socket:") && !known(&self.0, target))
            .map(str::to_owned)
            .collect();
        if sockets.is_empty() {
            return;
        }
        let mut ends = tcp();
        // Without them the two ends stay two sockets of no name.
        ends.extend(unix().unwrap_or_default());
        for target in sockets {
            let end = ends.remove(&target).unwrap_or_default();
            self.0.sockets.insert(target, end);
        }
    }

    /// Looks once more, and gives all that was seen.
    pub(super) fn finish(mut self, time_ns: u64, processes: &BTreeMap<i32, i32>) -> OpenFiles {
        self.look(time_ns, processes);
        self.0
    }
}

/// The link of every event counter.
const EVENT_COUNTER: &str = "anon_inode:[eventfd]";

/// An event counter by the number that it has in all processes.
fn event_counter(process: i32, number: u64) -> Option<String> {
    let known = fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).ok()?;
    let id = known.lines().find_map(|line| line.strip_prefix("eventfd-id:"))?;
    Some(format!("eventfd:[{}]", id.trim().parse::<u64>().ok()?))
}

fn link(inode: u64) -> String {
    format!("socket:[{inode}]")
}

/// TCP's sockets of this network namespace.
fn tcp() -> BTreeMap<String, Socket> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let rows: Vec<(String, String, u64)> = tables.iter().flat_map(|table| table.lines().filter_map(tcp_row)).collect();
    let by_ends: BTreeMap<(&str, &str), u64> =
        rows.iter().map(|(local, remote, inode)| ((local.as_str(), remote.as_str()), *inode)).collect();
    let socket = |(local, remote, inode): &(String, String, u64)| {
        let peer = by_ends.get(&(remote.as_str(), local.as_str())).copied().filter(|_| local != remote).map(link);
        (link(*inode), Socket { peer, name: format!("tcp {local} to {remote}") })
    };
    rows.iter().map(socket).collect()
}

/// Both ends and the inode of a line of `/proc/net/tcp`.
fn tcp_row(line: &str) -> Option<(String, String, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let inode = words.get(9)?.parse().ok().filter(|inode| *inode > 0)?;
    Some((address(words[1])?, address(words[2])?, inode))
}

/// An address as the kernel prints it: words of four bytes in the order of this machine, and the port.
fn address(text: &str) -> Option<String> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for at in (0..host.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(host.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    match bytes.len() {
        4 => Some(std::net::SocketAddr::from((<[u8; 4]>::try_from(bytes).ok()?, port)).to_string()),
        16 => {
            // One of the old kind in the new table is the same address.
            let host = std::net::Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical();
            Some(std::net::SocketAddr::from((host, port)).to_string())
        }
        _ => None,
    }
}

/// `NETLINK_SOCK_DIAG`, `SOCK_DIAG_BY_FAMILY`.
const SOCK_DIAG: i32 = 4;
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST` with `NLM_F_DUMP`; `NLMSG_ERROR`, `NLMSG_DONE`.
const REQUEST_ALL: u16 = 1 | 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `UDIAG_SHOW_NAME` and `UDIAG_SHOW_PEER`; the attributes that come of them.
const SHOW: u32 = 1 | 4;
const NAME: u16 = 0;
const PEER: u16 = 2;
/// Bytes of `struct nlmsghdr` and of `struct unix_diag_msg`.
const HEAD: usize = 16;
const MESSAGE: usize = 16;

/// Sockets of the domain unix.
fn unix() -> io::Result<BTreeMap<String, Socket>> {
    // SAFETY: makes a descriptor and touches no memory.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, SOCK_DIAG) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made it for this call.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let mut request = Vec::new();
    request.extend(40_u32.to_ne_bytes());
    request.extend(BY_FAMILY.to_ne_bytes());
    request.extend(REQUEST_ALL.to_ne_bytes());
    request.extend([0; 8]);
    // `struct unix_diag_req`: family, protocol, padding, states, inode, what to show, cookie.
    request.extend([libc::AF_UNIX as u8, 0, 0, 0]);
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(0_u32.to_ne_bytes());
    request.extend(SHOW.to_ne_bytes());
    request.extend([0; 8]);
    rustix::io::write(&socket, &request)?;
    let mut found = BTreeMap::new();
    let mut bytes = vec![0; 64 << 10];
    loop {
        // SAFETY: the buffer is as long as is said.
        let length = unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        if length == 0 || !messages(&bytes[..length], &mut found) {
            return Ok(found);
        }
    }
}

/// Takes the sockets in some bytes of netlink; whether more may come.
fn messages(mut bytes: &[u8], found: &mut BTreeMap<String, Socket>) -> bool {
    let word = |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let half = |bytes: &[u8], at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    while let (Some(length), Some(kind)) = (word(bytes, 0), half(bytes, 4)) {
        let length = length as usize;
        if kind == ERROR || kind == DONE || length < HEAD || length > bytes.len() {
            return false;
        }
        let message = &bytes[HEAD..length];
        if let Some(inode) = word(message, 4) {
            let mut socket = Socket { peer: None, name: "unix".into() };
            let mut rest = message.get(MESSAGE..).unwrap_or_default();
            while let (Some(size), Some(kind)) = (half(rest, 0), half(rest, 2)) {
                let size = usize::from(size);
                if size < 4 || size > rest.len() {
                    break;
                }
                let value = &rest[4..size];
                match kind {
                    PEER => socket.peer = word(value, 0).map(|inode| link(inode.into())),
                    NAME => {
                        // An abstract name begins with a zero, which is printed as @.
                        let name: Vec<u8> = value.iter().map(|byte| if *byte == 0 { b'@' } else { *byte }).collect();
                        socket.name = format!("unix {}", String::from_utf8_lossy(&name).trim_end_matches('@'));
                    }
                    _ => {}
                }
                rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
            }
            found.insert(link(inode.into()), socket);
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_address_is_read_as_the_kernel_prints_it() {
        assert_eq!(address("0100007F:18EB").as_deref(), Some("127.0.0.1:6379"));
        assert_eq!(address("0000000000000000FFFF00000100007F:18EB").as_deref(), Some("127.0.0.1:6379"));
        assert_eq!(address("00000000000000000000000001000000:0050").as_deref(), Some("[::1]:80"));
        assert_eq!((address("nonsense"), address("01:5")), (None, None));
    }

    #[test]
    fn the_ends_of_a_connection_of_this_process_are_each_others_peers() {
        let (one, other) = UnixStream::pair().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let own = std::process::id() as i32;
        let files = Peers::default().finish(1, &BTreeMap::from([(own, own)]));
        for (a, b) in [(one.as_raw_fd(), other.as_raw_fd()), (client.as_raw_fd(), server.as_raw_fd())] {
            let target = |descriptor: i32| files.target(own, descriptor as u64, 1).unwrap().to_owned();
            let peer = files.sockets[&target(a)].peer.clone();
            assert_eq!(peer, Some(target(b)), "{:?}", files.sockets[&target(a)]);
        }
    }

    #[test]
    fn event_counters_have_numbers_of_their_own() {
        let counter = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let (one, other) = (counter(), counter());
        let again = one.try_clone().unwrap();
        let own = std::process::id() as i32;
        let files = Peers::default().finish(1, &BTreeMap::from([(own, own)]));
        let target = |descriptor: &OwnedFd| files.target(own, descriptor.as_raw_fd() as u64, 1).unwrap().to_owned();
        assert!(target(&one).starts_with("eventfd:[") && target(&one) == target(&again), "{}", target(&one));
        assert_ne!(target(&one), target(&other));
    }

    #[test]
    fn damaged_messages_end_the_reading() {
        let mut found = BTreeMap::new();
        assert!(!messages(&[200, 0, 0, 0, 20, 0, 0, 0, 1], &mut found) && found.is_empty());
    }
}
