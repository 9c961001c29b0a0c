//! What is wrong with a study's file is said with line and column.

use super::*;
use crate::choice;

const CELL: &str = "[[cell]]\nname = \"a\"\nmachine = \"m\"\nworkload = \"w:-n{n}\"\nschedulers = [\"s\"]\n";
const AXIS: &str = "[[vary]]\nname = \"n\"\nvalues = [1, 2]\n";
const EXPECT: &str = "[[expect]]\nname = \"e\"\nfigure = \"m[a, n=1] / m[a, n=2]\"\nband = [1.5, 2]\nreason = \"r\"\n";
const HEAD: &str = "schema = \"warmcore-study-form-1\"\ntitle = \"t\"\nquestion = \"q\"\nsource = \"s\"\n";

fn whole() -> String {
    format!("{HEAD}{CELL}{AXIS}{EXPECT}")
}

fn parse(text: &str) -> Result<Study, FormError> {
    Study::parse(Path::new("it.toml"), text)
}

#[test]
fn a_study_has_cells_axes_and_expectations() {
    let study = parse(&whole()).unwrap();
    assert_eq!((study.name.as_str(), study.cells.len(), study.expectations.len()), ("it", 1, 1));
    assert_eq!(study.cells[0].axes, [0]);
    assert_eq!((study.cells[0].trials, study.cells[0].seed, study.cost), (3, 1, Cost::Short));
    assert_eq!(study.axes[0].values, [[("n".to_owned(), "1".to_owned())], [("n".to_owned(), "2".to_owned())]]);
}

#[test]
fn an_axis_may_put_several_texts_at_once() {
    let both = "[[vary]]\nname = \"size\"\nvalues = [{ n = 1, w = \"2us\" }, { n = 2, w = \"1us\" }]\n";
    let cell = CELL.replace("-n{n}", "-n{n},-w{w}");
    let study = parse(&format!("{HEAD}{cell}{both}{EXPECT}")).unwrap();
    assert_eq!(study.axes[0].values[1], [("n".to_owned(), "2".to_owned()), ("w".to_owned(), "1us".to_owned())]);
}

