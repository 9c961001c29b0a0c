//! Programs that call helpers and kernel functions, translated and by the definition of their instructions, on hosts that are alike.

#[path = "../../../bpf/tests/assembler/mod.rs"]
mod assembler;
#[path = "../../../loader/tests/types/mod.rs"]
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use assembler::*;
use warmcore_bpf::btf::Btf;
use warmcore_bpf::{MapKind, MapSpec, Program, interpret};
use warmcore_topology::CpuId;

use super::object::{Names, check_table};
use super::sites::Site;
use super::tracepoints::{Tracepoint, Value};
use super::{Attached, Host, Layout, Need, NeedKind, ProgramId, ProgramSource, Programs};

/// Kernel functions that programs here call.
const FUNCTIONS: [&str; 14] = [
    "bpf_obj_new_impl",
    "bpf_rbtree_add_impl",
    "bpf_rbtree_first",
    "bpf_rbtree_remove",
    "bpf_list_push_front",
    "bpf_list_push_back",
    "bpf_list_pop_back",
    "bpf_refcount_acquire_impl",
    "bpf_obj_drop_impl",
    "bpf_iter_bits_new",
    "bpf_iter_bits_next",
    "bpf_strstr",
    "bpf_dynptr_slice",
    "bpf_throw",
];

fn btf() -> (Arc<Btf>, Vec<i32>) {
    let (bytes, numbers) = types::kernel(&FUNCTIONS);
    (Arc::new(Btf::parse(bytes).unwrap()), numbers)
}

fn kfunc(name: &str) -> [u8; 8] {
    let place = FUNCTIONS.iter().position(|&known| known == name).unwrap();
    code(0x85, 0, 2, 0, btf().1[place])
}

fn host() -> Host {
    let btf = btf().0;
    let layout = Arc::new(Layout::new(&btf).unwrap());
    let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
    let mut host = Host::new(&machine, Arc::clone(&btf), layout).unwrap();
    host.kept.types = Some(btf);
    host
}

fn spec(kind: MapKind, key_bytes: u32, value_bytes: u32, entries: u32) -> MapSpec {
    MapSpec { name: "map".into(), kind, key_bytes, value_bytes, entries, flags: 0, extra: 0, special: Vec::new() }
}

/// Makes maps, which programs name by 1 and so on, and has something prepared; gives what a program gives, which is the same both ways.
fn run_with(maps: &[MapSpec], program: &[[u8; 8]], prepare: impl Fn(&mut Host)) -> u64 {
    let bytes = program.concat();
    let begin = || {
        let mut host = Box::new(host());
        let handles = maps.iter().map(|spec| host.maps.create(spec.clone()).unwrap()).collect::<Vec<u64>>();
        prepare(&mut host);
        (host, (1..).zip(handles).collect::<BTreeMap<i32, u64>>())
    };
    let (mut host, maps) = begin();
    let mut programs = Programs::default();
    let source = ProgramSource { name: "test", bytes: &bytes, functions: &[], catches: None, maps: &maps, types: None };
    let id = programs.load(&mut host, &source).unwrap();
    assert!(programs.calls().all(|need| need.is_modelled), "{:?}", programs.calls().collect::<Vec<_>>());
    let translated = programs.run(&mut host, id, &mut [], CpuId(0)).unwrap();
    drop(host);

    let (mut host, maps) = begin();
    let program = Program::new("test", &bytes, &[]).unwrap();
    host.frame.allow(1 << 20);
    let (memory, frame) = (&raw mut host.maps.memory, &raw mut host.frame);
    let (mut calls, mut helpers) = (BTreeSet::new(), BTreeMap::new());
    let mut names = Names { host: &mut host, maps: &maps, calls: &mut calls, helpers: &mut helpers, program: 0 };
    // SAFETY: functions of the host get a pointer to its first field; they and the interpreter take turns.
    let (defined, trap) = unsafe { interpret(&program, [0; 5], &mut *memory, &mut *frame, &mut names) };
    assert_eq!(trap, None);
    assert_eq!(translated, defined as u32, "translated (left) and by definition (right)");
    defined
}

fn run(maps: &[MapSpec], program: &[[u8; 8]]) -> u64 {
    run_with(maps, program, |_| {})
}

/// `r1 = the map of this number`.
fn map(register: u8, number: i32) -> [[u8; 8]; 2] {
    [code(0x18, register, 1, 0, number), code(0, 0, 0, 0, 0)]
}

