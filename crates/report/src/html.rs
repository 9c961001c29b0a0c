//! The page: one HTML file that needs nothing else.
//!
//! Words, tables and still figures are written here, so they are there without any script. The script (`web/`, checked in as
//! built) adds sorting, downloads and the interactive views. A content security policy allows this one script and this one style
//! sheet, by their hashes, and no network. Everything that comes from a run is escaped ([`crate::svg::escape`]), and the script
//! puts texts into the page as text only.

mod beside;
mod between;
mod counted;
mod rows;
mod sections;
mod threads;
mod verdict;

use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use warmcore_lab::experiment::TOOL_VERSION;

use crate::figures::{self, Figure};
use crate::pack::{base64, gzip};
use crate::packed;
use crate::rows::cpu_order;
use crate::run::Run;
use crate::svg::escape;
use crate::text;

pub(crate) use rows::drawings;

/// The script, built from `web/src`.
const SCRIPT: &str = include_str!("../../../web/built/report.js");
/// The style sheet, built from `web/src`.
const STYLE: &str = include_str!("../../../web/built/report.css");

/// Bytes up to which a figure's data is offered for download in the page.
const MOST_CSV: usize = 400_000;

/// What the script knows besides the scenes.
#[derive(Serialize)]
struct PageData {
    schema: &'static str,
    colours: crate::colour::Palette,
    runs: Vec<RunDocument>,
}

#[derive(Serialize)]
struct RunDocument {
    name: String,
    machine: CpuColumns,
    /// Identifiers of the elements that hold the scenes.
    scenes: Vec<String>,
    slices: Vec<u64>,
}

#[derive(Serialize)]
struct CpuColumns {
    order: Vec<u32>,
    os: Vec<u32>,
    core: Vec<u32>,
    llc: Vec<u32>,
    node: Vec<u32>,
    socket: Vec<u32>,
    /// The system's numbers of nodes and of sockets, by dense number; empty where these are the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    node_os: Vec<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    socket_os: Vec<u32>,
}

/// The page for these runs.
pub fn page(runs: &[Run]) -> String {
    let mut body = String::new();
    let mut data = String::new();
    let mut documents = Vec::new();
    let mut files: Vec<(String, String)> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        // What is longer is not offered.
        let mut figures = figures::with_data_up_to(run, (figures::WIDTH, figures::PANEL), MOST_CSV);
        files.extend(downloads(index, run, &figures));
        let for_small_screens = figures::of_all_schedulers(run, figures::PANEL).into_iter();
        figures.extend(for_small_screens.map(|figure| Figure { id: figure.id + rows::NARROW, ..figure }));
        sections::run(&mut body, index, runs.len(), run, &figures);
        // The views that can be moved about in show one machine, side by side for all schedulers.
        let shown = if run.has_columns_of_other_machines() { 0 } else { run.scenes.len() };
        let scenes: Vec<String> = (0..shown).map(|scene| format!("scene-{index}-{scene}")).collect();
        for (id, scene) in scenes.iter().zip(&run.scenes) {
            let packed = packed::scene(scene, &run.disk.experiment.machine.value);
            let _ = writeln!(data, "<script type=\"application/octet-stream\" id=\"{id}\">{packed}</script>");
        }
        documents.push(document(run, scenes));
    }
    if runs.len() > 1 {
        between::runs(&mut body, runs);
    }
    let document = PageData { schema: "warmcore-report-2", colours: crate::colour::palette(), runs: documents };
    let json = serde_json::to_string(&document).unwrap_or_default().replace('<', "\\u003c");
    let files = serde_json::to_vec(&files).unwrap_or_default();
    let title = runs.first().map_or_else(String::new, text::question);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data: blob:; \
         style-src '{style_hash}'; script-src '{script_hash}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"warmcore {TOOL_VERSION}\">\n<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n\
         {header}<main id=\"main\">\n{body}</main>\n{footer}\
         <script type=\"application/json\" id=\"report\">{json}</script>\n\
         <script type=\"application/octet-stream\" id=\"files\">{files}</script>\n{data}\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        style_hash = policy_hash(&style()),
        script_hash = policy_hash(SCRIPT),
        title = escape(&title),
        style = style(),
        header = sections::header(runs),
        footer = sections::footer(),
        files = base64(&gzip(&files)),
    )
}

pub(crate) fn style() -> String {
    format!("{STYLE}{}{}", crate::colour::series_style(), crate::colour::dark_style())
}

/// A hash as content security policies name it.
pub(crate) fn policy_hash(text: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(text.as_bytes())))
}

fn document(run: &Run, scenes: Vec<String>) -> RunDocument {
    let machine = &run.disk.experiment.machine.value;
    let column = |value: &dyn Fn(warmcore_topology::CpuId) -> u32| machine.cpus().map(value).collect();
    // Those that are 0, 1, 2, … need no table.
    let numbers = |all: &mut dyn Iterator<Item = u32>| -> Vec<u32> {
        let all: Vec<u32> = all.collect();
        if all.iter().copied().eq(0..all.len() as u32) { Vec::new() } else { all }
    };
    RunDocument {
        name: run.disk.path.display().to_string(),
        slices: run.scenes.iter().map(|scene| scene.record.slice_count).collect(),
        scenes,
        machine: CpuColumns {
            order: cpu_order(machine).iter().map(|cpu| cpu.0).collect(),
            os: column(&|cpu| machine.os_index(cpu)),
            core: column(&|cpu| machine.core_of(cpu).0),
            llc: column(&|cpu| machine.llc_of(cpu).0),
            node: column(&|cpu| machine.node_of(cpu).0),
            socket: column(&|cpu| machine.socket_of(cpu).0),
            node_os: numbers(&mut machine.nodes().map(|node| machine.node_os_index(node))),
            socket_os: numbers(&mut machine.sockets().map(|socket| machine.socket_os_index(socket))),
        },
    }
}

/// Files that a reader can save from the page: name and text.
fn downloads(index: usize, run: &Run, figures: &[Figure]) -> Vec<(String, String)> {
    let mut files = vec![
        (format!("{index}/verdict.json"), warmcore_lab::session::pretty(&run.disk.comparison)),
        (format!("{index}/trials.csv"), sections::trials_csv(run)),
        (format!("{index}/report.md"), text::markdown(std::slice::from_ref(run))),
        (format!("{index}/machine.toml"), warmcore_topology::to_toml(&run.disk.experiment.machine.value)),
    ];
    let small = figures.iter().filter(|figure| figure.csv.len() <= MOST_CSV);
    files.extend(small.map(|figure| (format!("{index}/{}.csv", figure.id), figure.csv.clone())));
    files
}
