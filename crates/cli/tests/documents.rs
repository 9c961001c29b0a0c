//! Documents of `--json`: one each, as its schema says, errors too.

use crate::common::{MACHINE, Scratch, WORKLOAD, alone};

#[test]
fn json_is_one_document_with_schema_and_version() {
    let scratch = Scratch::new();
    for (words, schema) in [
        (
            format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs,rr --keep nothing --json --trials 2"),
            "warmcore-comparison-2",
        ),
        ("list machines --json".into(), "warmcore-machines-1"),
        ("list workloads --json".into(), "warmcore-generators-1"),
        ("list schedulers --json".into(), "warmcore-schedulers-2"),
        ("scheduler eevdf --json".into(), "warmcore-schedulers-2"),
    ] {
        let ran = scratch.run(&words).exits_with(0);
        let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
        assert_eq!(document["schema"], schema);
        assert_eq!(document["tool_version"], env!("CARGO_PKG_VERSION"));
    }
    let ran = scratch.run(&format!("sim -m {MACHINE} -w {WORKLOAD} -s rr --json")).exits_with(0);
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
    assert_eq!(document["schema"], "warmcore-trial-6");
}

#[test]
fn documents_say_what_their_schemas_say() {
    let scratch = Scratch::new();
    scratch.write("counters.toml", COUNTERS);
    scratch
        .run(&format!("compare -m {MACHINE} -w {WORKLOAD} -s eevdf,rr --trials 2 --trace full --out run --quiet"))
        .exits_with(0);
    let compare = format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs,rr --keep nothing --json");
    for (words, schema) in [
        (format!("{compare} --trials 8").as_str(), "comparison"),
        (&format!("{compare} --trials 8 --headroom"), "comparison"),
        (
            &format!(
                "compare -m {MACHINE} -w {WORKLOAD} -s cfs,eevdf --out all --json --trials 2 --trace full:1ms --max-time 1s \
                 --warm-up 1us --memory exact-paged"
            ),
            "comparison",
        ),
        (
            "compare -m 1s1n2l2c1t -w forkjoin:-n2,-i2,-w1ms -s cfs,eevdf --keep nothing --json --trials 8 --sensitivity=2",
            "comparison",
        ),
        (
            "compare -m 1s1n2l2c1t -w forkjoin:-n2,-i2,-w1ms -s cfs,eevdf --keep nothing --json --trials 8 --sensitivity=neighbours",
            "comparison",
        ),
        ("compare -m 2s1n1l2c1t -w spin:-d20ms -s cfs,rr --keep nothing --json --trials 2 --load 50", "loads"),
        ("compare -m 2s1n1l2c2t -w spin:-n2,-d20ms --keep nothing --json", "comparison"),
        (
            "compare -m 1s1n2l2c1t -w spin:-d20ms -s eevdf@pin=spread,eevdf@machine=1s1n1l2c1t --out columns --json -n 2",
            "comparison",
        ),
        ("compare --on host -s eevdf -w spin:-n1,-d5ms --keep nothing --json -n 2", "comparison"),
        (&format!("sim -m {MACHINE} -w {WORKLOAD} -s rr --json"), "trial"),
        ("workload convert schbench:-m2,-t3+spin:-n2,-d1s,--profile=perlbench+hackbench:-g1", "workload"),
        ("workload convert sysbench:--threads=4", "workload"),
        ("list metrics --json", "metrics"),
        ("list metrics schbench:-m1,-t2 --json", "metrics"),
        ("list machines --json", "machines"),
        ("machine show genoa96 --json", "machine"),
        ("machine show 2s2n2l2c2t --json", "machine"),
        ("machine convert 1s1n1l2c1t --json", "written"),
        ("machine convert 1s1n1l2c1t --json --out machine.toml", "written"),
        ("list workloads --json", "generators"),
        ("workload show schbench:-m1,-t2,-r1 --json", "workload-summary"),
        ("workload convert spin:-n2 --json --out spin.json", "written"),
        ("reference workload --json", "written"),
        ("workload fit counters.toml --json", "fit"),
        ("workload fit counters.toml --json --to json --out own.json", "fit"),
        ("workload run hackbench:-T,-p,-f1,-g1,-l5 --json", "native"),
        ("list schedulers --json", "schedulers"),
        ("scheduler topology-aware --json", "schedulers"),
        ("scheduler eevdf -m 1s1n1l2c1t --soak=0-1 --json", "soak"),
        ("report run --json", "written"),
        ("report run --json --svg figures --markdown report.md --perfetto traces/", "written"),
        ("explain run --json --count 50", "explanation"),
        ("explain run --json --task main --at 20ms", "explanation"),
        ("explain --events run --json", "events"),
        ("replay run --json --out again.json", "replay"),
        ("group run --json --machine 2s1n1l2c1t --trials 8", "groups"),
        ("sweep -m 2s1n1l2c1t -w spin:-n4,-d20ms -s cfs,rr -n 8 --json", "sweep"),
        ("sweep -m 1s1n2l2c1t -w spin:-n4,-d5ms -s cfs,rr -n 1 --json --headroom", "sweep"),
        ("list profiles --json", "memory-profiles"),
        ("memory -m 2s1n1l2c1t --task mysql-select@0,2 --time 10us --warm-up 5us --json", "memory-run"),
        ("memory -m 2s1n1l2c1t --task spin@0 --time 50us --warm-up 0us --pages page=4KiB --json", "memory-run"),
        ("validate memory X3 --seeds 1 --quick --json", "memory-validation"),
        ("study run papers/characterisation --only underloaded --trials 1 --json", "study"),
        ("study run answers/nice-shares --sensitivity=2 --trials 1 --json", "study-sensitivity"),
        ("list studies --json", "study-plan"),
        ("study show answers/cpu-quota --json", "study-plan"),
        ("study run --dry-run answers/nice-shares --json", "study-plan"),
        ("study run answers/nice-shares answers/fork-turns --json", "study"),
        ("doctor host --json", "host-survey"),
        ("compare --on host:cpus=0,dry-run --json -s eevdf -- true", "host-plan"),
        ("doctor vm --json", "vm-doctor"),
    ] {
        let alone = words.contains("--on host ").then(alone);
        let ran = scratch.run(words);
        drop(alone);
        let document: serde_json::Value = serde_json::from_str(&ran.out)
            .unwrap_or_else(|error| panic!("warmcore {words}: {error}\n{}\n{}", ran.out, ran.error));
        says_what_its_schema_says(&scratch, &document, schema, words);
    }
}