/// `r = address of a function`, so many instructions behind the next one.
fn function(register: u8, distance: i32) -> [[u8; 8]; 2] {
    [code(0x18, register, 4, 0, distance), code(0, 0, 0, 0, 0)]
}

/// `r = frame pointer + offset`.
fn stack(register: u8, offset: i32) -> [[u8; 8]; 2] {
    [mov(register, 10), add_imm(register, offset)]
}

/// Calls a helper of a map and a value of eight bytes on the stack.
fn on_value(number: i32, map_number: i32, value: Option<i32>) -> Vec<[u8; 8]> {
    let mut program: Vec<[u8; 8]> = value.map(|value| store_imm(8, 10, -8, value)).into_iter().collect();
    program.extend(map(1, map_number));
    program.extend(stack(2, -8));
    program.extend([mov_imm(3, 0), helper(number)]);
    program
}

/// `r7 = r7 * 10 + the value on the stack`.
fn add_digit() -> Vec<[u8; 8]> {
    vec![code(0x27, 7, 0, 0, 10), load(8, 1, 10, -8), code(0x0f, 7, 1, 0, 0)]
}

const PUSH: i32 = 87;
const POP: i32 = 88;
const PEEK: i32 = 89;

#[test]
fn a_queue_gives_the_oldest_a_stack_the_newest_and_a_full_one_takes_no_more() {
    for (kind, order) in [(MapKind::Queue, 112), (MapKind::Stack, 221)] {
        let mut program = vec![mov_imm(7, 0)];
        (1..=3).for_each(|value| program.extend(on_value(PUSH, 1, Some(value))));
        // Two places: the third is refused.
        program.push(mov(8, 0));
        for number in [PEEK, POP, POP] {
            program.extend(on_value(number, 1, None));
            program.extend(add_digit());
        }
        program.extend(on_value(POP, 1, None));
        // -7 and -2: -E2BIG and -ENOENT.
        program.extend([code(0x27, 7, 0, 0, 100), code(0x1f, 7, 8, 0, 0), code(0x1f, 7, 0, 0, 0), mov(0, 7), exit()]);
        assert_eq!(run(&[spec(kind, 0, 8, 2)], &program), order * 100 + 7 + 2, "{kind:?}");
    }
}

/// By the files of tracefs: of a text of any length a field has the length, with its zero, and the place.
#[test]
fn a_record_has_fields_where_its_format_says_and_texts_of_any_length_behind_them() {
    let mut host = host();
    let tracepoint = Tracepoint::at(Site::IrqHandlerEntry).unwrap();
    let record = host.write_record(tracepoint, &[Value::Number(7), Value::Text("virtio3-rx")]);
    let bytes = host.maps.memory.read(record, 32).unwrap();
    assert_eq!(bytes[..8], [0; 8]);
    assert_eq!(bytes[8..12], 7_u32.to_le_bytes());
    assert_eq!(bytes[12..16], (11_u32 << 16 | 16).to_le_bytes());
    assert_eq!(bytes[16..28], *b"virtio3-rx\0\0");
    let tracepoint = Tracepoint::at(Site::SchedProcessFork).unwrap();
    let [parent, child] = [7, 8].map(Value::Number);
    let record = host.write_record(tracepoint, &[Value::Text("sh"), parent, Value::Text("worker-0"), child]);
    let bytes = host.maps.memory.read(record, 37).unwrap();
    assert_eq!([bytes[12], bytes[20]], [7, 8]);
    assert_eq!(bytes[8..12], (3_u32 << 16 | 24).to_le_bytes());
    assert_eq!(bytes[16..20], (9_u32 << 16 | 27).to_le_bytes());
    assert_eq!(bytes[24..37], *b"sh\0worker-0\0\0", "one text behind the other");
    let tracepoint = Tracepoint::at(Site::SchedSwitch).unwrap();
    let (leaves, comes) = (Value::Text("a-name-of-more-than-fifteen"), Value::Text("swapper/3"));
    let [pid, priority, state] = [1005, 120, 1].map(Value::Number);
    let values = [leaves, pid, priority, state, comes, Value::Number(0), Value::Number(u64::MAX)];
    let record = host.write_record(tracepoint, &values);
    let bytes = host.maps.memory.read(record, 64).unwrap();
    assert_eq!(bytes[8..24], *b"a-name-of-more-\0");
    assert_eq!([24, 28, 32, 36, 56].map(|at| bytes[at]), [0xed, 120, 1, 0, 0]);
    assert_eq!(bytes[40..56], *b"swapper/3\0\0\0\0\0\0\0");
    assert_eq!(bytes[60..64], [255; 4], "a deadline task's, -1");
}

