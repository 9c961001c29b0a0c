//! Task groups and autogroup: fairness between applications (`docs/spec/linux-fair.md` section 1.13).

use warmcore_workload::{Group, GroupId, Step};

use crate::support::*;

/// Share of the CPU time that tasks of a name got.
fn share(run: &Run, role: &str, from_ns: u64) -> f64 {
    let names: Vec<&String> =
        run.outcome.tasks.iter().filter(|task| task.role == role).map(|task| &task.name).collect();
    let time: u64 = names.iter().map(|name| run.cpu_time_between(name, from_ns, run.outcome.elapsed_ns)).sum();
    time as f64 / (run.outcome.elapsed_ns - from_ns) as f64
}

/// One spinner in group `one` and eight in group `many`, all bound to CPU 0.
fn one_against_eight() -> (Scene, [GroupId; 2]) {
    let mut scene = Scene::lasting(10 * S);
    let groups = ["one", "many"].map(|name| scene.workload.add_group(name));
    for ((name, instances), group) in [("one", 1), ("many", 8)].into_iter().zip(groups) {
        let task = scene.task(name, spin());
        (task.instances, task.group, task.affinity) = (instances, Some(group), on_cpu(0));
    }
    (scene, groups)
}

/// ± 1 %: the share of a group follows its load average, which settles within the first second.
#[test]
fn two_groups_share_a_cpu_evenly_whatever_their_size() {
    for scheduler in ["eevdf", "cfs"] {
        let run = one_against_eight().0.run("1s1n1l8c1t", scheduler);
        assert_near(scheduler, share(&run, "one", S), 0.5, 0.01);
        // Within the group everybody gets the same.
        for n in 0..8 {
            let time = run.cpu_time_between(&format!("many-{n}"), S, 10 * S);
            assert_near("member", time as f64 / (9.0 * S as f64), 0.5 / 8.0, 0.03);
        }
    }
}

#[test]
fn shares_of_groups_divide_a_cpu() {
    for scheduler in ["eevdf", "cfs"] {
        let (mut scene, [one, _]) = one_against_eight();
        scene.workload.groups[one.index()].shares = 3072;
        let run = scene.run("1s1n1l8c1t", scheduler);
        assert_near(scheduler, share(&run, "one", S), 0.75, 0.01);
    }
}

/// A group of tasks against one task without group: the group counts as one nice-0 task.
#[test]
fn a_group_weighs_as_much_as_one_task_beside_it() {
    for scheduler in ["eevdf", "cfs"] {
        let (mut scene, _) = one_against_eight();
        scene.workload.tasks[0].group = None;
        let run = scene.run("1s1n1l8c1t", scheduler);
        assert_near(scheduler, share(&run, "one", S), 0.5, 0.01);
    }
}

/// Who is in no group is in its session's, also where there is one application only: two such tasks together get what a group's one does.
#[test]
fn tasks_without_a_group_share_what_their_session_gets() {
    for scheduler in ["eevdf", "cfs"] {
        let mut scene = Scene::lasting(10 * S);
        let group = scene.workload.add_group("/group");
        let task = scene.task("member", spin());
        (task.group, task.affinity) = (Some(group), on_cpu(0));
        let task = scene.task("free", spin());
        (task.instances, task.affinity) = (2, on_cpu(0));
        let run = scene.run("1s1n1l8c1t", scheduler);
        assert_near(scheduler, share(&run, "member", S), 0.5, 0.01);
    }
}

/// A group's last task on a CPU leaves it at any time after a tick, so that its load there may have been made known within the last
/// millisecond. What is left of that is taken back: where the task is now, its group has half of the CPU and not a third.
#[test]
fn a_group_is_not_charged_for_a_cpu_that_its_last_task_left() {
    for scheduler in ["eevdf", "cfs"] {
        for ran_us in [20_100, 20_600, 21_200, 22_300, 23_700] {
            let mut scene = Scene::lasting(3 * S);
            let [stays, moves] = ["/stays", "/moves"].map(|name| scene.workload.add_group(name));
            let task = scene.task("stays", spin());
            (task.group, task.affinity) = (Some(stays), on_cpu(0));
            let steps = [run_for(ran_us * US), Step::SetAffinity(on_cpu(0))];
            let task = scene.task("moves", then_forever(steps, [run_for(S)]));
            (task.group, task.affinity) = (Some(moves), on_cpu(1));
            let run = scene.run("1s1n1l2c1t", scheduler);
            assert_near(&format!("{scheduler}, {ran_us} µs"), share(&run, "stays", S), 0.5, 0.01);
        }
    }
}

