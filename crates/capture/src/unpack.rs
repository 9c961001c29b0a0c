//! Unpacks parts of files. What is unpacked is bounded: a small file cannot fill the memory.

use std::io::Read;

/// How a part of a file is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    Zstd,
    Zlib,
}

/// Most bytes that a file of so many bytes may unpack to: ring-buffer pages are sparse, but not as sparse as this.
pub(crate) fn most_unpacked(file: usize) -> usize {
    file.saturating_mul(200).saturating_add(64 << 20)
}

/// The unpacked bytes.
///
/// # Errors
/// Damaged bytes, or more than `most` of them.
pub(crate) fn unpack(packing: Packing, bytes: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let limit = most as u64 + 1;
    let read = match packing {
        Packing::Zstd => zstd::stream::read::Decoder::with_buffer(bytes)
            .and_then(|decoder| decoder.take(limit).read_to_end(&mut unpacked)),
        Packing::Zlib => flate2::bufread::ZlibDecoder::new(bytes).take(limit).read_to_end(&mut unpacked),
    };
    read.map_err(|error| format!("the packed bytes are damaged ({error})"))?;
    if unpacked.len() > most {
        return Err(format!("it unpacks to more than {most} bytes"));
    }
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_unpacks_to_more_than_it_may_is_refused() {
        let packed = zstd::encode_all(&vec![0_u8; 1 << 20][..], 1).unwrap();
        assert_eq!(unpack(Packing::Zstd, &packed, 1 << 20).unwrap().len(), 1 << 20);
        assert!(unpack(Packing::Zstd, &packed, (1 << 20) - 1).unwrap_err().contains("more than"));
        assert!(unpack(Packing::Zlib, &packed, 1 << 20).unwrap_err().contains("damaged"));
    }
}
