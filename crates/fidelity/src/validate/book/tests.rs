use super::*;

const TEXT: &str = r#"
    schema = "warmcore-book-1"
    title = "two spinners"
    group = "shares"
    machine = "1s1n1l1c1t"
    workload = "spin:-n2"
    schedulers = ["eevdf"]
    duration_ms = 500
    [[check]]
    metric = "cpu_share"
    relative = 0.01
    [[control]]
    name = "slices doubled"
    scheduler = "eevdf:base_slice_ns=1400000"
    metrics = ["slice_mean_ns"]
"#;

#[test]
fn an_experiment_is_read_and_ends_when_it_says() {
    let experiment = BookExperiment::parse(Path::new("book/shares.toml"), TEXT).unwrap();
    assert_eq!((experiment.name.as_str(), experiment.workload.duration_ns), ("shares", Some(500_000_000)));
    assert_eq!(experiment.checks[0].bound, Bound::Relative(0.01));
    assert_eq!(experiment.controls[0].metrics, [Metric::SliceMeanNs]);
}

#[test]
fn mistakes_are_named() {
    let refusal = |from: &str, to: &str| BookExperiment::parse(Path::new("x"), &TEXT.replace(from, to)).unwrap_err();
    assert!(refusal("relative = 0.01", "").contains("one of `relative`, `absolute`"));
    assert!(refusal("book-1", "book-9").contains("warmcore-book-9"));
    assert!(refusal("cpu_share", "cpu_shares").contains("cpu_shares"));
    assert!(refusal("spin:-n2", "spun:-n2").contains("spun"));
    assert!(refusal("title", "titel").contains("titel"));
    let unknown = refusal("duration_ms", "background = \"guest-7\"\n        duration_ms");
    assert!(unknown.contains("`background`: unknown background `guest-7`; did you mean `guest-7.2`?"), "{unknown}");
}

#[test]
fn the_simulated_runs_have_the_background_of_the_file_or_the_one_asked_for_instead() {
    let text = TEXT.replace("duration_ms", "background = \"guest-7.2\"\n        duration_ms");
    let parse = |text: &str| BookExperiment::parse(Path::new("x"), text).unwrap();
    let (alone, beside) = (parse(TEXT), parse(&text));
    assert_eq!((alone.background(), beside.background()), (Some("launchers"), Some("guest-7.2")));
    let program = parse(&TEXT.replace("\"eevdf\"", "\"scx:scx_lavd\""));
    assert_eq!(program.background(), Some("guest-7.2 with launchers"));
    assert!(program.simulated.background().launchers && !program.simulated.background().threads.is_empty());
    // A guest has its own, and its results are of the same experiment.
    assert!(beside.machine.background().is_empty());
    assert_eq!(alone.identity, beside.identity);
    assert_eq!(beside.beside(&Background::default()).unwrap().background(), None);
    assert_eq!(alone.beside(&Background::named("quiet").unwrap()).unwrap().background(), Some("quiet"));
}

#[test]
fn a_check_may_be_of_a_part_of_the_run_and_of_some_tasks() {
    let with = |keys: &str| {
        let text = TEXT.replace("cpu_share", "slices_per_s").replace("relative = 0.01", keys);
        BookExperiment::parse(Path::new("x"), &text).map(|experiment| experiment.checks[0].clone())
    };
    let check = with("relative = 0.01\nonly = \"spin\"\nwindow_ms = [100, 200]\nexpect = 0.5").unwrap();
    assert_eq!(check.key(&[]), "slices_per_s of spin from 100 to 200 ms");
    assert_eq!((check.view.from_ns, check.view.to_ns, check.expect), (100_000_000, 200_000_000, Some(0.5)));
    assert!(with("relative = 0.01\nonly = \"nobody\"").unwrap_err().contains("`nobody`"));
    assert!(with("relative = 0.01\nwindow_ms = [200, 100]").unwrap_err().contains("[from, to]"));
    assert!(with("relative = 0.01\nwindow_ms = [0, 501]").unwrap_err().contains("within the run"));
    assert!(with("counts = 2").unwrap_err().contains("migrations per task"));
    for bound in ["relative = -0.1", "absolute = nan", "relative = inf"] {
        assert!(with(bound).unwrap_err().contains("0 or more"), "{bound}");
    }
    for window in [
        "from_ms = 500\nduration_ms = 500",
        "duration_ms = 0",
        "duration_ms = 3600001",
        "from_ms = 600\nduration_ms = 500",
    ] {
        let text = TEXT.replace("duration_ms = 500", window);
        assert_ne!(text, TEXT);
        assert!(
            BookExperiment::parse(Path::new("x"), &text).unwrap_err().contains("begins before it ends"),
            "{window}"
        );
    }
    let alone = TEXT.replace("relative = 0.01", "relative = 0.01\nonly = \"spin\"");
    assert!(BookExperiment::parse(Path::new("x"), &alone).unwrap_err().contains("always 1"));
    let instants = TEXT.replace("cpu_share", "in_one_llc");
    assert!(BookExperiment::parse(Path::new("x"), &instants).unwrap_err().contains("needs `at_ms`"));
}

