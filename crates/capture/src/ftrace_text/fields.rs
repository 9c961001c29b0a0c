//! The fields of an event as the kernel, `trace-cmd` and `perf` print them.

use warmcore_trace::PrevState;

use crate::record::{CLONE_THREAD, MOST_CPUS, TASK_UNINTERRUPTIBLE, What};

/// What the fields of an event say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Said<'a> {
    pub what: Option<What>,
    /// State of the thread that leaves, where it is printed as a number.
    pub state: Option<u64>,
    /// Names of threads.
    pub names: [Option<(i32, &'a str)>; 2],
    /// Priorities of threads.
    pub priorities: [Option<(i32, i32)>; 2],
    /// A new thread, and whether it is one more of its creator's process.
    pub born: Option<(i32, bool)>,
}

const EVENTS: [&str; 26] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_migrate_task",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "sched_move_numa",
    "sched_swap_numa",
    "cpuhp_enter",
    "irq_handler_entry",
    "irq_handler_exit",
    "local_timer_entry",
    "local_timer_exit",
    "reschedule_entry",
    "reschedule_exit",
    "call_function_entry",
    "call_function_exit",
    "call_function_single_entry",
    "call_function_single_exit",
    "irq_work_entry",
    "irq_work_exit",
    "softirq_entry",
    "softirq_exit",
    "task_newtask",
];

/// Whether a line that is no event has the name of one that matters.
pub(super) fn names_an_event(line: &str) -> bool {
    EVENTS.iter().any(|name| line.match_indices(name).any(|(at, _)| line[at + name.len()..].starts_with(": ")))
}

/// What the fields say: `None` if they cannot be read, `Some(None)` for other events.
pub(super) fn parse<'a>(event: &str, fields: &'a str) -> Option<Option<Said<'a>>> {
    let Some(event) = EVENTS.iter().find(|name| **name == event) else { return Some(None) };
    let thread = |key: &str| value(fields, key)?.parse::<i32>().ok();
    let cpu = |key: &str| value(fields, key)?.parse::<u32>().ok().filter(|cpu| *cpu < MOST_CPUS);
    let named = |thread: i32, from: &str, to: &str| name(fields, from, to).map(|name| (thread, name));
    let said = match *event {
        "sched_switch" => return switch(fields).map(Some),
        "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => {
            let (thread, target_cpu, name) = match thread("pid=") {
                Some(thread) => (thread, cpu("target_cpu=")?, named(thread, "comm=", "pid=")),
                // NAME:PID [PRIORITY] CPU:001
                None => {
                    let (name, thread, rest) = colon_form(fields)?;
                    let target_cpu = value(rest, "CPU:")?.parse().ok().filter(|cpu| *cpu < MOST_CPUS)?;
                    (thread, target_cpu, Some((thread, name)))
                }
            };
            let what = match *event {
                "sched_waking" => What::Waking { thread, target_cpu },
                _ => What::Wakeup { thread, target_cpu },
            };
            Said { what: Some(what), names: [name, None], ..Said::default() }
        }
        "sched_migrate_task" => {
            let moved = thread("pid=")?;
            let what = What::Migrate { thread: moved, from: cpu("orig_cpu=")?, to: cpu("dest_cpu=")? };
            Said { what: Some(what), names: [named(moved, "comm=", "pid="), None], ..Said::default() }
        }
        "sched_process_fork" => {
            // The parent's fields have a prefix in the raw form alone.
            let prefix = if fields.starts_with("parent_") { "parent_" } else { "" };
            let (comm, pid) = (format!("{prefix}comm="), format!("{prefix}pid="));
            let before = fields.rsplit_once(" child_comm=")?.0;
            let (parent, child) = (value(before, &pid)?.parse().ok()?, thread("child_pid=")?);
            let parent_name = name(before, &comm, &pid).map(|name| (parent, name));
            let names = [parent_name, named(child, "child_comm=", "child_pid=")];
            Said { what: Some(What::Fork { parent, child }), names, ..Said::default() }
        }
        "sched_process_exec" => Said { what: Some(What::Exec { thread: thread("pid=")? }), ..Said::default() },
        "sched_process_exit" => {
            let ended = thread("pid=")?;
            let names = [named(ended, "comm=", "pid="), None];
            Said { what: Some(What::Exit { thread: ended }), names, ..Said::default() }
        }
        "sched_move_numa" => Said { what: Some(What::Numa { thread: thread("pid=")? }), ..Said::default() },
        "cpuhp_enter" => {
            // cpu: 0001 target:   0 step: 237 (cpuhp_kick_ap_work)
            let number = |key: &str| fields.split_once(key)?.1.split_whitespace().next()?.parse::<i32>().ok();
            let target_cpu = u32::try_from(number("cpu:")?).ok().filter(|cpu| *cpu < MOST_CPUS)?;
            let what = What::Hotplug { target_cpu, target: number("target:")?, step: number("step:")? };
            Said { what: Some(what), ..Said::default() }
        }
        "sched_swap_numa" => Said { what: Some(What::Numa { thread: thread("src_pid=")? }), ..Said::default() },
        name if name.ends_with("_entry") || name.ends_with("_exit") => {
            let (soft, begins) = (name.starts_with("softirq"), name.ends_with("_entry"));
            Said { what: Some(What::Interrupt { soft, begins }), ..Said::default() }
        }
        _ => {
            let child = thread("pid=")?;
            let flags = value(fields, "clone_flags=")?;
            let flags = u64::from_str_radix(flags.strip_prefix("0x").unwrap_or(flags), 16).ok()?;
            let names = [named(child, "comm=", "clone_flags="), None];
            Said { names, born: Some((child, flags & CLONE_THREAD != 0)), ..Said::default() }
        }
    };
    Some(Some(said))
}

