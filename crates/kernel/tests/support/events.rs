//! A sink that keeps all events.

use warmcore_trace::{Event, Sink};

#[derive(Default)]
pub struct Events(pub Vec<Event>);

impl Sink for Events {
    fn events(&mut self, batch: &[Event]) -> std::io::Result<()> {
        self.0.extend_from_slice(batch);
        Ok(())
    }
}
