//! The tables of a study's file, and the study that they make.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use warmcore_lab::experiment::{MOST_TRIALS, Observation};
use warmcore_lab::verdict::DEFAULT_MARGIN;
use warmcore_options::MemoryChoice;

use super::alike::Meaning;
use super::bars::{self, BarForm};
use super::contention::{self, ContentionForm};
use super::expect::{self, ExpectForm, Expected};
use super::mark;
use super::placeholders::put_known;
use super::{
    At, Axis, BarChart, BaselineFile, Cell, Cost, DRAWN, Drawing, DrawingKind, Expectation, Inline, Missing,
    NamedFigure, NotAsked, Problem, SCHEDULER, SCHEMA, Study, WrongModel, known,
};
use crate::figure::{self, EACH};
use crate::plan::MOST_CELLS;

/// Most figures with names.
const MOST_FIGURES: usize = 200;

/// Trials of a cell that does not say.
const TRIALS: u32 = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    schema: Spanned<String>,
    title: String,
    question: String,
    source: String,
    #[serde(default)]
    cost: Cost,
    #[serde(default)]
    note: String,
    not_expressible: Option<Missing>,
    #[serde(default)]
    machine: Vec<Inline>,
    #[serde(default)]
    workload: Vec<Inline>,
    profiles: Option<String>,
    program: Option<Spanned<String>>,
    trace: Option<Spanned<String>>,
    contention: Option<Spanned<ContentionForm>>,
    most_cells: Option<Spanned<u64>>,
    #[serde(default)]
    cell: Vec<CellForm>,
    #[serde(default)]
    vary: Vec<AxisForm>,
    #[serde(default)]
    figure: Vec<FigureForm>,
    #[serde(default)]
    expect: Vec<ExpectForm>,
    #[serde(default)]
    not_asked: Vec<NotAskedForm>,
    #[serde(default)]
    drawing: Vec<DrawingForm>,
    #[serde(default)]
    wrong: Vec<WrongForm>,
    baseline: Option<BaselineForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BaselineForm {
    file: Spanned<PathBuf>,
    margin: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellForm {
    name: Spanned<String>,
    machine: Spanned<String>,
    background: Option<Spanned<String>>,
    workload: Spanned<String>,
    assumed: Option<Spanned<String>>,
    schedulers: Spanned<Vec<Spanned<String>>>,
    place: Option<Spanned<String>>,
    memory: Option<Spanned<String>>,
    trials: Option<Spanned<u32>>,
    seed: Option<u64>,
    max_time: Option<Spanned<String>>,
    warm_up: Option<Spanned<String>>,
    #[serde(default)]
    observe: Vec<Observation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AxisForm {
    name: Spanned<String>,
    values: Spanned<Vec<Spanned<toml::Value>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureForm {
    name: Spanned<String>,
    of: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NotAskedForm {
    name: Spanned<String>,
    missing: String,
    settle: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrawingForm {
    name: Spanned<String>,
    title: String,
    published: String,
    #[serde(default)]
    each: Vec<Spanned<String>>,
    of: Option<Spanned<String>>,
    #[serde(default)]
    unit: String,
    bars: Option<Vec<BarForm>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrongForm {
    name: Spanned<String>,
    scheduler: Option<Spanned<String>>,
    machine: Option<Spanned<String>>,
    workload: Option<Spanned<String>>,
    cells: Option<Vec<Spanned<String>>>,
    rejects: Spanned<Vec<Spanned<String>>>,
}

/// The JSON Schema of a file.
pub(super) fn schema() -> serde_json::Value {
    super::schema::of::<FileForm>()
}

pub(super) fn read(path: &Path, text: &str) -> Result<Study, At> {
    let form: FileForm = toml::from_str(text).map_err(|error| syntax(&error, text))?;
    if form.schema.get_ref() != SCHEMA {
        return Err((form.schema.span().start, Problem::Schema(form.schema.get_ref().clone())));
    }
    let kinds = [
        ("cell", form.cell.is_empty()),
        ("expect", form.expect.is_empty()),
        ("vary", form.vary.is_empty()),
        ("figure", form.figure.is_empty()),
        ("wrong", form.wrong.is_empty()),
        ("not_asked", form.not_asked.is_empty()),
        ("drawing", form.drawing.is_empty()),
    ];
    if let (Some(trace), None) = (&form.trace, &form.program) {
        let words = "a trace is for the tasks of a `program`; workloads of cells are not traces".to_owned();
        return Err((trace.span().start, Problem::Value(words)));
    }
    if let (Some(contention), None) = (&form.contention, &form.program) {
        let words = "[contention] is about the tasks of a `program`; cells have machines and workloads".to_owned();
        return Err((contention.span().start, Problem::Value(words)));
    }
    match &form.not_expressible {
        Some(_) => {
            if let Some((kind, _)) = kinds.iter().find(|(_, empty)| !empty) {
                return Err((0, Problem::NotExpressible(kind)));
            }
        }
        None => {
            if let Some((kind, _)) =
                kinds[..2].iter().find(|(kind, empty)| *empty && !(*kind == "cell" && form.program.is_some()))
            {
                return Err((0, Problem::Nothing(kind)));
            }
        }
    }
    if let Some(figure) = form.figure.get(MOST_FIGURES) {
        let words = format!("a study has at most {MOST_FIGURES} figures");
        return Err((figure.name.span().start, Problem::Value(words)));
    }
    if let (Some(program), [_, ..]) = (&form.program, &form.cell[..]) {
        let words = "figures are those of a program or of cells, not both".to_owned();
        return Err((program.span().start, Problem::Value(words)));
    }
    filled(0, &[("title", &form.title), ("question", &form.question), ("source", &form.source)])?;
    for of in &form.not_asked {
        filled(of.name.span().start, &[("missing", &of.missing), ("settle", &of.settle)])?;
    }
    if let Some(few) = form.most_cells.as_ref().filter(|most| *most.get_ref() <= MOST_CELLS) {
        let words = format!("`most_cells` is for more than the usual {MOST_CELLS}, not {}", few.get_ref());
        return Err((few.span().start, Problem::Value(words)));
    }
    let axes = form.vary.iter().map(axis).collect::<Result<Vec<_>, _>>()?;
    unique("vary", names(form.vary.iter().map(|axis| &axis.name)))?;
    unique("cell", names(form.cell.iter().map(|cell| &cell.name)))?;
    unique("figure", names(form.figure.iter().map(|figure| &figure.name)))?;
    unique("drawing", names(form.drawing.iter().map(|drawing| &drawing.name)))?;
    unique("machine", names(form.machine.iter().map(|own| &own.name)))?;
    unique("workload", names(form.workload.iter().map(|own| &own.name)))?;
    unique("wrong", names(form.wrong.iter().map(|wrong| &wrong.name)))?;
    check_axes(&form, &axes)?;
    let mut cells = form.cell.iter().map(|of| cell(of, &form, &axes)).collect::<Result<Vec<_>, _>>()?;
    let (of_program, mut contentions) = (form.program.is_some(), Vec::new());
    if of_program {
        let at: Vec<usize> = form.vary.iter().map(|axis| axis.name.span().start).collect();
        contentions = contention::varied(form.contention.as_ref(), form.trace.is_some(), &axes, &at)?;
        cells.push(contention::cell(axes.len()));
    }
    if let Some((index, unused)) =
        axes.iter().enumerate().find(|(index, _)| cells.iter().all(|cell| !cell.axes.contains(index)))
    {
        let problem = Problem::Axis { name: unused.name.clone(), reason: "is in the text of no cell" };
        return Err((form.vary[index].name.span().start, problem));
    }
    let baseline = form.baseline.as_ref().map(baseline).transpose()?;
    let varied = expect::Varied { axes: &axes, cells: &cells, margin: baseline.as_ref().map(|of| of.margin) };
    let figures = form.figure.iter().map(|form| {
        let of = varied.expression(&form.of, &[])?;
        Ok(NamedFigure { name: form.name.get_ref().clone(), of, at: form.of.span().start })
    });
    let figures = figures.collect::<Result<Vec<_>, At>>()?;
    varied.check_expected(&form.expect, &form.vary.iter().map(|axis| axis.name.span().start).collect::<Vec<_>>())?;
    let mut expectations = Vec::new();
    for form in &form.expect {
        varied.expectations(form, &mut expectations)?;
    }
    mark::check_followed(&expectations)?;
    mark::check_own(&expectations)?;
    if let Some(of) = baseline.as_ref().filter(|_| expectations.iter().all(|of: &Expectation| of.against.is_none())) {
        return Err((of.at, Problem::Value("no [[expect]] says what is `better` than the baseline".into())));
    }
    let named = expectations.iter().map(|of: &Expectation| (of.name.as_str(), of.named_at));
    unique("expect", named.chain(form.not_asked.iter().map(|of| (of.name.get_ref().as_str(), of.name.span().start))))?;
    let simulated: &[Cell] = if of_program { &[] } else { &cells };
    let wrong = form.wrong.iter().map(|form| wrong_model(form, simulated, &expectations));
    let (mut drawings, mut charts) = (Vec::new(), Vec::new());
    for form in &form.drawing {
        match (&form.of, &form.bars) {
            (Some(of), None) if of_program => {
                let words = "a drawing over time shows a cell, and a program has none".to_owned();
                return Err((of.span().start, Problem::Value(words)));
            }
            (Some(of), None) => drawings.extend(drawn(form, of, &varied)?),
            (None, Some(bars)) if form.each.is_empty() => charts.push(chart(form, bars, &varied)?),
            _ => {
                let words = "a drawing has `of`, what is drawn over time, or `bars`, which have each their `each`";
                let words = words.to_owned();
                return Err((form.name.span().start, Problem::Value(words)));
            }
        }
    }
    unique("drawing", drawings.iter().map(|of: &Drawing| (of.name.as_str(), of.at)))?;
    let study = Study {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        path: path.to_owned(),
        title: form.title,
        question: form.question,
        source: form.source,
        cost: form.cost,
        note: form.note,
        not_expressible: form.not_expressible,
        machines: form.machine,
        workloads: form.workload,
        profiles: form.profiles,
        program: form.program.map(Spanned::into_inner),
        trace: form.trace.map(Spanned::into_inner),
        contentions,
        most_cells: form.most_cells.map(Spanned::into_inner),
        axes,
        figures,
        wrong: wrong.collect::<Result<_, At>>()?,
        expectations,
        drawings,
        charts,
        not_asked: form.not_asked.into_iter().map(NotAskedForm::into_part).collect(),
        cells: if of_program { Vec::new() } else { cells },
        baseline,
        partial: false,
        asked: Vec::new(),
        text: text.to_owned(),
    };
    study.check_names()?;
    let meaning = Meaning { cells: &study.cells, figures: &study.figures };
    mark::check_counted_once(&study.expectations, &meaning)?;
    mark::check_neutral(&study.expectations, &meaning)?;
    Ok(study)
}

/// What the reader of TOML says, with our own words for a key that is none.
fn syntax(error: &toml::de::Error, text: &str) -> At {
    let at = error.span().map_or(0, |span| span.start);
    match warmcore_topology::key_twice(text, at).filter(|_| error.message().trim() == "duplicate key") {
        Some(words) => (at, Problem::Syntax(words)),
        None => syntax_at(error, at),
    }
}

/// The same of a part that was read by itself, whose place is known.
pub(super) fn syntax_at(error: &toml::de::Error, at: usize) -> At {
    let message = error.message();
    let Some(rest) = message.strip_prefix("unknown field ") else { return (at, Problem::Syntax(message.to_owned())) };
    let mut quoted = rest.split('`').skip(1).step_by(2).map(str::to_owned);
    let key = quoted.next().unwrap_or_default();
    let known: Vec<String> = quoted.collect();
    let nearest = warmcore_topology::nearest(&key, known.iter().map(String::as_str)).map(str::to_owned);
    (at, Problem::UnknownKey { key, nearest, known })
}

fn baseline(form: &BaselineForm) -> Result<BaselineFile, At> {
    let margin = form.margin.as_ref().map(margin).transpose()?.unwrap_or(DEFAULT_MARGIN);
    Ok(BaselineFile { file: form.file.get_ref().clone(), margin, at: form.file.span().start })
}

/// A fraction up to which differences do not matter.
pub(super) fn margin(form: &Spanned<f64>) -> Result<f64, At> {
    let margin = *form.get_ref();
    if (0.0..=0.5).contains(&margin) {
        return Ok(margin);
    }
    let words = format!("`margin` is a fraction of 0 to 0.5, such as 0.02 for 2 %, not {margin}");
    Err((form.span().start, Problem::Value(words)))
}

impl NotAskedForm {
    fn into_part(self) -> NotAsked {
        let missing = Missing { missing: self.missing, settle: self.settle };
        NotAsked { name: self.name.into_inner(), missing }
    }
}

/// Names and where they are.
fn names<'a>(all: impl Iterator<Item = &'a Spanned<String>>) -> impl Iterator<Item = (&'a str, usize)> {
    all.map(|name| (name.get_ref().as_str(), name.span().start))
}

/// Refuses texts that say nothing.
pub(super) fn filled(at: usize, texts: &[(&str, &str)]) -> Result<(), At> {
    match texts.iter().find(|(_, text)| text.trim().is_empty()) {
        Some((key, _)) => Err((at, Problem::Value(format!("`{key}` is empty")))),
        None => Ok(()),
    }
}

fn unique<'a>(kind: &'static str, names: impl Iterator<Item = (&'a str, usize)>) -> Result<(), At> {
    let mut seen = BTreeSet::new();
    for (name, at) in names {
        filled(at, &[("name", name)])?;
        if !seen.insert(name) {
            return Err((at, Problem::Twice { kind, name: name.to_owned() }));
        }
    }
    Ok(())
}

fn axis(form: &AxisForm) -> Result<Axis, At> {
    let name = form.name.get_ref().clone();
    let wrong = |reason| Err((form.values.span().start, Problem::Axis { name: name.clone(), reason }));
    let scalar = |value: &toml::Value| match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => Some(value.to_string()),
        _ => None,
    };
    let mut values: Vec<Vec<(String, String)>> = Vec::new();
    let (mut expected, mut seen) = (Vec::new(), BTreeSet::new());
    for value in form.values.get_ref() {
        let (value, of_it) = Expected::taken_from(value)?;
        expected.push(of_it);
        let bindings = match &value {
            toml::Value::Table(table) => {
                table.iter().map(|(key, value)| Some((key.clone(), scalar(value)?))).collect::<Option<Vec<_>>>()
            }
            other => scalar(other).map(|text| vec![(name.clone(), text)]),
        };
        let Some(bindings) = bindings.filter(|bindings| !bindings.is_empty()) else {
            return wrong("has a value that is neither a text, nor a number, nor a table of such");
        };
        let keys = |of: &[(String, String)]| of.iter().map(|(key, _)| key.clone()).collect::<BTreeSet<_>>();
        if values.first().is_some_and(|first| keys(first) != keys(&bindings)) {
            return wrong("has values with different keys");
        }
        if !seen.insert(bindings.clone()) {
            return wrong("has a value twice");
        }
        values.push(bindings);
    }
    if values.is_empty() {
        return wrong("has no values");
    }
    Ok(Axis { name, values, expected })
}

/// No two axes put something for the same placeholder, and none for the schedulers.
fn check_axes(form: &FileForm, axes: &[Axis]) -> Result<(), At> {
    let mut seen: BTreeSet<&str> = [SCHEDULER, "task", "application", EACH].into();
    for (axis, form) in axes.iter().zip(&form.vary) {
        for (key, _) in &axis.values[0] {
            if !seen.insert(key) {
                let reason = "puts something for a name that has a meaning already";
                return Err((form.name.span().start, Problem::Axis { name: axis.name.clone(), reason }));
            }
        }
    }
    Ok(())
}

fn cell(form: &CellForm, study: &FileForm, axes: &[Axis]) -> Result<Cell, At> {
    if form.schedulers.get_ref().is_empty() {
        return Err((form.schedulers.span().start, Problem::Value("a cell needs a scheduler".into())));
    }
    let schedulers = form.schedulers.get_ref();
    let is_twice =
        |index: &usize| schedulers[..*index].iter().any(|text| text.get_ref() == schedulers[*index].get_ref());
    if let Some(twice) = (1..schedulers.len()).find(is_twice).map(|index| &schedulers[index]) {
        return Err((twice.span().start, Problem::Value(format!("`{}` is in the list twice", twice.get_ref()))));
    }
    let memory = form
        .memory
        .as_ref()
        .map(|text| text.get_ref().parse::<MemoryChoice>().map_err(|error| (text.span().start, Problem::Value(error))));
    let trials = form.trials.as_ref().map_or(TRIALS, |trials| *trials.get_ref());
    if !(1..=MOST_TRIALS).contains(&trials) {
        let at = form.trials.as_ref().map_or(0, |trials| trials.span().start);
        return Err((at, Problem::Value(format!("{trials} trials; there are 1 to {MOST_TRIALS}"))));
    }
    let duration = |text: &Option<Spanned<String>>| {
        let Some(text) = text else { return Ok(None) };
        let parsed = warmcore_workload::parse_duration(text.get_ref());
        parsed.map(Some).map_err(|error| (text.span().start, Problem::Value(error.to_string())))
    };
    let most_ns = duration(&form.max_time)?;
    if let (Some(0), Some(text)) = (most_ns, &form.max_time) {
        return Err((text.span().start, Problem::Value("`max_time` is longer than 0".into())));
    }
    let texts = [&form.machine, &form.workload]
        .into_iter()
        .chain(&form.background)
        .chain(&form.assumed)
        .chain(&form.place)
        .chain(form.schedulers.get_ref());
    let texts = texts.map(Spanned::get_ref);
    let own =
        |all: &'_ [Inline], name: &str| all.iter().find(|own| own.name.get_ref() == name).map(|own| own.text.clone());
    let inner = [own(&study.machine, form.machine.get_ref()), own(&study.workload, form.workload.get_ref())];
    let texts: Vec<String> = texts.cloned().chain(inner.into_iter().flatten()).collect();
    let names = |axis: &Axis| {
        axis.values[0].iter().any(|(key, _)| texts.iter().any(|text| text.contains(&format!("{{{key}}}"))))
    };
    Ok(Cell {
        name: form.name.get_ref().clone(),
        machine: form.machine.clone(),
        background: form.background.clone(),
        workload: form.workload.clone(),
        assumed: form.assumed.clone(),
        schedulers: form.schedulers.get_ref().clone(),
        place: form.place.clone(),
        memory: memory.transpose()?,
        trials,
        seed: form.seed.unwrap_or(1),
        max_time_ns: most_ns,
        warm_up_ns: duration(&form.warm_up)?,
        observe: form.observe.clone(),
        axes: (0..axes.len()).filter(|index| names(&axes[*index])).collect(),
    })
}

/// The drawings of `KIND[cell]`, one for every value of the axes of `each`.
fn drawn(form: &DrawingForm, of: &Spanned<String>, varied: &expect::Varied<'_>) -> Result<Vec<Drawing>, At> {
    let one = |chosen: Vec<expect::Chosen>| {
        // The text begins after its quotation mark.
        let at = of.span().start + 1;
        let figure::Node::Measure(of) = varied.expression(of, &chosen)?.node else {
            return Err((at, Problem::Value("a drawing shows one cell: `tasks_per_cpu[cell]`".into())));
        };
        let kind = of.measure.split_once('.').map_or(of.measure.as_str(), |(kind, _)| kind);
        let kind = known("drawing", kind, DRAWN.iter().map(|(name, _)| *name)).map_err(|problem| (at, problem))?;
        let kind = DRAWN[kind].1;
        let divides = |observed: &Observation| matches!(observed, Observation::VirtualLlcs { .. });
        let cell = varied.cells.iter().find(|cell| cell.name == of.cell);
        if kind == DrawingKind::MovesOfVirtualLlcs && cell.is_some_and(|cell| !cell.observe.iter().any(divides)) {
            let words = "its cell has `observe = [{ virtual_llcs = { cores = \"4\" } }]`, or another number of cores";
            return Err((at, Problem::Value(words.into())));
        }
        let bindings = varied.bindings(&chosen);
        // Values of axes may be several words, names of files are one.
        let name = put_known(form.name.get_ref(), &bindings).replace(' ', "-");
        let [title, published] = [&form.title, &form.published].map(|text| put_known(text, &bindings));
        Ok(Drawing { name: file_name(&name, form.name.span().start)?, title, published, of, kind, at })
    };
    varied.combinations(&form.each, of)?.into_iter().map(one).collect()
}

fn chart(form: &DrawingForm, bars: &[BarForm], varied: &expect::Varied<'_>) -> Result<BarChart, At> {
    let name = file_name(form.name.get_ref(), form.name.span().start)?;
    let bars = bars::bars(bars, varied)?;
    if bars.is_empty() {
        return Err((form.name.span().start, Problem::Value("a drawing of `bars` has one at least".into())));
    }
    Ok(BarChart { name, title: form.title.clone(), published: form.published.clone(), unit: form.unit.clone(), bars })
}

/// The name of a drawing's files, which stands at this place.
fn file_name(name: &str, at: usize) -> Result<String, At> {
    if name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-') {
        return Ok(name.to_owned());
    }
    Err((at, Problem::Value(format!("`{name}` is not a file name: letters, digits and `-`"))))
}

fn wrong_model(form: &WrongForm, cells: &[Cell], expectations: &[Expectation]) -> Result<WrongModel, At> {
    if form.scheduler.is_none() && form.machine.is_none() && form.workload.is_none() {
        let words = "a wrong model has a `scheduler`, a `machine` or a `workload`";
        return Err((form.name.span().start, Problem::Value(words.into())));
    }
    if form.rejects.get_ref().is_empty() {
        return Err((form.rejects.span().start, Problem::Value("`rejects` names an expectation".into())));
    }
    let position = |kind, text: &Spanned<String>, all: Vec<&str>| {
        known(kind, text.get_ref(), all.into_iter()).map_err(|problem| (text.span().start, problem))
    };
    let all_cells = || cells.iter().map(|cell| cell.name.as_str()).collect();
    let expected = || expectations.iter().map(|expectation| expectation.name.as_str()).collect();
    if form.cells.as_ref().is_some_and(Vec::is_empty) {
        return Err((form.name.span().start, Problem::Value("`cells` names a cell, or is left out for all".into())));
    }
    let named = form.cells.as_ref().map(|names| names.iter().map(|name| position("cell", name, all_cells())).collect());
    Ok(WrongModel {
        name: form.name.get_ref().clone(),
        scheduler: form.scheduler.clone(),
        machine: form.machine.clone(),
        workload: form.workload.clone(),
        cells: named.unwrap_or_else(|| Ok((0..cells.len()).collect()))?,
        rejects: form
            .rejects
            .get_ref()
            .iter()
            .map(|name| position("expectation", name, expected()))
            .collect::<Result<_, _>>()?,
    })
}
