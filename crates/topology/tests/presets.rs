//! The built-in machines: what they are, that their data is complete, and the texts that name them.

use warmcore_topology::{
    Bandwidth, Basis, CpuId, LlcId, Machine, NodeId, Relation, Shape, Vendor, assumptions, from_toml, presets, render,
    render_within, resolve, to_toml,
};

/// Name, short form and number of CPUs of every preset that reproduces a machine of a publication or a measurement.
const MACHINES: [(&str, &str, usize); 21] = [
    ("spr32", "2s1n1l32c1t", 64),
    ("spr40", "2s1n1l40c2t", 160),
    ("xeon60", "2s1n2l30c2t", 240),
    ("spr48-snc4", "2s4n1l12c2t", 192),
    ("emr32", "2s1n1l32c2t", 128),
    ("gnr72", "2s1n1l72c2t", 288),
    ("turin128", "2s1n16l8c2t", 512),
    ("turin-dense", "2s1n12l16c2t", 768),
    ("genoa96", "2s1n12l8c2t", 384),
    ("milan64", "2s1n8l8c2t", 256),
    ("naples32", "2s4n2l4c2t", 128),
    ("hygon384", "2s6n2l8c2t", 384),
    ("opteron32", "4s2n1l4c1t", 32),
    ("i7-3770", "1s1n1l4c2t", 8),
    ("adl12", "1s3n1l4c1t", 12),
    ("altra80", "2s1n1l80c1t", 160),
    ("graviton3", "1s1n1l64c1t", 64),
    ("kunpeng64", "1s2n1l32c1t", 64),
    ("grace144", "2s1n1l72c1t", 144),
    ("syn1024", "4s1n16l8c2t", 1024),
    ("clx26", "2s1n1l26c2t", 104),
];

#[test]
fn presets_have_the_shapes_of_their_machines() {
    for (name, shape, cpus) in MACHINES {
        let machine = resolve(name).unwrap();
        assert_eq!(Shape::of(&machine).unwrap().0.to_string(), shape, "{name}");
        assert_eq!(machine.cpu_count(), cpus, "{name}");
        assert_eq!(machine.name(), name);
    }
}

#[test]
fn names_used_for_published_results_are_aliases() {
    for (alias, name) in [
        ("opteron-6172", "opteron32"),
        ("spr-2s32c", "spr32"),
        ("spr-2s-32c", "spr32"),
        ("alder-lake-12", "adl12"),
        ("hygon-2s6n2l8c2t", "hygon384"),
        ("hygon-2s-12n-24llc", "hygon384"),
        ("xeon-2s60c-2llc-per-node", "xeon60"),
        ("turin-2s-16llc", "turin128"),
    ] {
        assert_eq!(resolve(alias).unwrap().name(), name);
    }
}

/// What `numactl -H` and `lstopo` show of such machines, by the sources that the presets name.
#[test]
fn presets_of_arm_servers_have_the_distances_and_groups_of_their_machines() {
    let between = |name: &str| resolve(name).unwrap().node_distance(NodeId(0), NodeId(1));
    assert_eq!(["grace144", "altra80", "kunpeng64"].map(between), [40, 20, 12]);
    let grace = resolve("grace144").unwrap();
    assert_eq!(grace.llc_cache(LlcId(0)).unwrap().size_bytes, 119_537_664);
    assert!(grace.node_distance(NodeId(0), NodeId(1)) > grace.reclaim_distance());
    let kunpeng = resolve("kunpeng64").unwrap();
    assert_eq!((kunpeng.cluster_count(), kunpeng.relation(CpuId(0), CpuId(3))), (16, Relation::SameCluster));
    assert_eq!(kunpeng.relation(CpuId(3), CpuId(4)), Relation::SameLlc);
    let altra = resolve("altra80").unwrap();
    assert_eq!((altra.coregroup(CpuId(3)).to_string(), altra.coregroup(CpuId(159)).len()), ("2-3".to_owned(), 2));
}

