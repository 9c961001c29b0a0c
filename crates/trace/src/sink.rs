//! Small sinks: nothing, two at once, by reference.

use std::io;

use crate::{Event, Sink};

/// Takes events and forgets them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    fn events(&mut self, _batch: &[Event]) -> io::Result<()> {
        Ok(())
    }
}

/// Hands every batch to two sinks, such as a store and the counters. Nest it for more.
#[derive(Clone, Debug, Default)]
pub struct Tee<A, B> {
    /// Served first.
    pub first: A,
    /// Served second.
    pub second: B,
}

impl<A: Sink, B: Sink> Tee<A, B> {
    /// A sink that serves both.
    pub fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: Sink, B: Sink> Sink for Tee<A, B> {
    /// Both sinks get the batch even when the first fails, so that they always hold the same events.
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        let first = self.first.events(batch);
        let second = self.second.events(batch);
        first.and(second)
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        (**self).events(batch)
    }
}

/// Nothing if there is no sink.
impl<S: Sink> Sink for Option<S> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        self.as_mut().map_or(Ok(()), |sink| sink.events(batch))
    }
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        (**self).events(batch)
    }
}

/// Keeps every event in memory: for tests and short traces.
impl Sink for Vec<Event> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        self.extend_from_slice(batch);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventKind, TaskId};
    use warmcore_topology::CpuId;

    struct Full;

    impl Sink for Full {
        fn events(&mut self, _batch: &[Event]) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    const EXIT: Event = Event { time_ns: 7, cpu: CpuId(1), kind: EventKind::Exit { task: TaskId(0) } };

    #[test]
    fn both_sinks_of_a_tee_get_every_batch_even_if_one_fails() {
        let mut tee = Tee::new(Vec::new(), Vec::new());
        tee.events(&[EXIT, EXIT]).unwrap();
        assert_eq!((tee.first.len(), tee.second.len()), (2, 2));

        let mut kept: Vec<Event> = Vec::new();
        let error = Tee::new(Full, &mut kept).events(&[EXIT]).unwrap_err();
        assert_eq!((error.kind(), kept.len()), (io::ErrorKind::StorageFull, 1));
        let error = Tee::new(NullSink, Box::new(Full) as Box<dyn Sink>).events(&[EXIT]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