/// Checks the document that a command printed.
pub fn says_what_its_schema_says(scratch: &Scratch, document: &serde_json::Value, schema: &str, words: &str) {
    let schema = scratch.run(&format!("reference schema {schema}")).exits_with(0).out;
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    check(document, &schema, &schema, &format!("the document of `{words}`"));
}

#[test]
fn study_files_are_what_the_schema_says_that_is_made_from_the_types_that_read_them() {
    let scratch = Scratch::new();
    let text = scratch.run("reference schema study-form").exits_with(0).out;
    let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
    for packaged in warmcore_study::library::STUDIES {
        // JSON has no infinite numbers.
        let text = packaged.text.replace("inf]", "1e300]").replace("[-inf", "[-1e300");
        let study: serde_json::Value = toml::from_str(&text).unwrap();
        check(&study, &schema, &schema, packaged.name);
    }
    let cell = &schema["properties"]["cell"]["items"];
    assert_eq!(cell["required"], serde_json::json!(["name", "machine", "workload", "schedulers"]));
    assert_eq!(cell["additionalProperties"], false);
    assert_eq!(cell["properties"]["trials"]["type"], "integer");
    assert_eq!(schema["required"], serde_json::json!(["schema", "title", "question", "source"]));
    assert_eq!(schema["properties"]["cost"]["enum"], serde_json::json!(["short", "long"]));
}

