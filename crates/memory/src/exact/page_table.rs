//! Page tables of four levels, whose tables and pages take frames of memory when they are first needed.
//!
//! The tables of an x86-64 processor: 512 entries of 8 bytes each, one frame for each table. Who has frames to give, and what a walk
//! costs, is the caller's affair: the exact level sends a walk's reads through the caches (`super::paging`), the paper's machine charges
//! a fixed time for each attempt (`docs/spec/cdf-dio.md` sections 1 and 2).

/// Levels of tables: a walk reads one entry of each.
pub const LEVELS: usize = 4;
pub(crate) const TABLE_ENTRIES: u64 = 512;
/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = 8;

/// Bits of a page's number that choose an entry.
const INDEX_BITS: u32 = TABLE_ENTRIES.trailing_zeros();
/// Nothing is there yet.
const NONE: u32 = u32::MAX;

/// What a walk finds missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// A table below the root.
    Table,
    /// The page itself.
    Page,
}

/// A way through the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    /// The page's frame.
    pub frame: u32,
    /// The frame of each table on the way, from the root on, and the number of the entry read in it.
    pub entries: [(u32, u32); LEVELS],
    /// Levels that were missing: 0 to 4. The entries that lead there, the last ones of `entries`, have been written.
    pub missing: usize,
}

#[derive(Clone, Debug)]
struct Table {
    frame: u32,
    /// Of upper levels the places of tables, of the lowest the frames of pages.
    entries: Box<[u32; TABLE_ENTRIES as usize]>,
}

impl Table {
    fn new(frame: u32) -> Self {
        Self { frame, entries: Box::new([NONE; TABLE_ENTRIES as usize]) }
    }
}

/// The page table of an address space.
#[derive(Clone, Debug)]
pub struct PageTable {
    /// The root first.
    tables: Vec<Table>,
}

impl PageTable {
    /// A table without pages, whose root is in this frame.
    pub fn new(root: u32) -> Self {
        Self { tables: vec![Table::new(root)] }
    }

    /// The way to a page. What is missing on it gets a frame from `frame`, from the root on and the page last. Numbers of pages are below
    /// 2^36; higher bits are of no account.
    ///
    /// # Errors
    /// What `frame` says; what had a frame before keeps it.
    pub fn walk<E>(&mut self, page: u64, mut frame: impl FnMut(Missing) -> Result<u32, E>) -> Result<Walk, E> {
        let mut walk = Walk { frame: NONE, entries: [(NONE, 0); LEVELS], missing: 0 };
        let mut table = 0;
        for (level, entry) in walk.entries.iter_mut().enumerate() {
            let shift = INDEX_BITS * (LEVELS - 1 - level) as u32;
            let index = (page >> shift & (TABLE_ENTRIES - 1)) as usize;
            *entry = (self.tables[table].frame, index as u32);
            let mut next = self.tables[table].entries[index];
            let last = level == LEVELS - 1;
            if next == NONE {
                next = frame(if last { Missing::Page } else { Missing::Table })?;
                walk.missing += 1;
                if !last {
                    self.tables.push(Table::new(next));
                    next = self.tables.len() as u32 - 1;
                }
                self.tables[table].entries[index] = next;
            }
            if last {
                walk.frame = next;
            } else {
                table = next as usize;
            }
        }
        Ok(walk)
    }

    /// The frame of a page, if it has one.
    pub fn frame(&self, page: u64) -> Option<u32> {
        self.leaf(page).map(|(table, index)| self.tables[table].entries[index]).filter(|frame| *frame != NONE)
    }

    /// Takes a page's frame away; the tables stay.
    pub(crate) fn unmap(&mut self, page: u64) {
        if let Some((table, index)) = self.leaf(page) {
            self.tables[table].entries[index] = NONE;
        }
    }

    /// The frames of the tables themselves, the root's first.
    pub(crate) fn table_frames(&self) -> impl Iterator<Item = u32> + '_ {
        self.tables.iter().map(|table| table.frame)
    }

    /// The lowest table of a page, and the page's entry in it.
    fn leaf(&self, page: u64) -> Option<(usize, usize)> {
        let index = |level: u32| (page >> (INDEX_BITS * level) & (TABLE_ENTRIES - 1)) as usize;
        let mut table = 0;
        for level in (1..LEVELS as u32).rev() {
            let next = self.tables[table].entries[index(level)];
            if next == NONE {
                return None;
            }
            table = next as usize;
        }
        Some((table, index(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames in order.
    fn counter(next: &mut u32) -> impl FnMut(Missing) -> Result<u32, &'static str> + '_ {
        |_| {
            *next += 1;
            if *next > 100 { Err("full") } else { Ok(*next - 1) }
        }
    }

    #[test]
    fn a_first_walk_takes_four_frames_a_neighbour_one_and_a_known_page_none() {
        let (mut table, mut next) = (PageTable::new(1000), 0);
        let first = table.walk(0x4_0000, counter(&mut next)).unwrap();
        assert_eq!((first.frame, first.missing, next), (3, 4, 4));
        assert_eq!(first.entries, [(1000, 0), (0, 1), (1, 0), (2, 0)]);
        let neighbour = table.walk(0x4_0001, counter(&mut next)).unwrap();
        assert_eq!((neighbour.frame, neighbour.missing, neighbour.entries[3]), (4, 1, (2, 1)));
        assert_eq!(table.walk(0x4_0000, counter(&mut next)).unwrap(), Walk { missing: 0, ..first });
        // Another lowest table.
        assert_eq!(table.walk(0x4_0200, counter(&mut next)).unwrap().missing, 2);
        assert_eq!(table.table_frames().collect::<Vec<_>>(), [1000, 0, 1, 2, 5]);
    }

    #[test]
    fn a_page_that_was_taken_away_is_missing_and_its_tables_are_not() {
        let (mut table, mut next) = (PageTable::new(1000), 0);
        table.walk(7, counter(&mut next)).unwrap();
        assert_eq!((table.frame(7), table.frame(8), table.frame(1 << 30)), (Some(3), None, None));
        table.unmap(7);
        table.unmap(1 << 30);
        assert_eq!(table.frame(7), None);
        assert_eq!(table.walk(7, counter(&mut next)).unwrap().missing, 1);
    }

    #[test]
    fn where_frames_have_run_out_a_walk_says_so_and_a_later_one_goes_on() {
        let (mut table, mut next) = (PageTable::new(1000), 98);
        assert_eq!(table.walk(7, counter(&mut next)), Err("full"));
        next = 10;
        let walk = table.walk(7, counter(&mut next)).unwrap();
        assert_eq!((walk.missing, walk.entries[1].0, walk.frame), (2, 98, 11));
    }
}
