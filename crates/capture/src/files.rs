//! What a number of a file in a process was, seen while a recording was made, and which ends of sockets belong together.
//!
//! Source: `proc_pid_fd(5)`: a link reads `pipe:[INODE]`, `socket:[INODE]`, `anon_inode:[eventfd]` or a path. Both ends of a pipe have one
//! inode; the two ends of a socket have two.

use std::collections::BTreeMap;

/// Files that processes had open.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpenFiles {
    /// By process and number: since when it was seen to be which file, in order of time.
    found: BTreeMap<(i32, u64), Vec<(u64, String)>>,
    /// What else is known of a socket, by the text of its link.
    pub sockets: BTreeMap<String, Socket>,
}

/// What is known of a socket.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Socket {
    /// The other end, as the text of its link, if it is on this computer.
    pub peer: Option<String>,
    /// What it is, such as `tcp 127.0.0.1:6379`; empty if nothing more is known.
    pub name: String,
}

impl OpenFiles {
    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Notes that a number is this file from a time on; what it is already is not noted again.
    pub fn saw(&mut self, time_ns: u64, process: i32, number: u64, target: &str) {
        let known = self.found.entry((process, number)).or_default();
        if known.last().is_none_or(|(_, last)| last != target) {
            known.push((time_ns, target.to_owned()));
        }
    }

    /// The file that a number was at a time: the one seen last before it, or else first after it.
    pub fn target(&self, process: i32, number: u64, time_ns: u64) -> Option<&str> {
        let known = self.found.get(&(process, number))?;
        let behind = known.partition_point(|(since, _)| *since <= time_ns);
        known.get(behind.saturating_sub(1)).map(|(_, target)| target.as_str())
    }

    /// Whether a process had this file or the other end of it open, ever.
    pub fn reaches(&self, target: &str, process: i32) -> bool {
        let peer = self.sockets.get(target).and_then(|socket| socket.peer.as_deref());
        let of_process = self.found.range((process, 0)..=(process, u64::MAX));
        of_process.flat_map(|(_, known)| known).any(|(_, held)| held == target || Some(held.as_str()) == peer)
    }

    /// A file and what is known of it, such as `socket:[12] (tcp 127.0.0.1:6379)`.
    pub fn describe(&self, target: &str) -> String {
        match self.sockets.get(target) {
            Some(socket) if !socket.name.is_empty() => format!("{target} ({})", socket.name),
            _ => target.to_owned(),
        }
    }

    /// All that was seen: when, process, number, file.
    pub fn seen(&self) -> impl Iterator<Item = (u64, i32, u64, &str)> {
        self.found.iter().flat_map(|((process, number), known)| {
            known.iter().map(|(time_ns, target)| (*time_ns, *process, *number, target.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_file_that_it_was_at_that_time() {
        let mut files = OpenFiles::default();
        files.saw(10, 7, 3, "pipe:[1]");
        files.saw(20, 7, 3, "pipe:[1]");
        files.saw(30, 7, 3, "socket:[2]");
        assert_eq!(files.target(7, 3, 5), Some("pipe:[1]"), "it was open before it was seen");
        assert_eq!((files.target(7, 3, 29), files.target(7, 3, 30)), (Some("pipe:[1]"), Some("socket:[2]")));
        assert_eq!((files.target(7, 4, 30), files.target(8, 3, 30)), (None, None));
        assert_eq!(files.seen().count(), 2);
    }

    #[test]
    fn a_process_is_reached_through_the_same_pipe_or_the_other_end_of_a_socket() {
        let mut files = OpenFiles::default();
        files.saw(0, 7, 3, "socket:[2]");
        files.saw(0, 8, 4, "socket:[5]");
        files.saw(0, 8, 5, "pipe:[1]");
        files.sockets.insert("socket:[2]".into(), Socket { peer: Some("socket:[5]".into()), name: "unix".into() });
        assert!(files.reaches("socket:[2]", 8) && files.reaches("pipe:[1]", 8));
        assert!(!files.reaches("pipe:[1]", 7) && !files.reaches("socket:[9]", 8));
        assert_eq!(files.describe("socket:[2]"), "socket:[2] (unix)");
    }
}