/// A preset's clusters and groups are of its part, on however many of its cores, and so are the distances that its file states.
#[test]
fn other_shapes_of_a_preset_have_its_groups_and_the_distances_that_it_states() {
    let file =
        |base: &str, shape: &str| from_toml(&format!("base = \"{base}\"\n[topology]\nshape = \"{shape}\"\n")).unwrap();
    for machine in [resolve("1s1n1l5c1t@altra80").unwrap(), file("altra80", "1s1n1l5c1t")] {
        let groups = [0, 1, 2, 4].map(|cpu| machine.coregroup(CpuId(cpu)).to_string());
        assert_eq!(groups, ["0-1", "0-1", "2-3", "4"], "{}", machine.name());
        assert!(from_toml(&to_toml(&machine)).unwrap() == machine);
    }
    // Who states the groups, or lists the CPUs, states all of them.
    assert!(
        !from_toml("base = \"altra80\"\n[topology]\nnodes = [{ id = 0, cpus = \"0-3\" }]\n").unwrap().has_coregroups()
    );
    let own = from_toml("base = \"altra80\"\n[topology]\nshape = \"1s1n1l8c1t\"\ncores_per_coregroup = 4\n").unwrap();
    assert_eq!(own.coregroup(CpuId(2)).to_string(), "0-3");

    // Kunpeng's file states 12 inside a socket, Altra's 20 between two.
    let origin = |machine: &Machine| machine.origin("topology.distances").map(ToString::to_string);
    for (base, shape, distance, expected) in [
        ("kunpeng64", "1s2n1l2c1t", 12, Some("S31")),
        ("kunpeng64", "2s1n1l2c1t", 20, None),
        ("kunpeng64", "2s2n1l2c1t", 12, Some("assumed: between sockets; inside one S31")),
        ("altra80", "2s1n1l2c1t", 20, Some("S29")),
        ("altra80", "1s2n1l2c1t", 12, None),
        ("altra80", "2s2n1l2c1t", 12, Some("S29: inside a socket assumed")),
    ] {
        for machine in [resolve(&format!("{shape}@{base}")).unwrap(), file(base, shape)] {
            assert_eq!(machine.node_distance(NodeId(0), NodeId(1)), distance, "{shape}@{base}");
            assert_eq!(origin(&machine).as_deref(), expected, "{shape}@{base}");
            let varied = assumptions(&machine).iter().any(|assumption| assumption.name == "node distance");
            assert_eq!(varied, base == "kunpeng64" && machine.socket_count() == 2, "{shape}@{base}");
            assert!(from_toml(&to_toml(&machine)).unwrap() == machine, "{shape}@{base}");
        }
    }
}

/// What a machine says of its frequency and what its kinds of cores say are of one part.
#[test]
fn the_frequencies_of_a_preset_and_of_its_kinds_of_cores_agree() {
    for preset in presets() {
        let machine = resolve(&preset.name).unwrap();
        let frequency = &machine.performance().frequency;
        let kinds = machine.core_kinds();
        let Some(highest) = kinds.iter().map(|kind| kind.highest_mhz()).max() else { continue };
        assert!(frequency.max_mhz.is_none_or(|max| max == highest), "{}: {highest} MHz", preset.name);
        let reference = kinds.iter().map(|kind| kind.reference_mhz).max();
        assert!(frequency.nominal_mhz.is_none_or(|nominal| Some(nominal) == reference), "{}", preset.name);
    }
}

#[test]
fn every_value_of_a_preset_has_an_explained_origin() {
    for preset in presets() {
        assert!(!preset.summary.is_empty(), "{}", preset.name);
        let machine = resolve(&preset.name).unwrap();
        for (value, origin) in machine.origins() {
            assert_ne!(origin.basis, Basis::Given, "{}: {value}", preset.name);
            for tag in &origin.tags {
                assert!(machine.sources().contains_key(tag), "{}: {value} {tag}", preset.name);
            }
        }
    }
}

/// Names of presets whose CPUs nobody makes.
const NO_MAKE: [&str; 3] = ["adl12", "generic", "syn1024"];

/// A preset without its make would have the usual reclaim distance in silence.
#[test]
fn presets_say_who_makes_their_cpus_and_zen_reaches_its_other_socket() {
    for preset in presets() {
        let machine = resolve(&preset.name).unwrap();
        assert_eq!(machine.processor().is_none(), NO_MAKE.contains(&preset.name.as_str()), "{}", preset.name);
        let zen = machine.summary().contains("EPYC");
        assert_eq!(machine.reclaim_distance(), if zen { 32 } else { 30 }, "{}", preset.name);
        let vendor = machine.processor().map(|processor| processor.vendor());
        let named =
            [("EPYC", Vendor::Amd), ("Opteron", Vendor::Amd), ("Xeon", Vendor::Intel), ("Hygon", Vendor::Hygon)];
        for (name, expected) in named {
            assert!(!machine.summary().contains(name) || vendor == Some(expected), "{}: {vendor:?}", preset.name);
        }
    }
    assert_eq!(resolve("2s4l8c2t@genoa96").unwrap().reclaim_distance(), 32, "the figures' CPUs come with them");
}