/// Misses that a profile can have.
const COUNTERS: &str = "name = \"own\"\n[[point]]\ncapacity = \"48KiB\"\nways = 12\nmpki = 25.0\n[[point]]\ncapacity = \"2MiB\"\nways = 16\nmpki = 6.1\n";

#[test]
fn what_was_written_is_where_the_document_says() {
    let scratch = Scratch::new();
    scratch
        .run(&format!("compare -m {MACHINE} -w {WORKLOAD} -s eevdf,rr --trials 1 --keep run --out run"))
        .exits_with(0);
    let words = "report run --json --html page.html --svg figures --pdf drawings --markdown report.md --events traces/";
    let document: serde_json::Value = serde_json::from_str(&scratch.run(words).exits_with(0).out).unwrap();
    let files: Vec<(&str, &str)> = document["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["what"].as_str().unwrap(), file["path"].as_str().unwrap()))
        .collect();
    let kinds: Vec<&str> = files.iter().map(|(what, _)| *what).collect();
    assert_eq!(kinds, ["figures", "figures", "markdown", "events", "events", "page"]);
    assert!(files.iter().all(|(_, path)| scratch.path(path).exists()), "{files:?}");
    scratch.run("report run --json --markdown -").exits_with(2).complains("standard output is for the document");
    let text: serde_json::Value =
        serde_json::from_str(&scratch.run("reference workload --json").exits_with(0).out).unwrap();
    assert_eq!(text["text"], scratch.run("reference workload").exits_with(0).out);
}

/// The part of JSON Schema that our schemas use.
fn check(value: &serde_json::Value, schema: &serde_json::Value, root: &serde_json::Value, place: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").expect("references are local");
        return check(value, &root["$defs"][name], root, place);
    }
    let kind = match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "boolean",
        serde_json::Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "array",
        serde_json::Value::Object(_) => "object",
    };
    let allows = |wanted: &str| wanted == kind || (wanted == "number" && kind == "integer");
    match &schema["type"] {
        serde_json::Value::String(wanted) => assert!(allows(wanted), "{place} is {kind}, not {wanted}"),
        serde_json::Value::Array(wanted) => {
            assert!(wanted.iter().any(|wanted| allows(wanted.as_str().unwrap())), "{place} is {kind}");
        }
        _ => {}
    }
    if !schema["const"].is_null() {
        assert_eq!(*value, schema["const"], "{place}");
    }
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{place} is {value}");
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(item, &schema["items"], root, &format!("{place}[{index}]"));
    }
    let Some(object) = value.as_object() else { return };
    for required in schema["required"].as_array().into_iter().flatten() {
        assert!(object.contains_key(required.as_str().unwrap()), "{place} has no {required}");
    }
    for (key, item) in object {
        let of_key = &schema["properties"][key];
        let of_others = &schema["additionalProperties"];
        let of_item = if of_key.is_null() { of_others } else { of_key };
        assert!(*of_item != serde_json::Value::Bool(false), "{place}.{key} is not in the schema");
        check(item, of_item, root, &format!("{place}.{key}"));
    }
}

#[test]
fn a_command_with_json_that_fails_prints_one_document_of_its_error() {
    let scratch = Scratch::new();
    let schema: serde_json::Value =
        serde_json::from_str(&scratch.run("reference schema error").exits_with(0).out).unwrap();
    for (words, exit_code, code) in [
        ("compare -m nothing -w spin:-n1 -s cfs --keep nothing --json", 2, "warmcore::machine"),
        ("scheduler eevfd --json", 2, "warmcore::scheduler"),
        ("sim --json --no-such-option", 2, "warmcore::usage"),
    ] {
        let ran = scratch.run(words).exits_with(exit_code);
        let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
        check(&document, &schema, &schema, "document");
        assert_eq!((document["code"].as_str(), document["exit_code"].as_i64()), (Some(code), Some(exit_code.into())));
        assert!(!ran.error.is_empty(), "people are told too");
    }
    assert_eq!(scratch.run("scheduler eevfd").exits_with(2).out, "");
}
