//! Tasks in the kernel under the four preemption models, against calculations by hand (`docs/workloads.md`).

use warmcore_workload::{CpuMax, KernelStep, Policy, ProgramBuilder, Step};

use crate::support::*;

const MODELS: [&str; 4] = ["none", "voluntary", "full", "lazy"];

/// A tick of the kernel.
const TICK: u64 = 4 * MS;

/// What a wakeup, an interrupt and a switch take together, and a system call's entry: generously.
const SOON: u64 = 20 * US;

/// How long the sleeper of [`latencies`] sleeps, timer slack included.
const SLEEPS: u64 = 10_050 * US;

fn kernel(step: KernelStep) -> Step {
    Step::Kernel(step)
}

/// 40 ms of kernel work.
fn system_call() -> ProgramBuilder {
    once([kernel(KernelStep::Enter), run_for(40 * MS), kernel(KernelStep::Exit), run_for(20 * MS)])
}

/// Eight times 5 ms of kernel work, with a step after each.
fn looks(step: KernelStep) -> ProgramBuilder {
    let builder = ProgramBuilder::new().step(kernel(KernelStep::Enter));
    let builder = builder.repeat(Some(8), |body| body.step(run_for(5 * MS)).step(kernel(step)));
    builder.step(kernel(KernelStep::Exit)).step(run_for(20 * MS))
}

/// 40 ms of kernel work, of which nobody may interrupt those from 5 ms on to 25 ms.
fn locked() -> ProgramBuilder {
    let builder = ProgramBuilder::new().step(kernel(KernelStep::Enter)).step(run_for(5 * MS));
    let builder = builder.step(kernel(KernelStep::PreemptDisable)).step(run_for(20 * MS));
    let builder = builder.step(kernel(KernelStep::PreemptEnable)).step(run_for(15 * MS));
    builder.step(kernel(KernelStep::Exit)).step(run_for(20 * MS))
}

/// How long a task that wakes at about 10 ms waits for the one CPU, on which another has run a program from the beginning: one of
/// `SCHED_IDLE`, so that no slice of its own is protected.
fn latency(program: &ProgramBuilder, policy: Policy, scheduler: &str, seed: u64) -> u64 {
    let mut scene = Scene::new();
    scene.task("wakes", once([sleep(10 * MS), run_for(MS)])).policy = policy;
    scene.task("runs", program.clone()).policy = Policy::Idle;
    let run = scene.run_with_seed("1s1n1l1c1t", scheduler, seed);
    let wakeups = run.wakeups("wakes");
    let last = wakeups.last().expect("it wakes");
    assert!(last.waking_ns.abs_diff(SLEEPS) < 100 * US, "{last:?}");
    last.latency_ns()
}

fn is_about(what: &str, latency_ns: u64, expected_ns: u64) {
    assert!(latency_ns.abs_diff(expected_ns) < 100 * US, "{what}: {latency_ns} instead of {expected_ns} ns");
}

#[test]
fn a_task_in_user_mode_is_preempted_at_once_under_every_model() {
    for model in MODELS {
        let waits_ns = latency(&once([run_for(60 * MS)]), Policy::Normal, &format!("eevdf:preempt={model}"), 1);
        assert!(waits_ns < SOON, "{model}: {waits_ns}");
    }
}

/// By hand: the kernel work ends 40 ms after the beginning, the task wakes at 10.05 ms.
#[test]
fn without_preemption_a_woken_task_waits_for_the_return_to_user_mode() {
    for scheduler in
        ["eevdf:preempt=none", "eevdf:preempt=voluntary", "cache-aware:preempt=none", "cfs", "rr:preempt=none"]
    {
        is_about(scheduler, latency(&system_call(), Policy::Normal, scheduler, 1), 40 * MS - SLEEPS);
    }
}

#[test]
fn with_full_preemption_a_woken_task_waits_for_nothing_but_a_part_with_preemption_disabled() {
    for scheduler in ["eevdf:preempt=full", "cfs:preempt=full"] {
        assert!(latency(&system_call(), Policy::Normal, scheduler, 1) < SOON);
        is_about(scheduler, latency(&locked(), Policy::Normal, scheduler, 1), 25 * MS - SLEEPS);
    }
}

