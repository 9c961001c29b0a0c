//! Accounts of scheduling as kernels and `perf` print them, and as `perf` records them.

use warmcore_capture::perf_data;
use warmcore_trace::schedstat::Schedstat;

pub(crate) fn run(bytes: &[u8]) {
    let read = match perf_data::is_one(bytes) {
        true => perf_data::schedstat(bytes).ok(),
        false => std::str::from_utf8(bytes).ok().and_then(|text| Schedstat::parse(text).ok()),
    };
    let Some(read) = read else { return };
    // What an older version does not have is written as 0, and so stays the same from the first writing on.
    let written = read.to_string();
    assert_eq!(Schedstat::parse(&written).map(|read| read.to_string()).as_ref(), Ok(&written));
    assert_eq!(read.since(&read).totals(), [0; 9]);
    assert!(read.since(&read).by_level().iter().all(|(_, values)| values.iter().flatten().all(|value| *value == 0)));
}
