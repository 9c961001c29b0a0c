//! Tracepoints as programs of the type `BPF_PROG_TYPE_TRACEPOINT` have them: each pass leaves a record, laid out as the tracepoint's file `format` in
//! tracefs says.
//!
//! Eight bytes begin every record. While a program runs, a kernel keeps a pointer of its own there and lets no program read it
//! (`tp_prog_is_valid_access`): here they are zeros. The fields follow; one of a text of any length says where that begins, and how long it is.
//!
//! There are those tracepoints that the simulated kernel passes, and that of a program that runs another, which no task passes ([`Site`]). Source: Linux 7.2 `include/trace/events/sched.h`,
//! `include/trace/events/irq.h`, `include/trace/events/sched_ext.h`, `include/trace/stages` (layout), `Documentation/trace/eprobetrace.rst` (the file of `sched_switch`).

use crate::bytecode::host::Host;
use crate::bytecode::sites::Site;

/// A tracepoint, and what its records have.
#[derive(Debug)]
pub struct Tracepoint {
    /// What it belongs to: the directory below `events`.
    pub system: &'static str,
    /// Its name: the directory below that.
    pub name: &'static str,
    /// Where it is passed.
    pub site: Site,
    fields: &'static [Field],
}

/// A member of a record.
#[derive(Debug)]
struct Field {
    /// Type and name, as in C.
    declaration: &'static str,
    /// Bytes from the record's beginning.
    offset: u64,
    bytes: u64,
    is_signed: bool,
}

const fn field(declaration: &'static str, offset: u64, bytes: u64, is_signed: bool) -> Field {
    Field { declaration, offset, bytes, is_signed }
}

/// What every record begins with.
const COMMON: [Field; 4] = [
    field("unsigned short common_type", 0, 2, false),
    field("unsigned char common_flags", 2, 1, false),
    field("unsigned char common_preempt_count", 3, 1, false),
    field("int common_pid", 4, 4, true),
];

const COMMON_BYTES: u64 = 8;

const SWITCH: [Field; 7] = [
    field("char prev_comm[16]", 8, 16, false),
    field("pid_t prev_pid", 24, 4, true),
    field("int prev_prio", 28, 4, true),
    field("long prev_state", 32, 8, true),
    field("char next_comm[16]", 40, 16, false),
    field("pid_t next_pid", 56, 4, true),
    field("int next_prio", 60, 4, true),
];
const WAKEUP: [Field; 4] = [
    field("char comm[16]", 8, 16, false),
    field("pid_t pid", 24, 4, true),
    field("int prio", 28, 4, true),
    field("int target_cpu", 32, 4, true),
];
const MIGRATE: [Field; 5] = [
    field("__data_loc char[] comm", 8, 4, false),
    field("pid_t pid", 12, 4, true),
    field("int prio", 16, 4, true),
    field("int orig_cpu", 20, 4, true),
    field("int dest_cpu", 24, 4, true),
];
const FORK: [Field; 4] = [
    field("__data_loc char[] parent_comm", 8, 4, false),
    field("pid_t parent_pid", 12, 4, true),
    field("__data_loc char[] child_comm", 16, 4, false),
    field("pid_t child_pid", 20, 4, true),
];
const EXIT: [Field; 4] = [
    field("char comm[16]", 8, 16, false),
    field("pid_t pid", 24, 4, true),
    field("int prio", 28, 4, true),
    field("bool group_dead", 32, 1, false),
];
const EXEC: [Field; 3] = [
    field("__data_loc char[] filename", 8, 4, false),
    field("pid_t pid", 12, 4, true),
    field("pid_t old_pid", 16, 4, true),
];
const EXT_DUMP: [Field; 1] = [field("__data_loc char[] line", 8, 4, false)];
const EXT_EVENT: [Field; 2] = [field("__data_loc char[] name", 8, 4, false), field("__s64 delta", 16, 8, true)];
const HANDLER_ENTRY: [Field; 2] = [field("int irq", 8, 4, true), field("__data_loc char[] name", 12, 4, false)];
const HANDLER_EXIT: [Field; 2] = [field("int irq", 8, 4, true), field("int ret", 12, 4, true)];
const SOFTIRQ: [Field; 1] = [field("unsigned int vec", 8, 4, false)];

impl Field {
    fn line(&self) -> String {
        let Self { declaration, offset, bytes, is_signed } = self;
        format!("\tfield:{declaration};\toffset:{offset};\tsize:{bytes};\tsigned:{};\n", u8::from(*is_signed))
    }

    /// It says where a text lies behind the fields.
    fn is_elsewhere(&self) -> bool {
        self.declaration.starts_with("__data_loc ")
    }