#[test]
fn a_filter_knows_what_was_added() {
    let mut program = on_value(PUSH, 1, Some(5));
    program.extend(on_value(PEEK, 1, Some(5)));
    program.push(mov(7, 0));
    program.extend(on_value(PEEK, 1, Some(6)));
    program.extend([code(0x1f, 7, 0, 0, 0), mov(0, 7), exit()]);
    assert_eq!(run(&[spec(MapKind::BloomFilter, 0, 8, 4)], &program), 2, "0 and -ENOENT");
}

#[test]
fn a_map_of_maps_gives_the_map_that_a_program_then_uses() {
    let mut program: Vec<[u8; 8]> = vec![store_imm(4, 10, -16, 1), store_imm(8, 10, -8, 9)];
    program.extend(map(1, 1));
    program.extend(stack(2, -16));
    program.extend([helper(1), mov(6, 0), mov(1, 0)]);
    program.extend(stack(2, -8));
    program.extend([mov_imm(3, 0), helper(PUSH), store_imm(8, 10, -8, 0), mov(1, 6)]);
    program.extend(stack(2, -8));
    program.extend([helper(POP), load(8, 0, 10, -8), exit()]);
    let maps = [spec(MapKind::ArrayOfMaps, 4, 4, 2), spec(MapKind::Queue, 0, 8, 2)];
    assert_eq!(run_with(&maps, &program, |host| host.maps.hold(1, &1u32.to_le_bytes(), 2).unwrap()), 9);
}

#[test]
fn a_loop_calls_its_function_until_that_ends_it() {
    // Adds its round to what the context points to; ends behind round 3.
    let add = [load(8, 3, 2, 0), code(0x0f, 3, 1, 0, 0), store(8, 2, 3, 0), mov_imm(0, 0)];
    let end = [code(0xb5, 1, 0, 1, 2), mov_imm(0, 1), exit()];
    let repeated = |rounds| {
        let mut program = vec![store_imm(8, 10, -8, 0), mov_imm(1, rounds)];
        program.extend(function(2, 9));
        program.extend(stack(3, -8));
        program.extend([mov_imm(4, 0), helper(181), code(0x27, 0, 0, 0, 10), load(8, 1, 10, -8)]);
        program.extend([code(0x0f, 0, 1, 0, 0), exit()]);
        program.extend(add.iter().chain(&end));
        run(&[], &program)
    };
    assert_eq!((repeated(3), repeated(9)), (33, 46));
}

#[test]
fn every_element_of_a_map_is_seen() {
    for kind in [MapKind::Array, MapKind::PercpuArray, MapKind::Hash, MapKind::LruHash, MapKind::PercpuHash] {
        let mut program = vec![store_imm(8, 10, -8, 0)];
        program.extend(map(1, 1));
        program.extend(function(2, 7));
        program.extend(stack(3, -8));
        program.extend([mov_imm(4, 0), helper(164), load(8, 0, 10, -8), exit()]);
        // (map, key, value, context): adds key times value.
        program.extend([load(4, 5, 2, 0), load(8, 3, 3, 0), code(0x2f, 5, 3, 0, 0), load(8, 3, 4, 0)]);
        program.extend([code(0x0f, 3, 5, 0, 0), store(8, 4, 3, 0), mov_imm(0, 0), exit()]);
        let sum = run_with(&[spec(kind, 4, 8, 3)], &program, |host| {
            for key in 0..3u32 {
                let value = u64::from(10 * key + 1).to_le_bytes();
                host.maps.update(1, &key.to_le_bytes(), &value, 0, Some(0)).unwrap();
            }
        });
        assert_eq!(sum, 11 + 2 * 21, "{kind:?}");
    }
}

