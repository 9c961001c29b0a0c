//! How data travels inside a page: columns of varints, gzip, base64; and pixels as PNG.
//!
//! Varints are LEB128: seven bits per byte, low ones first. gzip carries no time and no file name, so equal data gives
//! equal bytes.

use std::io::Write as _;

use flate2::write::{GzEncoder, ZlibEncoder};
use flate2::{Compression, Crc};

/// A column of numbers.
#[derive(Clone, Debug, Default)]
pub struct Column(pub Vec<u8>);

impl Column {
    /// Adds a number.
    pub fn push(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds a number that may be negative, zigzag: 0, −1, 1, −2, …
    pub(crate) fn push_signed(&mut self, value: i64) {
        self.push(((value << 1) ^ (value >> 63)) as u64);
    }
}

/// gzip, at the level where a page is smallest per second of waiting.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    // Writing to memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Base64 with padding (RFC 4648 section 4).
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for position in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * position) & 63) as usize];
            text.push(if position <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Pixels, row by row from the top; `None` is transparent.
#[derive(Clone, Debug)]
pub struct Pixels {
    width: usize,
    rgba: Vec<[u8; 4]>,
}

impl Pixels {
    /// A transparent picture.
    pub fn new(width: usize, height: usize) -> Self {
        Self { width, rgba: vec![[0; 4]; width * height] }
    }

    /// Colours a pixel.
    pub fn set(&mut self, x: usize, y: usize, rgb: [u8; 3]) {
        self.set_with_alpha(x, y, rgb, 1.0);
    }

    /// Colours a pixel that lets the ground shine through.
    pub(crate) fn set_with_alpha(&mut self, x: usize, y: usize, rgb: [u8; 3], alpha: f64) {
        self.rgba[y * self.width + x] = [rgb[0], rgb[1], rgb[2], (alpha.clamp(0.0, 1.0) * 255.0).round() as u8];
    }

    /// As a PNG file (ISO/IEC 15948): 8 bits, RGBA, no filter.
    pub(crate) fn png(&self) -> Vec<u8> {
        let height = self.rgba.len() / self.width.max(1);
        let mut raw = Vec::with_capacity(self.rgba.len() * 4 + height);
        for row in self.rgba.chunks(self.width.max(1)) {
            raw.push(0);
            row.iter().for_each(|pixel| raw.extend(pixel));
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
        // Writing to memory cannot fail.
        let _ = encoder.write_all(&raw);
        let data = encoder.finish().unwrap_or_default();
        let mut header = Vec::new();
        header.extend((self.width as u32).to_be_bytes());
        header.extend((height as u32).to_be_bytes());
        header.extend([8, 6, 0, 0, 0]);
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        for (kind, body) in [(b"IHDR", &header), (b"IDAT", &data), (b"IEND", &Vec::new())] {
            file.extend((body.len() as u32).to_be_bytes());
            let mut crc = Crc::new();
            crc.update(kind);
            crc.update(body);
            file.extend(kind);
            file.extend(body.iter());
            file.extend(crc.sum().to_be_bytes());
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        // RFC 4648 section 10.
        let vectors =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (text, expected) in vectors {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }

    #[test]
    fn numbers_take_as_few_bytes_as_they_need() {
        let mut column = Column::default();
        [0, 127, 128, 300, u64::MAX].into_iter().for_each(|value| column.push(value));
        assert_eq!(column.0[..6], [0, 0x7f, 0x80, 0x01, 0xac, 0x02]);
        assert_eq!(column.0.len(), 6 + 10);
        let mut signed = Column::default();
        [0, -1, 1, -2].into_iter().for_each(|value| signed.push_signed(value));
        assert_eq!(signed.0, [0, 1, 2, 3]);
    }

    #[test]
    fn equal_data_gives_equal_bytes() {
        let data: Vec<u8> = (0..10_000_u32).map(|i| (i * i % 251) as u8).collect();
        assert_eq!(gzip(&data), gzip(&data));
        // No modification time in the header (RFC 1952 section 2.3).
        assert_eq!(gzip(&data)[4..8], [0; 4]);
    }
}
