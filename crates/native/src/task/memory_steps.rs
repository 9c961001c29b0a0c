//! Steps that use memory: touching a region, following a chain through it, writing it to a device.

use rustix::io::Errno;

use super::{ExitCause, ThreadInterpreter};
use crate::chain::Chain;
use crate::channel::Failed;
use crate::clock::thread_cpu_ns;
use crate::preemption::Watch;
use crate::spin::{Meter, pause};
use crate::sys::{FreshMemory, PAGE_BYTES};

/// Largest region that memory steps touch.
const LARGEST_REGION: u64 = 256 << 20;
/// Distance of the bytes that memory steps touch: one per cache line.
const LINE: usize = 64;
/// Lines that are touched between two looks at the time and at whether the run has ended, each with a pause; and a guess of how many in a
/// millisecond.
const LINES_BETWEEN_CHECKS: u64 = 4_096;
const LINES_PER_MS: u64 = 500_000;
/// Size of a write of `iorun`: rt-app's default buffer.
const IO_BYTES: usize = 4 << 20;
/// Bytes that [`Step::FirstTouch`](warmcore_workload::Step::FirstTouch) touches before it gives them back.
const FIRST_TOUCH_PIECE: u64 = 4 << 20;
/// Dependent loads between two looks at whether the run has ended, each with a pause.
const HOPS_BETWEEN_CHECKS: u64 = 4_096;

impl ThreadInterpreter<'_> {
    /// Writes to one byte of each cache line, going round the region.
    pub(super) fn touch(&mut self, bytes: u64, region_bytes: u64) -> Result<(), ExitCause> {
        if region_bytes > LARGEST_REGION {
            self.shared.warn("memory regions above 256 MiB", "only 256 MiB are touched");
        }
        let size = region_bytes.clamp(1, LARGEST_REGION) as usize;
        if self.region.len() < size {
            self.region.resize(size, 0);
        }
        // By the thread's clock only where nothing else tells: see `Calibration::use_cpu`.
        let mut meter = Watch::of_this_thread().map(|watch| Meter::new(watch, LINES_PER_MS));
        let start_ns = if meter.is_some() { 0 } else { thread_cpu_ns() };
        let (mut lines, mut next, mut used_ns) = (bytes.div_ceil(LINE as u64), 0, 0);
        while lines > 0 {
            let region = &mut self.region[next..size];
            let some = (region.len().div_ceil(LINE) as u64).min(lines).min(LINES_BETWEEN_CHECKS);
            for byte in region.iter_mut().step_by(LINE).take(some as usize) {
                *byte = byte.wrapping_add(1);
            }
            lines -= some;
            next += some as usize * LINE;
            if next >= size {
                next = 0;
            }
            pause();
            used_ns += meter.as_mut().map_or(0, |meter| meter.lap(some));
            self.shared.stop.check()?;
        }
        std::hint::black_box(&mut self.region);
        self.memory_credit_ns = if meter.is_some() { used_ns } else { thread_cpu_ns() - start_ns };
        Ok(())
    }

    /// Follows a chain of dependent loads through a region of so many bytes, from where the last one ended. The first of a size
    /// lays it out, which takes time of its own.
    pub(super) fn chase(&mut self, hops: u64, region_bytes: u64) -> Result<(), ExitCause> {
        if region_bytes > LARGEST_REGION {
            self.shared.warn("memory regions above 256 MiB", "only 256 MiB are touched");
        }
        let chain = Chain::of(&mut self.chains, region_bytes.min(LARGEST_REGION) as usize);
        let mut left = hops;
        while left > 0 {
            let now = left.min(HOPS_BETWEEN_CHECKS);
            chain.follow(now);
            left -= now;
            pause();
            self.shared.stop.check()?;
        }
        Ok(())
    }

    /// Touches so many bytes of new memory, the last page whole, and pauses after each page, with a look at whether the run has ended: as in the
    /// simulated step (`first_touch_step` in `crates/kernel/src/kernel_mode.rs`) others get their turn page by page. Only giving back, which the
    /// simulated step spreads over the pages, is one call for each piece.
    pub(super) fn first_touch(&mut self, bytes: u64) -> Result<(), ExitCause> {
        let failed = |call: &'static str| {
            move |error: std::io::Error| Failed::Call(call, Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))
        };
        let mut left = bytes;
        while left > 0 {
            let now = left.min(FIRST_TOUCH_PIECE);
            let mut memory = match self.fresh.take() {
                Some(memory) => memory,
                None => FreshMemory::new(FIRST_TOUCH_PIECE as usize)
                    .map_err(failed("mmap"))
                    .map_err(|why| self.failed(why))?,
            };
            let pages = (now as usize).div_ceil(PAGE_BYTES);
            for page in 0..pages {
                memory.touch_page(page);
                self.shared.stop.check()?;
            }
            memory.give_back(pages).map_err(failed("madvise")).map_err(|why| self.failed(why))?;
            self.fresh = Some(memory);
            left -= now;
        }
        Ok(())
    }

    /// Maps so many bytes, touches each page, with a pause and a look at whether the run has ended, and unmaps them.
    pub(super) fn map(&mut self, bytes: u64) -> Result<(), ExitCause> {
        let mut memory = FreshMemory::block(bytes as usize)
            .map_err(|error| self.failed(Failed::Call("mmap", Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))))?;
        for page in 0..(bytes as usize).div_ceil(PAGE_BYTES) {
            memory.touch_page(page);
            self.shared.stop.check()?;
        }
        Ok(())
    }

    pub(super) fn write_to_null(&mut self, bytes: u64) -> Result<(), ExitCause> {
        use rustix::fs::{Mode, OFlags, open};
        if self.null_device.is_none() {
            let device = open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
            self.null_device = Some(device.map_err(|error| self.failed(Failed::Call("open /dev/null", error)))?);
        }
        if self.region.len() < IO_BYTES {
            self.region.resize(IO_BYTES, 0);
        }
        let mut left = bytes;
        while let (Some(device), true) = (&self.null_device, left > 0) {
            let size = left.min(IO_BYTES as u64) as usize;
            match rustix::io::write(device, &self.region[..size]) {
                Ok(written) => left = left.saturating_sub(written as u64),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed(Failed::Call("write to /dev/null", error))),
            }
            self.shared.stop.check()?;
        }
        Ok(())
    }
}
