//! Type information (BTF): names, members, sizes; and of a map's values the fields that only the kernel may change.
//!
//! Source: the format in the kernel's `Documentation/bpf/btf.rst`; special fields in `docs/spec/bpf-runtime.md` section 7.

use std::collections::{HashMap, HashSet};

use thiserror::Error;

/// Types that one may stand behind, one after the other: `MAX_RESOLVE_DEPTH` of the kernel (7.2, kernel/bpf/btf.c), which refuses more.
const MAX_DEPTH: u32 = 32;

/// Bytes of a name and its end: `KSYM_NAME_LEN` of the kernel (7.2, include/linux/kallsyms.h), which refuses longer ones. Here they are
/// empty, so that names of many types that share one text without an end are not as many copies of it.
const MAX_NAME_BYTES: usize = 512;

/// Members of a map's value that are looked at, and fields found in it: the kernel (7.2, `BTF_FIELDS_MAX`) takes 11 fields.
const MAX_FIELDS: usize = 4096;

/// Kinds of types, as numbered in the format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum TypeKind {
    Void = 0,
    Int = 1,
    Pointer = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Enum = 6,
    Forward = 7,
    Typedef = 8,
    Volatile = 9,
    Const = 10,
    Restrict = 11,
    Function = 12,
    FunctionPrototype = 13,
    Variable = 14,
    Section = 15,
    Float = 16,
    DeclarationTag = 17,
    TypeTag = 18,
    Enum64 = 19,
}

impl TypeKind {
    fn from_number(number: u32) -> Option<Self> {
        use TypeKind::*;
        const ALL: [TypeKind; 20] = [
            Void,
            Int,
            Pointer,
            Array,
            Struct,
            Union,
            Enum,
            Forward,
            Typedef,
            Volatile,
            Const,
            Restrict,
            Function,
            FunctionPrototype,
            Variable,
            Section,
            Float,
            DeclarationTag,
            TypeTag,
            Enum64,
        ];
        ALL.get(number as usize).copied()
    }
}

/// Type information that is broken.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("type information is broken at byte {offset}: {what}")]
pub struct BtfError {
    /// Where.
    pub offset: usize,
    /// What.
    pub what: &'static str,
}

/// A member of a structure, parameter of a function, or variable of a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member<'a> {
    /// Its name; empty if it has none.
    pub name: &'a str,
    /// Number of its type.
    pub ty: u32,
    /// Where it begins, in bits.
    pub bit_offset: u32,
}

/// Type information, read once.
#[derive(Clone, Debug)]
pub struct Btf {
    data: Vec<u8>,
    strings: usize,
    strings_end: usize,
    /// Offset of each type in the data.
    types: Vec<usize>,
    by_name: HashMap<(TypeKind, String), u32>,
}

impl Btf {
    /// Reads it.
    ///
    /// # Errors
    /// When it is truncated or has types that are not known.
    pub fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        let wrong = |offset, what| BtfError { offset, what };
        let word = |offset: usize| {
            let bytes = data.get(offset..offset + 4).ok_or(wrong(offset, "it ends too early"))?;
            Ok::<_, BtfError>(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
        };
        if data.get(..2) != Some(&[0x9f, 0xeb]) {
            return Err(wrong(0, "it has no magic number of this byte order"));
        }
        let header = word(4)? as usize;
        let sum = |a: u32| header.checked_add(a as usize).ok_or(wrong(8, "an offset is too large"));
        let (types_at, strings) = (sum(word(8)?)?, sum(word(16)?)?);
        let types_end = types_at + word(12)? as usize;
        let strings_end = strings + word(20)? as usize;
        if types_end > data.len() || strings_end > data.len() {
            return Err(wrong(8, "a section lies outside of it"));
        }
        let mut types = vec![usize::MAX];
        let mut at = types_at;
        while at < types_end {
            types.push(at);
            let info = word(at + 4)?;
            let count = (info & 0xffff) as usize;
            let kind = TypeKind::from_number(info >> 24 & 31).ok_or(wrong(at, "a kind of type that is not known"))?;
            at += 12
                + match kind {
                    TypeKind::Int | TypeKind::Variable | TypeKind::DeclarationTag => 4,
                    TypeKind::Array => 12,
                    TypeKind::Struct | TypeKind::Union | TypeKind::Section | TypeKind::Enum64 => 12 * count,
                    TypeKind::Enum | TypeKind::FunctionPrototype => 8 * count,
                    _ => 0,
                };
            if at > types_end {
                return Err(wrong(at, "a type lies across the end of the types"));
            }
        }
        let mut btf = Self { data, strings, strings_end, types, by_name: HashMap::new() };
        for number in 1..btf.types.len() as u32 {
            let name = btf.name(number).to_owned();
            if !name.is_empty() {
                btf.by_name.entry((btf.kind(number), name)).or_insert(number);
            }
        }
        Ok(btf)
    }

