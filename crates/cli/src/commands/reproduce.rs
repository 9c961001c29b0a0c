//! The program of `study run papers/cdf-dio`, which is no machine, workload and scheduler: its figures by name, for the rows of studies; and in a
//! directory a table, of the paper's own experiment of all readings, the paper's figures drawn from it, and a search for workloads in which CDF is the best.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;
use warmcore_cdf_dio::experiment::{self, Experiment};
use warmcore_cdf_dio::search::{Judged, candidates, judge, screen};
use warmcore_cdf_dio::workload::Accesses;
use warmcore_cdf_dio::{READINGS, SKEWS, SkewRow, TableRow, skews, strategies, table};
use warmcore_lab::experiment::trial_seeds;
use warmcore_lab::files::{create_directory, write_atomically};
use warmcore_lab::session::pretty;
use warmcore_report::figures::{Csv, against};
use warmcore_report::gallery::{self, Exhibit};
use warmcore_schedulers::contention::ContentionError;
use warmcore_study::file::{Contention, Study};
use warmcore_study::judge::asked_of_program;

use crate::failure::Failure;

/// Workloads that figures are medians over, if nothing else is asked for.
pub const TRIALS: u32 = 20;
/// What a study calls the program.
pub const PROGRAM: &str = "cdf-dio";
/// What the seeds of workloads are derived from.
const SEED: u64 = 1;

/// Where it was published.
const SOURCE: &str = "NUMA-Aware Task Scheduling Strategy Aiming to Reduce Cache Conflicts, Nolasco, Penna, Freitas";

/// What a study asks of the program.
pub struct Program {
    /// For each combination of values of its axes.
    asked_for: Vec<Asked>,
    /// Names of the figures that its rows are of.
    asked: BTreeSet<String>,
}

struct Asked {
    /// The values, such as `skew=0.5`; empty without axes.
    name: String,
    experiment: Experiment,
    /// The threads of its trace.
    traced: Option<Accesses>,
}

impl Program {
    /// Reads the study's trace and checks the names of its figures.
    ///
    /// # Errors
    /// When the trace cannot be read, makes too many accesses, or a figure is none.
    pub fn of(study: &Study) -> Result<Self, Failure> {
        let asked_for = study.contentions.iter().map(|of| asked(study, of)).collect::<Result<Vec<_>, _>>()?;
        // Tolerances, on which names depend, are the same in all.
        let known = asked_for.first().map(|of| of.experiment.figures()).unwrap_or_default();
        let asked = asked_of_program(study, &known).map_err(|error| {
            let words = "figures are QUANTITY_STRATEGY_DISPATCHER, such as l2_hit_rate_cdf_0.7_queue, or the paper's";
            Failure::usage("warmcore::study", error).help(words)
        })?;
        Ok(Self { asked_for, asked })
    }

    /// The figures that the study's rows are of, in each trial, for each combination of values of its axes.
    ///
    /// # Errors
    /// When tasks have more pages than the paper's memory.
    pub fn figures(&self, trials: u32) -> Result<Vec<BTreeMap<String, Vec<f64>>>, Failure> {
        let seeds = trial_seeds(SEED, trials);
        let of = |of: &Asked| experiment::figures(&self.asked, &of.experiment, &seeds, of.traced.as_ref());
        let figures = self.asked_for.iter().map(of);
        figures.map(|figures| figures.map_err(|error| Failure::failed("warmcore::reproduce", error))).collect()
    }

    /// Computes the table and writes it, with axes one in a directory for each combination of their values; in the paper's own experiment that
    /// of all its readings, other skews, the search, and its figures.
    ///
    /// # Errors
    /// When files cannot be written.
    pub fn write(&self, out: &Path, trials: u32, jobs: usize) -> Result<(), Failure> {
        let seeds = trial_seeds(SEED, if trials < ENOUGH { trials } else { trials.max(SEEDS) });
        for Asked { name, experiment, traced } in &self.asked_for {
            if name.is_empty() && traced.is_none() && *experiment == Experiment::default() {
                return write_paper(experiment, out, &seeds, jobs);
            }
            let strategies = experiment.strategies();
            let part = |index: usize| table(experiment, &strategies, READINGS[index], &seeds, traced.as_ref());
            let out = out.join(name);
            create_directory(&out)?;
            // The paper's caches and addresses under both dispatchers.
            write_table(&on_threads(2, jobs, part)?.concat(), &out)?;
        }
        Ok(())
    }
}

