//! Ctrl-C, SIGTERM and SIGHUP (the terminal goes away): the first one asks the work in progress to stop, the second one ends the program at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Class, Failure};

/// What signals have come.
pub struct Signals {
    /// Whether to stop.
    pub stop: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen() -> Result<Self, Failure> {
        let signals = Self { stop: Arc::default(), number: Arc::default() };
        signals
            .register()
            .map_err(|error| Failure::failed("warmcore::signals", format!("cannot listen to signals: {error}")))?;
        Ok(signals)
    }

    fn register(&self) -> io::Result<()> {
        // Who is started with `nohup` ignores SIGHUP, and goes on to.
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            // Actions run in the order in which they were registered, so the first signal finds the flag unset here
            // and sets it below; the second one exits.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&self.stop))?;
            flag::register_usize(signal, Arc::clone(&self.number), signal.unsigned_abs() as usize)?;
            flag::register(signal, Arc::clone(&self.stop))?;
        }
        Ok(())
    }

    /// The failure to end with after work was interrupted.
    pub fn failure(&self, message: impl std::fmt::Display) -> Failure {
        let signal = i32::try_from(self.number.load(Ordering::SeqCst)).unwrap_or(SIGINT);
        Failure::new(Class::Signal(signal), "warmcore::interrupted", message)
    }
}

/// Whether whoever started this program told it to ignore a signal: field `SigIgn` of its status, a mask in hexadecimal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