    fn word(&self, offset: usize) -> u32 {
        self.data.get(offset..offset + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    /// A name by its place among the texts; empty if there is none, or it is longer than names are.
    fn string(&self, offset: u32) -> &str {
        let start = (self.strings + offset as usize).min(self.strings_end);
        let bytes = &self.data[start..self.strings_end.min(start + MAX_NAME_BYTES)];
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
        std::str::from_utf8(&bytes[..end]).unwrap_or("")
    }

    /// A text by its place among the texts; empty if there is none. Other sections of an object name theirs so.
    #[must_use]
    pub fn text(&self, place: u32) -> &str {
        self.string(place)
    }

    fn at(&self, ty: u32) -> Option<usize> {
        self.types.get(ty as usize).copied().filter(|&at| at != usize::MAX)
    }

    /// Name of a type; empty if it has none or does not exist.
    #[must_use]
    pub fn name(&self, ty: u32) -> &str {
        self.at(ty).map_or("", |at| self.string(self.word(at)))
    }

    /// Kind of a type; void if it does not exist.
    #[must_use]
    pub fn kind(&self, ty: u32) -> TypeKind {
        let number = self.at(ty).map_or(0, |at| self.word(at + 4) >> 24 & 31);
        TypeKind::from_number(number).unwrap_or(TypeKind::Void)
    }

    /// Size of a type, or the type it refers to, as the kind has it.
    fn size_or_type(&self, ty: u32) -> u32 {
        self.at(ty).map_or(0, |at| self.word(at + 8))
    }

    /// Size in bytes of a type that has one.
    #[must_use]
    pub fn size(&self, ty: u32) -> u32 {
        let (mut ty, mut times) = (self.resolved(ty), 1_u32);
        for _ in 0..MAX_DEPTH {
            match self.kind(ty) {
                TypeKind::Pointer => return times.saturating_mul(8),
                TypeKind::Array => {
                    let (element, count) = self.array(ty);
                    ty = self.resolved(element);
                    times = times.saturating_mul(count);
                }
                _ => return times.saturating_mul(self.size_or_type(ty)),
            }
        }
        0
    }

    /// The first type of this kind and name.
    #[must_use]
    pub fn find(&self, kind: TypeKind, name: &str) -> Option<u32> {
        self.by_name.get(&(kind, name.to_owned())).copied()
    }

    /// Names of all types of a kind, in the order of their numbers.
    pub fn names(&self, kind: TypeKind) -> impl Iterator<Item = &str> {
        (1..self.types.len() as u32).filter(move |&ty| self.kind(ty) == kind).map(|ty| self.name(ty))
    }

    /// Texts of the declaration tags of a type itself, not of a member or parameter.
    pub fn tags(&self, ty: u32) -> impl Iterator<Item = &str> {
        let is_tag = move |&tag: &u32| self.kind(tag) == TypeKind::DeclarationTag && self.size_or_type(tag) == ty;
        let is_whole = |&tag: &u32| self.at(tag).is_some_and(|at| self.word(at + 12) == u32::MAX);
        (1..self.types.len() as u32).filter(is_tag).filter(is_whole).map(|tag| self.name(tag))
    }

    /// What is behind names, qualifiers and tags.
    #[must_use]
    pub fn resolved(&self, ty: u32) -> u32 {
        let mut ty = ty;
        // A longer chain is a circle, or refused by the kernel.
        for _ in 0..MAX_DEPTH {
            match self.kind(ty) {
                TypeKind::Typedef
                | TypeKind::Volatile
                | TypeKind::Const
                | TypeKind::Restrict
                | TypeKind::TypeTag
                | TypeKind::Variable => ty = self.size_or_type(ty),
                _ => return ty,
            }
        }
        0
    }

    /// Type and number of an array's elements.
    fn array(&self, ty: u32) -> (u32, u32) {
        self.at(ty).map_or((0, 0), |at| (self.word(at + 12), self.word(at + 20)))
    }

    /// Members of a structure or union, variables of a section.
    pub fn members(&self, ty: u32) -> impl Iterator<Item = Member<'_>> {
        let at = self.at(ty).unwrap_or(0);
        let info = self.word(at + 4);
        let kind = self.kind(ty);
        let count = match kind {
            TypeKind::Struct | TypeKind::Union | TypeKind::Section => (info & 0xffff) as usize,
            _ => 0,
        };
        (0..count).map(move |number| {
            let member = at + 12 + 12 * number;
            let (first, second, third) = (self.word(member), self.word(member + 4), self.word(member + 8));
            if kind == TypeKind::Section {
                return Member { name: self.name(first), ty: first, bit_offset: second.saturating_mul(8) };
            }
            let bit_offset = if info >> 31 == 1 { third & 0x00ff_ffff } else { third };
            Member { name: self.string(first), ty: second, bit_offset }
        })
    }

    /// Type and number of an array's elements, if it is one.
    #[must_use]
    pub fn elements(&self, ty: u32) -> Option<(u32, u32)> {
        let ty = self.resolved(ty);
        (self.kind(ty) == TypeKind::Array).then(|| self.array(ty))
    }

    /// Where `path` (`a.b.2.c`) lies in a structure, in bytes, through members without names and, by number, elements of arrays.
    #[must_use]
    pub fn offset(&self, structure: &str, path: &str) -> Option<u32> {
        self.place(structure, path).map(|(bits, _)| bits / 8)
    }

    /// Size of what lies there, in bytes: kernels change types of members.
    #[must_use]
    pub fn width(&self, structure: &str, path: &str) -> Option<u32> {
        self.place(structure, path).map(|(_, ty)| self.size(ty))
    }

    /// Where it lies, in bits, and its type.
    fn place(&self, structure: &str, path: &str) -> Option<(u32, u32)> {
        let mut ty = self.find(TypeKind::Struct, structure)?;
        let mut bits = 0_u32;
        for part in path.split('.') {
            if let Some((element, count)) = self.elements(ty) {
                // An array of no stated length, the last member, may have more.
                let number = part.parse::<u32>().ok().filter(|&number| number < count || count == 0)?;
                ty = element;
                bits = bits.checked_add(number.checked_mul(self.size(element))?.checked_mul(8)?)?;
                continue;
            }
            let (member, offset) = self.member(self.resolved(ty), part, 0, &mut HashSet::new())?;
            ty = member;
            bits = bits.checked_add(offset)?;
        }
        Some((bits, ty))
    }

    /// Type of a member and where it lies, in bits. What was seen is not searched again.
    fn member(&self, ty: u32, name: &str, depth: u32, seen: &mut HashSet<u32>) -> Option<(u32, u32)> {
        if !seen.insert(ty) {
            return None;
        }
        for member in self.members(ty) {
            if member.name == name {
                return Some((member.ty, member.bit_offset));
            }
            let inner = self.resolved(member.ty);
            if member.name.is_empty()
                && depth < MAX_DEPTH
                && let Some((ty, offset)) = self.member(inner, name, depth + 1, seen)
            {
                return Some((ty, member.bit_offset.checked_add(offset)?));
            }
        }
        None
    }

    /// Value of a name of an enumeration.
    #[must_use]
    pub fn enumerator(&self, enumeration: &str, name: &str) -> Option<u64> {
        self.enumerators(enumeration).find(|&(known, _)| known == name).map(|(_, value)| value)
    }

    /// The first name of a value of an enumeration.
    #[must_use]
    pub fn enumerator_of(&self, enumeration: &str, value: u64) -> Option<&str> {
        self.enumerators(enumeration).find(|&(_, known)| known == value).map(|(name, _)| name)
    }

    fn enumerators(&self, enumeration: &str) -> impl Iterator<Item = (&str, u64)> {
        let kinds = [(TypeKind::Enum, 8), (TypeKind::Enum64, 12)].into_iter();
        kinds.filter_map(|(kind, size)| Some((self.at(self.find(kind, enumeration)?)?, size))).flat_map(
            move |(at, size)| {
                let count = (self.word(at + 4) & 0xffff) as usize;
                (0..count).map(move |number| {
                    let entry = at + 12 + size * number;
                    let low = self.word(entry + 4);
                    let value = if size == 12 {
                        u64::from(low) | u64::from(self.word(entry + 8)) << 32
                    } else {
                        i64::from(low as i32) as u64
                    };
                    (self.string(self.word(entry)), value)
                })
            },
        )
    }

    /// Fields of a map's value that updates do not touch, as offset and length: locks, timers, work, lists, trees, counts and pointers to
    /// objects of the kernel. `None` if the value has far more members or fields than any kernel takes.
    #[must_use]
    pub fn special_fields(&self, ty: u32) -> Option<Vec<(u32, u32)>> {
        let mut search = Search { btf: self, looked_at: 0, fields: Vec::new() };
        search.collect(ty, 0, 0)?;
        search.fields.sort_unstable();
        Some(search.fields)
    }

    /// What is behind names and qualifiers, tags kept.
    fn unqualified(&self, ty: u32) -> u32 {
        let mut ty = ty;
        for _ in 0..MAX_DEPTH {
            match self.kind(ty) {
                TypeKind::Typedef | TypeKind::Volatile | TypeKind::Const | TypeKind::Restrict | TypeKind::Variable => {
                    ty = self.size_or_type(ty);
                }
                _ => return ty,
            }
        }
        0
    }
}

/// A search for fields that only the kernel may change. It ends early where members or fields are too many.
struct Search<'a> {
    btf: &'a Btf,
    looked_at: usize,
    fields: Vec<(u32, u32)>,
}

