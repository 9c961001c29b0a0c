//! Generators' flags and schedulers' settings as typed on the command line.
use warmcore_schedulers::SchedulerSpec;
use warmcore_workload::{from_generator, parse_duration};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = from_generator(text);
    let _ = parse_duration(text);
    if let Ok(spec) = SchedulerSpec::parse(text) {
        assert_eq!(SchedulerSpec::parse(&spec.to_string()), Ok(spec));
    }
}
