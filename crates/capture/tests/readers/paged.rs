//! A recording that stays in its file is the one that is read whole: whatever order the records of its CPUs are in.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use warmcore_capture::trace_dat::{Contents, open};
use warmcore_capture::{Source, Wanted, What};

use crate::common::{HEADER, Page, formats, page};
use crate::trace_dat::{read, written};

/// A record: the time since the one before on its CPU, what it is, and two threads.
type Drawn = (u32, u8, i32, i32);

fn contents(pages: Vec<Vec<u8>>) -> Contents {
    Contents {
        header_page: HEADER.into(),
        events: formats(),
        clock: "mono".into(),
        processes: BTreeMap::from([(1, 1)]),
        lost: vec![3; pages.len()],
        pages,
        ..Contents::default()
    }
}

/// Pages of a CPU with so many records each, of which `back` begin that much before the end of the page before them.
fn pages(cpu: u32, records: &[Drawn], each: usize, back: u64) -> Vec<u8> {
    let mut now = 10_000;
    let mut pages = Vec::new();
    for (number, records) in records.chunks(each).enumerate() {
        now -= if number % 3 == 2 { back } else { 0 };
        let mut made = Page::at(now);
        if number % 4 == 1 {
            made = made.missed(2);
        }
        for (delta, what, one, other) in records {
            now += u64::from(*delta);
            made = match what {
                0 | 1 => made.switch(*delta, *one, i64::from(*other) % 3, *other),
                2 => made.waking(*delta, *one, *other, cpu),
                3 => made.wakeup(*delta, *one, *other, 1),
                4 => made.migrate(*delta, *one, *other, cpu, 0),
                5 => made.birth(*delta, *one, 7 + *other, i64::from(*other % 2) << 16),
                6 => made.add(*delta, "sched_process_fork", *one, &[i64::from(*one), i64::from(*other) + 7]),
                _ => made.exit(*delta, *one),
            };
        }
        pages.extend(page(&made));
    }
    pages
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn records_are_merged_as_a_sort_of_all_would_order_them(
        cpus in prop::collection::vec(prop::collection::vec((0_u32..30, 0_u8..8, 0_i32..6, 0_i32..6), 0..90), 1..6),
        each in 1_usize..30,
        back in prop_oneof![3 => Just(0_u64), 1 => 1_u64..60],
        cut in prop_oneof![3 => Just(0_usize), 1 => 1_usize..9000],
    ) {
        let all: Vec<Vec<u8>> = (0..).zip(&cpus).map(|(cpu, records)| pages(cpu, records, each, back)).collect();
        let in_pages: usize = all.iter().map(Vec::len).sum();
        let mut file = written(&contents(all));
        file.truncate(file.len() - cut.min(in_pages));
        let whole = read(&file).unwrap();
        let open = open(Arc::new(file)).unwrap();
        let forks = |record: &warmcore_capture::Record| matches!(record.what, What::Fork { .. });
        // Of one instant what they made possible decides about their order, if it is read, too.
        let forks_of = |records: warmcore_capture::paged::InOrder<'_>| {
            let mut found: Vec<_> = records.filter(forks).collect();
            found.sort_by_key(|record| (record.time_ns, record.cpu));
            found
        };
        prop_assert_eq!(forks_of(open.in_order_of(Wanted::Forks)), forks_of(whole.in_order()));
        if back == 0 {
            prop_assert!(open.pages.is_some(), "records that are in order stay where they are");
        }
    }
}

/// A file that counts what is read of it, and gives no more than so many bytes in all.
#[derive(Debug)]
struct Counting {
    bytes: Vec<u8>,
    read: AtomicU64,
    most: AtomicU64,
}

impl Source for Counting {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read_at(at, bytes)?;
        let read = self.read.fetch_add(count as u64, Ordering::Relaxed) + count as u64;
        if read > self.most.load(Ordering::Relaxed) { Err(io::Error::other("the disk is gone")) } else { Ok(count) }
    }
}

#[test]
fn each_look_at_the_records_reads_the_pages_once_and_a_file_that_fails_then_is_known() {
    let records: Vec<Drawn> =
        (0..4000).map(|number| (5, 2 + (number % 3) as u8, 1 + number % 5, 2 + number % 3)).collect();
    let all: Vec<Vec<u8>> = (0..3).map(|cpu| pages(cpu, &records, 20, 0)).collect();
    let in_pages: u64 = all.iter().map(|pages| pages.len() as u64).sum();
    let bytes = written(&contents(all));
    let file = Arc::new(Counting { bytes, read: AtomicU64::new(0), most: AtomicU64::new(u64::MAX) });
    let recording = open(Arc::clone(&file) as Arc<dyn Source>).unwrap();
    assert_eq!((recording.records.len(), recording.record_count()), (0, 12_000));
    let before = file.read.load(Ordering::Relaxed);
    // Switches are put in where records are missing; none is recorded.
    let recorded = || recording.in_order().filter(|record| !matches!(record.what, What::Switch { .. })).count();
    assert_eq!(recorded(), 12_000);
    assert_eq!(file.read.load(Ordering::Relaxed) - before, in_pages);
    let pages = recording.pages.as_ref().unwrap();
    assert_eq!(pages.fault(), None);
    file.most.store(file.read.load(Ordering::Relaxed) + in_pages / 2, Ordering::Relaxed);
    assert!(recorded() < 12_000);
    assert!(pages.fault().is_some_and(|fault| fault.contains("the disk is gone")), "{:?}", pages.fault());
}