/// What one combination of values of axes asks; reads the study's trace.
fn asked(study: &Study, of: &Contention) -> Result<Asked, Failure> {
    let paper = Experiment::default();
    let (cpus, cpus_per_group) = of.cpus.unwrap_or((paper.cpus, paper.cpus_per_group));
    let experiment = Experiment {
        tasks: of.tasks.unwrap_or(paper.tasks),
        accesses: of.accesses.unwrap_or(paper.accesses),
        skew: of.skew.unwrap_or(paper.skew),
        cpus,
        cpus_per_group,
        tolerances: of.tolerances.clone().unwrap_or(paper.tolerances),
    };
    let path = study.trace.as_ref().map(|trace| study.path.parent().unwrap_or(Path::new("")).join(trace));
    let traced = path.map(|path| {
        let refused = |error: &dyn std::fmt::Display| {
            Failure::usage("warmcore::trace", format!("{}: {error}", path.display()))
                .help("a trace is what `warmcore memory --trace FILE` reads: text, binary, or of Valgrind's lackey")
        };
        let file = File::open(&path).map_err(|error| refused(&error))?;
        Accesses::traced(BufReader::new(file), experiment.tasks).map_err(|error| refused(&error))
    });
    let name = of.chosen.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    Ok(Asked { name, experiment, traced: traced.transpose()? })
}

/// Seeds of the table where as many trials are asked for as have intervals.
const SEEDS: u32 = 20;
/// Trials from which on there are intervals.
const ENOUGH: u32 = 8;

/// The paper's figures: what each shows, and the column that it is drawn from.
const FIGURES: [(&str, &str, &str, &str); 3] = [
    (
        "figure-3",
        "L2 hit rate over that of round robin",
        "L2 hit rate",
        "Hit rates over those of round robin: L1 about 1; L2 up to 1.17 for DIO and 1.26 for CDF, every CDF above DIO.",
    ),
    (
        "figure-4",
        "Variation of the groups' loads over that of round robin",
        "load variation",
        "All are worse than round robin, DIO the worst; the best CDF is 18 % below DIO.",
    ),
    (
        "figure-5",
        "99th percentile of waits over that of round robin",
        "wait p99 ms",
        "Round robin is the best; CDF 0.3 the best of the others, at about 1.17, 14 % below DIO.",
    ),
];

fn write_table(rows: &[TableRow], out: &Path) -> Result<(), Failure> {
    write_atomically(&out.join("table.csv"), csv(rows).as_bytes())?;
    write_atomically(&out.join("table.md"), markdown(rows).as_bytes())?;
    Ok(write_atomically(&out.join("table.json"), json(rows).as_bytes())?)
}

/// The paper's own table, search, skews and figures.
fn write_paper(experiment: &Experiment, out: &Path, seeds: &[u64], jobs: usize) -> Result<(), Failure> {
    let strategies = strategies();
    let part = |index: usize| table(experiment, &strategies, READINGS[index], seeds, None);
    let rows = on_threads(READINGS.len(), jobs, part)?.concat();
    write_table(&rows, out)?;
    if seeds.len() >= ENOUGH as usize {
        let judged = searched(SEED, jobs)?;
        write_atomically(&out.join("search.md"), search_table(&judged).as_bytes())?;
    }
    let skewed = on_threads(SKEWS.len(), jobs, |index| skews(SKEWS[index], seeds))?.concat();
    write_atomically(&out.join("skews.csv"), skews_csv(&skewed).as_bytes())?;
    let exhibits: Vec<Exhibit> = FIGURES.iter().map(|figure| exhibit(&rows, figure)).collect();
    create_directory(&out.join("figures"))?;
    for exhibit in &exhibits {
        let path = |ending: &str| out.join("figures").join(format!("{}.{ending}", exhibit.figure.id));
        write_atomically(&path("svg"), exhibit.figure.svg.standalone(&exhibit.heading).as_bytes())?;
        write_atomically(&path("csv"), exhibit.figure.csv.as_bytes())?;
    }
    let introduction = format!(
        "{SOURCE}. What was published in words, and ours with the dispatcher of the published program, which waits, and with one that does not."
    );
    let page = gallery::page("cdf-dio: figures", &introduction, &exhibits);
    write_atomically(&out.join("figures.html"), page.as_bytes())?;
    Ok(())
}

