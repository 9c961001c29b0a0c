//! Whether the kernel's type information describes the sched_ext kernel functions as programs expect them.
//!
//! Some kernel functions take an argument that the verifier fills in. Kernels describe each of them twice: the real
//! prototype under a name that ends in `_impl`, and one without that argument under the name that programs use. A kernel
//! built with tools that do not know this describes the real prototype only, and then no program loads ("func_proto
//! incompatible"; seen with Debian's 7.2.12 of trixie-backports). Format: `Documentation/bpf/btf.rst` of the kernel.

/// The name of the argument that the verifier fills in.
const IMPLICIT: &str = "aux";
/// What kernel functions for sched_ext programs begin with.
const PREFIX: &str = "scx_bpf_";

const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;

/// Why sched_ext programs cannot load, if the type information says so.
pub fn refusal(bytes: &[u8]) -> Option<String> {
    match implicit_arguments(bytes) {
        None => Some("the kernel's type information (BTF) cannot be read".into()),
        Some((0, _)) => Some(format!("the kernel's type information (BTF) has no {PREFIX}* functions")),
        Some((_, wrong)) if !wrong.is_empty() => Some(format!(
            "the kernel's type information (BTF) describes {} ({} such functions) with an argument that programs do not \
             pass: it was built with tools too old for this kernel, and no sched_ext program that calls one of them will load",
            wrong[0],
            wrong.len()
        )),
        Some(_) => None,
    }
}

/// How many sched_ext functions there are, and those with an implicit argument under a program's name. `None` when the
/// bytes are no type information.
fn implicit_arguments(bytes: &[u8]) -> Option<(usize, Vec<String>)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if bytes.get(..2)? != [0x9f, 0xeb] {
        return None;
    }
    let header = word(4)? as usize;
    let types = header + word(8)? as usize;
    let types_end = types + word(12)? as usize;
    let strings = header + word(16)? as usize;
    let text = |offset: u32| {
        let rest = bytes.get(strings + offset as usize..)?;
        std::str::from_utf8(&rest[..rest.iter().position(|byte| *byte == 0)?]).ok()
    };
    // Type ids count from 1, in order.
    let mut offsets = vec![0];
    let mut functions = Vec::new();
    let mut at = types;
    while at < types_end {
        let (name, info, of) = (word(at)?, word(at + 4)?, word(at + 8)?);
        offsets.push(at);
        let (count, kind) = ((info & 0xffff) as usize, info >> 24 & 0x1f);
        if kind == KIND_FUNC
            && let Some(name) = text(name)
            && name.starts_with(PREFIX)
        {
            functions.push((name, of as usize));
        }
        at += 12
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => count * 12,
                6 | KIND_FUNC_PROTO => count * 8,
                _ => 0,
            };
    }
    let mut wrong = Vec::new();
    for (name, prototype) in &functions {
        let at = *offsets.get(*prototype)?;
        let count = (word(at + 4)? & 0xffff) as usize;
        if count > 0 && text(word(at + 12 + (count - 1) * 8)?)? == IMPLICIT && !name.ends_with("_impl") {
            wrong.push((*name).to_owned());
        }
    }
    Some((functions.len(), wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information with one function of these parameters.
    fn describe(function: &str, parameters: &[&str]) -> Vec<u8> {
        let mut strings = vec![0_u8];
        let mut text = |name: &str| {
            let at = strings.len() as u32;
            strings.extend(name.bytes().chain([0]));
            at
        };
        let mut types: Vec<u32> = vec![0, KIND_FUNC_PROTO << 24 | parameters.len() as u32, 0];
        for parameter in parameters {
            types.extend([text(parameter), 0]);
        }
        types.extend([text(function), KIND_FUNC << 24, 1]);
        let length = types.len() as u32 * 4;
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, length, length, strings.len() as u32].iter().chain(&types) {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn an_implicit_argument_under_a_programs_name_is_refused() {
        let refused = refusal(&describe("scx_bpf_select_cpu_dfl", &["p", "aux"])).unwrap();
        assert!(refused.contains("scx_bpf_select_cpu_dfl"), "{refused}");
        assert_eq!(refusal(&describe("scx_bpf_select_cpu_dfl", &["p", "is_idle"])), None);
        assert_eq!(refusal(&describe("scx_bpf_select_cpu_dfl_impl", &["p", "aux"])), None);
        assert_eq!(refusal(&describe("scx_bpf_nr_cpu_ids", &[])), None);
    }

    #[test]
    fn what_is_no_type_information_is_refused_and_never_read_beyond_its_end() {
        assert!(refusal(b"").is_some());
        assert!(refusal(&describe("bpf_other", &[])).unwrap().contains("no scx_bpf_"));
        let whole = describe("scx_bpf_now", &["p"]);
        for length in 0..whole.len() {
            let _ = refusal(&whole[..length]);
        }
    }
}
