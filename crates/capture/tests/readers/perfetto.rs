//! Perfetto's traces: plain, compact and packed events, losses, names, processes, damaged files.

use std::io::Write;

use warmcore_capture::perfetto::read;
use warmcore_capture::{CaptureError, Context, Loss, Recording, What};
use warmcore_trace::PrevState;

/// A field with a number.
fn number(field: u32, value: u64) -> Vec<u8> {
    [varint(u64::from(field) << 3), varint(value)].concat()
}

/// A field with a message, a text or packed numbers.
fn bytes(field: u32, value: &[u8]) -> Vec<u8> {
    [&varint(u64::from(field) << 3 | 2)[..], &varint(value.len() as u64), value].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn packed(field: u32, values: &[u64]) -> Vec<u8> {
    bytes(field, &values.iter().flat_map(|value| varint(*value)).collect::<Vec<_>>())
}

fn event(time: u64, by: u64, kind: u32, fields: &[Vec<u8>]) -> Vec<u8> {
    bytes(2, &[number(1, time), number(2, by), bytes(kind, &fields.concat())].concat())
}

fn packet(field: u32, fields: &[Vec<u8>]) -> Vec<u8> {
    bytes(1, &bytes(field, &fields.concat()))
}

/// A bundle in the plain form, and one of another CPU in the compact form, with a gap before it.
fn bundles() -> Vec<Vec<u8>> {
    let plain = packet(
        1,
        &[
            number(1, 0),
            event(1000, 50, 20, &[bytes(1, b"helper"), number(2, 51), number(5, 1)]),
            event(1005, 50, 114, &[number(2, 52), number(5, 1)]),
            event(1004, 50, 235, &[number(1, 52), bytes(2, b"new"), number(3, 0x3d_0f00)]),
            event(1020, 50, 4, &[bytes(1, b"worker"), number(2, 50), number(4, 0x100), bytes(5, b"swapper/0")]),
            event(1021, 0, 491, &[number(2, 50), number(4, 0), number(5, 1)]),
            event(1022, 0, 13, &[number(1, 1)]),
            event(1030, 52, 238, &[bytes(1, b"new"), number(2, 52), number(3, 50)]),
            event(1031, 51, 237, &[bytes(1, b"/bin/x"), number(2, 51), number(3, 51)]),
            event(1032, 51, 345, &[number(1, 3), number(2, 0xffff_0000), number(3, 237), number(4, 142)]),
        ],
    );
    let compact = bytes(
        4,
        &[
            packed(1, &[1010, 5, 10]),
            packed(2, &[0, 0, 1]),
            packed(3, &[0, 51, 50]),
            packed(6, &[0, 1, 2]),
            bytes(5, b"swapper/1"),
            bytes(5, b"helper"),
            bytes(5, b"worker"),
            packed(7, &[1015, 3]),
            packed(8, &[50, 50]),
            packed(9, &[0, 1]),
            packed(12, &[0, 0x08]),
        ]
        .concat(),
    );
    vec![plain, packet(1, &[number(1, 1), number(3, 1), compact])]
}

fn tree() -> Vec<u8> {
    let process = bytes(1, &[number(1, 50), number(2, 1), bytes(3, b"/usr/bin/server"), bytes(3, b"-x")].concat());
    let thread = bytes(2, &[number(1, 51), bytes(2, b"an old name"), number(3, 50)].concat());
    packet(2, &[process, thread])
}

fn stats(phase: u64, lost: u64) -> Vec<u8> {
    packet(34, &[number(1, phase), bytes(2, &[number(1, 1), number(3, lost), number(8, 1)].concat())])
}

pub fn trace() -> Vec<u8> {
    [vec![stats(1, 2), tree()], bundles(), vec![stats(2, 9)]].concat().concat()
}

fn check(recording: &Recording) {
    assert_eq!(recording.source, "Perfetto trace");
    assert_eq!((recording.clock.as_deref(), recording.cpus), (Some("boot"), 4), "CPU 3 goes offline");
    let found: Vec<_> = recording
        .records
        .iter()
        .map(|record| (record.time_ns, record.cpu, record.by, record.context, record.what))
        .collect();
    let (thread, switch) =
        (Context::Thread, |prev, state, next| What::Switch { prev, state, next, uninterruptible: false });
    assert_eq!(
        found,
        [
            (1000, 0, 50, thread, What::Waking { thread: 51, target_cpu: 1 }),
            (1004, 0, 50, thread, What::Fork { parent: 50, child: 52 }),
            (1005, 0, 50, thread, What::Wakeup { thread: 52, target_cpu: 1 }),
            (1015, 1, 0, thread, switch(0, PrevState::Runnable, 51)),
            (1015, 1, 51, thread, What::Waking { thread: 50, target_cpu: 0 }),
            (1018, 1, 51, Context::HardInterrupt, What::Waking { thread: 50, target_cpu: 1 }),
            (1020, 0, 50, thread, switch(50, PrevState::Runnable, 0)),
            (1021, 0, 0, thread, What::Migrate { thread: 50, from: 0, to: 1 }),
            (1025, 1, 51, thread, switch(51, PrevState::Sleeping, 50)),
            (1030, 0, 52, thread, What::Exit { thread: 52 }),
            (1031, 0, 51, thread, What::Exec { thread: 51 }),
            (1032, 0, 51, thread, What::Hotplug { target_cpu: 3, target: 142, step: 237 }),
        ]
    );
    let names = [50, 51, 52].map(|thread: i32| recording.threads[&thread].name.as_str());
    assert_eq!(names, ["worker", "helper", "new"]);
    assert_eq!([50, 51, 52].map(|thread: i32| recording.threads[&thread].process), [Some(50); 3]);
    assert_eq!(recording.lost, [Loss { cpu: Some(1), before_ns: Some(1015), events: Some(7) }]);
}

#[test]
fn plain_and_compact_events_become_records() {
    let recording = read(&trace()).unwrap();
    check(&recording);
    assert_eq!(recording.notes.len(), 1, "{:?}", recording.notes);
    assert!(recording.notes[0].contains("interrupts"), "plain wakings have no flags");
}

#[test]
fn packed_packets_say_the_same() {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&bundles().concat()).unwrap();
    let packed = bytes(1, &bytes(50, &encoder.finish().unwrap()));
    let file = [stats(1, 2), tree(), packed, stats(2, 9)].concat();
    check(&read(&file).unwrap());
    assert_eq!(warmcore_capture::read(&file), read(&file), "the format is found by its content");
}

