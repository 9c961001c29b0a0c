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

use warmcore_kernel::{SchedulerThread, ThreadStep};
use warmcore_scx::bytecode::{Course, Host, Moment, Object, UserSpace};

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

impl Attached {
    /// The [listing](Object::listing) of what it has loaded, with a text before it and files behind it, packed by zstd.
    ///
    /// # Errors
    /// When it cannot be packed.
    pub fn packed(&self, before: &str, behind: &[u8]) -> io::Result<Vec<u8>> {
        let listing = self.capture.object.listing(&self.host.maps);
        zstd::encode_all(&[before.as_bytes(), listing.as_bytes(), behind].concat()[..], zstd::DEFAULT_COMPRESSION_LEVEL)
    }
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
            let attaching = Some((call, Arc::clone(&capture.object)));
            let mut loader = Live { server, attaching, is_asked: false, is_over: false };
            // Its first thread waits in the call that attaches; which others there are is known when they wait, too. One that does not come to rest is
            // found out when the loader goes on.
            let mut host = host;
            let _ = loader.until_rest(&mut host);
            loader.server.find_threads();
            Ok(Attached { capture: *capture, host, loader, output })
        }
        other => Err(server.refuse(request, &other)),
    }
}

impl UserSpace for Live {
    fn threads(&self) -> Vec<SchedulerThread> {
        self.server.scheduling()
    }

    fn go_on(&mut self, host: &mut Host, moment: &Moment) -> Result<Course, String> {
        if let Some((call, object)) = self.attaching.take() {
            self.server.answer_attached(&call, object);
        }
        self.server.advance(moment);
        self.rest(host)?;
        if !moment.by_task {
            self.server.find_threads();
        }
        Ok(self.course(moment))
    }

    fn thread_goes_on(
        &mut self,
        host: &mut Host,
        moment: &Moment,
        thread: u32,
    ) -> Result<(ThreadStep, Course), String> {
        self.server.advance(moment);
        if let Some(owed_ns) = self.server.take_owed(thread) {
            return Ok((ThreadStep::Run(owed_ns), Course::default()));
        }
        if let Some(awake) = self.server.let_go_on(host, thread) {
            self.rest(host)?;
            self.server.has_gone_on(host, &awake);
            let owed_ns = self.server.take_owed(thread).unwrap_or(1);
            return Ok((ThreadStep::Run(owed_ns), self.course(moment)));
        }
        let step = if self.server.yields(thread) { ThreadStep::Yield } else { ThreadStep::Sleep };
        Ok((step, Course::default()))
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
    /// Answers it until all its threads wait, and sees whether it is still there.
    fn rest(&mut self, host: &mut Host) -> Result<(), String> {
        let rested = match self.until_rest(host) {
            Ok(()) if self.is_asked => Ok(()),
            Ok(()) if self.server.is_detached() => Err("it has detached its scheduler".to_owned()),
            rested => rested,
        };
        rested.map_err(|error| {
            self.is_over = true;
            format!("the loader: {error}; it said last: {}", self.server.output.borrow_mut().last_words())
        })
    }

    /// What comes of it now that it rests.
    fn course(&mut self, moment: &Moment) -> Course {
        let (runnable, changed) = match moment.by_task {
            true => (self.server.runnable(), self.server.take_changed()),
            false => (Vec::new(), Vec::new()),
        };
        Course { next_ns: self.server.next_ns(), runnable, changed }
    }

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