#[test]
fn what_user_space_has_written_is_drained_to_the_end() {
    // The callback adds the first eight bytes of each record, by `bpf_dynptr_data`.
    let mut program = vec![store_imm(8, 10, -8, 0)];
    program.extend(map(1, 1));
    program.extend(function(2, 9));
    program.extend(stack(3, -8));
    program.extend([mov_imm(4, 0), helper(209), code(0x27, 0, 0, 0, 100), load(8, 1, 10, -8)]);
    program.extend([code(0x0f, 0, 1, 0, 0), exit()]);
    program.extend([mov(6, 2), mov_imm(2, 0), mov_imm(3, 8), helper(203), code(0x15, 0, 0, 4, 0)]);
    program.extend([load(8, 1, 0, 0), load(8, 2, 6, 0), code(0x0f, 2, 1, 0, 0), store(8, 6, 2, 0)]);
    program.extend([mov_imm(0, 0), exit()]);
    let result = run_with(&[spec(MapKind::UserRingBuffer, 0, 0, 4096)], &program, |host| {
        let ring = host.maps.get(1).unwrap().address;
        // Three records of eight bytes, the second to be skipped.
        for (number, (header, value)) in [(8, 5), (8 | 1 << 30, 70), (8, 6)].into_iter().enumerate() {
            let at = ring + 8192 + 16 * number as u64;
            host.store_u64(at, header);
            host.store_u64(at + 8, value);
        }
        host.store_u64(ring + 4096, 48);
    });
    assert_eq!(result, 200 + 11);
}

#[test]
fn a_tree_keeps_objects_in_the_order_of_its_function_and_a_list_in_that_of_its_ends() {
    // The root is on the stack; objects of structure `rq` (64 bytes) have their number behind a node of 32.
    let ty = i32::try_from(btf().0.find(warmcore_bpf::btf::TypeKind::Struct, "rq").unwrap()).unwrap();
    let mut program = vec![mov_imm(7, 0)];
    for number in [5, 3, 4] {
        program.extend([mov_imm(1, ty), mov_imm(2, 0), kfunc("bpf_obj_new_impl"), store_imm(8, 0, 32, number)]);
        program.extend(stack(1, -16));
        program.push(mov(2, 0));
        program.extend(function(3, 0));
        program.extend([kfunc("bpf_rbtree_add_impl"), mov_imm(0, 0)]);
    }
    // The first, taken out, and the first that is left.
    for _ in 0..2 {
        program.extend(stack(1, -16));
        program.extend([kfunc("bpf_rbtree_first"), load(8, 1, 0, 32), code(0x27, 7, 0, 0, 10)]);
        program.push(code(0x0f, 7, 1, 0, 0));
        if program.len() < 45 {
            program.extend([mov(2, 0), mov(1, 10), add_imm(1, -16), kfunc("bpf_rbtree_remove")]);
        }
    }
    program.extend([mov(0, 7), exit()]);
    let less = program.len();
    program.extend([
        load(8, 1, 1, 32),
        load(8, 2, 2, 32),
        mov_imm(0, 0),
        code(0x3d, 1, 2, 1, 0),
        mov_imm(0, 1),
        exit(),
    ]);
    // Where the function is was not known before.
    for (at, slot) in program.iter_mut().enumerate().filter(|(_, slot)| slot[0] == 0x18) {
        *slot = function(3, (less - at - 1) as i32)[0];
    }
    assert_eq!(run(&[], &program), 34);

    let mut program = vec![mov_imm(7, 0)];
    for (push, number) in [("bpf_list_push_back", 1), ("bpf_list_push_front", 2), ("bpf_list_push_back", 3)] {
        program.extend([mov_imm(1, ty), mov_imm(2, 0), kfunc("bpf_obj_new_impl"), store_imm(8, 0, 32, number)]);
        program.extend(stack(1, -16));
        program.extend([mov(2, 0), kfunc(push)]);
    }
    for _ in 0..3 {
        program.extend(stack(1, -16));
        program.extend([kfunc("bpf_list_pop_back"), load(8, 1, 0, 32), code(0x27, 7, 0, 0, 10)]);
        program.push(code(0x0f, 7, 1, 0, 0));
    }
    program.extend([mov(0, 7), exit()]);
    assert_eq!(run(&[], &program), 312);
}