#[test]
fn presets_state_caches_memory_and_core_to_core_latencies() {
    for preset in presets() {
        let machine = resolve(&preset.name).unwrap();
        let name = &preset.name;
        // The phone's last level is its second.
        for level in 1..=if name == "hikey960" { 2 } else { 3 } {
            let cache = machine.data_cache(CpuId(0), level).unwrap();
            assert!(cache.size_bytes > 0 && cache.latency_ps.is_some(), "{name} L{level}");
        }
        for llc in machine.llcs() {
            assert!(machine.llc_cache(llc).is_some(), "{name} {llc}");
        }
        let memory = &machine.performance().memory;
        assert!(memory.local_ns.is_some() && memory.socket_read.is_some(), "{name}");
        if machine.node_count() > machine.socket_count() {
            assert!(memory.same_socket_ns.is_some(), "{name}");
        }
        if machine.socket_count() > 1 {
            assert!(memory.other_socket_ns.is_some(), "{name}");
        }
        for relation in machine.relations().into_iter().skip(1) {
            let stated = machine.performance().core_to_core_ns[relation].is_some();
            assert!(stated, "{name}: {relation}");
        }
    }
}

#[test]
fn figures_are_read_with_their_spread_and_unit() {
    let genoa = resolve("genoa96").unwrap();
    assert_eq!(genoa.costs().line_transfer_ns[Relation::SameLlc], 27);
    assert_eq!(genoa.origin("core_to_core_ns.same_llc").unwrap().spread, Some((25, 31)));
    assert_eq!(genoa.performance().memory.llc_port, Some(Bandwidth::MbPerS(38_500)));
    assert_eq!(genoa.data_cache(CpuId(0), 1).unwrap().latency_ps, Some(1_080));
    let spr = resolve("spr32").unwrap();
    let curve = &spr.performance().memory.loaded_latency[2];
    assert_eq!((curve.read_percent, curve.max_mb_per_s, curve.points[7]), (50, 238_000, (1_000, 3_120)));
    let adl = resolve("adl12").unwrap();
    assert_eq!(adl.performance().memory.socket_read, Some(Bandwidth::Unlimited));
    assert_eq!(adl.data_cache(CpuId(5), 2).unwrap().line_bytes, 32);
}

#[test]
fn relations_follow_the_structure_and_the_distances() {
    let relation = |name: &str, a, b| resolve(name).unwrap().relation(CpuId(a), CpuId(b));
    assert_eq!(relation("hygon384", 0, 0), Relation::SameCpu);
    assert_eq!(relation("hygon384", 0, 192), Relation::SmtSibling);
    assert_eq!(relation("hygon384", 0, 199), Relation::SameLlc);
    assert_eq!(relation("hygon384", 0, 8), Relation::SameNode);
    assert_eq!(relation("hygon384", 0, 16), Relation::SameSocket);
    assert_eq!(relation("hygon384", 0, 96), Relation::OtherSocket);
    // Dies of equal position are one hop away, the others two.
    assert_eq!(relation("opteron32", 0, 4), Relation::SameSocket);
    assert_eq!(relation("opteron32", 0, 8), Relation::OtherSocket);
    assert_eq!(relation("opteron32", 0, 12), Relation::FarSocket);
    assert_eq!(relation("syn1024", 0, 256), Relation::FarSocket);
    assert_eq!(relation("syn1024", 0, 384), Relation::OtherSocket);
    assert_eq!(relation("adl12", 0, 3), Relation::SameCluster);
    assert_eq!(relation("adl12", 0, 4), Relation::SameSocket);
}

#[test]
fn relations_are_symmetric() {
    for name in ["opteron32", "kunpeng64", "spr32", "adl12"] {
        let machine = resolve(name).unwrap();
        for a in machine.cpus() {
            for b in machine.cpus() {
                assert_eq!(machine.relation(a, b), machine.relation(b, a));
                assert_eq!(machine.relation(a, b) == Relation::SameCpu, a == b);
            }
        }
    }
}

