//! Reproductions of published results: what somebody measured on real hardware, what the simulator says, and how far
//! apart the two are, row by row.
//!
//! - [`published`]: the figures, as data.
//! - [`check`]: what is simulated for a row, how its figure follows from the trials, and the band it must lie in.
//! - [`run`]: all simulations of a reproduction, in run directories of their own.
//! - [`document`]: the result, with every point.
//! - [`figures`]: the source's figures over time, to be drawn again.
//! - [`sensitivity`]: the same with assumed parameters changed.
//! - One module per source: which simulation stands for which row, and why.
//!
//! Every row of a file appears in the result. A row that cannot be simulated yet says what is missing; a row that some
//! parameter was fitted to is shown and not scored. Bands and predicates are stated with their reason, before the run.

mod cache_aware_slides;
pub mod cdf_dio;
mod characterisation;
pub mod check;
pub mod document;
pub mod figures;
pub mod published;
pub mod run;
pub mod sensitivity;
mod topology_rfc;
mod ule_cfs;

use check::Coverage;
use figures::PublishedFigure;
use published::{PublishedFile, PublishedRow};

/// A published source that can be reproduced, at least in part.
#[derive(Clone, Copy)]
pub struct Reproduction {
    /// Name on the command line, and of the file.
    pub name: &'static str,
    /// What it is about, in a line.
    pub summary: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// The file.
    pub text: &'static str,
    /// What stands for a row.
    pub cover: fn(&PublishedFile, &PublishedRow) -> Coverage,
    /// Part of the ratio rows that change by more than [`CHANGE`] and must have the right sign; `None` if nobody asks.
    pub sign_share: Option<f64>,
    /// Figures of the source that are drawn from the rows' runs.
    pub figures: &'static [PublishedFigure],
}

/// A ratio that is farther from 1 than this has a direction that a reproduction must meet.
pub const CHANGE: f64 = 0.05;

/// The files of published results by name, in the tree and in the program.
pub(crate) const FILES: [(&str, &str); 5] = [
    ("topology-rfc", include_str!("../../../published/topology-rfc.toml")),
    ("cache-aware-slides", include_str!("../../../published/cache-aware-slides.toml")),
    ("characterisation", include_str!("../../../published/characterisation.toml")),
    ("ule-cfs", include_str!("../../../published/ule-cfs.toml")),
    ("cdf-dio", include_str!("../../../published/cdf-dio.toml")),
];

/// All reproductions, in the order of lists.
pub static REPRODUCTIONS: [Reproduction; 5] = [
    Reproduction {
        name: FILES[0].0,
        summary: "aggregation over several LLCs against one, on a 24-LLC server: hackbench, schbench, MySQL",
        source: "[RFC PATCH 0/8] sched: Extend cache-aware scheduling into topology-aware scheduling, 24 June 2026",
        text: FILES[0].1,
        cover: topology_rfc::cover,
        sign_share: Some(0.8),
        figures: &[],
    },
    Reproduction {
        name: FILES[1].0,
        summary: "cache-aware scheduling against EEVDF on a two-socket Xeon",
        source: "Cache Aware Scheduling, T. Chen and C. Yu, Linux Plumbers Conference, Tokyo, December 2025",
        text: FILES[1].1,
        cover: cache_aware_slides::cover,
        sign_share: None,
        figures: &[],
    },
    Reproduction {
        name: FILES[2].0,
        summary: "what one socket against two does to threads that share, on Sapphire Rapids",
        source: "Characterization of Cache Aware Scheduling on Linux, course project paper, 2026",
        text: FILES[2].1,
        cover: characterisation::cover,
        sign_share: None,
        figures: &[],
    },
    Reproduction {
        name: FILES[3].0,
        summary: "CFS of Linux 4.9 against FreeBSD's ULE, on one and on 32 cores",
        source: "The Battle of the Schedulers: FreeBSD ULE vs. Linux CFS, J. Bouron et al., USENIX ATC 2018",
        text: FILES[3].1,
        cover: ule_cfs::cover,
        sign_share: None,
        figures: &ule_cfs::FIGURES,
    },
    Reproduction {
        name: FILES[4].0,
        summary: "placement by recently used cache sets (CDF) against DIO and round robin, on groups of four CPUs",
        source: "NUMA-Aware Task Scheduling Strategy Aiming to Reduce Cache Conflicts, Nolasco, Penna, Freitas",
        text: FILES[4].1,
        cover: cdf_dio::cover,
        sign_share: None,
        figures: &[],
    },
];

/// The reproduction of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Reproduction> {
    REPRODUCTIONS.iter().find(|reproduction| reproduction.name == name)
}