/// The CPU of one task of a group goes offline. Its load there is forgotten, so the group still has half of the CPU that is left.
#[test]
fn a_group_is_not_charged_for_a_cpu_that_is_offline() {
    for scheduler in ["eevdf", "cfs"] {
        let mut scene = Scene::lasting(3 * S);
        let [one, two] = ["/one", "/two"].map(|name| scene.workload.add_group(name));
        let task = scene.task("one", spin());
        (task.group, task.affinity) = (Some(one), on_cpu(0));
        let task = scene.task("two", spin());
        (task.group, task.instances) = (Some(two), 2);
        scene.unplug(402 * MS, 1);
        let run = scene.run("1s1n1l2c1t", scheduler);
        assert_near(scheduler, share(&run, "one", S), 0.5, 0.01);
    }
}

/// Spinners on CPU 0, each in a group of its own.
fn one_in_each(paths: &[&str]) -> Scene {
    let mut scene = Scene::lasting(10 * S);
    for path in paths {
        let group = scene.workload.add_group(*path);
        let task = scene.task(path, spin());
        (task.group, task.affinity) = (Some(group), on_cpu(0));
    }
    scene
}

fn set_shares(scene: &mut Scene, path: &str, shares: u32) {
    scene.workload.groups.iter_mut().find(|group| group.name == path).unwrap().shares = shares;
}

/// The schedulers of the fair class.
const FAIR: [&str; 6] =
    ["eevdf", "cfs", "cfs:kernel=4.9", "cache-aware", "topology-aware", "eevdf:kernel=7.3,cgroup_mode=smp"];

/// Two users with half of the CPU each, whatever they have going: by hand, 1/2 · 1/2 and 1/2.
#[test]
fn groups_within_groups_share_what_the_outer_one_has() {
    for scheduler in FAIR {
        let run = one_in_each(&["/u1/app1", "/u1/app2", "/u2/app3"]).run("1s1n1l8c1t", scheduler);
        for (name, expected) in [("/u1/app1", 0.25), ("/u1/app2", 0.25), ("/u2/app3", 0.5)] {
            assert_near(scheduler, share(&run, name, S), expected, 0.02);
        }
    }
}

/// By hand: `/a` has 3 of 4, in it `/a/b` 2 of 3, in it `/a/b/c` 1 of 5; a task of a group beside a group counts as one nice-0 task.
#[test]
fn shares_count_at_every_level() {
    for scheduler in FAIR {
        let mut scene = one_in_each(&["/a/b/c", "/a/b/d", "/a/e", "/f/g/h/i"]);
        for (path, shares) in [("/a", 3072), ("/a/b", 2048), ("/a/b/d", 4096)] {
            set_shares(&mut scene, path, shares);
        }
        scene.workload.tasks[2].group = Some(GroupId(0));
        let run = scene.run("1s1n1l8c1t", scheduler);
        for (name, expected) in [("/a/b/c", 0.1), ("/a/b/d", 0.4), ("/a/e", 0.25), ("/f/g/h/i", 0.25)] {
            assert_near(scheduler, share(&run, name, S), expected, 0.03);
        }
    }
}

/// On each of 8 CPUs a spinner of a group of 102 shares (a pod that requests 100m) and one of a group of 1024: by hand the first has 102/1126 of
/// each CPU. It runs from a tick to the timer of its slice only, which has to bring its weight up to date.
#[test]
fn a_group_that_runs_between_ticks_has_its_part_of_every_cpu() {
    let mut scene = Scene::lasting(6 * S);
    for (path, shares) in [("/few", 102), ("/many", 1024)] {
        let group = scene.workload.add_group(path);
        set_shares(&mut scene, path, shares);
        for cpu in 0..8 {
            let task = scene.task(&format!("{path} {cpu}"), spin());
            (task.group, task.affinity) = (Some(group), on_cpu(cpu));
        }
    }
    for seed in 1..=4 {
        let run = scene.run_with_seed("1s1n2l4c1t", "eevdf", seed);
        for cpu in 0..8 {
            assert_near(
                &format!("seed {seed}, CPU {cpu}"),
                share(&run, &format!("/few {cpu}"), S),
                102.0 / 1126.0,
                0.05,
            );
        }
    }
}

