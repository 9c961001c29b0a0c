//! A loader that goes on after it has attached, in simulated time.
//!
//! While it runs, simulated time stands; it is left alone until all its threads wait, and answered again when simulated time has come to where one
//! of them goes on. So its decisions take effect at instants of the run, whatever this computer does meanwhile. With more than one thread that decides
//! something, the order in which they run within one instant is this computer's, and runs may differ; the schedulers whose loader decides do so
//! in one thread (`docs/spec/bpf-runtime.md` section 11).

use std::time::{Duration, Instant};

use warmcore_scx::bytecode::{Host, Moment, Object, UserSpace};

use crate::capture::{LoaderError, Request};
use crate::process::Call;
use crate::server::{Server, Stopped, last_words};

/// How long a loader may take, by this computer's clock, until all its threads wait again.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long is waited for a call before threads are looked at.
const LOOK: Duration = Duration::from_micros(200);

/// A loader that has attached its scheduler and waits to go on.
pub struct Live {
    server: Server,
    /// The call that attached, until it is answered.
    attaching: Option<Call>,
    root: tempfile::TempDir,
}

/// A scheduler with the loader that belongs to it.
pub struct Attached {
    /// What it has loaded.
    pub object: std::sync::Arc<Object>,
    /// The kernel that it has loaded it into.
    pub host: Box<Host>,
    /// The loader.
    pub loader: Live,
}

/// Runs a loader until it attaches its scheduler, and keeps it.
///
/// # Errors
/// As [`capture`](crate::capture).
pub fn start(request: &Request<'_>) -> Result<Attached, LoaderError> {
    let (root, server, host, stopped) = crate::capture::begin(request, true)?;
    match stopped {
        Stopped::Attached(call, capture) => {
            let loader = Live { server, attaching: Some(call), root };
            Ok(Attached { object: capture.object, host, loader })
        }
        other => Err(server.refuse(request, &other)),
    }
}

impl UserSpace for Live {
    fn go_on(&mut self, host: &mut Host, moment: &Moment) -> Result<Option<u64>, String> {
        crate::files::write_cpu_times(self.root.path(), &moment.cpus).map_err(|error| self.said(&error.to_string()))?;
        if let Some(call) = self.attaching.take() {
            self.server.answer_attached(&call);
        }
        self.server.advance(moment);
        let until = Instant::now() + PATIENCE;
        loop {
            match self.server.one(host, self.root.path(), LOOK) {
                Err(error) => return Err(self.said(&error)),
                Ok(true) => {}
                Ok(false) if self.server.rests() => return Ok(self.server.next_ns()),
                Ok(false) if Instant::now() > until => {
                    let seconds = PATIENCE.as_secs();
                    return Err(
                        self.said(&format!("it has not come to rest within {seconds} s of this computer's time"))
                    );
                }
                Ok(false) => {}
            }
        }
    }
}

impl Live {
    fn said(&mut self, what: &str) -> String {
        format!("the loader: {what}; it said last: {}", last_words(&mut self.server.output))
    }
}