    fn name(&self) -> &'static str {
        let word = self.declaration.rsplit(' ').next().unwrap_or_default();
        word.split('[').next().unwrap_or_default()
    }

    /// How a line of the trace shows it: format, and expression.
    fn shown(&self) -> [String; 2] {
        let name = self.name();
        let (format, expression) = match self.declaration {
            "int target_cpu" => ("%03d", format!("REC->{name}")),
            flag if flag.starts_with("bool ") => ("%s", format!("REC->{name} ? \"true\" : \"false\"")),
            _ if self.is_elsewhere() => ("%s", format!("__get_str({name})")),
            text if text.starts_with("char ") => ("%s", format!("REC->{name}")),
            long if long.starts_with("long ") => ("%ld", format!("REC->{name}")),
            _ if self.is_signed => ("%d", format!("REC->{name}")),
            _ => ("%u", format!("REC->{name}")),
        };
        // Who forks is meant where nothing else is said.
        [format!("{}={format}", name.strip_prefix("parent_").unwrap_or(name)), expression]
    }
}

static ALL: [Tracepoint; 14] = [
    Tracepoint { system: "sched", name: "sched_switch", site: Site::SchedSwitch, fields: &SWITCH },
    Tracepoint { system: "sched", name: "sched_waking", site: Site::SchedWaking, fields: &WAKEUP },
    Tracepoint { system: "sched", name: "sched_wakeup", site: Site::SchedWakeup, fields: &WAKEUP },
    Tracepoint { system: "sched", name: "sched_wakeup_new", site: Site::SchedWakeupNew, fields: &WAKEUP },
    Tracepoint { system: "sched", name: "sched_migrate_task", site: Site::SchedMigrateTask, fields: &MIGRATE },
    Tracepoint { system: "sched", name: "sched_process_fork", site: Site::SchedProcessFork, fields: &FORK },
    Tracepoint { system: "sched", name: "sched_process_exit", site: Site::SchedProcessExit, fields: &EXIT },
    Tracepoint { system: "sched", name: "sched_process_exec", site: Site::SchedProcessExec, fields: &EXEC },
    Tracepoint { system: "sched_ext", name: "sched_ext_dump", site: Site::SchedExtDump, fields: &EXT_DUMP },
    Tracepoint { system: "sched_ext", name: "sched_ext_event", site: Site::SchedExtEvent, fields: &EXT_EVENT },
    Tracepoint { system: "irq", name: "irq_handler_entry", site: Site::IrqHandlerEntry, fields: &HANDLER_ENTRY },
    Tracepoint { system: "irq", name: "irq_handler_exit", site: Site::IrqHandlerExit, fields: &HANDLER_EXIT },
    Tracepoint { system: "irq", name: "softirq_entry", site: Site::SoftirqEntry, fields: &SOFTIRQ },
    Tracepoint { system: "irq", name: "softirq_exit", site: Site::SoftirqExit, fields: &SOFTIRQ },
];

impl Tracepoint {
    /// Number of the first one. Each build of a kernel numbers its own.
    const FIRST: u32 = 301;

    /// All of them.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// The tracepoint with a number, which `perf_event_open` takes.
    #[must_use]
    pub fn find(number: u64) -> Option<&'static Self> {
        let place = number.checked_sub(u64::from(Self::FIRST))?;
        Self::all().get(usize::try_from(place).ok()?)
    }

    /// The one at a place, if that is one.
    pub(super) fn at(site: Site) -> Option<&'static Self> {
        Self::all().iter().find(|tracepoint| tracepoint.site == site)
    }

    /// Its number (`id`).
    #[must_use]
    pub fn number(&self) -> u32 {
        let place = Self::all().iter().position(|tracepoint| tracepoint.site == self.site);
        Self::FIRST + place.map_or(0, |place| place as u32)
    }

    /// Text of its file `format`.
    #[must_use]
    pub fn format(&self) -> String {
        let lines = |fields: &[Field]| fields.iter().map(Field::line).collect::<String>();
        let (formats, expressions): (Vec<String>, Vec<String>) =
            self.fields.iter().map(Field::shown).map(|[format, expression]| (format, expression)).unzip();
        let shown = match self.site {
            Site::SchedExtDump => "%s".to_owned(),
            Site::SchedExtEvent => "name %s delta %lld".to_owned(),
            _ => formats.join(" "),
        };
        format!(
            "name: {}\nID: {}\nformat:\n{}\n{}\nprint fmt: \"{}\", {}\n",
            self.name,
            self.number(),
            lines(&COMMON),
            lines(self.fields),
            shown,
            expressions.join(", ")
        )
    }

    /// Where what is behind the fields begins.
    fn end(&self) -> u64 {
        self.fields.last().map_or(COMMON_BYTES, |field| field.offset + field.bytes)
    }
}