/// On each of 16 CPUs a spinner of a group of 31 shares and one of a group of 1024. By hand the first group has 31/16 on each and the other 64, so
/// 31/1055. CFS counts whole weights, since 5.7 two at least, before that one: 2/66, 1/65.
#[test]
fn a_group_of_few_shares_on_many_cpus_has_its_part_of_each() {
    for scheduler in FAIR {
        let expected = match scheduler {
            "cfs" => 2.0 / 66.0,
            "cfs:kernel=4.9" => 1.0 / 65.0,
            _ => 31.0 / 1055.0,
        };
        let mut scene = Scene::lasting(40 * S);
        for (path, shares) in [("/few", 31), ("/many", 1024)] {
            let group = scene.workload.add_group(path);
            set_shares(&mut scene, path, shares);
            for cpu in 0..16 {
                let task = scene.task(&format!("{path} {cpu}"), spin());
                (task.group, task.affinity) = (Some(group), on_cpu(cpu));
            }
        }
        let run = scene.run("1s1n4l4c1t", scheduler);
        let mean = (0..16).map(|cpu| share(&run, &format!("/few {cpu}"), S)).sum::<f64>() / 16.0;
        assert_near(scheduler, mean, expected, 0.015);
    }
}

/// On each of four CPUs a spinner of no group, and one of a group: its weight of 1024 is divided among the CPUs, or every one has it, or three have: averages
/// of four that always run or wait stay below four by up to a 64th when they are published. Slices end with ticks, at which weights are brought up to date.
#[test]
fn what_a_groups_weight_stands_for_is_the_cgroup_mode() {
    const THREE_OF_7: f64 = 768.0 / 1792.0;
    for (mode, expected) in [
        ("smp", 0.2),
        ("concur", THREE_OF_7),
        ("tasks", THREE_OF_7),
        ("max", 0.5),
        ("up", 0.5),
        ("default", THREE_OF_7),
    ] {
        let mut scene = Scene::lasting(6 * S);
        let group = scene.workload.add_group("/g");
        for cpu in 0..4 {
            scene.task("alone", spin()).affinity = on_cpu(cpu);
            let member = scene.task(&format!("member {cpu}"), spin());
            (member.affinity, member.group) = (on_cpu(cpu), Some(group));
        }
        let scheduler = format!("eevdf:kernel=7.3,cgroup_mode={mode},hrtick=0,autogroup=0");
        let run = scene.run("1s1n1l4c1t", &scheduler);
        for cpu in 0..4 {
            assert_near(&scheduler, share(&run, &format!("member {cpu}"), S), expected, 0.02);
        }
    }
}

/// The same with one spinner in the group: beside one of no group it has half, or with the weight of all four CPUs 4 of 5.
#[test]
fn a_group_of_one_task_has_the_weight_of_all_cpus_where_each_has_it() {
    for (mode, expected) in [("smp", 0.5), ("concur", 0.5), ("tasks", 0.5), ("max", 0.8), ("up", 0.5)] {
        let mut scene = Scene::lasting(6 * S);
        let group = scene.workload.add_group("/g");
        scene.task("alone", spin()).affinity = on_cpu(0);
        let member = scene.task("member", spin());
        (member.affinity, member.group) = (on_cpu(0), Some(group));
        let scheduler = format!("eevdf:kernel=7.3,cgroup_mode={mode},autogroup=0");
        assert_near(&scheduler, share(&scene.run("1s1n1l4c1t", &scheduler), "member", S), expected, 0.02);
    }
}