#[test]
fn placeholders_work_in_the_study_s_own_workloads() {
    let own = "[[workload]]\nname = \"own\"\ntext = \"instances {n}\"\n";
    let cell = CELL.replace("w:-n{n}", "own");
    let study = parse(&format!("{HEAD}{own}{cell}{AXIS}{EXPECT}")).unwrap();
    assert_eq!(study.cells[0].axes, [0]);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let with = |from: &str, to: &str| {
        let text = whole();
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    for (text, place, words) in [
        (with("workload =", "worklod ="), "8:1", "there is no key `worklod` here; did you mean `workload`?"),
        (with("title = \"t\"", "title = 3"), "2:9", "invalid type: integer `3`, expected a string"),
        (with("[\"s\"]", "\"s\""), "9:14", "invalid type: string"),
        (with("[\"s\"]", "[]"), "9:14", "a cell needs a scheduler"),
        (with("[\"s\"]", "[\"s\", \"s\"]"), "9:20", "`s` is in the list twice"),
        (with("form-1", "form-9"), "1:10", "its schema is `warmcore-study-form-9`"),
        (with("values = [1, 2]", "values = []"), "12:10", "axis `n` has no values"),
        (with("values = [1, 2]", "values = [1, 1]"), "12:10", "axis `n` has a value twice"),
        (with("values = [1, 2]", "values = [1, { n = 2, m = 3 }]"), "12:10", "values with different keys"),
        (with("values = [1, 2]", "values = [[1]]"), "12:10", "neither a text, nor a number"),
        (with("-n{n}", "-n3"), "11:8", "axis `n` is in the text of no cell"),
        (with("name = \"n\"", "name = \"scheduler\""), "11:8", "puts something for a name that has a meaning"),
        (with("[1.5, 2]", "[2, 1.5]"), "16:8", "the band's ends are swapped: 2 is more than 1.5"),
        (with("[1.5, 2]", "[-inf, inf]"), "16:8", "a band has at least one end"),
        (with("[1.5, 2]", "[nan, 1]"), "16:8", "a band has at least one end"),
        (with("[1.5, 2]", "[0.5]"), "16:8", "a band has two ends, not 1"),
        (with("[1.5, 2]", "[0.5, 2, 3]"), "16:8", "a band has two ends, not 3"),
        (with("[1.5, 2]", "[1.5, 2]\npublished = 0.5"), "16:8", "lies on the other side of 1"),
        (with("m[a, n=1] / m[a, n=2]", "quantile(m[a, n=1], 2)"), "15:11", "a part from 0 to 1, not of 2"),
        (with("machine = \"m\"", "machine = \"m\"\nmax_time = \"0s\""), "8:12", "longer than 0"),
        (with("title = \"t\"", "title = \" \""), "1:1", "`title` is empty"),
        (with("reason = \"r\"", "reason = \" \""), "16:8", "a band has a reason"),
        (with("m[a, n=1]", "m[b, n=1]"), "15:11", "there is no cell `b`"),
        (with("m[a, n=1]", "m[a, k=1]"), "15:11", "there is no axis of this cell `k`; did you mean `n`?"),
        (with("m[a, n=2]", "speed"), "15:23", "there is no figure `speed`"),
        (with("m[a, n=2]", "m[a"), "15:26", "expected `,` or `]`"),
        (with(EXPECT, ""), "1:1", "it has no [[expect]]"),
        (with("machine = \"m\"", "machine = \"m\"\ntrials = 0"), "8:10", "0 trials"),
        (with("machine = \"m\"", "machine = \"m\"\nmemory = \"analitic\""), "8:10", "did you mean `analytic`?"),
        (with("machine = \"m\"", "machine = \"m\"\nmax_time = \"3 hours\""), "8:12", "3 hours"),
        (format!("{}{CELL}", whole()), "19:8", "two of [[cell]] are called `a`"),
        (
            format!("{}{}", whole(), "[[workload]]\nname = \"o\"\ntext = \"{}\"\n".repeat(2)),
            "22:8",
            "two of [[workload]] are called `o`",
        ),
        (format!("{}neutral = \"some\"\n", whole()), "18:11", "`neutral` is a number, or \"none\""),
        (format!("{}[[wrong]]\nname = \"x\"\nrejects = [\"e\"]\n", whole()), "19:8", "a wrong model has a `scheduler`"),
        (
            format!("{}[[wrong]]\nname = \"x\"\nscheduler = \"y\"\nrejects = [\"f\"]\n", whole()),
            "21:12",
            "there is no expectation `f`; did you mean `e`?",
        ),
        (
            format!("{}[[wrong]]\nname = \"x\"\nscheduler = \"y\"\nrejects = []\n", whole()),
            "21:11",
            "`rejects` names an expectation",
        ),
        (
            format!("{}[not_expressible]\nmissing = \"x\"\nsettle = \"y\"\n", whole()),
            "1:1",
            "it is not expressible, and has",
        ),
        (HEAD.to_owned(), "1:1", "it has no [[cell]]"),
        ("schema = ".to_owned(), "1:10", ""),
        (with("title = \"t\"", "title = \"t\"\ntitle = \"u\""), "3:1", "`title` is there twice, first in line 2"),
        (with("source = \"s\"", "source = \"s\"\nmost_cells = 9"), "5:14", "more than the usual 10000, not 9"),
        (with("name = \"a\"", "name = \"\""), "6:8", "`name` is empty"),
        (
            format!("{}[expect.outside]\nverdict = \"wrong\"\nwhy = \"\"\nsettle = \"s\"\n", whole()),
            "14:8",
            "`why` is empty",
        ),
        (
            format!("{}[[not_asked]]\nname = \"x\"\nmissing = \" \"\nsettle = \"s\"\n", whole()),
            "19:8",
            "`missing` is empty",
        ),
        (
            format!("{}[[wrong]]\nname = \"x\"\nscheduler = \"y\"\ncells = []\nrejects = [\"e\"]\n", whole()),
            "19:8",
            "`cells` names a cell, or is left out",
        ),
    ] {
        let error = parse(&text).map(|_| ()).expect_err(&format!("accepted:\n{text}"));
        assert!(error.to_string().contains(words), "wanted {words}\nfound {error}");
        assert_eq!(format!("{}:{}", error.line, error.column), place, "{error}\n{text}");
    }
}

#[test]
fn the_page_of_the_form_names_every_key() {
    fn keys(schema: &serde_json::Value, found: &mut Vec<String>) {
        for (key, of) in schema["properties"].as_object().into_iter().flatten() {
            found.push(key.clone());
            [of, &of["items"]].into_iter().for_each(|of| keys(of, found));
        }
    }
    let page = include_str!("../../../../docs/reference/studies.md");
    let words: BTreeSet<&str> = page.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
    let mut found = Vec::new();
    keys(&form::schema(), &mut found);
    assert!(found.len() > 50, "{found:?}");
    found.retain(|key| !words.contains(key.as_str()));
    assert_eq!(found, Vec::<String>::new(), "docs/reference/studies.md does not have them");
}

/// A study with every key of the form, a line each.
const EVERY_KEY: &str = r#"schema = "warmcore-study-form-1"
title = "t"
question = "q"
source = "s"
cost = "long"
note = "n"
profiles = ""
most_cells = 20000
[baseline]
file = "before.json"
margin = 0.02
[[machine]]
name = "own machine"
text = "name = 1"
[[workload]]
name = "own workload"
text = "{}"
[[cell]]
name = "a"
machine = "own machine"
background = "none"
workload = "w:-n{n}"
assumed = "wakeup x 2"
schedulers = ["s"]
place = "sim"
memory = "none"
trials = 2
seed = 7
max_time = "1s"
warm_up = "1ms"
observe = [{ virtual_llcs = { cores = "4" } }]
[[vary]]
name = "n"
values = [1, 2]
[[figure]]
name = "f"
of = "m[a, n=1]"
[[expect]]
name = "e"
each = ["n"]
figure = "m[a]"
published = 1.5
band = [1.2, 2]
reason = "r"
neutral = 1
protocol = "p"
counted = true
better = "lower"
margin = 0.01
[expect.outside]
verdict = "wrong"
why = "w"
settle = "s"
[[not_asked]]
name = "g"
missing = "m"
settle = "s"
[[drawing]]
name = "d"
title = "t"
published = "p"
of = "tasks_per_cpu[a, n=1]"
[[wrong]]
name = "x"
scheduler = "y"
machine = "z"
workload = "v"
cells = ["a"]
rejects = ["e"]
"#;

#[test]
fn every_key_refuses_what_is_not_of_its_type_and_says_where() {
    let whole = EVERY_KEY.replace("name = \"e\"", "name = \"e{n}\"").replace("[\"e\"]", "[\"e1\"]");
    parse(&whole).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| !line.starts_with('[')) {
        let (key, _) = line.split_once(" = ").unwrap();
        for wrong in ["1979-05-27", "[[[]]]", "{ x = { y = [] } }"] {
            let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            changed[number] = format!("{key} = {wrong}");
            let error = parse(&changed.join("\n")).map(|_| ()).expect_err(&changed[number]);
            assert_eq!(error.line, number + 1, "{error}\n{}", changed[number]);
        }
        // Neither a key twice, nor one that is none.
        let mut twice: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        twice.insert(number, (*line).to_owned());
        assert_eq!(parse(&twice.join("\n")).unwrap_err().line, number + 2, "{line}");
        twice[number] = format!("{key}_ = 1");
        let error = parse(&twice.join("\n")).unwrap_err();
        assert!(
            matches!(&error.problem, Problem::UnknownKey { key: found, .. } if *found == format!("{key}_")),
            "{error}"
        );
        assert_eq!(error.line, number + 1, "{error}");
    }
}