impl Search<'_> {
    fn push(&mut self, offset: u32, bytes: u32) -> Option<()> {
        self.fields.push((offset, bytes));
        (self.fields.len() <= MAX_FIELDS).then_some(())
    }

    fn collect(&mut self, ty: u32, base: u32, depth: u32) -> Option<()> {
        self.looked_at += 1;
        if self.looked_at > MAX_FIELDS || depth > MAX_DEPTH {
            return None;
        }
        let btf = self.btf;
        let outer = btf.unqualified(ty);
        match btf.kind(outer) {
            TypeKind::Pointer => self.pointer(outer, base),
            TypeKind::Array => self.array(outer, base, depth),
            TypeKind::Struct | TypeKind::Union | TypeKind::Section => match btf.name(outer) {
                "bpf_spin_lock" | "bpf_res_spin_lock" | "bpf_refcount" => self.push(base, 4),
                "bpf_timer" | "bpf_wq" | "bpf_list_head" | "bpf_rb_root" | "bpf_task_work" => self.push(base, 16),
                _ => btf.members(outer).try_for_each(|member| {
                    self.collect(member.ty, base.checked_add(member.bit_offset / 8)?, depth + 1)
                }),
            },
            _ => Some(()),
        }
    }

    fn pointer(&mut self, ty: u32, base: u32) -> Option<()> {
        let mut target = self.btf.size_or_type(ty);
        for _ in 0..MAX_DEPTH {
            if self.btf.kind(target) != TypeKind::TypeTag {
                return Some(());
            }
            if self.btf.name(target).contains("kptr") {
                return self.push(base, 8);
            }
            target = self.btf.size_or_type(target);
        }
        None
    }

    fn array(&mut self, ty: u32, base: u32, depth: u32) -> Option<()> {
        let (element, count) = self.btf.array(ty);
        let inner = self.btf.resolved(element);
        if !matches!(self.btf.kind(inner), TypeKind::Pointer | TypeKind::Struct) {
            return Some(());
        }
        let of_others = std::mem::take(&mut self.fields);
        self.collect(element, 0, depth + 1)?;
        let first = std::mem::replace(&mut self.fields, of_others);
        let size = self.btf.size(inner);
        for at in 0..if first.is_empty() { 0 } else { count } {
            for &(offset, bytes) in &first {
                self.push(base.checked_add(at.checked_mul(size)?)?.checked_add(offset)?, bytes)?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information of these types, each as words after its name, and one text of names.
    fn btf(types: &[(u32, &[u32])], names: &[u8]) -> Result<Btf, BtfError> {
        let mut words = Vec::new();
        for (name, rest) in types {
            words.push(*name);
            words.extend_from_slice(rest);
        }
        let bytes = 4 * words.len() as u32;
        let mut data = vec![0x9f, 0xeb, 1, 0];
        let header = [24, 0, bytes, bytes, names.len() as u32];
        data.extend(header.iter().chain(&words).flat_map(|word| word.to_le_bytes()));
        data.extend_from_slice(names);
        Btf::parse(data)
    }

    const fn info(kind: TypeKind, count: u32) -> u32 {
        (kind as u32) << 24 | count
    }

    #[test]
    fn fields_that_only_the_kernel_changes_are_found_in_arrays_of_structures() {
        // struct v { int; struct bpf_timer t[3]; } with a timer of 16 bytes.
        let of = btf(
            &[
                (10, &[info(TypeKind::Struct, 0), 16]),
                (0, &[info(TypeKind::Array, 0), 0, 1, 1, 3]),
                (1, &[info(TypeKind::Struct, 2), 56, 0, 4, 0, 8, 2, 64]),
                (3, &[info(TypeKind::Int, 0), 4, 32]),
            ],
            b"\0v\0int\0\0t\0bpf_timer\0",
        )
        .unwrap();
        assert_eq!(of.name(1), "bpf_timer");
        assert_eq!(of.special_fields(3), Some(vec![(8, 16), (24, 16), (40, 16)]));
        assert_eq!(of.offset("v", "t"), Some(8));
        // Elements of 16 bytes from 8 on; there is no fourth, and no element by a name.
        let places = ["t.0", "t.2", "t.3", "t.x", "t.0.0"].map(|path| of.offset("v", path));
        assert_eq!(places, [Some(8), Some(40), None, None, None]);
        assert_eq!(of.size(2), 48);
    }

    #[test]
    fn types_in_a_circle_end_every_walk() {
        // 1: an array of itself. 2: a tag of itself. 3: a pointer to 2. 4: a structure with itself as its member without a name, many times.
        let members: Vec<u32> =
            [info(TypeKind::Struct, 40), 8].into_iter().chain((0..40).flat_map(|_| [0, 4, 0])).collect();
        let of = btf(
            &[
                (0, &[info(TypeKind::Array, 0), 0, 1, 1, 9]),
                (0, &[info(TypeKind::TypeTag, 0), 2]),
                (0, &[info(TypeKind::Pointer, 0), 2]),
                (1, &members),
            ],
            b"\0s\0",
        )
        .unwrap();
        assert_eq!(of.size(1), 0);
        assert_eq!(of.special_fields(3), None);
        assert_eq!(of.special_fields(4), None);
        assert_eq!(of.offset("s", "x"), None);
    }

    #[test]
    fn one_text_without_an_end_is_not_the_name_of_every_type() {
        let types: Vec<(u32, &[u32])> = (0..100).map(|name| (name, &[8 << 24, 0][..])).collect();
        let of = btf(&types, &[b'x'; 1 << 16]).unwrap();
        assert!(of.by_name.keys().map(|(_, name)| name.len()).sum::<usize>() <= 100 * MAX_NAME_BYTES);
        assert_eq!(of.name(1), "");
    }
}