#[test]
fn an_object_is_there_as_long_as_somebody_holds_it() {
    let ty = i32::try_from(btf().0.find(warmcore_bpf::btf::TypeKind::Struct, "rq").unwrap()).unwrap();
    let drop = |from: u8| [mov(1, from), mov_imm(2, 0), kfunc("bpf_obj_drop_impl")];
    let new = [mov_imm(1, ty), mov_imm(2, 0), kfunc("bpf_obj_new_impl")];
    let mut program = new.to_vec();
    program.extend([mov(6, 0), mov(1, 0), mov_imm(2, 0), kfunc("bpf_refcount_acquire_impl"), mov(7, 0)]);
    program.extend(drop(6));
    program.extend(new);
    // Another object while one still holds the first.
    program.extend([mov(8, 0), code(0x1f, 8, 6, 0, 0)]);
    program.extend(drop(7));
    program.extend(new);
    // And the same place once nobody does.
    program.extend([code(0x1f, 0, 6, 0, 0), code(0x15, 8, 0, 1, 0), add_imm(0, 1), exit()]);
    assert_eq!(run(&[], &program), 1);
}

#[test]
fn bits_are_iterated_across_words() {
    let mut program = vec![store_imm(8, 10, -16, 5), store_imm(8, 10, -8, 2), mov_imm(7, 0)];
    program.extend(stack(1, -32));
    program.extend(stack(2, -16));
    program.extend([mov_imm(3, 2), kfunc("bpf_iter_bits_new")]);
    program.extend(stack(1, -32));
    program.extend([kfunc("bpf_iter_bits_next"), code(0x15, 0, 0, 4, 0), load(4, 1, 0, 0), code(0x27, 7, 0, 0, 100)]);
    program.extend([code(0x0f, 7, 1, 0, 0), code(0x05, 0, 0, -8, 0), mov(0, 7), exit()]);
    assert_eq!(run(&[], &program), 2 * 100 + 65, "bits 0, 2 and 65");
}

#[test]
fn pointers_with_a_length_reach_no_further_and_texts_are_searched() {
    // dynptr_from_mem of 16 bytes at -16, a slice of 8 from 8 on is at -8; one of 9 is not there.
    let mut program = vec![store_imm(8, 10, -16, 0x6261), store_imm(8, 10, -8, 0x62)];
    program.extend(stack(1, -16));
    program.extend([mov_imm(2, 16), mov_imm(3, 0)]);
    program.extend(stack(4, -32));
    program.extend([helper(197), mov(7, 0)]);
    for bytes in [8, 9] {
        program.extend(stack(1, -32));
        program.extend([mov_imm(2, 8), mov_imm(3, 0), mov_imm(4, bytes), kfunc("bpf_dynptr_slice")]);
        let is_there = if bytes == 8 { 1 } else { 10 };
        program.extend([code(0x15, 0, 0, 1, 0), add_imm(7, is_there)]);
    }
    // "ab" has "b" at 1.
    program.extend(stack(1, -16));
    program.extend(stack(2, -8));
    program.extend([kfunc("bpf_strstr"), code(0x27, 0, 0, 0, 100), code(0x0f, 0, 7, 0, 0), exit()]);
    assert_eq!(run(&[], &program), 101);
}

#[test]
fn what_is_thrown_is_given_or_goes_through_the_function_that_is_named_for_it() {
    let program = [mov_imm(1, 40), kfunc("bpf_throw"), mov_imm(0, 1), exit(), mov(0, 1), add_imm(0, 2), exit()];
    let maps = BTreeMap::new();
    for (catches, given) in [(None, 40), (Some(4), 42)] {
        let mut host = Box::new(host());
        let mut programs = Programs::default();
        let bytes = program.concat();
        let source =
            ProgramSource { name: "test", bytes: &bytes, functions: &[0, 4], catches, maps: &maps, types: None };
        let id = programs.load(&mut host, &source).unwrap();
        assert!(programs.calls().all(|need| need.is_modelled));
        assert_eq!(programs.run(&mut host, id, &mut [], CpuId(0)).unwrap(), given);
    }
}

/// Core scheduling is not modelled.
#[test]
fn an_operation_that_is_never_called_is_known_by_name() {
    let mut host = Box::new(host());
    let mut programs = Programs::default();
    let (bytes, maps) = ([mov_imm(0, 0), exit()].concat(), BTreeMap::new());
    let source = ProgramSource { name: "test", bytes: &bytes, functions: &[], catches: None, maps: &maps, types: None };
    let id = programs.load(&mut host, &source).unwrap();
    let table = Attached {
        name: "test".into(),
        speaks_cids: false,
        programs: ["core_sched_before", "enqueue"].map(|name| (name.to_owned(), id)).into(),
        values: BTreeMap::new(),
        at: Vec::new(),
    };
    let object = programs.attach(&host, &table).unwrap();
    let missing: Vec<String> = object.needs().filter(|need| !need.is_modelled).map(ToString::to_string).collect();
    assert_eq!(missing, ["operation core_sched_before (never called here)"]);
}

