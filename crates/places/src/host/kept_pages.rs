//! Pages of a recording while it is made: in memory, or in a file without a name next to what becomes of them.
//!
//! A file takes the pages in the order in which they are read, whichever CPU's they are; where those of a CPU lie is remembered, four bytes for
//! each. The kernel writes them to the disk when it likes.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use warmcore_capture::trace_dat::{self, Contents, PAGE_BYTES};

use crate::files::unnamed;

/// Whole pages of each CPU.
#[derive(Debug)]
pub enum KeptPages {
    /// One CPU's behind each other.
    Memory(Vec<Vec<u8>>),
    /// In a file.
    File {
        /// The file, which nothing else can open.
        file: File,
        /// How many it holds.
        count: u32,
        /// Of each CPU, which they are.
        of_cpu: Vec<Vec<u32>>,
    },
}

impl KeptPages {
    /// For so many CPUs, in memory.
    pub fn in_memory(cpus: usize) -> Self {
        Self::Memory(vec![Vec::new(); cpus])
    }

    /// In a file in this directory.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn in_directory(directory: &Path, cpus: usize) -> io::Result<Self> {
        Ok(Self::File { file: unnamed(directory)?, count: 0, of_cpu: vec![Vec::new(); cpus] })
    }

    /// Keeps a page of a CPU. It may be handed over shorter than it is.
    ///
    /// # Errors
    /// When the disk is full, or fails.
    pub fn keep(&mut self, cpu: usize, page: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(pages) => {
                let kept = &mut pages[cpu];
                kept.extend_from_slice(page);
                kept.resize(kept.len().next_multiple_of(PAGE_BYTES), 0);
            }
            Self::File { file, count, of_cpu } => {
                // What is not written of a page is zeros.
                file.write_all_at(page, u64::from(*count) * PAGE_BYTES as u64)?;
                of_cpu[cpu].push(*count);
                *count = count.checked_add(1).ok_or_else(|| io::Error::other("more than 2^32 pages"))?;
            }
        }
        Ok(())
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        match self {
            Self::Memory(pages) => pages.len(),
            Self::File { of_cpu, .. } => of_cpu.len(),
        }
    }

    /// Writes `trace.dat` of these pages and what else is known.
    ///
    /// # Errors
    /// As those of [`trace_dat::write`], and what the file refuses.
    pub fn write(&self, out: &mut impl Write, contents: &Contents) -> io::Result<()> {
        match self {
            Self::Memory(pages) => {
                let lengths: Vec<u64> = pages.iter().map(|pages| pages.len() as u64).collect();
                trace_dat::write_from(out, contents, &lengths, |out, cpu| out.write_all(&pages[cpu]))
            }
            Self::File { file, of_cpu, .. } => {
                let lengths: Vec<u64> = of_cpu.iter().map(|pages| (pages.len() * PAGE_BYTES) as u64).collect();
                let mut bytes = vec![0; PAGE_BYTES];
                trace_dat::write_from(out, contents, &lengths, |out, cpu| {
                    of_cpu[cpu].iter().try_for_each(|page| {
                        read_page(file, *page, &mut bytes)?;
                        out.write_all(&bytes)
                    })
                })
            }
        }
    }
}

/// The last page may end early in the file: the rest is zeros.
fn read_page(file: &File, page: u32, bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], u64::from(page) * PAGE_BYTES as u64 + filled as u64) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes[filled..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use warmcore_capture::written::{HEADER_EVENT, HEADER_PAGE, descriptions};

    #[test]
    fn pages_in_a_file_become_the_same_recording_as_pages_in_memory() {
        let directory = std::env::temp_dir().join(format!("warmcore-pages-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut both = [KeptPages::in_memory(3), KeptPages::in_directory(&directory, 3).unwrap()];
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "nothing of it is seen");
        let contents = Contents {
            header_page: HEADER_PAGE.into(),
            header_event: HEADER_EVENT.into(),
            events: descriptions(),
            clock: "mono".into(),
            ..Contents::default()
        };
        let written = both.each_mut().map(|pages| {
            for (cpu, length) in [(2, PAGE_BYTES), (0, 100), (2, 1), (0, PAGE_BYTES), (2, 5)] {
                pages.keep(cpu, &vec![length as u8 + 1; length]).unwrap();
            }
            let mut bytes = Vec::new();
            pages.write(&mut bytes, &contents).unwrap();
            bytes
        });
        fs::remove_dir(&directory).unwrap();
        assert!(written[0] == written[1] && both[1].cpus() == 3);
        assert_eq!(&written[0][written[0].len() - PAGE_BYTES..][..6], [6, 6, 6, 6, 6, 0], "short pages are filled up");
        let pages = [[101; 100].as_slice(), &[0; PAGE_BYTES - 100], &[1; PAGE_BYTES]].concat();
        assert!(written[0].windows(2 * PAGE_BYTES).any(|window| window == pages), "those of a CPU lie together");
    }
}
