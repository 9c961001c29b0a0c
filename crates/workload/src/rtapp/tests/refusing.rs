use super::*;
use proptest::prelude::*;

/// That the message names the path and all the words.
fn assert_says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "\"{word}\" is not in: {message}");
    }
}

#[test]
fn syntax_errors_have_line_and_column() {
    let error = refused_document("{\n  \"tasks\" {}\n}");
    assert_says(&error.to_string(), &["line 2, column 11"]);
    assert!(matches!(error, WorkloadError::Syntax(_)));
}

#[test]
fn wrong_values_are_named_with_their_path() {
    assert_says(&refused(r#""t": { "run": "x" }"#), &["tasks.t.run", "microseconds", "\"x\""]);
    assert_says(&refused(r#""t": { "run": 1.5 }"#), &["tasks.t.run", "whole number", "1.5"]);
    assert_says(&refused(r#""t": { "phases": { "p": { "sleep": -1 } } }"#), &["tasks.t.phases.p.sleep", "-1"]);
    assert_says(&refused(r#""t": { "run": 99999999999999999999 }"#), &["tasks.t.run"]);
    assert_says(&refused(r#""t": { "run" }"#), &["tasks.t.run", "found nothing"]);
    assert_says(&refused(r#""t": { "wait": { "ref": "c" } }"#), &["tasks.t.wait", "\"mutex\" is missing"]);
    assert_says(&refused(r#""t": { "run": 1, "cpus": [] }"#), &["tasks.t.cpus", "empty"]);
    assert_says(&refused(r#""t": { "run": 1, "cpus": [0, -1] }"#), &["tasks.t.cpus[1]"]);
    assert_says(&refused(r#""t": { "run": 1, "priority": 20 }"#), &["tasks.t.priority", "-20 to 19"]);
    assert_says(&refused(r#""t": { "run": 1, "taskgroup": "a" }"#), &["tasks.t.taskgroup", "\"/a\""]);
    assert_says(&refused(r#""t": { "run": 1, "loop": 0 }"#), &["tasks.t.loop", "-1 for a loop without end"]);
    assert_says(&refused(r#""t": 5"#), &["tasks.t", "found 5"]);
    assert_says(&refused(r#""t": { "timer": { "ref": "x", "mode": "absolut" } }"#), &["mode", "\"absolute\"?"]);
}

/// rt-app's keys of a task whose program is elsewhere would be read by nobody.
#[test]
fn scheduling_of_a_task_with_a_program_of_its_own_is_described_there() {
    let document = |task: &str, described: &str| {
        format!(
            r#"{{ "tasks": {{ "t": {{ "instance": 0, "loop": 1, "sleep": 0{task} }}, "u": {{ "run": 1 }} }},
                 "warmcore": {{ "version": 1, "tasks": {{ "t": {{ "program": ["yield"]{described} }} }} }} }}"#
        )
    };
    for (key, value) in [("cpus", "[0]"), ("policy", "\"SCHED_IDLE\""), ("priority", "3"), ("taskgroup", "\"/a\"")] {
        let error = refused_document(&document(&format!(r#", "{key}": {value}"#), "")).to_string();
        assert_says(&error, &[&format!("tasks.t.{key}"), "warmcore.tasks", "affinity"]);
    }
    let pinned = from_rtapp("test", &document("", r#", "affinity": { "cpus": [0] }"#), &Options::default())
        .expect("it is described there");
    assert_eq!(pinned.tasks[0].affinity, crate::Affinity::OsCpus(vec![0]));
}

#[test]
fn times_that_cannot_be_drawn_are_refused_with_their_place() {
    let step = |step: &str| {
        let text = format!(
            r#"{{ "tasks": {{ "t": {{ "instance": 0 }} }},
                 "warmcore": {{ "tasks": {{ "t": {{ "instances": 1, "program": [{step}] }} }} }} }}"#
        );
        refused_document(&text).to_string()
    };
    let place = "warmcore.tasks.t.program[0]";
    for (wrong, wanted) in [
        (r#"{ "run_ns": { "exponential": {} } }"#, "\"mean_ns\" is missing"),
        (r#"{ "run_ns": { "exponential": 5 } }"#, "found 5"),
        (r#"{ "run_ns": { "exponentail": { "mean_ns": 5 } } }"#, "\"exponential\"?"),
        (r#"{ "run_ns": {} }"#, "give one distribution"),
        (r#"{ "run_ns": { "constant": { "ns": 1 }, "exponential": { "mean_ns": 5 } } }"#, "give one distribution"),
        (r#"{ "sleep_ns": { "normal": { "mean_ns": 5, "sd_ns": -1 } } }"#, "-1"),
        (r#"{ "sleep_ns": { "normal": { "mean_ns": 5, "sd_ns": 1.5 } } }"#, "1.5"),
        (r#"{ "sleep_ns": { "uniform": { "from_ns": 7, "to_ns": 5 } } }"#, "swap them"),
        (r#"{ "runtime_ns": { "constant": { "ns": 3600000000001 } } }"#, "longer than an hour"),
        (r#"{ "run_ns": { "log_normal": { "median_ns": 5, "p99_ns": 4 } } }"#, "below median_ns"),
        (r#"{ "run_ns": { "empirical": { "values_ns": [] } } }"#, "0 values"),
        (r#"{ "run_ns": { "exponential": { "mean_ns": 5, "sd_ns": 5 } } }"#, "sd_ns"),
    ] {
        assert_says(&step(wrong), &[place, wanted]);
    }
    let not_a_number =
        r#"{ "tasks": {}, "warmcore": { "programs": [[{ "run_ns": { "exponential": { "mean_ns": NaN } } }]] } }"#;
    assert_says(&refused_document(not_a_number).to_string(), &["line 1"]);
}

#[test]
fn groups_that_are_nowhere_or_in_themselves_are_refused() {
    let groups = |groups: &str| {
        let text = format!(
            r#"{{ "tasks": {{ "t": {{ "run": 1, "taskgroup": "/a" }} }}, "warmcore": {{ "version": 1, "groups": [{groups}] }} }}"#
        );
        refused_document(&text).to_string()
    };
    assert_says(&groups(r#"{ "name": "/a", "parent": "/a" }"#), &["warmcore.groups[0].parent", "in itself"]);
    let unknown = groups(r#"{ "name": "/web" }, { "name": "/a", "parent": "/wev" }"#);
    assert_says(&unknown, &["warmcore.groups[1].parent", "no task group called \"/wev\"", "\"/web\"?"]);
    let circle = groups(r#"{ "name": "/a", "parent": "/b" }, { "name": "/b", "parent": "/a" }"#);
    assert_says(&circle, &["task group \"/a\" lies in itself", "at the top"]);
    assert_says(&groups(r#"{ "name": "/a", "parent": 3 }"#), &["warmcore.groups[0].parent", "task group"]);
    let deep = format!(r#""t": {{ "run": 1, "taskgroup": "{}" }}"#, "/g".repeat(33));
    assert_says(&refused(&deep), &["lies too deep", "32"]);
    assert_says(&refused(r#""t": { "run": 1, "taskgroup": "/a//b" }"#), &["\"/a//b\" is not a path"]);
}

#[test]
fn a_latch_that_sleeps_for_a_time_spins_before() {
    let latch = |keys: &str| {
        let text = format!(
            r#"{{ "tasks": {{ "t": {{ "run": 1 }} }}, "warmcore": {{ "version": 1, "locks": ["l"], "latches": [{{ "name": "l"{keys} }}] }} }}"#
        );
        refused_document(&text).to_string()
    };
    assert_says(&latch(r#", "sleep_ns": 1000"#), &["warmcore.latches[0]", "needs \"spin_ns\""]);
    assert_says(&latch(r#", "spin_ns": 5, "sleep_ns": -1"#), &["warmcore.latches[0].sleep_ns", "out of range"]);
    assert_says(&latch(r#", "kind": "mutx""#), &["warmcore.latches[0].kind", "\"mutex\"?"]);
    let wakes = "expected whom a release wakes (\"one\" or \"all\"), found 1";
    assert_says(&latch(r#", "wakes": 1"#), &["warmcore.latches[0].wakes", wakes]);
    let kinds = "expected a kind (\"latch\" or \"mutex\" or \"rwsem\"), found true";
    assert_says(&latch(r#", "kind": true"#), &["warmcore.latches[0].kind", kinds]);
    for kind in ["mutex", "rwsem"] {
        for key in [r#""spin_ns": 5"#, r#""poll_ns": 5"#, r#""wakes": "one""#, r#""sleep_ns": 5"#] {
            let said = latch(&format!(r#", "kind": "{kind}", {key}"#));
            assert_says(&said, &["warmcore.latches[0].", kind, "the kernel's choice"]);
        }
    }
}

#[test]
fn unknown_names_are_named_with_the_nearest_one() {
    assert_says(
        &refused(r#""render": { "run": 1, "resume": "rendr" }"#),
        &["tasks.render.resume", "no task called \"rendr\"", "\"render\"?"],
    );
    assert_says(&refused(r#""t": { "fork": "u", "run": 1 }"#), &["tasks.t.fork", "no task called \"u\""]);
    for (keys, says) in [
        (r#""policy": "SCHED_FIFO", "priority": 0"#, "of which 1 is the lowest, must be 1 to 99"),
        (r#""policy": "SCHED_RR", "priority": 100"#, "must be 1 to 99"),
        (r#""policy": "SCHED_DEADLINE""#, "a runtime of 1024 ns at least"),
        (r#""policy": "SCHED_DEADLINE", "dl-runtime": 9, "dl-period": 5"#, "runtime ≤ deadline ≤ period"),
        (r#""policy": "SCHED_DEADLINE", "dl-runtime": 9, "dl-deadline": 900, "dl-period": 500"#, "≤ 500"),
        (r#""policy": "SCHED_DEADLINE", "dl-runtime": 9, "dl-period": 99"#, "period is 100us to 4194.304ms"),
    ] {
        assert_says(&refused(&format!(r#""t": {{ "run": 1, {keys} }}"#)), &["tasks.t", says]);
    }
    assert_says(&refused(r#""t": { "run": 1, "policy": "SCHED_OTHR" }"#), &["tasks.t.policy", "\"SCHED_OTHER\"?"]);
    assert_says(&refused(r#""t": { "rnu": 1 }"#), &["tasks.t", "no event", "\"run\"?"]);
    assert_says(&refused(r#""t": { "exec": 1, "period": 5 }"#), &["tasks.t", "grammar of rt-app before 2015"]);
    assert_says(&refused_document("{ \"task\": {} }").to_string(), &["\"tasks\" is missing"]);
    assert_says(&refused_document("[]").to_string(), &["expected an object"]);
    assert_says(&refused(r#""t": { "run": 1 }, "t": { "run": 1 }"#), &["key \"t\" is there twice", "first at line 1"]);
    // A task may be called as an event is.
    assert_says(&refused(r#""run": { "run": 1 }, "run": { "run": 1 }"#), &["key \"run\" is there twice"]);
}

#[test]
fn programs_that_cannot_be_run_are_refused_at_their_event() {
    assert_says(&refused(r#""t": { "phases": { "p": { "yield": "" } } }"#), &["tasks.t", "never lets time pass"]);
    assert_says(&refused(r#""t": { "run": 1, "unlock": "m" }"#), &["tasks.t.unlock", "\"m\" is not held"]);
    assert_says(&refused(r#""t": { "run": 1, "lock": "m" }"#), &["tasks.t.lock", "\"m\" is already held"]);
    assert_says(&refused(r#""t": { "wait": { "ref": "c", "mutex": "m" } }"#), &["tasks.t.wait", "\"m\" is not held"]);
    assert_says(
        &refused(r#""t": { "barrier0": "b", "barrier1": "b", "run": 1 }"#),
        &["tasks.t.barrier0", "waits for 2 tasks, but only 1"],
    );
    assert_says(
        &refused(r#""t": { "run": 1, "fork": "u" }, "u": { "instance": 0, "barrier": "b", "loop": 1 }"#),
        &["tasks.u.barrier", "no participants"],
    );
    assert_says(&refused(r#""t": { "instance": 0, "run": 1 }"#), &["no task exists at the start"]);
    assert_says(&refused(r#""t": { "instance": 4000000000, "run": 1 }"#), &["4000000000 tasks", "too many"]);
    assert_says(&refused(""), &["no task exists at the start"]);
    assert_says(&refused(r#""t": { "fork": "t", "loop": 1, "run": 1 }"#), &["t forks t"]);
    assert_says(&refused(r#""t": { "phases": {} }"#), &["\"phases\" is empty"]);
}

#[test]
fn mistakes_under_the_warmcore_key_are_named_with_their_path() {
    let refused = |extension: &str| {
        let text = format!(r#"{{ "tasks": {{ "t": {{ "run": 1 }} }}, "warmcore": {{ {extension} }} }}"#);
        refused_document(&text).to_string()
    };
    assert_says(&refused(r#""chanels": []"#), &["warmcore", "\"chanels\"", "\"channels\"?"]);
    assert_says(&refused(r#""version": 2"#), &["warmcore.version", "1 to 1"]);
    assert_says(&refused(r#""channels": [ { "kind": "pipe" } ]"#), &["warmcore.channels[0]", "\"name\" is missing"]);
    assert_says(&refused(r#""locks": ["a", "a"]"#), &["warmcore.locks[1]", "used twice"]);
    assert_says(&refused(r#""tasks": { "u": {} }"#), &["warmcore.tasks.u", "no task called \"u\""]);
    assert_says(&refused(r#""tasks": { "t": { "rol": "x" } }"#), &["warmcore.tasks.t", "\"role\"?"]);
    assert_says(&refused(r#""tasks": { "t": { "program": 3 } }"#), &["warmcore.tasks.t.program", "0 entries"]);
    assert_says(
        &refused(r#""tasks": { "t": { "program": [ { "send": "x", "bytes": 1 } ] } }"#),
        &["warmcore.tasks.t.program[0].send", "no channel called \"x\""],
    );
    assert_says(
        &refused(r#""tasks": { "t": { "program": [ { "slep_ns": 5 } ] } }"#),
        &["warmcore.tasks.t.program[0]", "\"sleep_ns\"?"],
    );
    assert_says(
        &refused(r#""tasks": { "t": { "program": [ "run" ] } }"#),
        &["warmcore.tasks.t.program[0]", "\"run\" is not known"],
    );
    assert_says(
        &refused(r#""tasks": { "t": { "program": [ { "loop": -1, "steps": [ "yield" ] } ] } }"#),
        &["warmcore.tasks.t.program[0]", "never lets time pass"],
    );
    let deep =
        (0..5).fold("{ \"run_ns\": 1 }".to_owned(), |inner, _| format!(r#"{{ "loop": 2, "steps": [ {inner} ] }}"#));
    assert_says(&refused(&format!(r#""tasks": {{ "t": {{ "program": [ {deep} ] }} }}"#)), &["nested 5 deep"]);
}

#[test]
fn strict_reading_makes_warnings_errors() {
    let text = r#"{ "tasks": { "t": { "run": 1, "nodes_membind": [0] } } }"#;
    assert!(from_rtapp("t", text, &Options::default()).is_ok());
    let error = from_rtapp("t", text, &Options { strict: true, ..Options::default() }).unwrap_err();
    assert_says(&error.to_string(), &["nodes_membind", "strict"]);
}

const KEYS: [&str; 25] = [
    "run",
    "runtime",
    "sleep",
    "timer",
    "lock",
    "unlock",
    "wait",
    "sync",
    "barrier",
    "suspend",
    "resume",
    "fork",
    "mem",
    "memrun",
    "iorun",
    "yield",
    "loop",
    "instance",
    "phases",
    "cpus",
    "policy",
    "priority",
    "delay",
    "taskgroup",
    "dl-runtime",
];

const VALUES: [&str; 15] = [
    "-1",
    "0",
    "1",
    "2",
    "4294967296",
    "99999999999999999999999",
    "true",
    "null",
    "\"t\"",
    "\"unique\"",
    "\"/a\"",
    "[0]",
    "{}",
    "{\"run\": 1}",
    "{\"ref\": \"t\", \"mutex\": \"t\", \"period\": 5}",
];

/// A key, a number to go with it, and a value.
fn entry() -> impl Strategy<Value = (&'static str, String, &'static str)> {
    (prop::sample::select(KEYS.to_vec()), "[01]?", prop::sample::select(VALUES.to_vec()))
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_panic(text in "\\PC*") {
        let _ = from_rtapp("any", &text, &Options::default());
    }

    #[test]
    fn any_task_of_known_words_is_read_or_refused_without_panic(
        entries in prop::collection::vec(entry(), 0..8)
    ) {
        let body: Vec<String> =
            entries.iter().map(|(key, number, value)| format!("\"{key}{number}\": {value}")).collect();
        let text = format!("{{ \"tasks\": {{ \"t\": {{ {} }} }} }}", body.join(", "));
        let _ = from_rtapp("any", &text, &Options::default());
    }
}

#[test]
fn memory_profiles_that_cannot_be_are_refused() {
    let refused = |warmcore: &str| {
        refused_document(&format!(r#"{{ "tasks": {{ "t": {{ "run": 1 }} }}, "warmcore": {{ {warmcore} }} }}"#))
            .to_string()
    };
    let class = |fields: &str| {
        refused(&format!(
            r#""profiles": [ {{ "name": "p", "cpi0": 1, "mlp": 1, "classes": [
                {{ "size": "1MiB", "touches_per_ki": 1, {fields} }} ] }} ]"#
        ))
    };
    assert_says(&class(r#""home": [0.5, 0.4]"#), &["warmcore.profiles[0]", "sum to 0.9"]);
    assert_says(&class(r#""write_fraction": -0.1"#), &["write_fraction is -0.1", "0 to 1"]);
    assert_says(&class(r#""exposure": "all""#), &["profiles[0].classes[0].exposure", "expected a number"]);
    assert_says(&class(r#""sharing": "proces""#), &["classes[0].sharing", "private, process, data"]);
    assert_says(&class(r#""sharing": 1"#), &["classes[0].sharing", "expected private, process, data or data:NAME"]);
    assert_says(&class(r#""kind": 1"#), &["classes[0].kind", "expected random or scan, found 1"]);
    assert_says(&class(r#""colour": 1"#), &["key \"colour\"", "touches_per_ki"]);
    assert_says(&refused(r#""tasks": { "t": { "profile": "hackbensh" } }"#), &["tasks.t.profile", "\"hackbench\"?"]);
    assert_says(&refused(r#""profiles": [ { "name": "p", "mlp": 1, "classes": [] } ]"#), &["\"cpi0\" is missing"]);
    assert_says(&refused(r#""data_groups": [ { "name": "heap", "bytes": 1 } ]"#), &["\"heap\" has no members"]);
    let shared = r#""profiles": [ { "name": "p", "cpi0": 1, "mlp": 1, "classes": [
        { "size": "1MiB", "touches_per_ki": 1, "sharing": "data" } ] } ]"#;
    assert_says(
        &refused(&format!(r#"{shared}, "tasks": {{ "t": {{ "profile": "p" }} }}"#)),
        &["shared within a data group"],
    );
    let small = r#""data_groups": [ { "name": "heap", "bytes": 1 } ]"#;
    let task = r#""tasks": { "t": { "profile": "p", "data": ["heap"] } }"#;
    assert_says(&refused(&format!("{shared}, {small}, {task}")), &["1048576 bytes", "only 1"]);
}