/// An axis whose values say what is expected of them, and one expectation for each.
const ROWS: &str = "[[vary]]\nname = \"n\"\nvalues = [\n{ n = 1, w = \"2us\", published = 1.5, band = [1, 2] },\n\
    { n = 2, w = \"1us\", published = 3, band = [2, 4], reason = \"of two\", fitted = \"w of {n}\" },\n]\n\
    [[expect]]\nname = \"row {n}\"\neach = [\"n\"]\nfigure = \"m[a] / v[a, n=1]\"\nreason = \"of all\"\n";

fn rows() -> String {
    format!("{HEAD}{}{ROWS}", CELL.replace("-n{n}", "-n{n},-w{w}"))
}

#[test]
fn one_expectation_may_stand_for_one_of_every_value_of_an_axis() {
    let study = parse(&rows()).unwrap();
    let [one, two] = &study.expectations[..] else { panic!("{:?}", study.expectations) };
    assert_eq!((one.name.as_str(), two.name.as_str()), ("row 1", "row 2"));
    assert_eq!((one.published, two.published), (Some(1.5), Some(3.0)));
    assert_eq!((one.band, two.band), (Band { low: 1.0, high: 2.0 }, Band { low: 2.0, high: 4.0 }));
    assert_eq!((one.reason.as_str(), two.reason.as_str()), ("of all", "of two"), "the value's own goes before");
    assert_eq!((&one.mark, &two.mark), (&None, &Some(Mark { kind: MarkKind::Fitted, why: "w of 2".into() })));
    // Cells that choose keep their choice; the axis' own name tells its value.
    assert_eq!(two.figure.to_string(), "(m[a, n=2] / v[a, n=1])");
    assert_eq!(study.axes[0].values[0].len(), 2, "what is expected is no placeholder: {:?}", study.axes[0].values);
}