/// Both forms: `prev_comm=… ==> next_comm=…`, with ` ==>` left out by `-R`, and `a:1 [120] S ==> b:2 [120]`.
fn switch(fields: &str) -> Option<Said<'_>> {
    let (before, after, state): ((i32, &str), (i32, &str), &str);
    let priorities: [Option<i32>; 2];
    if let Some((left, right)) = fields.rsplit_once(" next_comm=") {
        let left = left.strip_suffix(" ==>").unwrap_or(left);
        before = (value(left, "prev_pid=")?.parse().ok()?, name(left, "prev_comm=", "prev_pid=")?);
        after = (value(right, "next_pid=")?.parse().ok()?, right.rsplit_once(" next_pid=")?.0);
        state = value(left, "prev_state=")?;
        let number = |fields: &str, key: &str| value(fields, key)?.parse::<i32>().ok();
        priorities = [number(left, "prev_prio="), number(right, "next_prio=")];
    } else {
        let (left, right) = fields.split_once(" ==> ")?;
        let ((name, thread, rest), (next_name, next_thread, _)) = (colon_form(left)?, colon_form(right)?);
        (before, after, state) = ((thread, name), (next_thread, next_name), rest.trim());
        priorities = [left, right].map(|text| text.rsplit_once(" [")?.1.split_once(']')?.0.parse().ok());
    }
    let is_uninterruptible = state.starts_with('D');
    let (state, number) = match state.parse::<u64>() {
        Ok(number) => (PrevState::Runnable, Some(number)),
        Err(_) => (letters(state)?, None),
    };
    let uninterruptible = number.map_or(is_uninterruptible, |number| number & TASK_UNINTERRUPTIBLE as u64 != 0);
    Some(Said {
        what: Some(What::Switch { prev: before.0, state, next: after.0, uninterruptible }),
        state: number,
        names: [Some(before), Some(after)],
        priorities: [(before.0, priorities[0]), (after.0, priorities[1])]
            .map(|(thread, priority)| Some((thread, priority?))),
        born: None,
    })
}

/// `NAME:PID [PRIORITY]`, and what follows.
fn colon_form(text: &str) -> Option<(&str, i32, &str)> {
    let (task, rest) = text.rsplit_once(" [")?;
    let (name, thread) = task.rsplit_once(':')?;
    Some((name, thread.parse().ok()?, rest.split_once(']')?.1))
}

/// `R`, `R+`, `S`, `D|K`, `Z`; `x` is dead in kernels before 4.14.
fn letters(state: &str) -> Option<PrevState> {
    let waits = state.strip_suffix('+').unwrap_or(state);
    if waits == "R" {
        return Some(PrevState::Runnable);
    }
    let known = !waits.is_empty() && waits.split('|').all(|letter| letter.len() <= 2 && !letter.is_empty());
    known.then(|| match waits.split('|').any(|letter| matches!(letter, "X" | "Z" | "x")) {
        true => PrevState::Dead,
        false => PrevState::Sleeping,
    })
}

/// The word after the last `key` that begins a word.
fn value<'a>(fields: &'a str, key: &str) -> Option<&'a str> {
    let begins_word = |at: &usize| *at == 0 || fields.as_bytes()[*at - 1] == b' ';
    let at = fields.rmatch_indices(key).map(|(at, _)| at).find(begins_word)?;
    fields[at + key.len()..].split(' ').next()
}

