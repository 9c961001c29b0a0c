//! What is read once for many cells is each cell's own.

use super::*;

const STUDY: &str = r#"
schema = "warmcore-study-form-1"
title = "t"
question = "q"
source = "s"

[[machine]]
name = "own"
text = """
base = "generic"
[topology]
shape = "1s1n1l{c}c1t"
"""

[[vary]]
name = "c"
values = [2, 4]

[[vary]]
name = "n"
values = [1, 3]

[[cell]]
name = "plain"
machine = "own"
workload = "spin:-n{n},-d2ms"
schedulers = ["rr"]
trials = 3

[[cell]]
name = "quiet"
machine = "own"
background = "quiet"
workload = "spin:-n{n},-d2ms"
schedulers = ["rr"]
trials = 3

[[expect]]
name = "e"
figure = "elapsed_ns[plain, c=2, n=1] / elapsed_ns[quiet, c=2, n=1]"
band = [0.5, 2]
reason = "r"
neutral = "none"
"#;

#[test]
fn cells_share_a_machine_only_where_its_text_and_its_background_are_the_same() {
    let study = Study::parse(Path::new("it.toml"), STUDY).unwrap();
    let plan = plan(vec![study], &[], &|_| {}).unwrap();
    assert_eq!((plan.cells[0].len(), plan.experiments.len()), (8, 8));
    for cell in &plan.cells[0] {
        let experiment = &plan.experiments[cell.runs.clone().unwrap().0].experiment;
        let machine = &experiment.machine.value;
        assert_eq!(machine.cpu_count().to_string(), cell.bindings["c"], "{cell:?}");
        assert_eq!(machine.background().is_empty(), plan.studies[0].cells[cell.cell].name == "plain", "{cell:?}");
    }
}

#[test]
fn a_value_that_is_a_placeholder_itself_is_refused_as_what_it_is() {
    let text = STUDY.replace("values = [1, 3]", "values = [1, \"{n}\"]");
    let study = Study::parse(Path::new("it.toml"), &text).unwrap();
    let error = plan(vec![study], &[], &|_| {}).err().unwrap().to_string();
    assert!(error.contains("a value of an axis contains `{n}`"), "{error}");
}
