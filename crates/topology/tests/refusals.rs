//! Bad machine files: each is refused with a message that says what is wrong, and where.

use warmcore_topology::{Error, from_hwloc_xml, from_toml};

/// The message for a machine file.
fn refusal(text: &str) -> String {
    from_toml(text).unwrap_err().to_string()
}

fn assert_refused(text: &str, wanted: &str) {
    let message = refusal(text);
    assert!(message.contains(wanted), "expected `{wanted}` in: {message}\nfor: {text}");
}

#[test]
fn machines_without_cpus_are_refused() {
    assert_refused("name = \"empty\"", "it has no CPUs");
    assert_refused("[topology]\nnodes = [{ id = 0 }]", "it has no online CPU");
}

#[test]
fn overlapping_llcs_are_refused() {
    let text = "[topology]\nnodes = [{ id = 0, cpus = \"0-3\" }]\nllcs = [\"0-2\", \"2-3\"]";
    assert_refused(text, "line 1: CPU 2 is in two LLCs; they overlap");
}

#[test]
fn a_cpu_in_two_nodes_is_refused() {
    let text = "[topology]\nnodes = [{ id = 0, cpus = \"0-3\" }, { id = 1, cpus = \"3-5\" }]";
    assert_refused(text, "CPU 3 is in two NUMA nodes");
}

#[test]
fn a_cpu_left_out_of_the_llcs_is_refused() {
    assert_refused(
        "[topology]\nnodes = [{ id = 0, cpus = \"0-3\" }]\nllcs = [\"0-2\"]",
        "CPU 3 is in none of the LLCs",
    );
    assert_refused(
        "[topology]\nnodes = [{ id = 0, cpus = \"0-3\" }]\nllcs = [\"0-4\"]",
        "CPU 4 is listed as part of an LLC but is in no NUMA node",
    );
}

#[test]
fn cores_and_llcs_must_nest() {
    let nodes = "[topology]\nnodes = [{ id = 0, cpus = \"0-1\" }, { id = 1, cpus = \"2-3\" }]\n";
    assert_refused(&format!("{nodes}llcs = [\"0-3\"]"), "share an LLC but lie in different NUMA nodes");
    assert_refused(&format!("{nodes}llcs = [\"0-1\", \"2-3\"]\ncores = [\"0\", \"1-2\", \"3\"]"), "share a c");
    let one = "[topology]\nnodes = [{ id = 0, cpus = \"0-3\" }]\n";
    assert_refused(
        &format!("{one}llcs = [\"0-1\", \"2-3\"]\ncores = [\"0\", \"1-2\", \"3\"]"),
        "CPUs 1 and 2 share a core but lie in different LLCs",
    );
    assert_refused(
        &format!("{one}sockets = [{{ id = 0, cpus = \"0\" }}, {{ id = 1, cpus = \"1-3\" }}]\nllcs = [\"0-3\"]"),
        "share an LLC but lie in different sockets",
    );
}

#[test]
fn impossible_distances_are_refused() {
    let file = |distances: &str| format!("[topology]\nshape = \"2s1n1l1c\"\ndistances = {distances}");
    assert_refused(&file("[[9, 20], [20, 10]]"), "0 to 0 is 9, not 10");
    assert_refused(&file("[[10, 9], [9, 10]]"), "0 to 1 is 9, not 10 to 255");
    assert_refused(&file("[[10, 256], [256, 10]]"), "not 10 to 255");
    assert_refused(&file("[[10]]"), "the distance matrix is not 2 x 2");
    assert_refused(&file("[[10, 20], [20]]"), "the distance matrix is not 2 x 2");
}

/// As of a `/sys` tree, the longer way counts.
#[test]
fn distances_that_depend_on_the_direction_are_noted() {
    let machine = from_toml("[topology]\nshape = \"2s1n1l1c\"\ndistances = [[10, 20], [21, 10]]").unwrap();
    let node = warmcore_topology::NodeId;
    assert_eq!((machine.node_distance(node(0), node(1)), machine.node_distance(node(1), node(0))), (21, 21));
    assert_eq!(machine.notes(), ["the distances of 1 pair of nodes depend on the direction: the longer one counts"]);
    assert!(from_toml(&warmcore_topology::to_toml(&machine)).unwrap() == machine);
}