/// A run is looked at while it lasts; an instant after its end, however far, is a mistake in the file.
#[test]
fn numbers_that_no_run_can_have_are_refused_where_the_file_is_read() {
    let with = |keys: &str| {
        let text = TEXT.replace("cpu_share", "llc_counts").replace("relative = 0.01", keys);
        BookExperiment::parse(Path::new("x"), &text).map(|experiment| experiment.checks[0].detail.at_ms.clone())
    };
    assert_eq!(with("absolute = 0.1\nat_ms = [0, 499]"), Ok(vec![0, 499]));
    for late in ["500", "99999999999", "18446744073709551615"] {
        let refusal = with(&format!("absolute = 0.1\nat_ms = [100, {late}]")).unwrap_err();
        assert_eq!(refusal, format!("check of llc_counts: `at_ms`, {late}, is not before the end of the run, 500 ms"));
    }
    for expected in ["nan", "inf"] {
        let refusal = with(&format!("absolute = 0.1\nat_ms = [0]\nexpect = {expected}")).unwrap_err();
        assert!(refusal.contains("`expect` is a number"), "{refusal}");
    }
    for kib in ["0", "4294967295"] {
        let text = TEXT.replace("duration_ms", &format!("buffer_kib = {kib}\n    duration_ms"));
        let refusal = BookExperiment::parse(Path::new("x"), &text).unwrap_err();
        assert_eq!(refusal, format!("`buffer_kib` is {kib}, not 1 to 1048576"));
    }
}

#[test]
fn what_is_done_from_outside_is_read_and_checked_before_the_run() {
    let with = |keys: &str| {
        let text = format!("{}\n[[at]]\n{keys}", TEXT);
        BookExperiment::parse(Path::new("x"), &text).map(|experiment| experiment.actions)
    };
    let bind = with("time_ms = 100\nbind = { tasks = \"spin\", llc_of = \"spin\" }").unwrap();
    let what = Deed::Bind { tasks: "spin".into(), to: Destination::LlcOf("spin".into()) };
    assert_eq!(bind, [Action { time_ns: 100_000_000, what }]);
    let cpus = with("time_ms = 1\nbind = { tasks = \"spin\", cpus = \"0-1,3\" }").unwrap();
    let list = Destination::Cpus(Affinity::OsCpus(vec![0, 1, 3]));
    assert_eq!(cpus[0].what, Deed::Bind { tasks: "spin".into(), to: list });
    let set = "time_ms = 1\nset = { tunable = \"base_slice_ns\", value = 3000000 }";
    assert!(matches!(&with(set).unwrap()[0].what, Deed::Set { value: 3_000_000, .. }));

    let refusal = |keys: &str| with(keys).unwrap_err();
    assert!(refusal("time_ms = 100").contains("one of `bind`, `set`, `offline` and `online`"));
    assert!(refusal("time_ms = 500\nset = { tunable = \"base_slice_ns\", value = 1 }").contains("after the end"));
    assert!(refusal("time_ms = 1\nbind = { tasks = \"spin\" }").contains("`llc_of`"));
    assert!(refusal("time_ms = 1\nbind = { tasks = \"nobody\", cpus = \"all\" }").contains("`nobody`"));
    assert!(refusal("time_ms = 1\nbind = { tasks = \"spin\", llc_of = \"no\" }").contains("`no`"));
    assert!(refusal("time_ms = 1\nbind = { tasks = \"spin\", cpus = \"3-\" }").contains("[[at]] 1 ms"));
    let set =
        |name: &str, value: u64| refusal(&format!("time_ms = 1\nset = {{ tunable = \"{name}\", value = {value} }}"));
    assert!(set("hz", 1000).contains("cannot change in a run; these can: base_slice_ns"));
    assert!(set("aggr_tolerance", 50).contains("it is one of `cache-aware`"));
    assert!(set("nr_migrate", 0).contains("1 to 1024"));
    assert!(set("base_slice_ns", 0).contains("when it starts"));
}

#[test]
fn results_of_an_experiment_with_actions_are_of_no_other() {
    let identity = |text: &str| BookExperiment::parse(Path::new("x"), text).unwrap().identity;
    let at = |cpus: &str| format!("{TEXT}\n[[at]]\ntime_ms = 9\nbind = {{ tasks = \"spin\", cpus = \"{cpus}\" }}");
    assert_ne!(identity(TEXT), identity(&at("0")));
    assert_ne!(identity(&at("all")), identity(&at("0")));
}

#[test]
fn small_numbers_of_events_may_differ_by_what_chance_makes_of_them() {
    let bound = Bound::Counts { limit: 2.0, tasks: 4.0 };
    assert_eq!(bound.error(0.25, 0.0), 1.0, "one move instead of none");
    assert_eq!(bound.error(0.0, 2.0), 8.0 / 3.0, "none instead of eight");
    assert_eq!(bound.limit(), 2.0);
}

#[test]
fn errors_are_in_the_terms_of_their_bound() {
    assert_eq!(Bound::Relative(0.1).error(11.0, 10.0), 0.1);
    assert_eq!(Bound::Relative(0.1).error(0.0, 0.0), 0.0);
    assert_eq!(Bound::Relative(0.1).error(1.0, 0.0), f64::INFINITY);
    assert_eq!(Bound::Absolute(5.0).error(11.0, 10.0), 1.0);
}