#[test]
fn a_bundle_that_ends_anywhere_is_a_loss_or_an_error_with_its_place() {
    let (whole, mut partly) = (trace(), 0);
    let packets = [stats(1, 2).len(), tree().len(), bundles()[0].len(), bundles()[1].len()];
    for length in 0..whole.len() {
        let between = (0..=packets.len()).any(|count| packets[..count].iter().sum::<usize>() == length);
        match read(&whole[..length]) {
            Ok(recording) => {
                assert_eq!(recording.notes.iter().any(|note| note.contains("ends early")), !between, "at {length}");
                assert!(between || recording.events_lost().1, "at {length}");
                partly += 1;
            }
            Err(CaptureError::NoSchedule { .. }) => assert!(between, "at {length}"),
            Err(error) => {
                assert!(!between && error.to_string().contains("the file ends early"), "at {length}: {error}")
            }
        }
    }
    assert!(partly > 0);
}

#[test]
fn contradictions_are_named_with_their_byte() {
    let uneven = bytes(4, &[packed(1, &[1, 2]), packed(2, &[0])].concat());
    let error = read(&packet(1, &[uneven])).unwrap_err().to_string();
    assert!(error.contains("columns") && error.contains("byte 6"), "{error}");
    let cpu = read(&packet(1, &[number(1, 1 << 40), event(1, 1, 20, &[])])).unwrap_err().to_string();
    assert!(cpu.contains("CPU 1099511627776"), "{cpu}");
    let nothing = read(&tree()).unwrap_err().to_string();
    assert!(nothing.contains("linux.ftrace"), "{nothing}");
}

#[test]
fn a_file_that_ends_before_the_first_event_of_the_scheduler_ends_early() {
    let whole = [tree(), bundles().concat()].concat();
    let cut = &whole[..tree().len() + 20];
    let error = read(cut).unwrap_err();
    assert!(matches!(error, CaptureError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("the file ends early"), "{error}");
    assert!(matches!(read(&tree()).unwrap_err(), CaptureError::NoSchedule { .. }));
}