#[test]
fn groups_that_stand_for_llcs_have_every_cpu_once_and_whole_cores() {
    let file = |groups: &str| format!("[topology]\nshape = \"2s1n1l4c2t\"\ncores_per_cluster = 2\n{groups}");
    assert_refused(&file("coregroups = [\"0-1,8-9\"]"), "CPU 2 is in none of the coregroups");
    assert_refused(&file("coregroups = [\"0-7\", \"7-15\"]"), "CPU 7 is in two coregroups");
    assert_refused(&file("coregroups = [\"0-7\", \"8-15\"]"), "share a core but lie in different coregroups");
    assert_refused(&file("coregroups = [\"0-15\"]"), "share a coregroup but lie in different NUMA nodes");
    assert_refused(&file("coregroups = [\"0-16\"]"), "lists CPU 16, which is not online");
    let across = "coregroups = [\"0,8\", \"1-2,9-10\", \"3,11\", \"4-7,12-15\"]";
    assert_refused(&file(across), "share a coregroup but lie in different clusters");
    assert_refused(&file("cores_per_coregroup = 0"), "at least 1 core");
    assert_refused(&file("cores_per_coregroup = 1\ncoregroups = [\"0-7\"]"), "exclude each other");
    assert_refused("base = \"generic\"\n[topology]\ncores_per_coregroup = 2", "belongs to a `shape`");
    let pairs = from_toml(&file("cores_per_coregroup = 2\noffline = \"1,9\"")).unwrap();
    assert!(pairs.has_coregroups() && from_toml(&warmcore_topology::to_toml(&pairs)).unwrap() == pairs);
    assert!(!from_toml(&file("cores_per_coregroup = 4")).unwrap().has_coregroups(), "those are the LLCs");
}

#[test]
fn too_many_cpus_are_refused() {
    assert_refused("[topology]\nshape = \"4097c\"", "more than 4096 CPUs");
    assert_refused("[topology]\nshape = \"4000000000s4000000000c\"", "more than 4096 CPUs");
    assert_refused("[topology]\nnodes = [{ id = 0, cpus = \"0-4096\" }]", "4097 CPUs are more than the limit of 4096");
}

#[test]
fn capacities_are_relative_to_the_biggest_cpu() {
    let file = |capacities: &str| format!("[topology]\nshape = \"2c\"\ncapacities = [{capacities}]");
    assert_refused(&file("{ cpus = \"0-1\", capacity = 512 }"), "no CPU has capacity 1024");
    assert_refused(&file("{ cpus = \"0\", capacity = 0 }"), "capacity 0, not 1 to 1024");
    assert_refused(&file("{ cpus = \"7\", capacity = 512 }"), "capacity given for CPU 7, which is not online");
    let twice = "{ cpus = \"0-1\", capacity = 1024 }, { cpus = \"1\", capacity = 512 }";
    assert_refused(&file(twice), "CPU 1 has two capacities");
}

#[test]
fn priorities_are_of_online_cpus_and_below_two_to_the_31() {
    let file = |priorities: &str| format!("[topology]\nshape = \"2c\"\npriorities = [{priorities}]");
    assert_refused(&file("{ cpus = \"7\", priority = 40 }"), "priority given for CPU 7, which is not online");
    let twice = "{ cpus = \"0-1\", priority = 40 }, { cpus = \"0\", priority = 40 }";
    assert_refused(&file(twice), "CPU 0 has two priorities");
    assert_refused(&file("{ cpus = \"1\", priority = 2147483648 }"), "priority 2147483648, not 0 to 2147483647");
}

#[test]
fn offline_cpus_must_exist_and_be_offline() {
    assert_refused(
        "[topology]\nshape = \"2c\"\noffline = \"2\"",
        "offline CPU 2 does not exist; 1s1n1l2c1t has CPUs 0 to 1",
    );
    assert_refused(
        "[topology]\nnodes = [{ id = 0, cpus = \"0-3\" }]\noffline = \"3\"",
        "CPU 3 is both online and offline",
    );
    assert_refused("[topology]\nshape = \"2c\"\noffline = \"0-1\"", "it has no online CPU");
}

