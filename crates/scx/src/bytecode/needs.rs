//! What programs need of the kernel, by name, and which of it is not modelled.

use std::fmt;

use warmcore_bpf::MapKind;
use warmcore_bpf::btf::Btf;

/// Kinds of what a program needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NeedKind {
    /// An operation that its table has.
    Operation,
    /// A helper that one of its programs calls.
    Helper,
    /// A kernel function that one of its programs calls.
    KernelFunction,
    /// A kind of map.
    MapKind,
    /// A program that it attaches elsewhere than to the scheduler.
    Program,
    /// What a counter is to count.
    Event,
}

impl NeedKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Operation, Self::Helper, Self::KernelFunction, Self::MapKind, Self::Program, Self::Event];

    /// What one of the kind is called.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Helper => "helper",
            Self::KernelFunction => "kernel function",
            Self::MapKind => "map kind",
            Self::Program => "program",
            Self::Event => "event",
        }
    }
}

/// Something that a program needs of the kernel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Need {
    /// Of which kind.
    pub kind: NeedKind,
    /// Its name in the kernel's type information; of a program its type, name and what it is attached to.
    pub name: String,
    /// It is there. What is not there does harm where it is reached: an operation or a program that is not modelled is never called.
    pub is_modelled: bool,
}

impl Need {
    /// Something of this kind and name.
    #[must_use]
    pub fn new(kind: NeedKind, name: impl Into<String>, is_modelled: bool) -> Self {
        Self { kind, name: name.into(), is_modelled }
    }

    /// A kind of map, by its number.
    #[must_use]
    pub fn of_map(btf: &Btf, number: u32) -> Self {
        let name = btf.enumerator_of("bpf_map_type", u64::from(number));
        let name = name.and_then(|name| name.strip_prefix("BPF_MAP_TYPE_")).map(str::to_lowercase);
        let is_modelled = MapKind::from_number(number).is_some();
        Self::new(NeedKind::MapKind, name.unwrap_or_else(|| number.to_string()), is_modelled)
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.word(), self.name)?;
        if self.kind == NeedKind::Operation && !self.is_modelled { f.write_str(" (never called here)") } else { Ok(()) }
    }
}

/// Name of a helper, as programs call it.
pub(super) fn name_of_helper(btf: &Btf, number: i32) -> String {
    let name = u64::try_from(number).ok().and_then(|number| btf.enumerator_of("bpf_func_id", number));
    match name.and_then(|name| name.strip_prefix("BPF_FUNC_")) {
        Some(name) => format!("bpf_{name}"),
        None => number.to_string(),
    }
}
