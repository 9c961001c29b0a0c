//! Address traces in all formats: what is read can be written and read back, and replayed.
use warmcore_memory::exact::address_trace::{Record, TraceError, TraceReader, to_binary, to_text};
use warmcore_memory::exact::{Options, Replay};

fn read(bytes: &[u8]) -> Result<Vec<Record>, TraceError> {
    let mut reader = TraceReader::new(bytes, true)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    // After the end there is nothing.
    assert!(matches!(reader.next_record(), Ok(None)));
    Ok(records)
}

pub(crate) fn run(bytes: &[u8]) {
    let Ok(records) = read(bytes) else { return };
    assert_eq!(read(&to_binary(&records)).ok().as_ref(), Some(&records));
    assert_eq!(read(to_text(&records).as_bytes()).ok().as_ref(), Some(&records));
    let machine = warmcore_topology::resolve("2s1n1l2c1t").expect("a short form");
    let cpus: Vec<_> = machine.cpus().collect();
    let mut replay = Replay::new(&machine, &Options::default(), &cpus, 4096).expect("a machine with assumed caches");
    for record in records.iter().take(256) {
        // A thread without a CPU is refused; nothing may panic.
        let _ = replay.access(*record);
    }
}
