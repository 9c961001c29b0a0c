//! What `study run --out` draws: what was expected and what came out, the gains of the cells' schedulers, and figures of the sources from
//! the first trials of their cells.

use std::collections::BTreeMap;
use std::path::Path;

use warmcore_lab::experiment::Experiment;
use warmcore_lab::files::{FileError, create_directory, write_atomically};
use warmcore_lab::trial::Trial;
use warmcore_lab::verdict;
use warmcore_report::figures::bars::{self, Drawn};
use warmcore_report::figures::expected::{self, Expected};
use warmcore_report::figures::gains::{self, Gained, VariedNumber};
use warmcore_report::figures::{self, Figure};
use warmcore_report::gallery::{self, Exhibit};
use warmcore_report::run::{ReportOptions, Run};
use warmcore_search::sweep::SweepRow;
use warmcore_study::document::{ExpectationResult, StudyDocument, StudyResult};
use warmcore_study::figure::ValueError;
use warmcore_study::file::{Axis, Bar, BarChart, Drawing, DrawingKind};
use warmcore_study::judge::{self, Judgement};
use warmcore_study::plan::{Plan, PlannedCell};

use crate::commands::report::{report_failure, write_drawn};
use crate::commands::sweep::gained;
use crate::failure::Failure;
use crate::signals::Signals;

/// Tasks up to which each has a line: sources draw each of 128 threads.
const MOST_LINES: usize = 256;

/// The page of a study's figures.
fn gallery_name(study: &str) -> String {
    format!("figures-{study}.html")
}

/// Draws what studies say from the runs in the directory: each figure as SVG with its data, those of a study on a page; returns the
/// pages. A drawing whose cell was not asked for is left out.
pub fn draw(plan: &Plan, out: &Path, signals: &Signals) -> Result<Vec<String>, Failure> {
    let mut pages = Vec::new();
    for (index, study) in plan.studies.iter().enumerate() {
        let planned = study.drawings.iter().enumerate().filter_map(|(number, drawing)| {
            let cell = plan.cell(index, None, &drawing.of).ok()?;
            let (experiment, scheduler) = cell.runs.clone().ok()?;
            Some((experiment, number, scheduler, drawing))
        });
        let mut planned: Vec<_> = planned.collect();
        // Each run is read once, whatever is drawn of it.
        planned.sort_by_key(|(experiment, number, ..)| (*experiment, *number));
        let mut exhibits = Vec::new();
        let mut loaded: Option<(usize, Run)> = None;
        for (experiment, number, scheduler, drawing) in planned {
            if loaded.as_ref().is_none_or(|(other, _)| *other != experiment) {
                let path = plan.experiments[experiment].path(out);
                let run = Run::load(&path, &ReportOptions::default(), &signals.stop)
                    .map_err(|error| report_failure(&error, &path, signals))?;
                loaded = Some((experiment, run));
            }
            let Some((_, run)) = &loaded else { continue };
            let figure = figure_of(drawing, run, scheduler).ok_or_else(|| {
                let words = format!("{}: {}: {} has nothing to draw", study.name, drawing.name, drawing.of);
                Failure::failed("warmcore::study", words)
            })?;
            let heading = format!("{}: {}", drawing.name.replace("figure-", "Figure "), drawing.title);
            let exhibit = Exhibit { heading, words: drawing.published.clone(), figure, narrow: None };
            exhibits.push((number, &drawing.name, exhibit));
        }
        exhibits.sort_by_key(|(number, ..)| *number);
        let exhibits: Vec<(&String, Exhibit)> =
            exhibits.into_iter().map(|(_, name, exhibit)| (name, exhibit)).collect();
        if !exhibits.is_empty() {
            write(out, (&study.name, &study.source), &exhibits)?;
            pages.push(gallery_name(&study.name));
        }
    }
    Ok(pages)
}