/// By hand: a lazy request becomes a full one with the next tick, whose phase the seed draws: half a tick later on average, a whole one
/// at most. The tick finds preemption disabled until 25 ms; from then on it is as under full preemption. The high-resolution tick at the end
/// of a slice asks for a full one by itself.
#[test]
fn with_lazy_preemption_a_woken_task_waits_for_the_next_tick() {
    for scheduler in ["eevdf:hrtick=0", "eevdf:preempt=lazy,hrtick=0", "cache-aware:hrtick=0"] {
        let waits: Vec<u64> = (0..40).map(|seed| latency(&system_call(), Policy::Normal, scheduler, seed)).collect();
        assert!(waits.iter().all(|ns| *ns < TICK + SOON), "{scheduler}: {waits:?}");
        // 40 draws from a uniform distribution know its mean to about a twelfth.
        assert_near(scheduler, mean(waits), TICK as f64 / 2.0, 0.25);
        is_about(scheduler, latency(&locked(), Policy::Normal, scheduler, 1), 25 * MS - SLEEPS);
    }
    for faster in ["eevdf:hz=1000,hrtick=0", "eevdf"] {
        let waits_ns = latency(&system_call(), Policy::Normal, faster, 1);
        assert!(waits_ns < MS + SOON, "{faster}: {waits_ns}");
    }
}

/// By hand: a page takes the machine's `page_fault_ns`, the last one whole, and nobody waits for more than one.
#[test]
fn first_touches_take_a_fault_for_each_page_and_give_way_after_each() {
    let pages = 60_000;
    let touches = || once([Step::FirstTouch { bytes: pages * 4096 - 4095 }]);
    for model in MODELS {
        let scheduler = format!("eevdf:preempt={model}");
        let waits_ns = latency(&touches(), Policy::Normal, &scheduler, 1);
        assert!(waits_ns < SOON, "{model}: {waits_ns}");
        let mut scene = Scene::new();
        scene.task("touches", touches());
        let run = scene.run("1s1n1l1c1t", &scheduler);
        let fault_ns = warmcore_topology::resolve("1s1n1l1c1t").unwrap().costs().page_fault_ns;
        assert_near(model, run.cpu_time("touches") as f64, (pages * fault_ns) as f64, 0.002);
    }
}

/// By hand: the kernel work gives way 15 ms after its beginning, the first time after 10.05 ms.
#[test]
fn cond_resched_gives_way_without_preemption_and_might_sleep_under_the_voluntary_model_alone() {
    let to_look = 15 * MS - SLEEPS;
    let to_return = 40 * MS - SLEEPS;
    for (step, model, expected_ns) in [
        (KernelStep::CondResched, "none", to_look),
        (KernelStep::CondResched, "voluntary", to_look),
        (KernelStep::MightSleep, "none", to_return),
        (KernelStep::MightSleep, "voluntary", to_look),
    ] {
        let what = format!("{step:?} under {model}");
        is_about(&what, latency(&looks(step), Policy::Normal, &format!("eevdf:preempt={model}"), 1), expected_ns);
    }
}

/// By hand: under lazy preemption a real-time task does not wait for a tick, and without preemption it waits as others do.
#[test]
fn a_real_time_task_preempts_the_kernel_at_once_under_full_and_lazy_preemption() {
    let policy = Policy::Fifo { priority: 50 };
    for model in ["full", "lazy"] {
        for scheduler in ["eevdf", "cfs", "rr"] {
            let scheduler = format!("{scheduler}:preempt={model}");
            let waits_ns = latency(&system_call(), policy, &scheduler, 1);
            assert!(waits_ns < SOON, "{scheduler}: {waits_ns}");
            is_about(&scheduler, latency(&locked(), policy, &scheduler, 1), 25 * MS - SLEEPS);
        }
    }
    for model in ["none", "voluntary"] {
        is_about(model, latency(&system_call(), policy, &format!("eevdf:preempt={model}"), 1), 40 * MS - SLEEPS);
    }
}

/// By hand: 30 ms of kernel work of which 10 ms are slept in the kernel: the other task has the CPU meanwhile, under every model.
#[test]
fn a_task_may_sleep_in_the_kernel_and_goes_on_there() {
    for model in MODELS {
        let mut scene = Scene::new();
        let steps =
            [kernel(KernelStep::Enter), run_for(5 * MS), sleep(10 * MS), run_for(25 * MS), kernel(KernelStep::Exit)];
        scene.task("calls", once(steps));
        scene.task("user", once([run_for(8 * MS)])).policy = Policy::Idle;
        let run = scene.run("1s1n1l1c1t", &format!("eevdf:preempt={model}"));
        let ended = |name| run.outcome.tasks[run.id(name).index()].exited_ns.expect("it ends");
        assert!(ended("user") < 16 * MS, "{model}: {}", ended("user"));
        // The other one has a three hundredth of the CPU as long as there are two.
        assert!(ended("calls").abs_diff(40 * MS) < MS, "{model}: {}", ended("calls"));
    }
}

