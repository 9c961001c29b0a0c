//! Records of pages that come one by one, run after run.

use super::{Cast, Converted, events};
use crate::EventFormats;
use crate::instants::put_in_order;
use crate::pages::PageLayout;
use crate::record::{EventReaders, NOT_RECORDED, NOT_RECORDED_NAME, Record};
use crate::recording::{LatestNames, Loss, Recording};

/// Collects the pages of a run.
pub struct Decoder {
    layout: PageLayout,
    readers: EventReaders,
    records: Vec<Record>,
    names: LatestNames,
    lost: Vec<Loss>,
}

impl Decoder {
    /// A decoder for events of these descriptions.
    ///
    /// # Errors
    /// When a description cannot be read or lacks a field.
    pub fn new(formats: &EventFormats) -> Result<Self, String> {
        let readers = EventReaders::new(formats.events.iter().map(|(_, text)| text.as_str()))?;
        Ok(Self {
            layout: PageLayout::parse(&formats.header_page)?,
            readers,
            records: Vec::new(),
            names: LatestNames::default(),
            lost: Vec::new(),
        })
    }

    /// Takes a page of a CPU.
    ///
    /// # Errors
    /// When it contradicts itself.
    pub fn page(&mut self, cpu: u32, page: &[u8]) -> Result<(), String> {
        let (readers, records, names) = (&self.readers, &mut self.records, &mut self.names);
        let (mut first, mut broken) = (None, Ok(()));
        self.layout.records(page, |time, bytes| {
            first.get_or_insert(time);
            match readers.read(time, cpu, bytes) {
                Ok(record) => {
                    records.extend(record);
                    readers.names(bytes, |thread, name| names.take(time, thread, name));
                }
                Err(reason) => broken = Err(reason),
            }
        })?;
        if self.layout.missed(page).is_some() {
            self.lost.push(Loss { cpu: Some(cpu), before_ns: first, events: None });
        }
        broken
    }

    /// A thread's name, as the last record told it.
    pub fn name(&self, thread: i32) -> Option<&str> {
        if thread == NOT_RECORDED { Some(NOT_RECORDED_NAME) } else { self.names.of(thread) }
    }

    /// All records as events, and a decoder for the next run.
    ///
    /// # Errors
    /// A CPU that the machine does not have.
    pub fn finish(&mut self, cast: &Cast<'_>) -> Result<Converted, String> {
        let (mut records, lost) = (std::mem::take(&mut self.records), std::mem::take(&mut self.lost));
        if !lost.is_empty() {
            return events(&Recording { records, lost, ..Recording::default() }.finished(), cast);
        }
        // Records of one CPU are in order already.
        put_in_order(&mut records);
        events(&Recording { records, ..Recording::default() }, cast)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use warmcore_topology::CpuId;
    use warmcore_trace::TaskId;

    use super::*;
    use crate::format::tests::SWITCH;
    use crate::pages::tests::{HEADER, page};

    /// Thread 50 comes at 1010, and 51 leaves at 2000, in a page that says that records before it are missing.
    #[test]
    fn nobody_that_is_known_has_a_cpu_before_a_page_that_lacks_the_records_before_it() {
        let formats = EventFormats { header_page: HEADER.into(), events: vec![("sched_switch".into(), SWITCH.into())] };
        let mut decoder = Decoder::new(&formats).unwrap();
        let switch = |prev, state, next| [11, 316, prev, 0, 0, 0, 0, prev, 0, state, 0, next];
        let mut behind = page(2000, &switch(51, 1, 0));
        behind[11] |= 0x80;
        decoder.page(0, &page(1010, &switch(0, 0, 50))).unwrap();
        decoder.page(0, &behind).unwrap();
        let converted = decoder.finish(&Cast {
            tasks: &BTreeMap::from([(50, TaskId(0)), (51, TaskId(1))]),
            launchers: &BTreeSet::new(),
            stoppers: &[],
            restrictions: &[0, 0],
            allowed: &|_, _| true,
            bindings: &[],
            start_ns: 1000,
            elapsed_ns: 1_000_000,
            cpu: &|cpu| (cpu == 0).then_some(CpuId(0)),
        });
        let foreign = converted.unwrap().foreign;
        assert_eq!((foreign.len(), foreign[0].thread, foreign[0].run_ns()), (1, NOT_RECORDED, 990));
        assert_eq!(decoder.name(NOT_RECORDED), Some("not recorded"));
    }
}