/// L2 hit rates by the exponent of Zipf's law: 1 is the paper's.
fn skews_csv(rows: &[SkewRow]) -> String {
    let mut text = String::from("exponent,dispatcher,RR,DIO,CDF 0.7\n");
    for SkewRow { exponent, dispatch, l2_hit_rates: [rr, dio, cdf] } in rows {
        text.push_str(&format!("{exponent},{dispatch},{rr:.6},{dio:.6},{cdf:.6}\n"));
    }
    text
}

/// The table as JSON; an interval of 0 is none, or that of equal values.
fn json(rows: &[TableRow]) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: &'static str,
        rows: Vec<ScoredRow<'a>>,
    }
    #[derive(Serialize)]
    struct ScoredRow<'a> {
        caches: &'a str,
        addresses: &'a str,
        dispatcher: &'a str,
        strategy: &'a str,
        decisions: f64,
        values: BTreeMap<&'a str, ScoredValue>,
    }
    #[derive(Serialize)]
    struct ScoredValue {
        mean: f64,
        half_interval: f64,
    }
    fn row(row: &TableRow) -> ScoredRow<'_> {
        let value =
            |(name, mean, half): &(&'static str, f64, f64)| (*name, ScoredValue { mean: *mean, half_interval: *half });
        ScoredRow {
            caches: row.geometry,
            addresses: row.addresses,
            dispatcher: row.dispatch,
            strategy: &row.strategy,
            decisions: row.decisions,
            values: row.values.iter().map(value).collect(),
        }
    }
    pretty(&Document { schema: "warmcore-cdf-dio-table-1", rows: rows.iter().map(row).collect() })
}

/// Parts that do not depend on each other, in order, on several threads.
fn on_threads<T: Send>(
    parts: usize,
    jobs: usize,
    part: impl Fn(usize) -> Result<T, ContentionError> + Sync + Send,
) -> Result<Vec<T>, Failure> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.clamp(1, parts.max(1))).build();
    let pool = pool.map_err(|error| Failure::failed("warmcore::reproduce", error))?;
    let found: Result<Vec<T>, ContentionError> = pool.install(|| (0..parts).into_par_iter().map(part).collect());
    found.map_err(|error| Failure::failed("warmcore::reproduce", error))
}

/// Seeds with which the search looks at everything, pairs that it judges, and seeds with which it does.
const SCREENED_WITH: u32 = 2;
const JUDGED: usize = 12;
const JUDGED_WITH: u32 = 20;

/// Looks for workloads in which CDF is the best, and judges those that promise most with other seeds.
fn searched(seed: u64, jobs: usize) -> Result<Vec<Judged>, Failure> {
    let all = candidates();
    let seeds = trial_seeds(seed, SCREENED_WITH + JUDGED_WITH);
    let (few, fresh) = seeds.split_at(SCREENED_WITH as usize);
    let screened = on_threads(all.len(), jobs, |index| screen(&all[index], few))?;
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| screened[*a].1.total_cmp(&screened[*b].1));
    order.truncate(JUDGED);
    on_threads(order.len(), jobs, |place| {
        let (rule, seen) = &screened[order[place]];
        judge(&all[order[place]], rule, *seen, fresh)
    })
}

