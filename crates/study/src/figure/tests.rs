//! Expressions read, computed, and refused with their place.

use super::*;

/// Three trials: cell `a` has 1, 2, 3, cell `b` twice that, `short` has two.
struct ThreeTrials;

impl Lookup for ThreeTrials {
    fn measure(&self, selection: &Selection) -> Result<Vec<f64>, ValueError> {
        Ok(match selection.cell.as_str() {
            "a" => vec![1.0, 2.0, 3.0],
            "b" => vec![2.0, 4.0, 6.0],
            "short" => vec![1.0, 2.0],
            "zero" => vec![1.0, 0.0, 1.0],
            _ => return Err(ValueError::Missing(selection.to_string())),
        })
    }

    fn lists(&self, _: &Selection) -> Result<Vec<Vec<f64>>, ValueError> {
        Ok(vec![vec![5.0, 1.0, 7.0], vec![9.0, 8.0, 0.0], vec![2.0]])
    }

    fn figure(&self, name: &str) -> Result<Value, ValueError> {
        Ok(Value::One(name.len() as f64))
    }
}

fn value(text: &str) -> Result<f64, ValueError> {
    middle(&evaluate(&parse(text).unwrap_or_else(|error| panic!("{text}: {error}")), &ThreeTrials)?)
}

#[test]
fn figures_are_computed_trial_by_trial_and_their_middle_counts() {
    for (text, expected) in [
        ("m[b] / m[a]", 2.0),
        ("m[a]", 2.0),
        ("mean(m[a]) + 1", 3.0),
        ("quantile(m[a], 0.25)", 1.5),
        ("max(m[b]) - min(m[b])", 4.0),
        ("1 + 2 * 3 - 4 / 2", 5.0),
        ("(1 + 2) * 3", 9.0),
        ("-m[a] + 10", 8.0),
        ("10 - 2 - 3", 5.0),
        ("sqrt(16) * 1e-3 * 1_000", 4.0),
        ("abs(m[a] - 5)", 3.0),
        ("four * 2", 8.0),
        ("max(share(m[a], m[b]))", 0.5),
        ("share(0, 0)", 0.0),
        ("quantile(m[a], 1 - 0.75)", 1.5),
        ("max(count_above(m[a, each=x], 4))", 2.0),
        ("max(above_after(m[a, each=x], 4))", 1.0),
        ("count_above(m[a, each=x], 4)", 2.0),
    ] {
        assert_eq!(value(text), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_selected_is_a_cell_with_choices() {
    let parsed = parse(r#"cpu.x[pool, n=4, "eevdf:hz=100,base_slice_ns=3ms", task = app-1]"#).unwrap();
    let Node::Measure(selection) = parsed.node else { panic!("{parsed:?}") };
    assert_eq!((selection.measure.as_str(), selection.cell.as_str()), ("cpu.x", "pool"));
    let choices: Vec<(&str, &str)> =
        selection.choices.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(choices, [("n", "4"), ("", "eevdf:hz=100,base_slice_ns=3ms"), ("task", "app-1")]);
    for (text, scheduler) in [("x[a, eevdf:hz=100]", "eevdf:hz=100"), ("x[a, cfs@cpus=0, n=1]", "cfs@cpus=0")] {
        let Node::Measure(selection) = parse(text).unwrap().node else { panic!("{text}") };
        assert_eq!(selection.choices[0], (String::new(), scheduler.to_owned()), "a setting needs no quotes");
        assert_eq!(parse(&selection.to_string()).unwrap().node, Node::Measure(selection), "as it is written again");
    }
    assert_eq!(parse(&selection.to_string()).unwrap().node, Node::Measure(selection));
}

#[test]
fn what_has_no_value_says_why() {
    assert_eq!(value("m[a] / (m[b] - m[b])"), Err(ValueError::DividesByZero("(m[b] - m[b])".into())));
    assert_eq!(value("m[a] / m[zero]"), Err(ValueError::DividesByZero("m[zero]".into())));
    assert_eq!(value("1 / 0"), Err(ValueError::DividesByZero("0".into())));
    assert_eq!(value("m[a] + m[short]"), Err(ValueError::Trials { left: 3, right: 2 }));
    assert_eq!(value("m[none]"), Err(ValueError::Missing("m[none]".into())));
    assert_eq!(value("sqrt(0 - 1)"), Err(ValueError::NotANumber));
    // Computed parts too: clamped, they would be the least or the largest trial.
    assert_eq!(value("quantile(m[a], -1)"), Err(ValueError::Probability(-1.0)));
    assert_eq!(value("quantile(m[a], 2 * 49.5)"), Err(ValueError::Probability(99.0)));
    assert_eq!(value("share(m[a], m[zero])"), Err(ValueError::DividesByZero("m[zero]".into())));
}

#[test]
fn what_is_no_expression_says_where() {
    for (text, at, words) in [
        ("", 0, "expected a number, a measure or a function, found the end"),
        ("1 +", 3, "found the end"),
        ("m[a] m[b]", 5, "expected an operator or the end, found `m`"),
        ("m[", 2, "expected the name of a cell"),
        ("m[a", 3, "expected `,` or `]`"),
        ("m[a, n=]", 7, "expected a value"),
        ("medain(m[a])", 0, "there is no function `medain`; did you mean `median`?"),
        ("quantile(m[a])", 0, "`quantile` takes 2 values, not 1"),
        ("(1", 2, "expected `)`"),
        ("1.2.3", 0, "expected a finite number, found `1.2.3`"),
        ("m[\"a]", 5, "expected `\"`"),
        ("ä", 0, "found `ä`"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
    for text in [format!("{}1{}", "(".repeat(500), ")".repeat(500)), "-".repeat(500), "1+".repeat(4000)] {
        assert_eq!(parse(&text).unwrap_err().problem, ParseProblem::TooLarge);
    }
}