#[test]
fn a_short_form_takes_the_figures_of_its_base() {
    let base = resolve("opteron32").unwrap();
    let machine = resolve("2s2n1l2c@opteron32").unwrap();
    assert_eq!(machine.cpu_count(), 8);
    assert_eq!(machine.costs(), base.costs());
    assert_eq!(machine.llc_cache(warmcore_topology::LlcId(0)).unwrap().size_bytes, 5 << 20);
    let node = warmcore_topology::NodeId;
    assert_eq!(machine.node_distance(node(0), node(1)), 16);
    assert_eq!(machine.node_distance(node(0), node(2)), 16);
    assert_eq!(resolve("8c").unwrap().costs(), resolve("generic").unwrap().costs());
    // With other cores in the same nodes and sockets, the nodes are as far apart as the base's.
    let wider = resolve("4s2n1l8c1t@opteron32").unwrap();
    for (from, to) in (0..8).flat_map(|from| (0..8).map(move |to| (node(from), node(to)))) {
        assert_eq!(wider.node_distance(from, to), base.node_distance(from, to));
    }
    assert_eq!(wider.relation(CpuId(8), CpuId(16)), Relation::FarSocket, "nodes 1 and 2 are two hops apart");
}

#[test]
fn a_ktstr_form_is_the_machine_ktstr_boots() {
    let machine = resolve("2n4l4c2t").unwrap();
    assert_eq!((machine.cpu_count(), machine.node_count(), machine.llc_count()), (32, 2, 4));
    assert_eq!(machine.relation(CpuId(0), CpuId(1)), Relation::SmtSibling);
    assert_eq!(machine.relation(CpuId(7), CpuId(8)), Relation::SameNode);
}

#[test]
fn a_variant_replaces_the_core_to_core_table_and_what_follows_from_it() {
    let (plain, naples) = (resolve("hygon384").unwrap(), resolve("hygon384+naples").unwrap());
    assert_eq!(plain.costs().line_transfer_ns[Relation::OtherSocket], 240);
    assert_eq!(naples.costs().line_transfer_ns[Relation::OtherSocket], 368);
    assert!(naples.costs().migration_ns[Relation::OtherSocket] > plain.costs().migration_ns[Relation::OtherSocket]);
    assert_eq!(naples.name(), "hygon384+naples");
    let error = resolve("hygon384+milan").unwrap_err().to_string();
    assert!(error.contains("it has genoa, naples"), "{error}");
}

#[test]
fn unknown_machines_are_answered_with_the_nearest_name() {
    for (spec, answer) in [
        ("genoa69", "did you mean `genoa96`?"),
        ("opteron-6127", "did you mean `opteron-6172`?"),
        ("2s4c@genoa", "did you mean `genoa96`?"),
        ("my own machine", "a preset, a short form"),
        ("2s0c", "every count is at least 1"),
        ("Package:2 Core:2", "must be PU"),
        ("2s4c@", "unknown machine ``"),
    ] {
        let error = resolve(spec).unwrap_err().to_string();
        assert!(error.contains(answer), "{spec}: {error}");
    }
}

#[test]
fn drawings_fit_a_page() {
    let forms = ["4096c", "64s64c", "16s4n4l4c4t", "2s1n512l1c2t"];
    for spec in presets().into_iter().map(|preset| preset.name).chain(forms.map(str::to_owned)) {
        let drawing = render(&resolve(&spec).unwrap());
        let widest = drawing.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 120, "{spec} is {widest} wide");
        let narrow = render_within(&resolve(&spec).unwrap(), 80);
        let widest = narrow.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{spec} is {widest} wide on a terminal of 80 columns:\n{narrow}");
        // 64 sockets have a line each; everything else fits on a screen or two.
        assert!(drawing.lines().count() <= 140, "{spec} is {} long", drawing.lines().count());
    }
}

#[test]
fn the_examples_of_the_format_description_are_machines() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/README.md")).unwrap();
    let examples: Vec<&str> = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 5);
    for example in examples {
        warmcore_topology::from_toml(example).unwrap_or_else(|error| panic!("{error} in\n{example}"));
    }
}

#[test]
fn the_format_description_names_every_value() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/README.md")).unwrap();
    for value in
        resolve("syn1024").unwrap().origins().keys().filter(|value| !value.starts_with("cache.") && value.contains('.'))
    {
        let key = value.split('.').nth(1).unwrap_or(value);
        assert!(text.contains(&format!("`{key}`")), "{value}");
    }
}

#[test]
fn a_preset_on_another_s_figures_is_refused_with_what_can_stand_there() {
    let message = |spec: &str| resolve(spec).unwrap_err().to_string();
    for words in ["unknown machine `genoa96@gnr72`", "the preset `genoa96` has its own figures", "a machine file"] {
        assert!(message("genoa96@gnr72").contains(words), "{}", message("genoa96@gnr72"));
    }
    assert!(!message("nothing@gnr72").contains("of its own"));
    assert!(message("2s4x@gnr72").contains("unknown letter `x`"));
}
