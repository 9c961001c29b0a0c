//! Work that Python waits for: without its lock, with an eye on signals, and telling how far it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::failure::Trouble;

/// How often signals are looked at.
const EVERY: Duration = Duration::from_millis(20);
/// Stack of the thread that works: as much as a program's first thread has.
const STACK: usize = 8 << 20;

/// What the work and who waits for it know of each other.
#[derive(Default)]
pub struct Watch {
    /// Set if a signal or an exception of the caller's asks to stop.
    pub stop: Arc<AtomicBool>,
    /// Simulations in all, once that is known.
    pub total: AtomicUsize,
    finished: AtomicUsize,
}

impl Watch {
    /// A simulation has ended.
    pub fn one_more(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `progress(finished, total)` if that is news.
    fn tell(&self, py: Python<'_>, progress: Option<&Py<PyAny>>, told: &mut Option<(usize, usize)>) -> PyResult<()> {
        let now = (self.finished.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        if let Some(progress) = progress.filter(|_| now.1 > 0 && *told != Some(now)) {
            *told = Some(now);
            progress.call1(py, now)?;
        }
        Ok(())
    }
}

/// Does the work in a thread of its own. Meanwhile other threads of Python run, and Ctrl-C ends it.
///
/// # Errors
/// What the work says; `KeyboardInterrupt` and what `progress` raises before that.
pub fn attended<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&Watch) -> Result<T, Trouble> + Send,
) -> PyResult<T> {
    let watch = Watch::default();
    let (ends, mut ended) = mpsc::channel();
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("warmcore".into()).stack_size(STACK);
        let seen = &watch;
        let worker = builder.spawn_scoped(scope, move || {
            let result = work(seen);
            // Who waits also learns from the closed channel.
            let _ = ends.send(());
            result
        })?;
        let (mut told, mut raised) = (None, None);
        loop {
            let ended = &mut ended;
            let wait = py.detach(move || ended.recv_timeout(EVERY));
            if raised.is_none()
                && let Err(error) = py.check_signals().and_then(|()| watch.tell(py, progress, &mut told))
            {
                watch.stop.store(true, Ordering::SeqCst);
                raised = Some(error);
            }
            if wait != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        let result = worker.join().map_err(|_| PyRuntimeError::new_err("a fault of warmcore: its thread panicked"))?;
        match raised {
            Some(error) => Err(error),
            None => Ok(result?),
        }
    })
}
