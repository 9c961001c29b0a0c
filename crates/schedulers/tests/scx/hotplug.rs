//! What a program hears of CPUs that go offline and come online (`docs/spec/linux-hotplug.md` section 3).

use warmcore_scx::{DsqId, ExitKind, HOTPLUG, Operation, RESTART, SLICE_DEFAULT_NS};
use warmcore_topology::CpuId;
use warmcore_trace::End;
use warmcore_workload::Hotplug;

use super::program::Program;
use crate::support::*;

/// Four tasks of 60 ms on two CPUs, of which CPU 1 is offline from 40 to 80 ms.
fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.task("task", times(2, [run_for(30 * MS), sleep(MS)])).instances = 4;
    let change = |at_ms, online| Hotplug { time_ns: at_ms * MS, cpu: 1, online };
    scene.workload.hotplug = vec![change(40, false), change(80, true)];
    scene
}

fn with_operations() -> Program {
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::CpuOffline, Operation::CpuOnline]);
    program
}

/// Whether some task runs on CPU 1 between two times.
fn uses_cpu_1(run: &Run, from_ms: u64, to_ms: u64) -> bool {
    let mut stays = (0..4).flat_map(|number| run.stays(&format!("task-{number}")));
    stays.any(|stay| stay.cpu == 1 && stay.end_ns > from_ms * MS && stay.start_ns < to_ms * MS && stay.length_ns() > 0)
}

#[test]
fn a_program_without_the_operations_is_ended_with_the_restart_code_and_its_tasks_go_on() {
    let result = Program::fifo().run(&scene(), "1s1n1l2c1t");
    let exit = result.ejected.expect("it is ended");
    assert_eq!((exit.kind, exit.code), (ExitKind::UnregisteredByKernel, RESTART | HOTPLUG));
    assert_eq!((exit.message.as_str(), exit.time_ns), ("cpu 1 going offline, exiting scheduler", 40 * MS));
    assert!(exit.dump.is_empty(), "it is no fault");
    assert!(
        exit.to_string().contains("unregistered from the main kernel") && exit.to_string().contains("start it again")
    );
    assert_eq!(result.heard.expect("it is told").kind, ExitKind::UnregisteredByKernel);
    assert_eq!(result.run.outcome.end, End::AllExited);
    assert!(!uses_cpu_1(&result.run, 41, 80));
}

#[test]
fn a_program_with_the_operations_hears_of_both_and_is_not_asked_on_the_cpu_meanwhile() {
    let mut program = with_operations();
    program.dispatch = |kernel, cpu, _| {
        assert!(cpu == CpuId(0) || !(40 * MS + 1..80 * MS).contains(&kernel.now_ns()));
        kernel.move_to_local(super::program::SHARED);
    };
    let result = program.run(&scene(), "1s1n1l2c1t");
    assert_eq!(result.ejected, None);
    assert_eq!((result.times("cpu_offline", 1), result.times("cpu_online", 1)), (vec![40 * MS], vec![80 * MS]));
    assert!(uses_cpu_1(&result.run, 0, 40) && !uses_cpu_1(&result.run, 41, 80) && uses_cpu_1(&result.run, 81, 100));
    // 240 ms of work: 80 by 40 ms, 40 by 80 ms, the rest on two CPUs.
    let elapsed_ns = result.run.outcome.elapsed_ns;
    assert!((140 * MS..165 * MS).contains(&elapsed_ns), "{elapsed_ns} ns");
}

#[test]
fn an_insertion_into_the_local_queue_of_an_offline_cpu_goes_to_the_global_queue() {
    let mut program = with_operations();
    program.select = |_, _, prev, _| prev;
    program.enqueue = |kernel, task, flags| {
        kernel.dsq_insert(task, DsqId::local_on(CpuId(1)), SLICE_DEFAULT_NS, flags);
    };
    let result = program.run(&scene(), "1s1n1l2c1t");
    assert_eq!(result.ejected, None);
    assert_eq!(result.run.outcome.end, End::AllExited);
    assert!(!uses_cpu_1(&result.run, 41, 80));
}
