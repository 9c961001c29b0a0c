//! Ends of waits that threads make, and what they wait for.

/// The end of a wait, by a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    /// The thread that ended it.
    pub waker: i32,
    /// The thread that waited.
    pub woken: i32,
    /// Since when, from the recording's start, ns.
    pub asleep_ns: u64,
    /// Until when.
    pub at_ns: u64,
    /// For what: index into [`Histories::objects`](crate::history::Histories::objects). Known if the calls that both threads had begun last name one object.
    pub object: Option<u32>,
    /// Whether the waker's call had woken another thread before.
    pub more: bool,
}

/// What threads wait for and wake each other through.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Object {
    /// A futex, by its process and address.
    Futex(i32, u64),
    /// A file, as the recorder saw it, such as `pipe:[77]`.
    File(String),
    /// A file that is known by a process and its number there.
    Number(i32, u64),
}

impl std::fmt::Display for Object {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Futex(process, address) => write!(out, "futex {address:#x} of process {process}"),
            Self::File(file) => out.write_str(file),
            Self::Number(process, number) => write!(out, "file {number} of process {process}"),
        }
    }
}
