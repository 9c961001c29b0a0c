//! What a program says about the speed of CPUs.

use warmcore_kernel::Governor;
use warmcore_scx::{EnqueueFlags, ExitKind, SLICE_DEFAULT_NS};
use warmcore_topology::CpuId;

use super::program::{Program, SHARED};
use crate::support::*;

/// By hand: 150 ms of work at 2000 of 1000 MHz until the program asks for half the speed at 50.5 ms. 1.25 times half of 2000 MHz is 1250, and
/// the next step of 100 MHz is 1300: 101 ms of work are done, and 49 take 37.69. Until the next tick it would be faster for up to 4 ms.
#[test]
fn a_speed_that_a_program_asks_for_is_the_governors_at_once() {
    let machine = warmcore_topology::from_toml(
        "[topology]\nshape = \"1s1n1l1c1t\"\n[costs]\ncontext_switch_ns = 0\nwakeup_ns = 1\ntick_ns = 0\nidle_exit_ns = 0\nexit_ns = 0\nsyscall_ns = 0\n\
         [[core_kind]]\nreference_mhz = 1000\nmin_mhz = 500\nmax_mhz = 2000\n",
    );
    let mut scene = Scene::new();
    scene.task("worker", once([run_for(150 * MS)]));
    let program = Program {
        timer: |kernel| kernel.cpuperf_set(CpuId(0), 512),
        timer_at_ns: 50_500_000,
        governor: Governor::Schedutil,
        ..Program::fifo()
    };
    let result = program.run_on(&scene, &machine.unwrap());
    assert_eq!(result.ejected, None);
    assert_near("elapsed", result.run.outcome.elapsed_ns as f64, 88.19 * MS as f64, 0.0002);
}

/// While a run queue is locked, a kernel sets the speed of no other CPU.
#[test]
fn the_speed_of_another_cpu_than_the_one_at_work_is_an_error_in_enqueue_and_dispatch() {
    let mut scene = Scene::new();
    scene.task("worker", times(3, [run_for(MS), sleep(MS)])).affinity = on_cpu(0);
    let ejected = |change: fn(&mut Program)| {
        let mut program = Program::fifo();
        change(&mut program);
        program.run(&scene, "1s1n1l2c1t").ejected.map(|exit| (exit.kind, exit.message))
    };
    assert_eq!(ejected(|program| program.running = |kernel, _| kernel.cpuperf_set(CpuId(0), 512)), None);
    let error = Some((ExitKind::Error, "invalid target cpu1: its run queue is not the one that is locked".to_owned()));
    let in_enqueue = ejected(|program| {
        program.enqueue = |kernel, task, flags: EnqueueFlags| {
            kernel.cpuperf_set(CpuId(1), 512);
            kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, flags);
        };
    });
    assert_eq!(in_enqueue, error);
    let in_dispatch = ejected(|program| {
        program.dispatch = |kernel, cpu, _| {
            kernel.cpuperf_set(cpu, 512);
            if kernel.move_to_local(SHARED) {
                kernel.cpuperf_set(CpuId(1), 512);
            }
        };
    });
    assert_eq!(in_dispatch, error);
}
