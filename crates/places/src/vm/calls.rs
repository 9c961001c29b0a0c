//! What a sched_ext scheduler's programs called in a guest, from the records of probes; and which operation a program is.
//!
//! A record is of the return of a kernel function, with the program that called it and where in its code. What one call of an operation called is not
//! told by the kernel. It is taken to end where, on its CPU, another program calls, the kernel calls somebody who calls operations, or a program calls from a
//! place that does not lie behind its last one.

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

/// A record: CPU, function, and what was recorded of it.
struct Record<'a> {
    cpu: u32,
    function: &'a str,
    what: What<'a>,
}

/// What was recorded of a function.
#[derive(Clone, Copy)]
enum What<'a> {
    /// It was entered: one of those that call operations.
    Entered,
    /// It returned to a program, which called it there.
    Program(&'a str, u32),
    /// It returned to the kernel itself, which uses such functions too.
    Kernel,
}

/// `task-1 [002] d..2. 1.5: FUNCTION: (CALLER+0x2a/0x40 <- FUNCTION)`, or without an arrow for an entry.
fn record(line: &str) -> Option<Record<'_>> {
    let (_, rest) = line.split_once('[')?;
    let (cpu, rest) = rest.split_once(']')?;
    let (head, call) = rest.split_once(": (")?;
    let function = head.rsplit(' ').next()?;
    let what = match call.split_once(" <- ") {
        None => What::Entered,
        Some((caller, _)) => program_of(caller).unwrap_or(What::Kernel),
    };
    Some(Record { cpu: cpu.parse().ok()?, function, what })
}

/// `bpf_prog_`, 16 hexadecimal digits, the name, and where in its code.
fn program_of(caller: &str) -> Option<What<'_>> {
    let (symbol, place) = caller.split_once('+')?;
    let (_, name) = symbol.strip_prefix("bpf_prog_")?.split_once('_')?;
    let place = place.split('/').next()?.strip_prefix("0x")?;
    Some(What::Program(name, u32::from_str_radix(place, 16).ok()?))
}

/// Counts of sequences, by operation.
#[derive(Default)]
struct Counts<'a>(BTreeMap<(&'static str, Vec<&'a str>), u64>);

impl<'a> Counts<'a> {
    /// A call of a program has ended.
    fn add(&mut self, call: Option<Call<'a>>) {
        if let Some(call) = call
            && let Some(operation) = operation_of(call.program)
        {
            *self.0.entry((operation, call.functions)).or_default() += 1;
        }
    }
}

/// A call of a program, as far as it has come.
struct Call<'a> {
    program: &'a str,
    /// Where in its code it called last.
    place: u32,
    functions: Vec<&'a str>,
}

/// What calls of operations called, with how often it was so.
pub fn sequences(text: &str) -> Vec<Sequence> {
    let mut counts = Counts::default();
    let mut open: BTreeMap<u32, Call<'_>> = BTreeMap::new();
    for record in text.lines().filter(|line| !line.starts_with('#')).filter_map(record) {
        let (program, place) = match record.what {
            What::Program(program, place) => (program, place),
            What::Kernel => continue,
            What::Entered => {
                counts.add(open.remove(&record.cpu));
                continue;
            }
        };
        match open.get_mut(&record.cpu) {
            Some(call) if call.program == program && place > call.place => {
                call.place = place;
                call.functions.push(record.function);
            }
            _ => {
                let call = Call { program, place, functions: vec![record.function] };
                counts.add(open.insert(record.cpu, call));
            }
        }
    }
    open.into_values().for_each(|call| counts.add(Some(call)));
    let sequence = |((operation, functions), count): ((&str, Vec<&str>), u64)| Sequence {
        operation: operation.to_owned(),
        functions: functions.into_iter().map(str::to_owned).collect(),
        count,
    };
    counts.0.into_iter().map(sequence).collect()
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
          <...>-71  [000] d..2.  1.000001: scx_bpf_select_cpu_dfl: (bpf_prog_0123456789abcdef_fifo_select_cpu+0x3b/0x80 <- scx_bpf_select_cpu_dfl)
          <...>-71  [001] d..2.  1.000002: scx_bpf_dsq_insert: (bpf_prog_0123456789abcdee_fifo_enqueue+0x1b/0x40 <- scx_bpf_dsq_insert)
          <...>-71  [000] d..2.  1.000003: scx_bpf_dsq_insert: (bpf_prog_0123456789abcdef_fifo_select_cpu+0x5b/0x80 <- scx_bpf_dsq_insert)
          <...>-71  [000] d..2.  1.000004: scx_bpf_select_cpu_dfl: (bpf_prog_0123456789abcdef_fifo_select_cpu+0x3b/0x80 <- scx_bpf_select_cpu_dfl)
          <...>-71  [000] d..2.  1.000005: enqueue_task_scx: (enqueue_task_scx+0x4/0x300)
          <...>-71  [000] d..2.  1.000006: scx_bpf_dsq_insert: (bpf_prog_0123456789abcdef_fifo_select_cpu+0x5b/0x80 <- scx_bpf_dsq_insert)
          <...>-71  [000] d..2.  1.000007: scx_bpf_kick_cpu: (scx_something+0x5b/0x80 <- scx_bpf_kick_cpu)
          nonsense";
        let of = |operation: &str, functions: &[&str], count| Sequence {
            operation: operation.into(),
            functions: functions.iter().map(|&name| name.into()).collect(),
            count,
        };
        let found = sequences(text);
        let both = ["scx_bpf_select_cpu_dfl", "scx_bpf_dsq_insert"];
        assert_eq!(
            found,
            [
                of("enqueue", &["scx_bpf_dsq_insert"], 1),
                of("select_cpu", &["scx_bpf_dsq_insert"], 1),
                of("select_cpu", &["scx_bpf_select_cpu_dfl"], 1),
                of("select_cpu", &both, 1),
            ]
        );
    }
}