#[test]
fn a_task_that_sleeps_with_preemption_disabled_is_an_error_that_says_so() {
    let mut scene = Scene::new();
    let steps = [KernelStep::Enter, KernelStep::PreemptDisable].map(kernel);
    let [enter, disable] = steps;
    let [enable, exit] = [KernelStep::PreemptEnable, KernelStep::Exit].map(kernel);
    scene.task("atomic", once([enter, disable, sleep(MS), enable, exit]));
    let error = scene.try_run("1s1n1l1c1t", "eevdf", 1).err().expect("it fails").to_string();
    assert!(error.contains("scheduling while atomic") && error.contains("atomic"), "{error}");
}

/// By hand: a request of before that a tick would have brought, since no high-resolution tick is armed, is acted upon at the return from a page fault of a microsecond.
#[test]
fn a_lazy_request_of_another_cpu_acts_at_the_return_from_the_next_fault() {
    for (faults, soon) in [(true, true), (false, false)] {
        let mut scene = Scene::lasting(200 * MS);
        let [enter, exit] =
            if faults { [KernelStep::Enter, KernelStep::Exit].map(kernel) } else { [run_for(0), run_for(0)] };
        scene.task("faults", forever([run_for(100 * US), enter, run_for(US), exit])).affinity = on_cpu(0);
        scene.task("wakes", forever([Step::Suspend, run_for(50 * US)])).affinity = on_cpu(0);
        let wakes = warmcore_workload::TaskTemplateId(1);
        // A multiple of nothing else here, so that all phases of the tick come.
        scene.task("waker", forever([sleep(9_130 * US), Step::Resume(wakes)])).affinity = on_cpu(1);
        let run = scene.run("1s1n1l2c1t", "eevdf:hrtick=0");
        let waits = run.wakeups("wakes");
        let longest = waits.iter().skip(1).map(WakeupSpan::latency_ns).max().unwrap();
        assert_eq!(longest < 150 * US, soon, "{longest} ns, faults: {faults}");
    }
}

/// By hand: the quota of 10 ms is used up within a system call of 30 ms, and the task leaves when that is over, under every model. In user
/// mode it leaves at once, give or take a slice of quota and a tick.
#[test]
fn a_task_without_quota_left_goes_on_until_it_returns_to_user_mode() {
    for scheduler in ["eevdf", "eevdf:preempt=none", "eevdf:preempt=full", "cfs", "cache-aware"] {
        for (step, longest, shortest) in [(true, 31 * MS, 30 * MS), (false, 16 * MS, 9 * MS)] {
            let [enter, exit] = match step {
                true => [KernelStep::Enter, KernelStep::Exit].map(kernel),
                false => [run_for(0), run_for(0)],
            };
            let mut scene = Scene::lasting(600 * MS);
            let group = scene.workload.add_group("/pod");
            let max = CpuMax::new(10_000, 100_000, 0).unwrap();
            scene.workload.groups[group.index()].cpu_max = Some(max);
            scene.task("calls", forever([enter, run_for(30 * MS), exit, run_for(30 * MS)])).group = Some(group);
            let run = scene.run("1s1n1l1c1t", scheduler);
            let first = run.stays("calls")[0].length_ns();
            assert!((shortest..longest).contains(&first), "{scheduler}: {first} ns, in the kernel: {step}");
        }
    }
}

/// By hand: 10 ms of each 100 ms, whatever a program does in the kernel and however short it is in user mode between two calls.
#[test]
fn a_task_without_quota_left_leaves_also_where_it_enters_the_kernel_again_at_once() {
    let [enter, exit] = [KernelStep::Enter, KernelStep::Exit].map(kernel);
    for scheduler in ["eevdf", "eevdf:preempt=none", "cfs", "cache-aware"] {
        for program in
            [forever([enter.clone(), run_for(MS), exit.clone()]), forever([Step::FirstTouch { bytes: 1 << 20 }])]
        {
            let mut scene = Scene::lasting(S);
            let group = scene.workload.add_group("/pod");
            scene.workload.groups[group.index()].cpu_max = Some(CpuMax::new(10_000, 100_000, 0).unwrap());
            scene.task("calls", program).group = Some(group);
            let run = scene.run("1s1n1l1c1t", scheduler);
            assert_near(scheduler, run.cpu_time("calls") as f64, (100 * MS) as f64, 0.15);
        }
    }
}