/// `concur` takes a group of eight tasks for one on seven CPUs (their averages stay below eight), also where they are bound to one: 7 of 8, by hand.
#[test]
fn eight_bound_tasks_of_a_group_have_the_weight_of_many_cpus_on_one() {
    let (scene, _) = one_against_eight();
    assert_near("7.3", share(&scene.run("1s1n1l8c1t", "eevdf:kernel=7.3"), "one", S), 1.0 / 8.0, 0.02);
}

/// Eight bound tasks of a group beside one of another on a machine of two CPUs: `concur` gives that CPU the weight of two CPUs, `tasks` that of seven tasks.
/// By hand the one has 1 of 3 parts, or 1 of 8.
#[test]
fn tasks_count_beyond_the_cpus_where_each_has_the_weight() {
    for (mode, expected) in [("concur", 1.0 / 3.0), ("tasks", 1.0 / 8.0)] {
        let (scene, _) = one_against_eight();
        let scheduler = format!("eevdf:kernel=7.3,cgroup_mode={mode}");
        assert_near(&scheduler, share(&scene.run("1s1n1l2c1t", &scheduler), "one", S), expected, 0.03);
    }
}

/// As a write to `cpu.idle` does.
fn make_idle(scene: &mut Scene, group: GroupId) {
    let group = &mut scene.workload.groups[group.index()];
    (group.idle, group.shares) = (true, Group::IDLE_SHARES);
}

/// Eight spinners of an idle group have the weight of one task of `SCHED_IDLE` together: 3 of 1027 parts. The tolerance is a slice.
#[test]
fn an_idle_group_has_the_weight_of_sched_idle() {
    for scheduler in ["eevdf", "cfs"] {
        let (mut scene, [_, many]) = one_against_eight();
        make_idle(&mut scene, many);
        let run = scene.run("1s1n1l8c1t", scheduler);
        assert_near(scheduler, share(&run, "many", S), 3.0 / 1027.0, 0.3);
    }
}

/// A spinner of its own group on each of two CPUs, the second in an idle one, and a light task. It goes to the second CPU, which is idle for it, and runs at
/// once; where nobody is idle it waits for parts of slices.
#[test]
fn an_idle_group_gives_way_at_once_and_leaves_its_cpu_idle_for_others() {
    for idle in [true, false] {
        let mut scene = Scene::lasting(2 * S);
        for cpu in 0..2 {
            let group = scene.workload.add_group(format!("/group{cpu}/inner"));
            let task = scene.task(&format!("spinner {cpu}"), spin());
            (task.group, task.affinity) = (Some(group), on_cpu(cpu));
            if idle && cpu == 1 {
                make_idle(&mut scene, GroupId(group.0 - 1));
            }
        }
        let group = scene.workload.add_group("/light");
        scene.task("light", forever([run_for(300 * US), sleep(5 * MS)])).group = Some(group);
        let run = scene.run("1s1n1l2c1t", "eevdf");
        let wakeups: Vec<_> = run.wakeups("light").into_iter().filter(|wakeup| wakeup.waking_ns > 100 * MS).collect();
        let longest_ns = wakeups.iter().map(WakeupSpan::latency_ns).max().unwrap();
        assert!(wakeups.len() > 200, "{}", wakeups.len());
        assert_eq!(longest_ns < 30 * US, idle, "{longest_ns} ns");
        assert!(!idle || wakeups.iter().all(|wakeup| wakeup.cpu == 1));
    }
}

/// A group that lies elsewhere than its path says.
#[test]
fn a_group_can_be_put_into_another_by_name() {
    let mut scene = one_in_each(&["one", "two", "three", "outer"]);
    scene.workload.groups[0].parent = Some(GroupId(3));
    scene.workload.groups[1].parent = Some(GroupId(3));
    scene.workload.tasks.pop();
    let run = scene.run("1s1n1l8c1t", "eevdf");
    assert_near("one", share(&run, "one", S), 0.25, 0.02);
    assert_near("three", share(&run, "three", S), 0.5, 0.02);
}