/// What a field has.
pub(super) enum Value<'a> {
    Number(u64),
    Text(&'a str),
}

/// Where records, and contexts of samples, lie in the scratch memory: behind what programs are given and what they print.
pub(super) const RECORD: u64 = 200 << 10;
/// Bytes of the longest.
pub(super) const RECORD_BYTES: u64 = 1024;

impl Host {
    /// Writes a record whose fields have these values; gives where.
    pub(super) fn write_record(&mut self, tracepoint: &Tracepoint, values: &[Value<'_>]) -> u64 {
        let record = self.kept.scratch + RECORD;
        if let Some(place) = self.maps.memory.write(record, RECORD_BYTES) {
            place.fill(0);
        }
        let mut end = tracepoint.end();
        for (field, value) in tracepoint.fields.iter().zip(values) {
            let at = record + field.offset;
            match *value {
                Value::Number(number) => {
                    if let Some(place) = self.maps.memory.write(at, field.bytes) {
                        place.copy_from_slice(&number.to_le_bytes()[..field.bytes as usize]);
                    }
                }
                Value::Text(text) if field.is_elsewhere() => {
                    // Length, the zero included, and beginning.
                    let bytes = (text.len() as u64 + 1).min(RECORD_BYTES - end);
                    self.store_text(record + end, text, bytes);
                    self.store_u32(at, (bytes << 16 | end) as u32);
                    end += bytes;
                }
                Value::Text(text) => self.store_text(at, text, field.bytes),
            }
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As files of real kernels have it.
    #[test]
    fn the_format_of_a_tracepoint_is_that_of_a_kernel_and_says_where_fields_lie() {
        let format = Tracepoint::all()[0].format();
        let lines = [
            "name: sched_switch",
            "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;",
            "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;",
            "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;",
            "\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;",
            "\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;",
            "\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;",
            "\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;",
            "\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;",
            "\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;",
        ];
        for line in lines {
            assert!(format.lines().any(|known| known == line), "{line} in {format}");
        }
        let named = |name: &str| Tracepoint::all().iter().find(|tracepoint| tracepoint.name == name).unwrap().format();
        let entry = named("irq_handler_entry");
        assert!(entry.contains("\tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n"), "{entry}");
        assert!(entry.ends_with("print fmt: \"irq=%d name=%s\", REC->irq, __get_str(name)\n"), "{entry}");
        let wakeup = named("sched_wakeup_new");
        assert!(wakeup.contains("\tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;\n"), "{wakeup}");
        assert!(
            wakeup.contains("print fmt: \"comm=%s pid=%d prio=%d target_cpu=%03d\", REC->comm, REC->pid,"),
            "{wakeup}"
        );
        let migrate = named("sched_migrate_task");
        assert!(migrate.contains("\tfield:__data_loc char[] comm;\toffset:8;\tsize:4;\tsigned:0;\n"), "{migrate}");
        assert!(migrate.contains("\tfield:int dest_cpu;\toffset:24;\tsize:4;\tsigned:1;\n"), "{migrate}");
        let fork = named("sched_process_fork");
        assert!(fork.contains("\tfield:pid_t child_pid;\toffset:20;\tsize:4;\tsigned:1;\n"), "{fork}");
        assert!(
            fork.contains("print fmt: \"comm=%s pid=%d child_comm=%s child_pid=%d\", __get_str(parent_comm),"),
            "{fork}"
        );
        let event = named("sched_ext_event");
        assert!(event.contains("\tfield:__s64 delta;\toffset:16;\tsize:8;\tsigned:1;\n"), "{event}");
        assert!(event.ends_with("print fmt: \"name %s delta %lld\", __get_str(name), REC->delta\n"), "{event}");
        let dump = named("sched_ext_dump");
        assert!(dump.ends_with("print fmt: \"%s\", __get_str(line)\n"), "{dump}");
        let end = named("sched_process_exit");
        assert!(end.contains("\tfield:bool group_dead;\toffset:32;\tsize:1;\tsigned:0;\n"), "{end}");
        assert!(
            end.ends_with("group_dead=%s\", REC->comm, REC->pid, REC->prio, REC->group_dead ? \"true\" : \"false\"\n"),
            "{end}"
        );
        // A field begins where the one before ends, at a multiple of its bytes.
        for tracepoint in Tracepoint::all() {
            let mut end = COMMON_BYTES;
            for field in tracepoint.fields {
                assert_eq!(field.offset, end.next_multiple_of(field.bytes.min(8)), "{}", field.declaration);
                end = field.offset + field.bytes;
            }
            assert_eq!(Tracepoint::find(tracepoint.number().into()).unwrap().name, tracepoint.name);
        }
        assert!(Tracepoint::find(0).is_none() && Tracepoint::find(u64::MAX).is_none());
    }
}
