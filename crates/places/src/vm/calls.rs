//! What a sched_ext scheduler's programs called in a guest, from the records of probes; and which operation a program is.
//!
//! A record is of the entry of a kernel function, with the programs on the stack: the innermost one that is an operation is the one that called it, by itself or
//! through functions of its own. (A function that `dispatch` calls may call `dequeue`.) What one call of an operation called is not told by the kernel.
//! It is taken to end where, on its CPU, another operation calls that is not called within it, or the kernel enters somebody who calls operations.

use std::collections::BTreeMap;

use warmcore_schedulers::Operation;

use crate::place::{OperationUse, Sequence};

/// Bytes of a program's name that the kernel keeps.
const NAME_BYTES: usize = 15;

/// Counts by operation, from those by the names that programs have in the kernel; the others are not of the table.
pub fn operations(programs: &[(String, u64)]) -> Vec<OperationUse> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in programs {
        if let Some(operation) = operation_of(name) {
            *counts.entry(operation).or_default() += count;
        }
    }
    counts.into_iter().map(|(name, calls)| OperationUse { name: name.to_owned(), calls, cost: None }).collect()
}

/// The operation that a program is, by convention: the scheduler's name and the operation's, cut off where the kernel does.
fn operation_of(program: &str) -> Option<&'static str> {
    let is_cut = program.len() >= NAME_BYTES;
    let ends = program.match_indices('_').map(|(at, _)| &program[at + 1..]);
    let mut names = std::iter::once(program).chain(ends);
    names.find_map(|end| {
        let fits = |name: &str| name == end || (is_cut && !end.is_empty() && name.starts_with(end));
        Operation::ALL.iter().map(|(name, _)| *name).find(|name| fits(name))
    })
}

/// Functions that lend themselves to programs begin so; others that are recorded call operations.
const LENT: &str = "scx_bpf_";

/// Reads the clock, which may be inlined into programs and then leaves no record.
const CLOCK: &str = "scx_bpf_now";

/// A record: on which CPU which function was entered.
struct CallRecord<'a> {
    cpu: u32,
    function: &'a str,
    /// Another such function called it, not a program.
    is_nested: bool,
}

/// `task-1 [002] d..2. 1.5: FUNCTION: (FUNCTION+0x4/0x40)`.
fn record(line: &str) -> Option<CallRecord<'_>> {
    let (cpu, rest) = cpu_of(line)?;
    let (head, _) = rest.split_once(": (")?;
    Some(CallRecord { cpu, function: head.rsplit(' ').next()?, is_nested: false })
}

/// The CPU of a line, and what stands behind it.
fn cpu_of(line: &str) -> Option<(u32, &str)> {
    let (_, rest) = line.split_once('[')?;
    let (cpu, rest) = rest.split_once(']')?;
    Some((cpu.parse().ok()?, rest))
}

/// ` => bpf_prog_`, 16 hexadecimal digits, and the name.
fn program_of(line: &str) -> Option<&str> {
    let (_, name) = line.strip_prefix(" => bpf_prog_")?.split_once('_')?;
    name.split(['+', ' ', '[']).next()
}

/// A function's name as programs know it, without what the kernel's source adds for variants of one (`___v2`).
fn plain(function: &str) -> &str {
    function.split("___").next().filter(|name| !name.is_empty()).unwrap_or(function)
}

/// Calls of operations, as far as they have come, and those that have ended.
#[derive(Default)]
struct Calls<'a> {
    ended: BTreeMap<(&'static str, Vec<&'a str>), u64>,
    /// By CPU, the innermost last.
    open: BTreeMap<u32, Vec<OperationCall<'a>>>,
}

struct OperationCall<'a> {
    operation: &'static str,
    functions: Vec<&'a str>,
    /// The last of them by its whole name.
    last: &'a str,
}