/// Four CPUs, two users: 12 spinners in three groups of the one, 4 in one of the other. By hand both have two CPUs (± 10 %: whole tasks on
/// four CPUs divide only roughly).
#[test]
fn groups_within_groups_share_a_machine() {
    for scheduler in ["eevdf", "cfs"] {
        let mut scene = Scene::lasting(10 * S);
        for (path, instances) in [("/u1/a", 4), ("/u1/b", 4), ("/u1/c", 4), ("/u2/d", 4)] {
            let group = scene.workload.add_group(path);
            let task = scene.task(path, spin());
            (task.group, task.instances) = (Some(group), instances);
        }
        let run = scene.run("1s1n1l4c1t", scheduler);
        assert_near(scheduler, share(&run, "/u2/d", 2 * S) / 4.0, 0.5, 0.1);
        assert_near(scheduler, share(&run, "/u1/b", 2 * S) / 4.0, 0.5 / 3.0, 0.1);
    }
}

/// The setting of the CFS paper's figure: one application of one thread, one of many.
#[test]
fn autogroup_shares_a_cpu_between_applications() {
    let mut scene = Scene::lasting(10 * S);
    let other = scene.application("many");
    scene.task("one", spin()).affinity = on_cpu(0);
    let many = scene.task("many", spin());
    (many.process, many.instances, many.affinity) = (other, 8, on_cpu(0));
    for (scheduler, expected) in
        [("eevdf", 0.5), ("cfs", 0.5), ("eevdf:autogroup=0", 1.0 / 9.0), ("cfs:autogroup=0", 1.0 / 9.0)]
    {
        assert_near(scheduler, share(&scene.run("1s1n1l8c1t", scheduler), "one", S), expected, 0.02);
    }
}

/// Four CPUs; the application of two spinners has half of the shares of two CPUs and none of the others' demand: 16 spinners
/// against 2 share about evenly (± 10 %: whole tasks on four CPUs divide only roughly).
#[test]
fn autogroup_shares_a_machine_between_applications() {
    let mut scene = Scene::lasting(10 * S);
    let other = scene.application("many");
    scene.task("few", spin()).instances = 4;
    let many = scene.task("many", spin());
    (many.process, many.instances) = (other, 16);
    let run = scene.run("1s1n1l4c1t", "eevdf");
    assert_near("share of the few", share(&run, "few", 2 * S) / 4.0, 0.5, 0.1);
}

/// A task that joins a group of eight loses its own half.
#[test]
fn a_running_task_can_change_its_group() {
    for scheduler in ["eevdf", "cfs"] {
        let (mut scene, [_, many]) = one_against_eight();
        scene.workload.tasks[0].group = None;
        let program = then_forever([run_for(2 * S), Step::SetGroup(many)], [run_for(S)]);
        scene.workload.programs[0] = program.finish();
        scene.workload.duration_ns = Some(14 * S);
        let run = scene.run("1s1n1l8c1t", scheduler);
        let before = run.cpu_time_between("one", S, 3 * S) as f64 / (2.0 * S as f64);
        let after = run.cpu_time_between("one", 8 * S, 14 * S) as f64 / (6.0 * S as f64);
        assert_near("before", before, 0.5, 0.02);
        assert_near("after", after, 1.0 / 9.0, 0.03);
    }
}

/// Sleepers in groups beside a spinner: their groups' entities come and go, and everybody makes progress.
#[test]
fn groups_of_sleepers_come_and_go() {
    for scheduler in [
        "eevdf",
        "cfs",
        "eevdf:delay_dequeue=0",
        "eevdf:next_buddy=1",
        "eevdf:kernel=7.3",
        "eevdf:kernel=7.3,next_buddy=1",
    ] {
        let mut scene = Scene::lasting(2 * S);
        scene.task("spinner", spin()).affinity = on_cpu(0);
        for n in 0..4u64 {
            // One of them in another, and the last at the end of a chain of empty ones.
            let path = ["/a", "/a/b", "/c", "/d/e/f/g"][n as usize];
            let group = scene.workload.add_group(path);
            let task = scene
                .task(&format!("sleeper {n}"), forever([run_for(200 * US + n * 50 * US), sleep(MS + n * 300 * US)]));
            (task.group, task.affinity, task.instances) = (Some(group), on_cpu(0), 2);
        }
        let run = scene.run("1s1n1l8c1t", scheduler);
        for task in &run.outcome.tasks {
            assert!(task.progress_ns > 50 * MS, "{scheduler}: {} got {}", task.name, task.progress_ns);
        }
    }
}