/// Draws what came out of each study, into `figures/STUDY`, and writes a page of it that begins with the answer; returns the pages.
/// `trials`: of every experiment, by scheduler.
pub fn results(
    plan: &Plan,
    document: &StudyDocument,
    trials: &[Vec<Vec<Trial>>],
    out: &Path,
) -> Result<Vec<String>, Failure> {
    let mut pages = Vec::new();
    for (index, study) in document.studies.iter().enumerate() {
        let expected = expectations(study);
        let gains = gains_of(plan, index, trials);
        let several = gains.len() > 1;
        let varied: Vec<VariedNumber> = plan.studies[index].axes.iter().flat_map(numbers_of).collect();
        let charts: Vec<(&BarChart, Vec<Drawn>)> =
            plan.studies[index].charts.iter().map(|chart| (chart, bars_of(plan, trials, index, chart))).collect();
        let drawn = |wide: f64| -> Vec<Figure> {
            let mut figures: Vec<Figure> = expected::figure(&study.name, &expected, wide).into_iter().collect();
            for (baseline, gains) in &gains {
                // Cells may have baselines of their own.
                let of = if several { format!("-{}", figures::file_name(baseline)) } else { String::new() };
                let of_baseline = gains::all_over(gains, baseline, &varied, wide).into_iter();
                figures.extend(of_baseline.map(|figure| Figure { id: figure.id.clone() + &of, ..figure }));
            }
            figures.extend(charts.iter().filter_map(|(chart, bars)| {
                let heading = format!("{}: {}", chart.name.replace("figure-", "Figure "), chart.title);
                bars::figure(&chart.name, &heading, &chart.published, &chart.unit, bars, wide)
            }));
            figures
        };
        write_drawn(&drawn, &out.join("figures").join(figures::file_name(&study.name)))?;
        let counted = || study.expectations.iter().filter(|expectation| expectation.counted);
        let right = counted().filter(|expectation| expectation.judgement == Judgement::Right).count();
        let as_expected = format!("{right} of {} as expected", counted().count());
        let mut answers =
            gains.iter().flat_map(|(baseline, gains)| gains::answers(gains, baseline, &varied)).collect::<Vec<_>>();
        answers.push(as_expected);
        let title = format!("{}: {}", study.title, answers.remove(0));
        let rest: String = answers.iter().map(|answer| format!("{answer}. ")).collect();
        let both = drawn(figures::WIDTH).into_iter().zip(drawn(figures::PANEL));
        let exhibit = |(figure, narrow): (Figure, Figure)| Exhibit {
            heading: figure.title.clone(),
            words: String::new(),
            figure,
            narrow: Some(narrow),
        };
        let exhibits: Vec<Exhibit> = both.map(exhibit).collect();
        let page = gallery::page(&title, &format!("{rest}{} {}", study.question, study.source), &exhibits);
        let name = format!("{}.html", figures::file_name(&study.name));
        write_atomically(&out.join(&name), page.as_bytes())?;
        pages.push(name);
    }
    Ok(pages)
}

/// What an axis puts for its placeholders, where that is a number throughout.
fn numbers_of(axis: &Axis) -> Vec<VariedNumber> {
    let placeholders = axis.values.first().into_iter().flatten().map(|(placeholder, _)| placeholder);
    let numbers = |placeholder: &String| {
        let of = |value: &Vec<(String, String)>| value.iter().find(|(other, _)| other == placeholder)?.1.parse().ok();
        let values: Option<Vec<f64>> = axis.values.iter().map(of).collect();
        Some(VariedNumber { name: placeholder.clone(), values: values? })
    };
    placeholders.filter_map(numbers).collect()
}

/// The bars of a chart. Those whose cells were not asked for are left out; one without a value says why.
fn bars_of(plan: &Plan, trials: &[Vec<Vec<Trial>>], study: usize, chart: &BarChart) -> Vec<Drawn> {
    let drawn = |bar: &Bar| {
        let length = judge::length(plan, trials, study, bar);
        if let (Err(ValueError::Missing(_)), true) = (&length, plan.studies[study].is_partial()) {
            return None;
        }
        let (label, series, published) = (bar.label.clone(), bar.series.clone(), bar.published);
        Some(Drawn { label, series, published, length: length.map_err(|error| error.to_string()) })
    };
    chart.bars.iter().filter_map(drawn).collect()
}

fn expectations(study: &StudyResult) -> Vec<Expected> {
    let of = |one: &ExpectationResult| Expected {
        name: one.name.clone(),
        band: (one.low, one.high),
        published: one.published,
        value: one.value,
        range: one.range,
        judgement: one.judgement.words().to_owned(),
        right: one.judgement == Judgement::Right,
    };
    study.expectations.iter().map(of).collect()
}

