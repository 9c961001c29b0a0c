//! What a guest sends: frames and their documents, and pages of its trace by the formats that it names.
use warmcore_agent::programs::Came;
use warmcore_agent::report::{
    CommandEnd, Costs, Failed, Frame, FrameKind, Hello, RunBegin, RunEnd, Sample, read_frame, write_frame,
};
use warmcore_capture::EventFormats;
use warmcore_capture::convert::Decoder;

pub(crate) fn run(bytes: &[u8]) {
    let (mut rest, mut decoder) = (bytes, None);
    while let Ok(Some(frame)) = read_frame(&mut rest) {
        let mut written = Vec::new();
        write_frame(&mut written, frame.kind, &frame.payload).expect("memory is written");
        assert_eq!(read_frame(&mut &*written).ok().flatten().as_ref(), Some(&frame));
        take(&frame, &mut decoder);
    }
}

fn take(frame: &Frame, decoder: &mut Option<Decoder>) {
    let payload = frame.payload.as_slice();
    match frame.kind {
        FrameKind::Hello => {
            if let Ok(hello) = serde_json::from_slice::<Hello>(payload) {
                let _ = warmcore_topology::from_toml(&hello.machine);
            }
        }
        FrameKind::Formats => {
            let formats = serde_json::from_slice::<EventFormats>(payload).ok();
            *decoder = formats.and_then(|formats| Decoder::new(&formats).ok());
        }
        FrameKind::TracePage => {
            if let (Some(decoder), Some((cpu, page))) = (decoder, payload.split_first_chunk::<4>()) {
                let _ = decoder.page(u32::from_le_bytes(*cpu), page);
            }
        }
        FrameKind::RunBegin => drop(serde_json::from_slice::<RunBegin>(payload)),
        FrameKind::Sample => drop(serde_json::from_slice::<Sample>(payload)),
        FrameKind::RunEnd => drop(serde_json::from_slice::<RunEnd>(payload)),
        FrameKind::Failed => drop(serde_json::from_slice::<Failed>(payload)),
        FrameKind::CommandEnd => drop(serde_json::from_slice::<CommandEnd>(payload)),
        FrameKind::Costs => drop(serde_json::from_slice::<Costs>(payload)),
        FrameKind::Came => drop(Came::decode(payload, 8)),
        FrameKind::Done | FrameKind::Output | FrameKind::Words | FrameKind::File => {}
    }
}