impl<'a> Calls<'a> {
    /// A function was entered, with these programs on the stack, the innermost first.
    fn enter(&mut self, record: CallRecord<'a>, programs: &[&str]) {
        let CallRecord { cpu, function, is_nested } = record;
        if !function.trim_start_matches('_').starts_with(LENT) {
            self.end(cpu);
            return;
        }
        // The kernel uses such functions itself; the clock's look is no call in all places.
        if function == CLOCK || is_nested {
            return;
        }
        // Operations of one table have names that begin alike; a function of its own may end like one.
        let outermost = programs.last().and_then(|program| Some((program, operation_of(program)?)));
        let Some((program, operation)) = outermost else { return };
        let prefix = program.strip_suffix(operation).unwrap_or(program);
        let is_alike = |program: &&&str| program.starts_with(prefix);
        let operations: Vec<&'static str> =
            programs.iter().rev().filter(is_alike).filter_map(|program| operation_of(program)).collect();
        // What is open goes on as far as it is on the stack.
        let open = self.open.entry(cpu).or_default();
        let same = open.iter().zip(&operations).take_while(|(call, operation)| call.operation == **operation).count();
        let ended: Vec<OperationCall<'_>> = open.drain(same..).collect();
        open.extend(operations[same..].iter().map(|&operation| OperationCall {
            operation,
            functions: Vec::new(),
            last: "",
        }));
        if let Some(call) = open.last_mut() {
            // A function that jumps to a variant of itself is left without a frame.
            if call.last == function || plain(call.last) != plain(function) {
                call.functions.push(plain(function));
            }
            call.last = function;
        }
        ended.into_iter().for_each(|call| self.count(call));
    }

    fn end(&mut self, cpu: u32) {
        self.open.remove(&cpu).into_iter().flatten().for_each(|call| self.count(call));
    }

    fn count(&mut self, call: OperationCall<'a>) {
        if !call.functions.is_empty() {
            *self.ended.entry((call.operation, call.functions)).or_default() += 1;
        }
    }
}