#[test]
fn what_is_not_modelled_is_known_by_name() {
    let btf = btf().0;
    assert_eq!(
        Need::of_map(&btf, 22),
        Need::new(NeedKind::MapKind, "22", true),
        "without names in the type information"
    );
    assert!(!Need::of_map(&btf, 14).is_modelled);
}

/// Each refusal with the words that a guest of Linux 7.2 has for it.
#[test]
fn a_table_that_a_kernel_refuses_is_refused() {
    type Change = fn(&mut Attached);
    let cases: [(&str, Change); 9] = [
        ("", |_| {}),
        ("it has no name", |table| table.name.clear()),
        ("EINVAL", |table| table.name = "my sched-1".into()),
        ("no flag of schedulers is 0x100000", |table| {
            table.values.insert("flags".into(), 1 << 20);
        }),
        ("E2BIG", |table| {
            table.values.insert("dispatch_max_batch".into(), 0x8000_0001);
        }),
        ("timeout_ms is above 30 000", |table| {
            table.values.insert("timeout_ms".into(), 30_001);
        }),
        ("SCX_OPS_ENQ_LAST requires ops.enqueue() to be implemented", |table| {
            table.programs.clear();
            table.values.insert("flags".into(), 1 << 1);
        }),
        ("SCX_OPS_BUILTIN_IDLE_PER_NODE requires CPU idle selection enabled", |table| {
            table.programs.insert("update_idle".into(), ProgramId(0));
            table.values.insert("flags".into(), 1 << 6);
        }),
        ("expected hotplug seq 99 did not match actual 3", |table| {
            table.values.insert("hotplug_seq".into(), 99);
        }),
    ];
    for (words, change) in cases {
        let mut table = Attached {
            name: "my.sched_1".into(),
            speaks_cids: false,
            programs: BTreeMap::from([("enqueue".into(), ProgramId(0))]),
            values: BTreeMap::from([("hotplug_seq".into(), 3), ("flags".into(), 1 | 1 << 1)]),
            at: Vec::new(),
        };
        change(&mut table);
        let refusal = check_table(&table, 3).err().unwrap_or_default();
        assert!(refusal.contains(words) && refusal.is_empty() == words.is_empty(), "{words}: {refusal}");
    }
}

/// Expected lines by hand, from the encoding of instructions (`bpf_insn`).
#[test]
fn a_listing_has_all_that_was_loaded_with_maps_by_their_numbers() {
    let mut host = Box::new(host());
    host.maps.create(spec(MapKind::Hash, 4, 8, 1)).unwrap();
    let data = host.maps.create(MapSpec { name: "data\n".into(), ..spec(MapKind::Array, 4, 8, 2) }).unwrap();
    assert_eq!(data, 2, "the second map");
    host.maps.update(data, &[1, 0, 0, 0], &[0xab, 0, 0, 0, 0, 0, 0, 1], 0, None).unwrap();
    // The loader knows it as descriptor 7.
    let bytes = [&map(1, 7)[..], &[mov_imm(0, 0), exit()]].concat().concat();
    let maps = BTreeMap::from([(7, data)]);
    let source =
        ProgramSource { name: "front", bytes: &bytes, functions: &[], catches: None, maps: &maps, types: None };
    let mut programs = Programs::default();
    let id = programs.load(&mut host, &source).unwrap();
    let attached = Attached {
        name: "own".into(),
        speaks_cids: false,
        programs: BTreeMap::from([("enqueue".into(), id)]),
        values: BTreeMap::from([("timeout_ms".into(), 5000)]),
        at: Vec::new(),
    };
    let object = programs.attach(&host, &attached).unwrap();
    let wanted = r#"scheduler own
flags 0x0
timeout_ms 5000
dispatch_max_batch 32
exit_dump_len 32768
operation enqueue program 0
map 1 kind 1 name "map" key 4 value 8 entries 1 flags 0x0, values not listed
map 2 kind 2 name "data\n" key 4 value 8 entries 2 flags 0x0
0 0000000000000000ab00000000000001
program 0 name "front" functions at []
0 18110000020000000000000000000000b7000000000000009500000000000000
"#;
    assert_eq!(object.listing(&host.maps), wanted);
}