/// The text between `from` and the last ` to` behind it: names may have spaces.
fn name<'a>(fields: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let start = match fields.starts_with(from) {
        true => from.len(),
        false => fields.find(&format!(" {from}"))? + 1 + from.len(),
    };
    let rest = &fields[start..];
    Some(&rest[..rest.rfind(&format!(" {to}"))?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<'a>(event: &str, fields: &'a str) -> Said<'a> {
        parse(event, fields).flatten().unwrap_or_else(|| panic!("{event}: {fields}"))
    }

    #[test]
    fn a_switch_reads_the_same_in_all_its_forms() {
        let forms = [
            "prev_comm=a b prev_pid=1 prev_prio=49 prev_state=S ==> next_comm=c:d next_pid=2 next_prio=120",
            "prev_comm=a b prev_pid=1 prev_prio=49 prev_state=1 next_comm=c:d next_pid=2 next_prio=120",
            "a b:1 [49] S ==> c:d:2 [120]",
        ];
        for form in forms {
            let said = said("sched_switch", form);
            assert_eq!(said.names, [Some((1, "a b")), Some((2, "c:d"))], "{form}");
            assert_eq!(said.priorities, [Some((1, 49)), Some((2, 120))], "{form}");
            let Some(What::Switch { prev: 1, state, next: 2, uninterruptible: false }) = said.what else {
                panic!("{form}: {said:?}")
            };
            assert!(said.state == Some(1) || state == PrevState::Sleeping, "{form}");
        }
    }

    #[test]
    fn an_uninterruptible_sleep_is_marked_in_all_forms() {
        for state in ["prev_state=D ==> next_comm=c", "prev_state=2 next_comm=c", "prev_state=D|K ==> next_comm=c"] {
            let fields = format!("prev_comm=a prev_pid=1 prev_prio=120 {state} next_pid=2 next_prio=120");
            let said = said("sched_switch", &fields);
            assert!(matches!(said.what, Some(What::Switch { uninterruptible: true, .. })), "{state}: {said:?}");
        }
    }

    #[test]
    fn states_are_letters_with_marks() {
        let cases = [("R", PrevState::Runnable), ("R+", PrevState::Runnable), ("D|K", PrevState::Sleeping)];
        let dead = [("Z", PrevState::Dead), ("X", PrevState::Dead), ("x", PrevState::Dead), ("I", PrevState::Sleeping)];
        cases.into_iter().chain(dead).for_each(|(text, state)| assert_eq!(letters(text), Some(state), "{text}"));
        assert_eq!(letters("sleeping"), None);
    }

    #[test]
    fn names_may_look_like_fields() {
        let woken = said("sched_waking", "comm=x pid=9 y pid=12 prio=120 target_cpu=003");
        assert_eq!(woken.what, Some(What::Waking { thread: 12, target_cpu: 3 }));
        assert_eq!(woken.names[0], Some((12, "x pid=9 y")));
        let plugin = said("sched_wakeup", "sched:pipe:1252 [120] success=1 CPU:001");
        assert_eq!(plugin.what, Some(What::Wakeup { thread: 1252, target_cpu: 1 }));
        assert_eq!(plugin.names[0], Some((1252, "sched:pipe")));
    }

    #[test]
    fn steps_of_a_cpu_that_goes_offline_are_read() {
        let step = said("cpuhp_enter", "cpu: 0001 target: 142 step: 237 (cpuhp_kick_ap_work)");
        assert_eq!(step.what, Some(What::Hotplug { target_cpu: 1, target: 142, step: 237 }));
        assert_eq!(parse("cpuhp_enter", "cpu: 70000 target: 142 step: 237 (x)"), None);
    }

    #[test]
    fn births_say_who_and_of_which_process() {
        let kernel = said("sched_process_fork", "comm=a pid=1 child_comm=b child_pid=2");
        let raw = said("sched_process_fork", "parent_comm=a parent_pid=1 child_comm=b child_pid=2");
        assert_eq!(kernel, raw);
        assert_eq!(kernel.what, Some(What::Fork { parent: 1, child: 2 }));
        assert_eq!(kernel.names, [Some((1, "a")), Some((2, "b"))]);
        let thread = said("task_newtask", "pid=7 comm=b clone_flags=3d0f00 oom_score_adj=0");
        assert_eq!((thread.born, thread.what), (Some((7, true)), None));
        assert_eq!(said("task_newtask", "pid=7 comm=b clone_flags=1200000 oom_score_adj=0").born, Some((7, false)));
    }

    #[test]
    fn damaged_fields_are_no_event_and_foreign_events_are_passed_over() {
        for (event, fields) in [
            ("sched_switch", "prev_comm=a prev_pid=1"),
            ("sched_switch", ""),
            ("sched_waking", "comm=x pid=12 prio=120 target_cpu=99999999"),
            ("sched_migrate_task", "comm=x pid=12 prio=120 orig_cpu=1"),
        ] {
            assert_eq!(parse(event, fields), None, "{event} {fields}");
        }
        assert_eq!(parse("cpu_idle", "state=1"), Some(None));
        let interrupt = |soft, begins| Some(What::Interrupt { soft, begins });
        assert_eq!(said("irq_handler_entry", "irq=24 name=virtio0-input.0").what, interrupt(false, true));
        assert_eq!(said("local_timer_exit", "vector=236").what, interrupt(false, false));
        assert_eq!(said("softirq_exit", "vec=1 [action=TIMER]").what, interrupt(true, false));
    }
}