#[test]
fn caches_of_one_level_must_not_overlap() {
    let two = "[topology]\nshape = \"4c\"\n[[cache]]\nlevel = 2\n[[cache]]\nlevel = 2\nshared_by = \"llc\"";
    assert_refused(two, "CPU 0 has two L2 caches");
    let cut = "[topology]\nshape = \"2c2t\"\n[[cache]]\nlevel = 2\nshared_by = \"core\"\ncpus = \"0\"";
    assert_refused(cut, "shared by each core, but leaves out CPU 2");
    assert_refused(
        "[topology]\nshape = \"2c\"\n[[cache]]\nlevel = 2\ncpus = \"5\"",
        "lists CPU 5, which is not online",
    );
    assert_refused("[topology]\nshape = \"2c\"\n[[cache]]\nlevel = 9", "cache level 9 is not 1 to 5");
}

#[test]
fn implausible_figures_are_refused() {
    let file = |rest: &str| format!("[topology]\nshape = \"2c\"\n{rest}");
    for (rest, wanted) in [
        (
            "[memory]\nlocal_ns = 100\nother_socket_ns = 90",
            "memory.local_ns is 100, more than memory.other_socket_ns with 90",
        ),
        ("[core_to_core_ns]\nsame_llc = 50\nother_socket = 40", "same_llc is 50, more than other_socket with 40"),
        ("[frequency]\nbase_mhz = 3000\nmax_mhz = 2000", "frequency.base_mhz is 3000"),
        ("[frequency]\nbase_mhz = 0", "0 is not a whole number of MHz, 1 to 20000"),
        ("[memory]\nsocket_read_gb_per_s = -1", "-1 is not GB/s above 0"),
        ("[memory]\nlocal_ns = \"100 ns\"", "memory.local_ns: expected a whole number of nanoseconds"),
        ("[memory]\nlocal_ns = 1.5", "1.5 is not a whole number of nanoseconds"),
        ("[memory]\nlocal_ns = nan", "NaN is not a whole number"),
        ("[costs]\ntick_ns = 2000000000", "2000000000 is not a whole number of nanoseconds"),
        ("[memory]\nlocal_ns = { value = 5, low = 6, high = 7 }", "does not lie between `low` and `high`"),
        ("[memory]\nlocal_ns = { value = 5, low = 4 }", "`low` and `high` are numbers and come together"),
        ("[memory]\nlocal_ns = { value = 5, hi = 4 }", "unknown key `hi`"),
        (
            "[[cache]]\nlevel = 1\nlatency_ns = 9.0\n[[cache]]\nlevel = 2\nlatency_ns = 5.0",
            "cache.L1d is slower than cache.L2",
        ),
        ("[costs]\npipe_locked_percent = 101", "costs.pipe_locked_percent is 101, more than 100"),
        ("[costs]\nsmt_slowdown_percent = 1001", "1001 is not a whole number of percent, 0 to 1000"),
        ("[costs]\nsmt_slowdown_percent = -1", "-1 is not a whole number of percent, 0 to 1000"),
        ("[costs]\nsmt_slowdown_percent = 0.5", "0.5 is not a whole number of percent, 0 to 1000"),
        ("[costs]\nsmt_slowdown_percent = \"half\"", "expected a whole number of percent, 0 to 1000"),
        ("[[cache]]\nlevel = 1\nlatency_ns = 900.0\n[memory]\nlocal_ns = 100", "more than memory's"),
        ("[[cache]]\nlevel = 1\nline = 48", "48 bytes is not a power of two"),
        ("[[cache]]\nlevel = 1\nsize = \"100B\"", "100 bytes are not whole lines of 64"),
        ("[[cache]]\nlevel = 1\nsize = \"32K\"", "`32K` is not a size"),
        ("[[cache]]\nlevel = 1\nsize = true", "a size such as"),
        ("[[cache]]\nlevel = 1\nways = 0", "neither 1 to 1024 nor \"full\""),
        ("[[cache]]\nlevel = 1\nlatency_ns = -1.0", "is not 0.001 to 1000000"),
    ] {
        assert_refused(&file(rest), wanted);
    }
}

