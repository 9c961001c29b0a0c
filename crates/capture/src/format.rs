//! The description of events: `events/header_page` and `events/SYSTEM/EVENT/format`.

use std::collections::BTreeMap;

/// An integer field of an event or a page header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    offset: usize,
    size: usize,
    signed: bool,
}

impl Field {
    /// Its value in a record; `None` when the record is too short.
    pub fn read(self, record: &[u8]) -> Option<i64> {
        let bytes = record.get(self.offset..self.offset + self.size)?;
        let unsigned = match *bytes {
            [a] => a.into(),
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
            _ => bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)),
        };
        let unused = 64 - 8 * self.size as u32;
        Some(if self.signed { ((unsigned << unused) as i64) >> unused } else { unsigned as i64 })
    }

    /// Its length in bytes: 1, 2, 4 or 8.
    pub fn size(self) -> usize {
        self.size
    }

    /// Where it begins.
    pub fn offset(self) -> usize {
        self.offset
    }
}

/// A text field: a character array of fixed length, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextField {
    offset: usize,
    size: usize,
}

impl TextField {
    /// Its text in a record, up to the first zero; `None` when the record is too short or it is no UTF-8.
    pub fn read(self, record: &[u8]) -> Option<&str> {
        let bytes = record.get(self.offset..self.offset + self.size)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        std::str::from_utf8(&bytes[..end]).ok()
    }
}

/// An event's description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format {
    /// Name of the event.
    pub name: String,
    /// Its number in records.
    pub id: i64,
    /// Integer fields by name.
    fields: BTreeMap<String, Field>,
    /// Character arrays of fixed length by name. Other arrays and strings are left out.
    texts: BTreeMap<String, TextField>,
    /// Letters of the bits of `prev_state`, for `sched_switch`.
    states: Vec<(i64, String)>,
}

impl Format {
    /// Reads a `format` text.
    ///
    /// # Errors
    /// When it has no number or a field cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let name = line("name:").ok_or("it has no name")?.to_owned();
        let id = line("ID:").and_then(|id| id.parse().ok()).ok_or_else(|| format!("event {name} has no ID"))?;
        let states = states(line("print fmt:").unwrap_or_default());
        Ok(Self { fields: fields(text)?, texts: texts(text)?, states, name, id })
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// When it is not.
    pub fn field(&self, name: &str) -> Result<Field, String> {
        self.fields.get(name).copied().ok_or_else(|| format!("event {} has no field {name}", self.name))
    }

    /// A text field, if there is one of this name.
    pub fn text(&self, name: &str) -> Option<TextField> {
        self.texts.get(name).copied()
    }

    /// The mask of the states that `prev_state` can hold, and of those in which a task is dead: `x` is one in kernels before 4.14.
    pub(crate) fn state_masks(&self) -> (i64, i64) {
        let all = self.states.iter().fold(0, |mask, (bit, _)| mask | bit);
        let dead = self.states.iter().filter(|(_, letter)| matches!(letter.as_str(), "X" | "Z" | "x"));
        (all, dead.fold(0, |mask, (bit, _)| mask | bit))
    }
}

/// Integer fields of `field:TYPE NAME; offset:N; size:N; signed:N;` lines.
///
/// # Errors
/// A line that is not of this form.
pub fn fields(text: &str) -> Result<BTreeMap<String, Field>, String> {
    let mut fields = BTreeMap::new();
    declarations(text, |declaration, name, field| {
        let is_integer = matches!(field.size, 1 | 2 | 4 | 8) && !declaration.starts_with("__data_loc");
        if is_integer && !name.contains('[') {
            fields.insert(name.to_owned(), field);
        }
    })?;
    Ok(fields)
}

/// The fields among them that are `char NAME[N]`.
fn texts(text: &str) -> Result<BTreeMap<String, TextField>, String> {
    let mut texts = BTreeMap::new();
    declarations(text, |declaration, name, field| {
        if let (true, Some((name, _))) = (declaration.starts_with("char "), name.split_once('[')) {
            texts.insert(name.to_owned(), TextField { offset: field.offset, size: field.size });
        }
    })?;
    Ok(texts)
}

/// Hands every field to `take`: its declaration, the name in it, and where it is.
fn declarations(text: &str, mut take: impl FnMut(&str, &str, Field)) -> Result<(), String> {
    for line in text.lines().map(str::trim).filter(|line| line.starts_with("field:")) {
        let broken = || format!("`{line}` is not a description of a field");
        let mut parts = line.split(';').map(str::trim);
        let declaration = parts.next().and_then(|part| part.strip_prefix("field:")).ok_or_else(broken)?.trim();
        let mut number = |key: &str| -> Result<usize, String> {
            let part = parts.next().and_then(|part| part.strip_prefix(key)).ok_or_else(broken)?;
            part.parse().map_err(|_| broken())
        };
        let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")?);
        let name = declaration.split_whitespace().last().ok_or_else(broken)?;
        if offset > MOST_BYTES || size > MOST_BYTES {
            return Err(broken());
        }
        take(declaration, name, Field { offset, size, signed: signed != 0 });
    }
    Ok(())
}

/// No record is longer: fields that lie further out are an error, and sums of two such numbers cannot overflow.
const MOST_BYTES: usize = 1 << 20;

/// Pairs `{ 0x00000001, "S" }` of a print format.
fn states(print: &str) -> Vec<(i64, String)> {
    let pair = |text: &str| {
        let (bit, letter) = text.split_once('}')?.0.split_once(',')?;
        let bit = bit.trim();
        let bit = match bit.strip_prefix("0x") {
            Some(hexadecimal) => i64::from_str_radix(hexadecimal, 16).ok()?,
            None => bit.parse().ok()?,
        };
        Some((bit, letter.trim().trim_matches('"').to_owned()))
    };
    print.split('{').skip(1).filter_map(pair).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const SWITCH: &str = "name: sched_switch\nID: 316\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:pid_t next_pid;\toffset:40;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"prev_state=%s%s\", (REC->prev_state & 0xff) ? __print_flags(REC->prev_state & 0xff, \"|\", \
        { 0x00000001, \"S\" }, { 0x00000002, \"D\" }, { 0x00000010, \"X\" }, { 0x00000020, \"Z\" }) : \"R\"\n";

    #[test]
    fn fields_and_states_are_those_of_the_text() {
        let format = Format::parse(SWITCH).unwrap();
        assert_eq!((format.name.as_str(), format.id), ("sched_switch", 316));
        assert_eq!(format.field("prev_state").unwrap(), Field { offset: 32, size: 8, signed: true });
        assert!(format.field("prev_comm").is_err(), "arrays are no integers");
        assert_eq!(format.text("prev_comm").unwrap().read(b"12345678make\0sh\0\0\0\0\0\0\0\0\0"), Some("make"));
        assert_eq!(format.state_masks(), (0x33, 0x30));
    }

    #[test]
    fn signed_fields_keep_their_sign() {
        let field = Field { offset: 1, size: 4, signed: true };
        assert_eq!(field.read(&[0, 0xff, 0xff, 0xff, 0xff]), Some(-1));
        assert_eq!(Field { signed: false, ..field }.read(&[0, 0xff, 0xff, 0xff, 0xff]), Some(0xffff_ffff));
        assert_eq!(field.read(&[0, 0xff]), None);
    }

    #[test]
    fn a_damaged_description_is_an_error() {
        assert!(Format::parse("").is_err());
        assert!(Format::parse("name: x\nID: y\n").is_err());
        assert!(Format::parse("name: x\nID: 1\n\tfield:int a; offset:q; size:4; signed:1;\n").is_err());
    }
}