#[test]
fn what_is_wrong_with_rows_is_said_with_its_place() {
    let with = |from: &str, to: &str| {
        let text = rows();
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    for (text, place, words) in [
        (with("each = [\"n\"]", "each = [\"nn\"]"), "18:9", "there is no axis `nn`; did you mean `n`?"),
        (with("each = [\"n\"]", "eech = [\"n\"]"), "18:1", "there is no key `eech` here; did you mean `each`?"),
        (with("each = [\"n\"]\n", ""), "11:8", "says what is expected of its values, and no [[expect]]"),
        (with("m[a] /", "m[a, n=2] /"), "18:9", "the figure has no cell that axis `n` varies"),
        (with("m[a] /", "m[b] /"), "19:11", "there is no cell `b`"),
        (with("row {n}", "row"), "17:8", "two of [[expect]] are called `row`"),
        (with(", band = [2, 4]", ""), "14:1", "there is no `band` for `row 2`"),
        (with("band = [2, 4]", "band = [4, 2]"), "14:1", "the band's ends are swapped"),
        (with("published = 3", "published = nan"), "14:1", "a finite number"),
        (with("band = [2, 4]", "band = 2"), "14:1", "invalid type"),
        (with("reason = \"of all\"\n", ""), "13:1", "a band has a reason"),
        (with("m[a] /", "mean_over(k, m[a]) /"), "19:11", "there is no axis `k`; did you mean `n`?"),
        (with("m[a] /", "m[a] * mean_over(n, m[a, n=1]) /"), "19:18", "it has no cell that axis `n` varies"),
        (with("m[a] /", "mean_ovr(n, m[a]) /"), "19:11", "did you mean `mean_over`?"),
        (
            with(
                "reason = \"of all\"\n",
                "reason = \"of all\"\n[[not_asked]]\nname = \"row 1\"\nmissing = \"x\"\nsettle = \"y\"\n",
            ),
            "22:8",
            "two of [[expect]] are called `row 1`",
        ),
        (
            with(
                "reason = \"of all\"\n",
                "reason = \"of all\"\n[[drawing]]\nname = \"f\"\ntitle = \"x\"\npublished = \"y\"\nof = \"task_per_cpu[a, n=1]\"\n",
            ),
            "25:7",
            "there is no drawing `task_per_cpu`; did you mean `tasks_per_cpu`?",
        ),
        (with("machine = \"m\"", "machine = \"m\"\nwarm_up = \"2\""), "8:11", "is no duration"),
    ] {
        let error = parse(&text).map(|_| ()).expect_err(&format!("accepted:\n{text}"));
        assert!(error.to_string().contains(words), "wanted {words}\nfound {error}");
        assert_eq!(format!("{}:{}", error.line, error.column), place, "{error}\n{text}");
    }
}

#[test]
fn a_fold_over_an_axis_is_of_every_value_and_bounded() {
    let study = parse(&whole().replace("m[a, n=1] /", "sum_over(n, m[a] + 1) /")).unwrap();
    let mut named = Vec::new();
    study.expectations[0].figure.each_name(&mut |name, _| {
        if let NamedPart::Measure(selection) = name {
            named.push(selection.to_string());
        }
    });
    assert_eq!(named, ["m[a, n=1]", "m[a, n=2]", "m[a, n=2]"]);
    assert_eq!(study.expectations[0].figure.to_string(), "(sum_over(n, (m[a] + 1)) / m[a, n=2])");
    let many: Vec<String> = (1..=40).map(|n| n.to_string()).collect();
    let axes =
        AXIS.replace("1, 2", &many.join(", ")) + &AXIS.replace("\"n\"", "\"k\"").replace("1, 2", &many.join(", "));
    let cell = CELL.replace("-n{n}", "-n{n},-k{k}");
    let expect = EXPECT.replace("m[a, n=1] / m[a, n=2]", "mean_over(n, sum_over(k, m[a]))");
    let error = parse(&format!("{HEAD}{cell}{axes}{expect}")).unwrap_err();
    assert!(error.to_string().contains("at most 1000 expressions"), "{error}");
}

#[test]
fn a_part_of_a_study_has_what_its_figures_need() {
    let figures = "[[figure]]\nname = \"x\"\nof = \"2 * y\"\n[[figure]]\nname = \"y\"\nof = \"m[a, n=2]\"\n[[figure]]\nname = \"z\"\nof = \"1\"\n";
    let other = EXPECT.replace("\"e\"", "\"other\"").replace("m[a, n=1] / m[a, n=2]", "x");
    let mut study = parse(&format!("{}{figures}{other}", whole())).unwrap();
    let bindings = |n: &str| [("n".to_owned(), n.to_owned()), (SCHEDULER.to_owned(), "s".to_owned())].into();
    assert!(study.needs("a", &bindings("1")) && study.needs("a", &bindings("2")));
    assert!(study.keep_only(&["oth".to_owned()]));
    assert_eq!(study.expectations.len(), 1);
    assert_eq!(study.figures.iter().map(|figure| figure.name.as_str()).collect::<Vec<_>>(), ["x", "y"]);
    assert!(!study.needs("a", &bindings("1")) && study.needs("a", &bindings("2")));
    let in_vain = |absent: &[CellSimulation]| study.is_in_vain("a", &bindings("2"), absent);
    assert!(!in_vain(&[]) && in_vain(&[("a".to_owned(), bindings("2"))]));
    assert!(!study.keep_only(&["nothing".to_owned()]));
}

#[test]
fn trials_that_are_asked_for_are_as_many_as_a_cell_may_have() {
    let mut chosen = [parse(&whole()).unwrap()];
    for count in [0, 10_001, u32::MAX] {
        let refused = choice::set_trials(&mut chosen, count).unwrap_err().to_string();
        assert_eq!(refused, format!("{count} trials; there are 1 to 10000"));
    }
    choice::set_trials(&mut chosen, 10_000).unwrap();
    assert_eq!(chosen[0].cells[0].trials, 10_000);
}

#[test]
fn what_was_published_of_bars_is_a_number_or_numbers_by_label() {
    let bars = |published: &str| {
        let of = "label = \"{n} CPUs\", each = [\"n\"], of = \"m[a]\"";
        let text = format!(
            "[[drawing]]\nname = \"b\"\ntitle = \"t\"\npublished = \"p\"\nbars = [{{ {of}, published = {published} }}]\n"
        );
        let study = parse(&(whole() + &text)).map_err(|error| error.to_string())?;
        Ok::<_, String>(study.charts[0].bars.iter().map(|bar| bar.published).collect::<Vec<_>>())
    };
    assert_eq!(bars("1.5"), Ok(vec![Some(1.5); 2]));
    assert_eq!(bars("{ \"2 CPUs\" = -36 }"), Ok(vec![None, Some(-36.0)]));
    assert!(bars("{ \"3 CPUs\" = 1 }").unwrap_err().contains("there is no bar `3 CPUs`; did you mean `1 CPUs`?"));
    assert!(bars("inf").unwrap_err().contains("a finite number, or a table of such by label"));
    assert!(bars("{ \"1 CPUs\" = \"many\" }").unwrap_err().contains("a finite number"));
}

#[test]
fn a_drawing_that_is_asked_for_by_its_whole_name_has_what_it_shows() {
    let figure = "[[figure]]\nname = \"x\"\nof = \"m[a, n=2]\"\n";
    let bars =
        "[[drawing]]\nname = \"bars\"\ntitle = \"t\"\npublished = \"p\"\nbars = [{ label = \"l\", of = \"2 * x\" }]\n";
    let time = "[[drawing]]\nname = \"time\"\ntitle = \"t\"\npublished = \"p\"\nof = \"tasks_per_cpu[a, n=1]\"\n";
    let study = parse(&format!("{}{figure}{bars}{time}", whole())).unwrap();
    let needed = |wanted: &str| {
        let mut part = study.clone();
        assert!(part.keep_only(&[wanted.to_owned()]), "{wanted}");
        assert!(part.expectations.is_empty());
        let bindings = |n: &str| [("n".to_owned(), n.to_owned()), (SCHEDULER.to_owned(), "s".to_owned())].into();
        (["1", "2"].map(|n| part.needs("a", &bindings(n))), part.must_draw("bars"), part.must_draw("time"))
    };
    assert_eq!(needed("bars"), ([false, true], true, false));
    assert_eq!(needed("time"), ([true, false], false, true));
    assert!(!study.clone().keep_only(&["bar".to_owned()]), "a part of a drawing's name is none");
    assert_eq!(study.drawn().collect::<Vec<_>>(), ["time", "bars"]);
}

#[test]
fn a_drawing_of_one_trial_is_one_for_every_value_of_its_axes() {
    let drawing = |rest: &str| format!("{}[[drawing]]\npublished = \"of {{n}}\"\n{rest}", whole());
    let heat = "name = \"heat-{n}\"\ntitle = \"{n} tasks\"\neach = [\"n\"]\nof = \"run_time_per_cpu[a]\"\n";
    let study = parse(&drawing(heat)).unwrap();
    let of = |drawing: &Drawing| {
        (drawing.name.clone(), drawing.title.clone(), drawing.published.clone(), drawing.of.to_string())
    };
    let [one, two] = &study.drawings[..] else { panic!("{:?}", study.drawings) };
    let expected =
        |n: u32| (format!("heat-{n}"), format!("{n} tasks"), format!("of {n}"), format!("run_time_per_cpu[a, n={n}]"));
    assert_eq!((of(one), of(two)), (expected(1), expected(2)));
    assert_eq!(one.kind, DrawingKind::RunTimePerCpu);
    let moves = heat.replace("run_time_per_cpu", "moves_of_virtual_llcs");
    let observed = "machine = \"m\"\nobserve = [{ virtual_llcs = { cores = \"4\" } }]";
    parse(&drawing(&moves).replace("machine = \"m\"", observed)).unwrap();
    for (text, words) in [
        (drawing(&heat.replace("heat-{n}", "heat")), "two of [[drawing]] are called `heat`"),
        (drawing(&heat.replace("heat-{n}", "heat/{n}")), "`heat/1` is not a file name"),
        (drawing(&heat.replace("[a]", "[a, n=1]")), "the figure has no cell that axis `n` varies"),
        (drawing(&moves), "its cell has `observe = [{ virtual_llcs"),
        (
            drawing(&heat.replace("of = \"run_time_per_cpu[a]\"", "bars = [{ label = \"l\", of = \"m[a, n=1]\" }]")),
            "which have each their `each`",
        ),
    ] {
        let error = parse(&text).map(|_| ()).expect_err(&format!("accepted:\n{text}"));
        assert!(error.to_string().contains(words), "wanted {words}\nfound {error}");
    }
}

#[test]
fn figures_that_name_each_other_are_refused() {
    let figures = "[[figure]]\nname = \"x\"\nof = \"y + 1\"\n[[figure]]\nname = \"y\"\nof = \"2 * x\"\n";
    let error = parse(&format!("{}{figures}", whole())).unwrap_err();
    assert_eq!(error.problem, Problem::Circle(["x", "y", "x"].map(str::to_owned).into()));
    // Twice the same is no circle, and takes no time that doubles with every figure.
    let chain: String =
        (0..100).map(|n| format!("[[figure]]\nname = \"f{n}\"\nof = \"f{0} + f{0}\"\n", n + 1)).collect();
    let last = "[[figure]]\nname = \"f100\"\nof = \"1\"\n";
    parse(&format!("{}{chain}{last}", whole())).unwrap();
}

#[test]
fn a_question_that_cannot_be_asked_has_nothing_but_what_is_missing() {
    let study = parse(&format!("{HEAD}[not_expressible]\nmissing = \"x\"\nsettle = \"y\"\n")).unwrap();
    assert_eq!(study.not_expressible.unwrap().missing, "x");
}

#[test]
fn a_table_stands_for_as_many_expectations_as_there_are_cells_and_no_more() {
    let axis = |name: &str| {
        let values: Vec<String> = (0..200).map(|value| value.to_string()).collect();
        format!("[[vary]]\nname = \"{name}\"\nvalues = [{}]\n", values.join(", "))
    };
    let expected =
        "[[expect]]\nname = \"{n} {k}\"\neach = [\"n\", \"k\"]\nfigure = \"m[a]\"\nband = [0, 1]\nreason = \"r\"\n";
    let text = format!("{HEAD}{}{}{}{expected}", CELL.replace("-n{n}", "-n{n},-k{k}"), axis("n"), axis("k"));
    let error = parse(&text).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("40000 values of axes and more; one table covers at most 10000"), "{error}");
}

