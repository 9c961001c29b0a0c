//! Generators' flags and schedulers' settings as typed on the command line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warmcore_schedulers::SchedulerSpec;
use warmcore_workload::{from_generator, parse_duration};

fuzz_target!(|text: &str| {
    let _ = from_generator(text);
    let _ = parse_duration(text);
    if let Ok(spec) = SchedulerSpec::parse(text) {
        assert_eq!(SchedulerSpec::parse(&spec.to_string()), Ok(spec));
    }
});
