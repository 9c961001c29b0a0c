//! What `study run --out` draws: figures of the sources, from the first trials of their cells.

use std::path::Path;

use warmcore_lab::files::{FileError, create_directory, write_atomically};
use warmcore_report::figures::{self, Figure};
use warmcore_report::gallery::{self, Exhibit};
use warmcore_report::run::{ReportOptions, Run};
use warmcore_study::file::{Drawing, DrawingKind};
use warmcore_study::plan::Plan;

use crate::commands::report::report_failure;
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
        let mut exhibits = Vec::new();
        let mut loaded: Option<(usize, Run)> = None;
        for drawing in &study.drawings {
            let planned = plan.cell(index, None, &drawing.of).ok().and_then(|cell| cell.runs.clone().ok());
            let Some((experiment, scheduler)) = planned else { continue };
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
            exhibits.push((&drawing.name, Exhibit { heading, words: drawing.published.clone(), figure }));
        }
        if !exhibits.is_empty() {
            write(out, (&study.name, &study.source), &exhibits)?;
            pages.push(gallery_name(&study.name));
        }
    }
    Ok(pages)
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
