//! Texts that programs compare and search: the kernel functions on bytes that end with a zero.

use warmcore_bpf::HostFunction;

use crate::bytecode::helpers::{ENOENT, error, functions};
use crate::bytecode::host::Host;

/// Most bytes of a text (`XATTR_SIZE_MAX`).
const LONGEST: u64 = 64 << 10;

/// A kernel function about them, by name.
pub(super) fn kfunc(name: &str) -> Option<(HostFunction, u8)> {
    let find: fn(&str) -> Option<(HostFunction, u8)> = functions! {
        "bpf_strcmp" => |host, left, right| order(host.bytes(left), host.bytes(right));
        "bpf_strcasecmp" => |host, left, right| order(&lower(host.bytes(left)), &lower(host.bytes(right)));
        "bpf_strncasecmp" => |host, left, right, bytes| {
            order(&lower(first(host.bytes(left), bytes)), &lower(first(host.bytes(right), bytes)))
        };
        "bpf_strlen" => |host, text| host.bytes(text).len() as u64;
        "bpf_strnlen" => |host, text, bytes| first(host.bytes(text), bytes).len() as u64;
        "bpf_strchr" => |host, text, byte| place_of(host.bytes(text), byte as u8);
        "bpf_strnchr" => |host, text, bytes, byte| place_of(first(host.bytes(text), bytes), byte as u8);
        "bpf_strchrnul" => |host, text, byte| {
            let text = host.bytes(text);
            text.iter().position(|&known| known == byte as u8).unwrap_or(text.len()) as u64
        };
        "bpf_strrchr" => |host, text, byte| {
            let text = host.bytes(text);
            let last = if byte as u8 == 0 { Some(text.len()) } else { text.iter().rposition(|&known| known == byte as u8) };
            last.map_or(error(ENOENT), |place| place as u64)
        };
        "bpf_strspn" => |host, text, accepted| {
            let accepted = host.bytes(accepted);
            host.bytes(text).iter().take_while(|byte| accepted.contains(byte)).count() as u64
        };
        "bpf_strcspn" => |host, text, refused| {
            let refused = host.bytes(refused);
            host.bytes(text).iter().take_while(|byte| !refused.contains(byte)).count() as u64
        };
        "bpf_strstr" => |host, text, part| search(host.bytes(text), host.bytes(part));
        "bpf_strcasestr" => |host, text, part| search(&lower(host.bytes(text)), &lower(host.bytes(part)));
        "bpf_strnstr" => |host, text, part, bytes| search(first(host.bytes(text), bytes), host.bytes(part));
    };
    find(name)
}

fn order(left: &[u8], right: &[u8]) -> u64 {
    left.cmp(right) as i64 as u64
}

fn lower(text: &[u8]) -> Vec<u8> {
    text.to_ascii_lowercase()
}

fn first(text: &[u8], bytes: u64) -> &[u8] {
    &text[..text.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))]
}

/// The zero at the end of a text is part of it.
fn place_of(text: &[u8], byte: u8) -> u64 {
    let place = text.iter().position(|&known| known == byte).or((byte == 0).then_some(text.len()));
    place.map_or(error(ENOENT), |place| place as u64)
}

fn search(text: &[u8], part: &[u8]) -> u64 {
    let place = if part.is_empty() { Some(0) } else { text.windows(part.len()).position(|window| window == part) };
    place.map_or(error(ENOENT), |place| place as u64)
}

impl Host {
    fn bytes(&self, text: u64) -> &[u8] {
        self.maps.memory.until_zero(text, LONGEST)
    }
}
