//! The pages of a CPU, from wherever they lie in the file.

use std::borrow::Cow;

use super::FORMAT;
use super::sections::{Buffer, Parts, chunk};
use crate::bytes::Bytes;
use crate::error::CaptureError;

/// Where the pages of a CPU lie that are not packed.
pub(super) struct Extent {
    /// Where in the file they begin.
    pub start: u64,
    /// Bytes that are there.
    pub length: u64,
    /// Bytes of the file that should be there and are not.
    pub missing: u64,
}

/// Pages of a CPU, one after the other.
pub(super) struct CpuPages<'a> {
    pub bytes: Cow<'a, [u8]>,
    /// Where in the file they begin, packed or not.
    pub origin: usize,
    /// Bytes of the file that should be there and are not.
    pub missing: u64,
}

impl Parts {
    /// Where the pages of a CPU lie in a file of so many bytes that does not pack them.
    pub(super) fn extent(
        &mut self,
        size: u64,
        buffer: &Buffer,
        (offset, length): (u64, u64),
    ) -> Result<Extent, CaptureError> {
        // Whatever the table says, there is no more than the file has.
        let start = offset.min(size);
        let end = offset.saturating_add(length);
        let missing = end.saturating_sub(size).min(length);
        let there = end.min(size).max(start) - start;
        self.pages_left = self.pages_left.checked_sub(there).ok_or_else(|| {
            Bytes::within(FORMAT, &[], start as usize).damaged("the pages of CPUs lie in each other's place")
        })?;
        let page = buffer.page_bytes as u64;
        let length = if missing > 0 { there / page * page } else { there };
        Ok(Extent { start, length, missing })
    }

    /// Pages of a CPU.
    pub(super) fn pages<'a>(
        &mut self,
        file: &'a [u8],
        buffer: &Buffer,
        (offset, length): (u64, u64),
    ) -> Result<CpuPages<'a>, CaptureError> {
        let size = file.len() as u64;
        if !buffer.packed {
            let Extent { start, length, missing } = self.extent(size, buffer, (offset, length))?;
            let bytes = &file[start as usize..][..length as usize];
            return Ok(CpuPages { bytes: bytes.into(), origin: start as usize, missing });
        }
        let start = offset.min(size) as usize;
        let end = offset.saturating_add(length);
        // The length does not count the number of chunks, four bytes, before them.
        let missing = end.saturating_add(4).saturating_sub(size);
        let mut pages = CpuPages { bytes: Cow::default(), origin: start, missing: 0 };
        let mut at = Bytes::within(FORMAT, &file[start..], start);
        let chunks = match at.u32("the number of chunks") {
            Ok(chunks) => chunks,
            Err(_) if length == 0 => 0,
            Err(error) if missing == 0 => return Err(error),
            Err(_) => return Ok(CpuPages { missing, ..pages }),
        };
        for _ in 0..chunks {
            match chunk(&mut at, self.packing, &mut self.room) {
                Ok(more) => pages.bytes.to_mut().extend(more),
                Err(error) if missing == 0 => return Err(error),
                // The chunk at which the file ends.
                Err(_) => return Ok(CpuPages { missing, ..pages }),
            }
        }
        Ok(pages)
    }
}