/// What the cells' schedulers gain over the first ones, by those. An experiment whose workload has no metric to judge has no gain. Where several
/// experiments have the same machine and workload, such as under two memory models, the case says of which cell it is.
fn gains_of(plan: &Plan, study: usize, trials: &[Vec<Vec<Trial>>]) -> Vec<(String, Vec<Gained>)> {
    let mut cells: BTreeMap<usize, &PlannedCell> = BTreeMap::new();
    for cell in plan.cells[study].iter().filter(|cell| cell.wrong.is_none()) {
        if let Ok((experiment, _)) = cell.runs {
            cells.entry(experiment).or_insert(cell);
        }
    }
    let subject = |index: usize| {
        let Experiment { machine, workload, .. } = &plan.experiments[index].experiment;
        (&machine.source, &workload.source)
    };
    let mut of_subject: BTreeMap<_, usize> = BTreeMap::new();
    cells.keys().for_each(|index| *of_subject.entry(subject(*index)).or_default() += 1);
    let mut found: Vec<(String, Vec<Gained>)> = Vec::new();
    for (&index, cell) in &cells {
        let experiment = &plan.experiments[index].experiment;
        if experiment.schedulers.len() < 2 {
            continue;
        }
        let record = experiment.record();
        let Ok(document) = verdict::conclude(experiment, &record, &trials[index]) else { continue };
        let (base, others): (Vec<_>, Vec<_>) = document.schedulers.iter().partition(|scheduler| scheduler.is_baseline);
        let candidates: Vec<String> = others.iter().map(|scheduler| scheduler.label.clone()).collect();
        let mut gains = gained(&SweepRow::new(&document), &candidates);
        if of_subject[&subject(index)] > 1 {
            let name = cell.name(&plan.studies[study]);
            gains.iter_mut().for_each(|one| one.case = format!("{} ({name})", one.case));
        }
        let baseline = base.first().map_or_else(String::new, |scheduler| scheduler.label.clone());
        match found.iter_mut().find(|(other, _)| *other == baseline) {
            Some((_, all)) => all.extend(gains),
            None => found.push((baseline, gains)),
        }
    }
    found
}

fn figure_of(drawing: &Drawing, run: &Run, scheduler: usize) -> Option<Figure> {
    let scene = &run.scenes[scheduler];
    let axes = figures::Axes { most_lines: MOST_LINES, ..figures::Axes::of(&run.scenes) };
    match drawing.kind {
        DrawingKind::RunTimeOfApplications => figures::lines::cumulative_by_application(scheduler, scene),
        DrawingKind::RunTimeOfTasks => figures::lines::cumulative(scheduler, scene, &axes),
        DrawingKind::Score => {
            let (_, score) = drawing.of.measure.split_once('.')?;
            let ending = format!("-{}", figures::file_name(score));
            figures::lines::scores(scheduler, scene, &axes).into_iter().find(|figure| figure.id.ends_with(&ending))
        }
        DrawingKind::TasksPerCpu => Some(figures::time::threads_per_cpu(
            scheduler,
            scene,
            &run.disk.experiment.machine_of(scheduler).value,
            &axes,
        )),
        DrawingKind::RunTimePerCpu => {
            let machine = &run.disk.experiment.machine_of(scheduler).value;
            let division = run.disk.virtual_llcs();
            Some(figures::matrix::thread_cpu(scheduler, scene, machine, division.as_ref(), figures::WIDTH))
        }
        DrawingKind::MovesOfVirtualLlcs => {
            figures::matrix::virtual_transitions(scheduler, scene, run.disk.virtual_llcs().as_ref(), &axes)
        }
    }
}

fn write(out: &Path, (study, source): (&str, &str), exhibits: &[(&String, Exhibit)]) -> Result<(), FileError> {
    let directory = out.join("figures");
    create_directory(&directory)?;
    for (name, exhibit) in exhibits {
        let svg = exhibit.figure.svg.standalone(&exhibit.heading);
        write_atomically(&directory.join(format!("{name}.svg")), svg.as_bytes())?;
        write_atomically(&directory.join(format!("{name}.csv")), exhibit.figure.csv.as_bytes())?;
    }
    let introduction = format!("{source} What was published in words, and what the first trial gives.");
    let exhibits: Vec<Exhibit> = exhibits.iter().map(|(_, exhibit)| exhibit.clone()).collect();
    let page = gallery::page(&format!("{study}: figures"), &introduction, &exhibits);
    write_atomically(&out.join(gallery_name(study)), page.as_bytes())
}
