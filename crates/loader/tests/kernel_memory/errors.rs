//! What a kernel ejects, and what a program gives that throws.

use super::*;

/// In the words of a guest of Linux 7.2.
#[test]
fn what_a_kernel_ejects_is_ejected() {
    let call = |one, two, name| vec![mov_imm(1, one), mov_imm(2, two), kfunc(name)];
    let own_masks = ("update_idle", ends(Vec::new()));
    for (flags, programs, words) in [
        (
            0,
            fifo(&[own_masks, ("running", ends(call(0, 0, "scx_bpf_test_and_clear_cpu_idle")))]),
            "built-in idle tracking is disabled",
        ),
        (
            BUILTIN_IDLE_PER_NODE,
            fifo(&[("init", call(0, 0, "scx_bpf_get_idle_cpumask"))]),
            "per-node idle tracking is enabled",
        ),
        (0, fifo(&[("init", call(0, 0, "scx_bpf_get_idle_cpumask_node"))]), "per-node idle tracking is disabled"),
        (BUILTIN_IDLE_PER_NODE, fifo(&[("init", call(9, 0, "scx_bpf_get_idle_cpumask_node"))]), "invalid node 9"),
        (
            0,
            fifo(&[("running", ends(call(0, 3, "scx_bpf_kick_cpu")))]),
            "PREEMPT/WAIT cannot be used with SCX_KICK_IDLE",
        ),
    ] {
        let reason = ejection_with(flags, ALL, &programs, "tasks.json").expect("it is ejected").0;
        assert!(reason.contains(words), "{reason}");
    }
    let harmless = [("init", call(77, 0, "scx_bpf_destroy_dsq"))];
    assert_eq!(ejected(ALL, &fifo(&harmless), "tasks.json"), None, "a queue that is not there");
}

#[test]
fn the_first_form_of_reenqueue_local_is_for_cpu_release_alone() {
    let running = |name| fifo(&[("running", vec![kfunc(name)])]);
    let reason = ejected(ALL, &running("scx_bpf_reenqueue_local"), "tasks.json").expect("it is ejected");
    assert!(reason.contains("scx_bpf_reenqueue_local() outside of ops.cpu_release()"), "{reason}");
    assert_eq!(ejected(ALL, &running("scx_bpf_reenqueue_local___v2"), "tasks.json"), None);
}

/// Launchers are there when the program is loaded, and of `SCHED_OTHER`: nothing becomes of those.
#[test]
fn a_task_is_disallowed_while_the_program_is_loaded_and_not_when_it_is_forked() {
    const DISALLOW: i16 = 1156;
    let disallow = |pid| {
        let one = vec![store_imm(1, 6, DISALLOW, 1)];
        fifo(&[("init_task", [vec![load(8, 6, 1, 0), load(4, 7, 6, 24)], when_equal(7, pid, one)].concat())])
    };
    assert_eq!(ejected(ALL, &disallow(1000), "tasks.json"), None);
    let reason = ejected(ALL, &disallow(1002), "tasks.json").expect("it is ejected");
    assert!(reason.contains("ops.init_task() set task->scx.disallow for other during fork"), "{reason}");
}

/// `init` calls a function that throws -22, which is what it gives then.
#[test]
fn what_is_thrown_is_what_the_operation_gives() {
    let mut programs = fifo(&[]);
    let call = vec![code(0x85, 0, 1, 0, 2), mov_imm(0, 0), exit()];
    programs[0].1 = [call, vec![mov_imm(1, -22), kfunc("bpf_throw"), mov_imm(0, 0), exit()]].concat();
    let reason = ejected(ALL, &programs, "tasks.json").expect("it is ejected");
    assert!(reason.contains("init failed with -22"), "{reason}");
}