#[test]
fn limits_below_the_llc_are_positive_and_no_larger_than_what_they_pass_into() {
    let file = |memory: &str| format!("[topology]\nshape = \"8c\"\ncores_per_cluster = 4\n[memory]\n{memory}");
    for (key, value) in
        [("cluster_port_gb_per_s", "0"), ("cluster_port_gb_per_s", "-27.8"), ("core_port_gb_per_s", "0.0001")]
    {
        let wanted = format!("line 5: memory.{key}: {value} is not GB/s above 0");
        assert_refused(&file(&format!("{key} = {value}")), &wanted);
    }
    assert_refused(
        &file("cluster_port_gb_per_s = 60\nllc_port_gb_per_s = 52"),
        "the port of a cluster carries 60 GB/s, more than the port of its LLC with 52 GB/s",
    );
    assert_refused(
        &file("core_port_gb_per_s = 28\ncluster_port_gb_per_s = 27.8"),
        "the port of a core carries 28 GB/s, more than the port of its cluster with 27.8 GB/s",
    );
    assert_refused(
        &file("core_port_gb_per_s = 53\ncluster_port_gb_per_s = \"unlimited\"\nllc_port_gb_per_s = 52"),
        "the port of a core carries 53 GB/s, more than the port of its LLC with 52 GB/s",
    );
    let machine =
        from_toml(&file("cluster_port_gb_per_s = { value = 27.8, origin = \"assumed: as measured elsewhere\" }"));
    let machine = machine.unwrap();
    assert_eq!(machine.performance().memory.cluster_port, Some(warmcore_topology::Bandwidth::MbPerS(27_800)));
    let shown = warmcore_topology::render(&machine);
    assert!(
        shown.contains("cluster port 27.8 GB/s (assumed)") || shown.contains("(assumed): cluster port 27.8 GB/s"),
        "{shown}"
    );
    let again = from_toml(&warmcore_topology::to_toml(&machine)).unwrap();
    assert_eq!(again.performance(), machine.performance());
}

#[test]
fn sizes_may_be_numbers_of_bytes_and_decimal_numbers_of_units() {
    for size in ["32768", "\"32768\"", "\"0.03125MiB\"", "\"32 KiB\""] {
        let text = format!(
            "[topology]\nnodes = [{{ id = 0, cpus = \"0\", memory = 1000001 }}]\n[[cache]]\nlevel = 1\nsize = {size}"
        );
        let machine = from_toml(&text).unwrap_or_else(|error| panic!("{size}: {error}"));
        assert_eq!(machine.caches()[0].size_bytes, 32_768, "{size}");
        assert_eq!(machine.node_memory_bytes(warmcore_topology::NodeId(0)), Some(1_000_001));
    }
}

#[test]
fn unknown_keys_are_refused_with_line_and_nearest_name() {
    assert_refused("nmae = \"x\"", "line 1: unknown field `nmae`");
    assert_refused(
        "[topology]\nshape = \"2c\"\n\n[costs]\ntik_ns = 5",
        "line 5: unknown value `costs.tik_ns`; did you mean `costs.tick_ns`?",
    );
    assert_refused("[topology]\nshape = \"2c\"\n[costs]\nipi_ns = 5", "unknown value `costs.ipi_ns`");
    assert_refused("[topology]\nshape = \"2c\"\n[costs.ipi_ns]\nsame_lc = 5", "did you mean `costs.ipi_ns.same_llc`?");
    assert_refused("[topology]\nshap = \"2c\"", "line 2: unknown field `shap`");
    assert_refused("[topology]\nshape = ", "line 2");
}

#[test]
fn origins_must_be_explained() {
    let file = |origin: &str| format!("[topology]\nshape = \"2c\"\n[memory]\norigin = \"{origin}\"\nlocal_ns = 5");
    assert_refused(
        &file("S99: somewhere"),
        "line 4: origin `S99` is not explained; add `S99 = \"...\"` under [sources]",
    );
    assert_refused(&file("I guess"), "`I guess` is not an origin");
    assert!(from_toml(&file("assumed: a guess")).is_ok());
    assert!(from_toml(&format!("[sources]\nS99 = \"a page\"\n{}", file("S99: its table 2"))).is_ok());
}