/// What calls of operations called, with how often it was so. A stack follows its record.
pub fn sequences(text: &str) -> Vec<Sequence> {
    let mut calls = Calls::default();
    // Of each CPU the last record; and the CPU whose stack it is.
    let mut last: BTreeMap<u32, (CallRecord<'_>, Vec<&str>)> = BTreeMap::new();
    let mut of_stack = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(program) = program_of(line) {
            if let Some((_, programs)) = last.get_mut(&of_stack) {
                programs.push(program);
            }
        } else if let Some(frame) = line.strip_prefix(" => ") {
            if let Some((record, programs)) = last.get_mut(&of_stack)
                && programs.is_empty()
            {
                record.is_nested |= frame.split(['+', ' ']).next() != Some(record.function);
            }
        } else if line.ends_with("<stack trace>") {
            of_stack = cpu_of(line).map_or(of_stack, |(cpu, _)| cpu);
        } else if let Some(record) = record(line)
            && let Some((before, programs)) = last.insert(record.cpu, (record, Vec::new()))
        {
            calls.enter(before, &programs);
        }
    }
    for (record, programs) in last.into_values() {
        calls.enter(record, &programs);
    }
    let open: Vec<u32> = calls.open.keys().copied().collect();
    open.into_iter().for_each(|cpu| calls.end(cpu));
    let sequence = |((operation, functions), count): ((&str, Vec<&str>), u64)| Sequence {
        operation: operation.to_owned(),
        functions: functions.into_iter().map(str::to_owned).collect(),
        count,
    };
    calls.ended.into_iter().map(sequence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_says_its_operation_even_if_it_is_cut_off() {
        for (program, operation) in [
            ("fifo_enqueue", Some("enqueue")),
            ("fifo_llc_dispat", Some("dispatch")),
            ("lavd_select_cpu", Some("select_cpu")),
            ("flash_select_cp", Some("select_cpu")),
            ("bpfland_init_ta", Some("init_task")),
            ("lavd_init", Some("init")),
            ("enqueue", Some("enqueue")),
            ("lavd_disp", None),
            ("somebody_else", None),
        ] {
            assert_eq!(operation_of(program), operation, "{program}");
        }
        let counts = [("fifo_enqueue".to_owned(), 3), ("other".to_owned(), 9)];
        assert_eq!(operations(&counts), [OperationUse { name: "enqueue".into(), calls: 3, cost: None }]);
    }

    #[test]
    fn records_become_what_each_call_called() {
        let text = "# tracer: nop
          <...>-71  [000] d..2.  1.000001: scx_bpf_select_cpu_dfl: (scx_bpf_select_cpu_dfl+0x4/0x80)
          <...>-71  [000] d..2.  1.000001: <stack trace>
 => scx_bpf_select_cpu_dfl
 => bpf_prog_0123456789abcdef_can_dispatch
 => bpf_prog_0123456789abcdef_fifo_select_cpu
          <...>-71  [000] d..2.  1.000001: scx_bpf_select_cpu_and: (scx_bpf_select_cpu_and+0x4/0x80)
          <...>-71  [000] d..2.  1.000001: <stack trace>
 => scx_bpf_select_cpu_and
 => scx_bpf_select_cpu_dfl
 => bpf_prog_0123456789abcdef_pick
 => bpf_prog_0123456789abcdef_fifo_select_cpu
          <...>-71  [001] d..2.  1.000002: __scx_bpf_dsq_insert_vtime: (__scx_bpf_dsq_insert_vtime+0x4/0x40)
          <...>-71  [001] d..2.  1.000002: <stack trace>
 => bpf_prog_0123456789abcdee_fifo_enqueue
          <...>-71  [000] d..2.  1.000003: scx_bpf_dsq_insert___v2: (scx_bpf_dsq_insert___v2+0x4/0x80)
          <...>-71  [000] d..2.  1.000003: <stack trace>
 => bpf_prog_0123456789abcdef_fifo_select_cpu
          <...>-71  [000] d..2.  1.000004: enqueue_task_scx: (enqueue_task_scx+0x4/0x300)
          <...>-71  [000] d..2.  1.000005: scx_bpf_dsq_insert: (scx_bpf_dsq_insert+0x4/0x80)
          <...>-71  [000] d..2.  1.000005: <stack trace>
 => bpf_prog_0123456789abcdef_fifo_select_cpu
          <...>-71  [000] d..2.  1.000005: scx_bpf_dsq_insert___v2: (scx_bpf_dsq_insert___v2+0x4/0x80)
          <...>-71  [000] d..2.  1.000005: <stack trace>
 => bpf_prog_0123456789abcdef_fifo_select_cpu
          <...>-71  [000] d..2.  1.000005: dispatch_to_local_dsq: (dispatch_to_local_dsq+0x4/0x80)
          <...>-71  [000] d..2.  1.000005: scx_bpf_dsq_move_to_local: (scx_bpf_dsq_move_to_local+0x4/0x80)
          <...>-71  [000] d..2.  1.000005: <stack trace>
 => bpf_prog_0123456789abcdef_fifo_dispatch
          <...>-71  [000] d..2.  1.000005: scx_bpf_task_cpu: (scx_bpf_task_cpu+0x4/0x80)
          <...>-71  [000] d..2.  1.000005: <stack trace>
 => bpf_prog_0123456789abcdef_fifo_dequeue
 => bpf_prog_0123456789abcdef_fifo_dispatch
          <...>-71  [000] d..2.  1.000005: scx_bpf_kick_cpu: (scx_bpf_kick_cpu+0x4/0x80)
          <...>-71  [000] d..2.  1.000005: <stack trace>
 => bpf_prog_0123456789abcdef_fifo_dispatch
          <...>-71  [000] d..2.  1.000006: scx_bpf_now: (scx_bpf_now+0x4/0x80)
          <...>-71  [000] d..2.  1.000006: <stack trace>
 => bpf_prog_0123456789abcdef_fifo_select_cpu
          <...>-71  [000] d..2.  1.000007: scx_bpf_kick_cpu: (scx_bpf_kick_cpu+0x4/0x80)
          <...>-71  [000] d..2.  1.000007: <stack trace>
          nonsense";
        let of = |operation: &str, functions: &[&str], count| Sequence {
            operation: operation.into(),
            functions: functions.iter().map(|&name| name.into()).collect(),
            count,
        };
        assert_eq!(
            sequences(text),
            [
                of("dequeue", &["scx_bpf_task_cpu"], 1),
                of("dispatch", &["scx_bpf_dsq_move_to_local", "scx_bpf_kick_cpu"], 1),
                of("enqueue", &["__scx_bpf_dsq_insert_vtime"], 1),
                of("select_cpu", &["scx_bpf_dsq_insert"], 1),
                of("select_cpu", &["scx_bpf_select_cpu_dfl", "scx_bpf_dsq_insert"], 1),
            ]
        );
    }
}
