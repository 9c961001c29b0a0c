//! Replays keep the times of recordings, and say so where they do not.

use crate::common::{Scratch, can_record};
use warmcore_testing::skip;

#[test]
fn a_replay_that_takes_another_time_than_the_recording_says_so() {
    let scratch = Scratch::new();
    // A thread of 40 ms of work, alone but for one that is not replayed and has its CPU for so long.
    let recorded = |others_us: u64| {
        let line = |at_us: u64, from: (&str, i32), state: &str, to: (&str, i32)| {
            format!(
                "{}-{} [000] d..2. 1.{at_us:06}: sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state={state} ==> next_comm={} next_pid={} next_prio=120\n",
                from.0, from.1, from.0, from.1, to.0, to.1
            )
        };
        let (own, other, idle) = (("own", 501), ("other", 502), ("swapper/0", 0));
        "# tracer: nop\n#\n".to_owned()
            + &line(0, idle, "R", own)
            + &line(20_000, own, "R", other)
            + &line(20_000 + others_us, other, "R", own)
            + &line(40_000 + others_us, own, "X", other)
            + &line(41_000 + others_us, other, "S", idle)
    };
    let less = "it takes 0.040 s, 60 % less than recorded (0.100 s): other threads had its CPU for 0.061 s";
    for (others_us, says) in [(1_000, None), (60_000, Some(less))] {
        scratch.write("short.txt", &recorded(others_us));
        let said = scratch.run("replay short.txt --only thread:own --out short.json --force").exits_with(0);
        match says {
            Some(says) => drop(said.complains(says)),
            None => assert!(!said.error.split_whitespace().any(|word| word == "recorded"), "{}", said.error),
        }
    }
}

#[test]
fn a_recording_of_calls_tells_sleeps_until_a_time_from_those_for_a_time() {
    let scratch = Scratch::new();
    skip!(unless can_record());
    // The first one's sleeps are as regular as its wakeups.
    scratch.write(
        "sleepers.json",
        r#"{ "tasks": {
            "until": { "loop": 10, "run0": 500, "timer0": { "ref": "tick", "period": 5000, "mode": "absolute" },
                "run1": 500, "timer1": { "ref": "tick", "period": 30000, "mode": "absolute" } },
            "for": { "loop": 30, "run": 500, "sleep": 2000 } } }"#,
    );
    let program = env!("CARGO_BIN_EXE_warmcore");
    let words = ["workload", "run", "sleepers.json"];
    let ran = scratch.command("record --calls --out slept --").arg(program).args(words).output().unwrap();
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{error}");
    if error.contains("CONFIG_FTRACE_SYSCALLS") {
        skip!("this kernel traces no system calls (CONFIG_FTRACE_SYSCALLS)");
    }
    let told = |name: &str| {
        let words = format!("replay slept --only thread:{name} --out {name}.json --json");
        let told: serde_json::Value = serde_json::from_str(&scratch.run(&words).exits_with(0).out).unwrap();
        ["at_times", "for_durations"].map(|field| told["fidelity"][field].as_u64().unwrap())
    };
    let ([until, few], [none, lengths]) = (told("until"), told("for"));
    // On a busy computer times are over before the thread sleeps.
    assert!(until >= 1 && few <= 1, "{until} until a time, {few} for one");
    assert!(lengths >= 25 && none <= 2, "{none} until a time, {lengths} for one");
}
