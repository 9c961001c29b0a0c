//! `schedutil`'s boost for tasks that come back from I/O, against calculations by hand (`docs/models/frequency.md`).

use warmcore_topology::{Machine, from_toml};
use warmcore_workload::Step;

use crate::support::*;

/// One CPU; what the kernel does takes no time.
fn machine() -> Machine {
    let text = "[topology]\nshape = \"1s1n1l1c1t\"\n[costs]\ncontext_switch_ns = 0\nwakeup_ns = 1\ntick_ns = 0\nidle_exit_ns = 0\n\
                exit_ns = 0\nsyscall_ns = 0\ntimer_ns = 0\n[[core_kind]]\nreference_mhz = 2000\nfrequencies_mhz = [100, 400, 700, 1300, 2000]\n";
    from_toml(text).unwrap()
}

/// How long a task is on its CPU for 20 us of work at 2000 MHz after each of some sleeps. It hardly ran for a second before.
fn lengths_ns(scheduler: &str, sleeps: &[(bool, u64)]) -> Vec<u64> {
    let mut program = times(100, [run_for(1000), sleep(10 * MS)]);
    for &(for_io, ns) in sleeps {
        if for_io {
            program = program.step(Step::IoWait);
        }
        program = program.step(sleep(ns)).step(run_for(20 * US));
    }
    let mut scene = Scene::new();
    scene.task("reader", program);
    let run = scene.try_run_on(&machine(), &format!("{scheduler},rate_limit_us=500,timer_slack_ns=0"), 1).unwrap();
    let stays = run.stays("reader");
    stays[stays.len() - sleeps.len()..].iter().map(Stay::length_ns).collect()
}

/// By hand: boosts of 128, 256, 512 and 1024 are with a quarter more 312, 625, 1250 and 2000 MHz, served by 400, 700, 1300 and 2000 MHz. With
/// other wakeups, more than 1 ms apart, the boost is halved until there is none, and the lowest frequency is enough. After a tick
/// without a wakeup it begins again.
#[test]
fn the_frequency_rises_with_each_wakeup_from_io_and_falls_with_others() {
    let sleeps = [[(true, MS); 4], [(false, 2 * MS); 4]].concat();
    let then = [(true, MS), (true, MS), (true, 10 * MS)];
    let by_hand_mhz = [400, 700, 1300, 2000, 1300, 700, 400, 100, 400, 700, 400];
    for scheduler in ["eevdf:governor=schedutil", "cfs:governor=schedutil"] {
        let lengths = lengths_ns(scheduler, &[sleeps.clone(), then.to_vec()].concat());
        for (position, mhz) in by_hand_mhz.into_iter().enumerate() {
            let expected_ns = 20_000.0 * 2000.0 / f64::from(mhz);
            assert_near(
                &format!("{scheduler}: wakeup {position} of {lengths:?}"),
                lengths[position] as f64,
                expected_ns,
                0.01,
            );
        }
    }
}

/// By hand: 20 us of work at 100 MHz.
#[test]
fn a_sleep_that_is_not_for_io_boosts_nothing_and_other_governors_know_no_boost() {
    for length in lengths_ns("eevdf:governor=schedutil", &[(false, MS); 4]) {
        assert_near("schedutil", length as f64, 400_000.0, 0.01);
    }
    for length in lengths_ns("eevdf:governor=powersave", &[(true, MS); 4]) {
        assert_near("powersave", length as f64, 400_000.0, 0.01);
    }
    let fixed = |for_io| lengths_ns("eevdf:governor=fixed", &[(for_io, MS); 4]);
    assert_eq!(fixed(true), fixed(false));
}
