//! The wire format of protocol buffers: fields of a message where they lie.
//!
//! Source: `https://protobuf.dev/programming-guides/encoding/`.

use super::FORMAT;
use crate::error::{CaptureError, FilePosition};

/// A message, read field by field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    bytes: &'a [u8],
    /// Where its first byte lies in the file.
    origin: usize,
    at: usize,
}

/// What a field has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// A number, negative ones as 64 bits.
    Number(u64),
    /// A message, a text, or packed numbers.
    Bytes(Message<'a>),
    /// A number of fixed length, which no field that is read has.
    Fixed,
}

/// Bytes that are no field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WireError {
    place: usize,
    /// Whether the bytes end within it.
    pub is_cut_off: bool,
}

impl From<WireError> for CaptureError {
    fn from(error: WireError) -> Self {
        let reason = match error.is_cut_off {
            true => "a field ends beyond its message",
            false => "this is not a field of a message",
        };
        Self::Damaged { format: FORMAT, place: FilePosition::Byte(error.place), reason: reason.into() }
    }
}

impl<'a> Message<'a> {
    pub fn new(bytes: &'a [u8], origin: usize) -> Self {
        Self { bytes, origin, at: 0 }
    }

    /// Where the next field lies in the file.
    pub fn place(&self) -> usize {
        self.origin + self.at
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether all of it is fields.
    pub(crate) fn is_message(self) -> bool {
        let mut message = self;
        message.all(|field| field.is_ok())
    }

    /// Packed numbers, one after the other.
    pub fn numbers(mut self) -> impl Iterator<Item = Result<u64, CaptureError>> + use<'a> {
        std::iter::from_fn(move || (self.at < self.bytes.len()).then(|| self.number().map_err(CaptureError::from)))
    }

    fn error(&self, is_cut_off: bool) -> WireError {
        WireError { place: self.place(), is_cut_off }
    }

    /// A number of seven bits a byte.
    fn number(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for (index, byte) in self.bytes[self.at..].iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.at += index + 1;
                return Ok(value);
            }
        }
        Err(self.error(self.bytes.len() - self.at < 10))
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), WireError> {
        let tag = self.number()?;
        let Some(number) = u32::try_from(tag >> 3).ok().filter(|number| *number > 0) else {
            return Err(self.error(false));
        };
        let length = match tag & 7 {
            0 => return Ok((number, Value::Number(self.number()?))),
            1 => 8,
            2 => self.number()?,
            5 => 4,
            _ => return Err(self.error(false)),
        };
        let rest = &self.bytes[self.at..];
        let Some(bytes) = usize::try_from(length).ok().and_then(|length| rest.get(..length)) else {
            return Err(self.error(true));
        };
        let message = Self::new(bytes, self.place());
        self.at += bytes.len();
        Ok((number, if tag & 7 == 2 { Value::Bytes(message) } else { Value::Fixed }))
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = Result<(u32, Value<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            // Nothing follows what cannot be read.
            self.at = self.bytes.len();
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_damage_is_placed() {
        // 1: 300; 2: "ab"; 3: eight fixed bytes.
        let bytes = [0x08, 0xac, 0x02, 0x12, 2, b'a', b'b', 0x19, 0, 0, 0, 0, 0, 0, 0, 0];
        let fields: Vec<_> = Message::new(&bytes, 100).map(Result::unwrap).collect();
        let (Value::Number(300), Value::Bytes(text), Value::Fixed) = (fields[0].1, fields[1].1, fields[2].1) else {
            panic!("{fields:?}")
        };
        assert_eq!((text.bytes(), text.place()), (&b"ab"[..], 105));
        for (bytes, place, is_cut_off) in
            [(&[0x08, 0x80][..], 101, true), (&[0x12, 5, 1], 102, true), (&[0x0b], 101, false), (&[0x00], 101, false)]
        {
            let error = Message::new(bytes, 100).find_map(Result::err).unwrap();
            assert_eq!(error, WireError { place, is_cut_off }, "{bytes:x?}");
        }
        assert!(Message::new(&[0xff; 11], 0).next().unwrap().is_err_and(|error| !error.is_cut_off));
    }
}