#[test]
fn names_of_bases_and_curves_are_checked() {
    assert_refused("base = \"genoa69\"", "line 1: unknown base `genoa69`; did you mean `genoa96`?");
    assert_refused("base = \"genoa96\"\nloaded_latency = [\"spr\"]", "line 2: unknown loaded latency curve `spr`");
    assert_refused(
        "base = \"hygon384\"\ncore_to_core_variant = \"x\"",
        "no core-to-core variant `x`; it has genoa, naples",
    );
    let curve = "base = \"i7-3770\"\n[[loaded_latency_curve]]\nname = \"x\"\nread_percent = 100\nmax_gb_per_s = 1.0\n";
    assert_refused(&format!("{curve}utilisation = [0.5, 0.4]\nfactor = [1.0, 1.1]"), "utilisations must ascend");
    assert_refused(&format!("{curve}utilisation = [0.5]\nfactor = [1.0, 1.1]"), "equally many entries");
    assert_refused(&format!("{curve}utilisation = [0.5]\nfactor = [0.5]"), "factors must not fall and are at least 1");
}

#[test]
fn contradicting_ways_to_describe_cpus_are_refused() {
    let nodes = "nodes = [{ id = 0, cpus = \"0-3\" }]";
    assert_refused(&format!("[topology]\nshape = \"2c\"\n{nodes}"), "`shape` and `nodes` exclude each other");
    assert_refused("[topology]\nshape = \"2c\"\nllcs = [\"0\"]", "`shape` excludes");
    assert_refused("[topology]\nllcs = [\"0\"]", "lists of CPUs need `nodes`");
    assert_refused(&format!("[topology]\n{nodes}\nsmt_numbering = \"split\""), "belong to a `shape`");
    assert_refused("[topology]\nshape = \"2c\"\ncores_per_cluster = 3", "is not 1 to the 2 cores of an LLC");
    assert_refused("[topology]\nshape = \"2c\"\ndistance = {}\ndistances = [[10]]", "exclude each other");
    assert_refused("[topology]\nshape = \"two\"", "short form: `two`: `t` has no usable count");
}

#[test]
fn a_file_on_a_base_replaces_what_it_states_and_keeps_the_rest() {
    let machine =
        from_toml("base = \"hygon384\"\nname = \"small\"\n[topology]\nshape = \"1s2n2l2c\"\n[memory]\nlocal_ns = 99")
            .unwrap();
    let base = warmcore_topology::resolve("hygon384").unwrap();
    assert_eq!((machine.cpu_count(), machine.llc_count(), machine.name()), (8, 4, "small"));
    assert_eq!(machine.performance().memory.local_ns, Some(99));
    assert_eq!(machine.performance().memory.same_socket_ns, base.performance().memory.same_socket_ns);
    assert_eq!(machine.costs(), base.costs());
}

#[test]
fn xml_that_is_not_hwloc_is_refused_with_its_line() {
    for (text, wanted) in [
        ("", "hwloc XML, line 1"),
        ("<topology version=\"2.0\">\n<object type=>", "line 2"),
        ("<html/>", "not `topology` of version 2 or 3"),
        ("<topology/>", "convert older files"),
        ("<topology version=\"2.0\"/>", "there is no object"),
        (
            "<topology version=\"2.0\">\n<object type=\"Machine\">\n<object type=\"PU\"/></object></topology>",
            "line 3: a PU has no os_index",
        ),
        ("<topology version=\"2.0\"><object type=\"Machine\"/></topology>", "no online CPU"),
        (
            "<topology version=\"2.0\"><object type=\"Machine\" complete_cpuset=\"0xzz\"/></topology>",
            "`0xzz` is not a word",
        ),
    ] {
        let message = from_hwloc_xml(text).unwrap_err().to_string();
        assert!(message.contains(wanted), "{text}: {message}");
    }
}

#[test]
fn errors_can_be_placed_in_a_file() {
    let error = from_toml("x = 1").unwrap_err().in_file("dir/machine.toml");
    assert!(matches!(error, Error::Invalid { .. }));
    assert!(error.to_string().starts_with("dir/machine.toml:1 (machine TOML): "), "{error}");
}

