//! A loader that goes on after it has attached, in simulated time.
//!
//! While it runs, simulated time stands; it is left alone until all its threads wait, and answered again when simulated time has come to where one
//! of them goes on. So its decisions take effect at instants of the run, whatever this computer does meanwhile. Threads whose waits end at one instant
//! go on one after the other; only threads that wake or start each other run at the same time, in this computer's order.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warmcore_scx::bytecode::{Host, Moment, Object, UserSpace};

use crate::capture::{Capture, CaptureRequest, LoaderError};
use crate::output::Output;
use crate::process::Call;
use crate::server::{Server, Stopped};

/// How long a loader may take, by this computer's clock, until all its threads wait again.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long, by its own clock, a loader may take to notice that its scheduler has ended: it looks once a second or so.
const NOTICED_WITHIN_NS: u64 = 3_000_000_000;

/// How long is waited for a call before threads are looked at.
const LOOK: Duration = Duration::from_micros(20);

/// A loader that has attached its scheduler and waits to go on. It ends with this.
pub struct Live {
    server: Server,
    /// The call that attached, until it is answered, and what it attached.
    attaching: Option<(Call, Arc<Object>)>,
    /// Its scheduler was ended, and it is asked to attach it again.
    is_asked: bool,
    /// Nothing more comes of it.
    is_over: bool,
}

/// A scheduler with the loader that belongs to it.
pub struct Attached {
    /// What it has loaded.
    pub capture: Capture,
    /// The kernel that it has loaded it into.
    pub host: Box<Host>,
    /// The loader.
    pub loader: Live,
    /// What it prints.
    pub output: Rc<RefCell<Output>>,
}

/// Starts a loader, has this process sealed by `seal`, which no call of the loader is answered before, and keeps the loader when it attaches its
/// scheduler.
///
/// # Errors
/// As [`capture`](crate::capture), and when this process cannot be sealed.
pub fn start(request: &CaptureRequest<'_>, seal: impl FnOnce() -> io::Result<()>) -> Result<Attached, LoaderError> {
    let (server, host, stopped) = crate::capture::begin(request, seal)?;
    match stopped {
        Stopped::Attached(call, capture) => {
            let output = Rc::clone(&server.output);
            let loader =
                Live { server, attaching: Some((call, Arc::clone(&capture.object))), is_asked: false, is_over: false };
            Ok(Attached { capture: *capture, host, loader, output })
        }
        other => Err(server.refuse(request, &other)),
    }
}

impl UserSpace for Live {
    fn go_on(&mut self, host: &mut Host, moment: &Moment) -> Result<Option<u64>, String> {
        if let Some((call, object)) = self.attaching.take() {
            self.server.answer_attached(&call, object);
        }
        self.server.advance(moment);
        let rested = self.until_rest(host);
        let rested = match rested {
            Ok(()) if self.is_asked => Ok(()),
            Ok(()) if self.server.is_detached() => Err("it has detached its scheduler".to_owned()),
            rested => rested,
        };
        match rested {
            Ok(()) => Ok(self.server.next_ns()),
            Err(error) => {
                self.is_over = true;
                Err(format!("the loader: {error}; it said last: {}", self.server.output.borrow_mut().last_words()))
            }
        }
    }

    fn ended(&mut self, host: &mut Host, moment: &Moment) {
        if self.is_over {
            return;
        }
        if let Some((call, object)) = self.attaching.take() {
            self.server.answer_attached(&call, object);
        }
        self.server.end_scheduler();
        let mut moment = moment.clone();
        let until_ns = moment.now_ns + NOTICED_WITHIN_NS;
        self.server.advance(&moment);
        while self.until_rest(host).is_ok()
            && let Some(next_ns) = self.server.next_ns().filter(|next_ns| *next_ns <= until_ns)
        {
            moment.now_ns = next_ns;
            self.server.advance(&moment);
        }
    }

    fn asked_for_restart(&mut self) {
        self.server.end_scheduler();
        self.is_asked = true;
    }

    fn attached_again(&mut self) -> Option<Arc<Object>> {
        let (call, capture) = self.server.attached_again()?;
        self.is_asked = false;
        self.attaching = Some((call, Arc::clone(&capture.object)));
        Some(capture.object)
    }
}

impl Live {
    /// Answers it until all its threads wait.
    fn until_rest(&mut self, host: &mut Host) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        loop {
            if self.server.one(host, LOOK)? {
                continue;
            }
            if self.server.rests(host) {
                return Ok(());
            }
            if Instant::now() > until {
                let seconds = PATIENCE.as_secs();
                return Err(format!("it has not come to rest within {seconds} s of this computer's time"));
            }
        }
    }
}