fn search_table(judged: &[Judged]) -> String {
    let mut text = format!(
        "The {} of {} workloads in which a CDF promised most with {SCREENED_WITH} seeds, judged with {JUDGED_WITH} others, paired. The ratios: \
         mean time of an access over that of each other strategy, then the end of the last task over theirs. The last ones are the mean time \
         of an access over that of `fewest-tasks` if tasks of equal kind are kept apart, or together, for good. {} of the workloads are below \
         all three strategies by more than the interval.\n\n| workload | CDF | seen | over `fewest-tasks` | over DIO as coded | over DIO as published | makespan over the \
         same three | equal kinds apart, together | best |\n|---|---|--:|--:|--:|--:|---|---|---|\n",
        judged.len(),
        candidates().len(),
        judged.iter().filter(|row| row.beats_all()).count()
    );
    for row in judged {
        let access = row.access_over.map(|(ratio, half)| format!("{ratio:.4} ± {half:.4}")).join(" | ");
        let makespan = row.makespan_over.map(|(ratio, half)| format!("{ratio:.3} ± {half:.3}")).join(", ");
        let bounds = row.apart_and_together.map(|(ratio, half)| format!("{ratio:.4} ± {half:.4}")).join(", ");
        let best = if row.beats_all() { "yes" } else { "no" };
        text.push_str(&format!(
            "| {} | {} | {:.4} | {access} | {makespan} | {bounds} | {best} |\n",
            row.workload, row.rule, row.seen
        ));
    }
    text
}

fn csv(rows: &[TableRow]) -> String {
    let values = rows.first().map_or(&[][..], |row| &row.values);
    let names: Vec<String> =
        values.iter().flat_map(|(name, ..)| [(*name).to_owned(), format!("{name} half interval")]).collect();
    let mut heading = vec!["caches", "addresses", "dispatcher", "strategy"];
    heading.extend(names.iter().map(String::as_str));
    let mut csv = Csv::new(&heading);
    for row in rows {
        let mut cells =
            vec![row.geometry.to_owned(), row.addresses.to_owned(), row.dispatch.to_owned(), row.strategy.clone()];
        cells.extend(row.values.iter().flat_map(|(_, value, half)| [value.to_string(), half.to_string()]));
        csv.row(&cells);
    }
    csv.finish()
}

fn markdown(rows: &[TableRow]) -> String {
    let mut text = String::new();
    let mut before = None;
    for row in rows {
        let reading = (row.geometry, row.addresses, row.dispatch);
        if before != Some(reading) {
            before = Some(reading);
            text.push_str(&format!(
                "\n### caches of the {}, {}, {} dispatcher\n\n| strategy |",
                row.geometry, row.addresses, row.dispatch
            ));
            row.values.iter().for_each(|(name, ..)| text.push_str(&format!(" {name} |")));
            text.push_str(&format!("\n|---|{}\n", "--:|".repeat(row.values.len())));
        }
        text.push_str(&format!("| {} |", row.strategy));
        for (_, value, half) in &row.values {
            let digits = if *value < 1.0 { 4 } else { 2 };
            let interval = if *half > 0.0 { format!(" ± {half:.digits$}") } else { String::new() };
            text.push_str(&format!(" {value:.digits$}{interval} |"));
        }
        text.push('\n');
    }
    text
}

/// A column of the paper's caches and addresses over round robin's, with both dispatchers.
fn exhibit(rows: &[TableRow], (id, title, column, published): &(&str, &str, &str, &str)) -> Exhibit {
    let value =
        |row: &TableRow| row.values.iter().find(|(name, ..)| name == column).map_or((0.0, 0.0), |(_, v, h)| (*v, *h));
    let of = |dispatch: &str| -> Vec<&TableRow> {
        let ours = |row: &&TableRow| (row.geometry, row.addresses, row.dispatch) == ("paper", "page-aligned", dispatch);
        rows.iter().filter(ours).collect()
    };
    let mut candidates: Vec<String> = Vec::new();
    let mut all: Vec<against::Series> = Vec::new();
    for (name, dispatch) in [("dispatcher that waits", "blocking"), ("dispatcher with queues", "queue")] {
        let rows = of(dispatch);
        let Some((baseline, _)) = rows.iter().find(|row| row.strategy == "rr").map(|row| value(row)) else { continue };
        let others: Vec<&&TableRow> = rows.iter().filter(|row| row.strategy != "rr").collect();
        candidates =
            others.iter().map(|row| row.strategy.replace(":coded", "").replace("published", "publ.")).collect();
        let ratios = others.iter().map(|row| value(row)).map(|(value, half)| (value / baseline, half / baseline));
        all.push((name.to_owned(), ratios.collect()));
    }
    Exhibit {
        heading: format!("{}: {title}", id.replace("figure-", "Figure ")),
        words: (*published).to_owned(),
        figure: against::baseline(id, title, "over round robin", &candidates, &all),
        narrow: None,
    }
}