#[test]
fn core_kinds_that_cannot_be_are_refused() {
    let file = |rest: &str| format!("[topology]\nshape = \"2c2t\"\n[[core_kind]]\n{rest}");
    for (rest, wanted) in [
        ("frequency_mhz = [800]", "did you mean `frequencies_mhz`?"),
        ("frequencies_mhz = [900, 800]", "frequencies are out of order: 900 MHz comes before 800 MHz"),
        ("frequencies_mhz = []", "0 frequencies"),
        ("frequencies_mhz = [800]\nmax_mhz = 900", "give either `frequencies_mhz`, or `min_mhz` and `max_mhz`"),
        ("min_mhz = 800\nmax_mhz = 1050", "steps fill the range"),
        ("min_mhz = 800\nmax_mhz = 1000\nreference_mhz = 1100", "the reference 1100 MHz is not between"),
        ("min_mhz = 800\nmax_mhz = 1000\nturbo_mhz = [[1, 900], [2, 1000]]", "turbo is out of order"),
        ("min_mhz = 800\nmax_mhz = 1000\nturbo_mhz = [[1, 1200]]", "turbo of 1200 MHz is not between"),
        ("min_mhz = 800\nmax_mhz = 1000\nclock_shared_by = \"node\"", "unknown `clock_shared_by = \"node\"`"),
        ("min_mhz = 800\nmax_mhz = 1000\npower_mw = [[800, 1.0]]", "power is known from 800 to 800 MHz"),
        ("min_mhz = 800\nmax_mhz = 1000\npower_mw = [[800, 2.0], [1000, 1.0]]", "power is out of order"),
        ("min_mhz = 800\nmax_mhz = 1000\npower_mw = [[800, 1.0], [1000, 2.0]]", "needs idle states with `power_mw`"),
        (
            "min_mhz = 800\nmax_mhz = 1000\nidle = [{ name = \"C1\", exit_us = 1, residency_us = 2, power_mw = 1 }]",
            "idle state `C1` has `power_mw`, but the kind has no energy model",
        ),
        (
            "min_mhz = 800\nmax_mhz = 1000\nidle = [{ name = \"C6\", exit_us = 9, residency_us = 9 }, { name = \"C1\", exit_us = 1, residency_us = 2 }]",
            "idle states are out of order: `C6` before `C1`",
        ),
        ("min_mhz = 800\nmax_mhz = 1000\ntransition_us = -1", "transition_us = -1 is not 0 to 1000000"),
        ("min_mhz = 800\nmax_mhz = 1000\ncpus = \"0-1\"", "CPUs 2-3 have no core kind"),
        ("min_mhz = 800\nmax_mhz = 1000\ncpus = \"0-7\"", "lists CPU 4, which is not online"),
        ("min_mhz = 800\nmax_mhz = 1000\n[[core_kind]]\nmin_mhz = 1\nmax_mhz = 1", "two core kinds are called `core`"),
        (
            "min_mhz = 800\nmax_mhz = 1000\n[[core_kind]]\nname = \"b\"\nmin_mhz = 1\nmax_mhz = 1",
            "CPU 0 is of core kinds `core` and `b`",
        ),
        (
            "min_mhz = 8\nmax_mhz = 8\ncpus = \"0,1\"\n[[core_kind]]\nname = \"b\"\nmin_mhz = 8\nmax_mhz = 8\ncpus = \"2,3\"",
            "CPUs 0 and 2 are one core, but of two core kinds",
        ),
    ] {
        assert_refused(&file(rest), wanted);
    }
}

/// Of a machine with siblings the last core has two numbers that are far apart.
#[test]
fn a_machine_keeps_some_of_its_cpus_and_what_their_description_says() {
    let machine = warmcore_topology::resolve("1s1n2l4c2t@milan64").unwrap();
    let all: Vec<_> = machine.cpus().collect();
    let last = machine.core_of(all[3]);
    let kept: warmcore_topology::CpuSet = all.iter().copied().filter(|cpu| machine.core_of(*cpu) != last).collect();
    let less = warmcore_topology::keep_cpus(&machine, &kept).unwrap();
    assert_eq!((less.cpu_count(), less.core_count(), less.llc_count()), (14, 7, 2));
    assert_eq!(less.costs(), machine.costs());
    assert_eq!(less.offline_cpus().len(), 2);
    assert!(warmcore_topology::keep_cpus(&machine, &std::iter::empty().collect()).is_err());
}
