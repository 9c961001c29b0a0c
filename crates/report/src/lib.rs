//! Reports: what people look at before they read.
//!
//! - [`run`]: a run directory with everything a report shows; [`scene`], [`counters`], [`scores`]: one trial looked at closely.
//! - [`figures`]: every figure as SVG with its data as CSV, without a browser.
//! - [`pdf`]: these figures as PDF.
//! - [`text`]: the verdict as Markdown and as the table of a patch letter. [`verdict`]: as plain text, with its [`table`];
//!   [`trial_text`]: one trial, likewise.
//! - [`html`], [`packed`]: the page: one file, no network, the same figures and the interactive ones.
//! - [`gallery`]: single figures beside words about them, as a page.
//! - [`lesson`]: a few tasks, who is chosen and why, as a page for a class.
//! - [`perfetto`]: one trial as a Perfetto trace, streamed; [`event_lines`]: its events as text;
//!   [`explain`]: its migrations with their decisions; [`history`]: its slices as `perf sched timehist` has them; [`waits`],
//!   [`threads`]: what each thread waited for.
//! - [`svg`], [`scale`], [`colour`], [`pack`], [`rows`], [`units`]: what these stand on.
//!
//! Reads run directories through `lab` and `trace`; returns texts and bytes, and writes no files. Computes no metric and no
//! statistic of its own: a number in a report is a number of the run.

pub mod colour;
pub mod counters;
pub mod event_lines;
pub mod explain;
pub mod figures;
pub mod gallery;
pub mod history;
pub mod html;
pub mod lesson;
pub mod others;
pub mod pack;
pub mod packed;
pub mod pdf;
pub mod perfetto;
pub mod placement;
pub mod printable;
pub mod rows;
pub mod run;
pub mod scale;
pub mod scene;
pub mod scores;
pub mod svg;
pub mod table;
pub mod text;
pub mod threads;
mod throttled;
pub mod trial_text;
pub mod verdict;
pub mod waits;
pub use warmcore_lab::units;