/// The rules of scoring, each refused where it is broken.
#[test]
fn what_would_be_scored_and_should_not_is_refused_with_its_place() {
    let expect = |rest: &str| format!("{}{rest}", whole());
    let of_the_first = "[[expect]]\nname = \"f\"\nfigure = \"m[a, n=1]\"\nband = [1.5, 2]\nreason = \"r\"\n";
    for (text, place, words) in [
        (
            whole().replace("[1.5, 2]", "[0.9, 1.1]"),
            "16:8",
            "the band contains 1, which means no effect, and the source has no number",
        ),
        (
            whole().replace("[1.5, 2]", "[0.9, 1.1]\npublished = 0.978"),
            "16:8",
            "and the source has 0.978. Let it end there, or say `published = 1`",
        ),
        (whole().replace("[1.5, 2]", "[-1, 4]\nneutral = 0\npublished = 1.5"), "16:8", "the band contains 0"),
        (
            whole().replace("[1.5, 2]", "[1.5, 2]\npublished = 2.5"),
            "16:8",
            "the band is without 2.5, which was published",
        ),
        (
            expect(&of_the_first.replace("m[a, n=1]", "m[a, n=1] / m[a, n=2]")),
            "20:10",
            "`e` is the same figure, and a row counts once",
        ),
        (
            whole().replace("[1.5, 2]", "[0, inf]\npublished = 1.3\nneutral = \"none\""),
            "15:10",
            "so that 1 means no effect, and the band contains it",
        ),
        (whole().replace("[1.5, 2]", "[0.6, 2]\npublished = 1.3\nneutral = 0.5"), "15:10", "`neutral = 1`"),
        (
            whole().replace(" / m", " - m").replace("[1.5, 2]", "[-1, 2]\npublished = 1.5\nneutral = \"none\""),
            "15:10",
            "`neutral = 0`",
        ),
        (whole().replace("n=2]", "n=1] * 1.7"), "15:10", "the figure is the same whatever is measured"),
        (whole().replace("m[a, n=1] / m[a, n=2]", "1.7"), "15:10", "the figure is the same whatever is measured"),
        (
            expect("published = 1.7\nnot_in_source = \"w\"\n"),
            "19:17",
            "it is `not_in_source`, and 1.7 of no row of the source was published",
        ),
        (expect("fitted = \" \"\n"), "18:10", "`fitted` says why"),
        (expect("fitted = \"p\"\nprotocol = \"q\"\n"), "19:12", "a row has one mark; this one has `fitted` already"),
        (expect("follows_from = \"g\"\n"), "18:16", "there is no expectation `g`; did you mean `e`?"),
        (expect("follows_from = \"e\"\n"), "18:16", "names a row that counts on its own, and `e` does not"),
        (
            expect(&format!("not_in_source = \"w\"\n{of_the_first}follows_from = \"e\"\n")),
            "24:16",
            "names a row that counts on its own, and `e` does not",
        ),
        (expect("program = \"p\"\n").replace("title =", "program = \"p\"\ntitle ="), "19:1", "no key `program`"),
        (whole().replace("title =", "program = \"p\"\ntitle ="), "2:11", "figures are those of a program or of cells"),
    ] {
        let error = parse(&text).map(|_| ()).expect_err(&format!("accepted:\n{text}"));
        assert!(error.to_string().contains(words), "wanted {words}\nfound {error}");
        assert_eq!(format!("{}:{}", error.line, error.column), place, "{error}\n{text}");
    }
    for text in [
        whole().replace("[1.5, 2]", "[0.9, 1.1]\npublished = 1"),
        whole().replace(" / m[a, n=2]", "").replace("[1.5, 2]", "[0.9, 1.1]\nneutral = \"none\""),
        whole().replace("[1.5, 2]", "[0.9, 1.1]\nneutral = \"none\"\npublished = 0.989"),
        whole().replace("[1.5, 2]", "[1.0, inf]\nneutral = \"none\""),
        whole().replace("[1.5, 2]", "[0.9, 1.1]\ncounted = false"),
        whole().replace("[1.5, 2]", "[0.9, 1.0]\npublished = 0.978"),
        whole().replace("[1.5, 2]", "[0.9, 1.1]\nallows_no_effect = \"one run\""),
        expect(&format!("fitted = \"w\"\n{of_the_first}follows_from = \"e\"\n")),
        expect(&format!("published = 1.7\n{of_the_first}published = 1.7\nnot_in_source = \"w\"\n")),
    ] {
        parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
}

/// The same ratio as a part of a hundred, as what is lost, turned over, by another name, of a cell with another name, or with its
/// scheduler said.
#[test]
fn a_row_counts_once_however_its_figure_is_written() {
    let named = "[[figure]]\nname = \"x\"\nof = \"m[a, n=1] / m[a, n=2]\"\n";
    let copy = CELL.replace("name = \"a\"", "name = \"b\"\nseed = 2");
    let with = |figure: &str| {
        let row = EXPECT.replace("name = \"e\"", "name = \"f\"").replace("m[a, n=1] / m[a, n=2]", figure);
        parse(&format!("{}{copy}{named}{}", whole(), row.replace("\"r\"", "\"r\"\nneutral = 3")))
            .map_err(|error| error.to_string())
    };
    for same in
        ["(m[a, n=1] / m[a, n=2] - 1) * 100", "1 - x", "m[a, n=2] / m[a, n=1]", "m[b, n=1] / m[b, n=2]", "median(x)"]
    {
        assert!(with(same).unwrap_err().contains("`e` is the same figure, and a row counts once"), "{same}");
    }
    for other in ["m[a, n=1]", "m[a, n=1] / w[a, n=2]", "m[a, n=1, s] * m[a, n=2]", "x + m[a, n=2]"] {
        with(other).unwrap_or_else(|error| panic!("{other}: {error}"));
    }
}

#[test]
fn a_mark_of_a_value_goes_before_that_of_all() {
    let text = rows().replace("reason = \"of all\"\n", "reason = \"of all\"\nprotocol = \"{n} of them\"\n");
    let marks: Vec<Mark> = parse(&text).unwrap().expectations.into_iter().filter_map(|of| of.mark).collect();
    let mark = |kind, why: &str| Mark { kind, why: why.to_owned() };
    assert_eq!(marks, [mark(MarkKind::Protocol, "1 of them"), mark(MarkKind::Fitted, "w of 2")]);
}
