//! What is wrong with a study's file is said with line and column.

use super::*;

const CELL: &str = "[[cell]]\nname = \"a\"\nmachine = \"m\"\nworkload = \"w:-n{n}\"\nschedulers = [\"s\"]\n";
const AXIS: &str = "[[vary]]\nname = \"n\"\nvalues = [1, 2]\n";
const EXPECT: &str = "[[expect]]\nname = \"e\"\nfigure = \"m[a, n=1] / m[a, n=2]\"\nband = [0.5, 2]\nreason = \"r\"\n";
const HEAD: &str = "schema = \"warmcore-study-form-1\"\ntitle = \"t\"\nquestion = \"q\"\nsource = \"s\"\n";

fn whole() -> String {
    format!("{HEAD}{CELL}{AXIS}{EXPECT}")
}

fn parse(text: &str) -> Result<Study, FileError> {
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
        (with("form-1", "form-9"), "1:10", "its schema is `warmcore-study-form-9`"),
        (with("values = [1, 2]", "values = []"), "12:10", "axis `n` has no values"),
        (with("values = [1, 2]", "values = [1, 1]"), "12:10", "axis `n` has a value twice"),
        (with("values = [1, 2]", "values = [1, { n = 2, m = 3 }]"), "12:10", "values with different keys"),
        (with("values = [1, 2]", "values = [[1]]"), "12:10", "neither a text, nor a number"),
        (with("-n{n}", "-n3"), "11:8", "axis `n` is in the text of no cell"),
        (with("name = \"n\"", "name = \"scheduler\""), "11:8", "puts something for a name that has a meaning"),
        (with("[0.5, 2]", "[2, 0.5]"), "16:8", "the band's ends are swapped: 2 is more than 0.5"),
        (with("[0.5, 2]", "[-inf, inf]"), "16:8", "a band has at least one end"),
        (with("[0.5, 2]", "[nan, 1]"), "16:8", "a band has at least one end"),
        (with("[0.5, 2]", "[0.5]"), "16:8", "invalid length"),
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
    ] {
        let error = parse(&text).map(|_| ()).expect_err(&format!("accepted:\n{text}"));
        assert!(error.to_string().contains(words), "wanted {words}\nfound {error}");
        assert_eq!(format!("{}:{}", error.line, error.column), place, "{error}\n{text}");
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
