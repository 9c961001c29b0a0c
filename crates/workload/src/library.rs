//! Workloads with names of their own: files and texts of generators that are shipped with the program.
//!
//! They stand for programs of published experiments. Each file begins with a comment that says of every parameter where it
//! comes from; of a text, [`NamedWorkload::origin`] does.

use crate::generate::{combine, parts};
use crate::{Options, Workload, WorkloadError, from_generator, from_rtapp};

/// A workload with a name.
#[derive(Clone, Copy, Debug)]
pub struct NamedWorkload {
    /// Name on the command line, `PAPER/PROGRAM`.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Where its parameters come from. Of a file, the comment at its beginning says more.
    pub origin: &'static str,
    /// What it is made of.
    pub source: NamedSource,
}

/// What a named workload is made of.
#[derive(Clone, Copy, Debug)]
pub enum NamedSource {
    /// The text of a file in rt-app's format.
    File(&'static str),
    /// A text as typed on the command line: generators and other names, joined by `+`.
    Text(&'static str),
}

const FILE: &str = "its comment";

macro_rules! file {
    ($name:literal, $summary:literal) => {
        NamedWorkload {
            name: $name,
            summary: $summary,
            origin: FILE,
            source: NamedSource::File(include_str!(concat!("../../../workloads/", $name, ".json"))),
        }
    };
}

const fn text(name: &'static str, summary: &'static str, text: &'static str, origin: &'static str) -> NamedWorkload {
    NamedWorkload { name, summary, origin, source: NamedSource::Text(text) }
}

/// NAS benchmarks on 32 threads: iterations as in class C of NPB 3.3, seconds in all assumed.
const NAS: &str = "number of iterations from NPB 3.3, class C, barriers that spin for 100 ms and then sleep from the paper; time of \
                   an iteration assumed";
/// PARSEC's programs.
const PARSEC: &str = "Bienia et al., The PARSEC Benchmark Suite, PACT 2008: how threads share the work; times assumed";
/// Programs that are one computation.
const ONE: &str = "one thread that computes; time assumed";

/// All of them, by paper and in that paper's order.
pub static LIBRARY: [NamedWorkload; 46] = [
    file!("lesson/three-tasks", "two tasks that compute and one that runs briefly and sleeps"),
    file!("ule-cfs/fibo-sysbench", "one core: fibo alone for 7 s, then sysbench and MySQL next to it"),
    file!("ule-cfs/fibo-to-the-end", "the same until fibo is done: what its work costs in CPU time"),
    file!("ule-cfs/sysbench-128", "one core: a busy master makes 128 database threads"),
    file!("ule-cfs/scimark", "one core: a Java thread computes next to threads of its virtual machine"),
    file!("ule-cfs/apache-ab", "one core: ab keeps 100 requests open at 100 threads of Apache"),
    text(
        "ule-cfs/unpin-512",
        "512 hogs on CPU 0, set free after 14.5 s",
        "spin:-n512,-p0,-u14.5s,-d270s",
        "number, core and 14.5 s from the paper; 270 s hold ULE's 240 s",
    ),
    file!("ule-cfs/c-ray", "512 threads at a cascading barrier"),
    file!("ule-cfs/kernel-noise", "short kernel threads on each of 32 CPUs"),
    text(
        "ule-cfs/nas-mg",
        "NAS MG on 32 threads, with kernel threads next to it",
        "forkjoin:-n32,-i200,-w10ms,-bspin-then-block:100ms,--profile=nas-mg+ule-cfs/kernel-noise",
        "20 iterations of class C with some 10 barriers each, spinning for 100 ms from the paper; 10 ms between barriers assumed",
    ),
    file!("ule-cfs/sysbench-32", "32 cores: database threads that run and sleep briefly"),
    text(
        "ule-cfs/hackbench-32000",
        "hackbench with 32,000 threads",
        "hackbench:-T,-p,-f20,-g800,-l3",
        "800 groups of 40 threads, the paper's label; 3 loops assumed",
    ),
    text(
        "ule-cfs/hackbench-10",
        "hackbench with 10 groups",
        "hackbench:-T,-p,-f20,-g10,-l100",
        "the paper's label; loops are hackbench's own",
    ),
    file!("ule-cfs/fibo-sysbench-32", "32 cores: a hog on each, and a database with one lock"),
    file!("ule-cfs/ferret", "PARSEC ferret: a pipeline of six stages"),
    text(
        "ule-cfs/blackscholes",
        "PARSEC blackscholes: equal parts, one join",
        "forkjoin:-n32,-i1,-w3s",
        "PARSEC: every thread prices its own part of the options, no barrier within; time assumed",
    ),
    text("ule-cfs/ep", "NAS EP: random numbers, one join", "forkjoin:-n32,-i1,-w16s", NAS),
    text(
        "ule-cfs/build-apache",
        "make: short compilers, 32 at a time",
        "transcode:-j32,-n8",
        "as many jobs as cores; each a chain of short processes, assumed",
    ),
    text(
        "ule-cfs/build-php",
        "make: longer compilers, 32 at a time",
        "transcode:-j32,-n16",
        "as build-apache, with more processes a job; assumed",
    ),
    text(
        "ule-cfs/7zip",
        "7-Zip: threads that compress blocks and meet",
        "forkjoin:-n32,-i40,-w50ms,-m20%",
        "7-Zip's LZMA benchmark: a thread per core, blocks; 50 ms and unequal blocks assumed",
    ),
    text("ule-cfs/gzip", "gzip: one thread", "spin:-n1,-d3s,--profile=spin", ONE),
    text("ule-cfs/dcraw", "dcraw: one thread", "spin:-n1,-d3s,--profile=spin", ONE),
    text(
        "ule-cfs/himeno",
        "Himeno: one thread over a grid",
        "forkjoin:-n1,-i100,-w30ms,--profile=nas-mg",
        "one thread, a stencil; iterations assumed",
    ),
    text(
        "ule-cfs/hmmer",
        "HMMER: workers that search parts of a database",
        "forkjoin:-n32,-i20,-w80ms,-m30%",
        "workers over parts of unequal length; assumed",
    ),
    text(
        "ule-cfs/john",
        "John the Ripper: a thread per core that tries passwords",
        "forkjoin:-n32,-i30,-w100ms",
        "OpenMP, a join after each batch of candidates; 100 ms assumed",
    ),
    text(
        "ule-cfs/rocksdb",
        "RocksDB: readers with short waits",
        "periodic:-n64,-r40us,-s120us,-d2s",
        "64 readers; 40 us a request and 120 us of waiting assumed",
    ),
    text("ule-cfs/nas-bt", "NAS BT", "forkjoin:-n32,-i200,-w10ms,-bspin-then-block:100ms", NAS),
    text("ule-cfs/nas-cg", "NAS CG", "forkjoin:-n32,-i1875,-w1ms,-bspin-then-block:100ms", NAS),
    text("ule-cfs/nas-ft", "NAS FT", "forkjoin:-n32,-i80,-w25ms,-bspin-then-block:100ms", NAS),
    text("ule-cfs/nas-is", "NAS IS", "forkjoin:-n32,-i30,-w20ms,-bspin-then-block:100ms", NAS),
    text("ule-cfs/nas-lu", "NAS LU", "forkjoin:-n32,-i1000,-w2ms,-bspin-then-block:100ms", NAS),
    text("ule-cfs/nas-sp", "NAS SP", "forkjoin:-n32,-i400,-w5ms,-bspin-then-block:100ms", NAS),
    text("ule-cfs/nas-ua", "NAS UA", "forkjoin:-n32,-i1000,-w2ms,-m25%,-bspin-then-block:100ms", NAS),
    text(
        "ule-cfs/bodytrack",
        "PARSEC bodytrack: short parallel parts of a frame",
        "forkjoin:-n32,-i400,-w4ms,-m10%",
        PARSEC,
    ),
    text(
        "ule-cfs/canneal",
        "PARSEC canneal: steps of temperature",
        "forkjoin:-n32,-i32,-w60ms,--profile=canneal",
        PARSEC,
    ),
    text("ule-cfs/facesim", "PARSEC facesim: tasks of a frame", "forkjoin:-n32,-i300,-w6ms,-m20%", PARSEC),
    text(
        "ule-cfs/fluidanimate",
        "PARSEC fluidanimate: five barriers a frame",
        "forkjoin:-n32,-i500,-w4ms,-m10%",
        PARSEC,
    ),
    text("ule-cfs/freqmine", "PARSEC freqmine: OpenMP loops", "forkjoin:-n32,-i20,-w100ms,-m20%", PARSEC),
    text("ule-cfs/raytrace", "PARSEC raytrace: frames by tiles", "forkjoin:-n32,-i200,-w10ms,-m20%", PARSEC),
    text(
        "ule-cfs/streamcluster",
        "PARSEC streamcluster: very many barriers",
        "forkjoin:-n32,-i4000,-w500us,--profile=streamcluster",
        PARSEC,
    ),
    text("ule-cfs/swaptions", "PARSEC swaptions: independent simulations", "forkjoin:-n32,-i1,-w2s", PARSEC),
    text("ule-cfs/vips", "PARSEC vips: a pool of threads over tiles", "forkjoin:-n32,-i1000,-w2ms,-m20%", PARSEC),
    text("ule-cfs/x264", "PARSEC x264: frames that follow each other", "pipeline:-s32,-w5ms,-n400", PARSEC),
    text("ule-cfs/c-ray-ep", "c-ray next to NAS EP", "ule-cfs/c-ray+ule-cfs/ep", "both parts"),
    text(
        "ule-cfs/blackscholes-ferret",
        "blackscholes beside ferret",
        "ule-cfs/blackscholes+ule-cfs/ferret",
        "both parts",
    ),
    file!("ule-cfs/apache-sysbench-32", "32 cores: Apache and ab next to database threads"),
];

/// A named workload.
pub fn named(name: &str) -> Option<&'static NamedWorkload> {
    LIBRARY.iter().find(|entry| entry.name == name)
}

impl NamedWorkload {
    /// The workload, with its name as its own.
    ///
    /// # Errors
    /// Those of the text it is made of: none, as the tests see to.
    pub fn make(&self, options: &Options<'_>) -> Result<Workload, WorkloadError> {
        match self.source {
            NamedSource::File(text) => from_rtapp(self.name, text, options),
            NamedSource::Text(text) => {
                let part = |part: &&str| named(part).map_or_else(|| from_generator(part), |entry| entry.make(options));
                Ok(combine(self.name, parts(text).iter().map(part).collect::<Result<Vec<_>, _>>()?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_workload_can_be_made_and_checked() {
        for entry in &LIBRARY {
            let workload = entry.make(&Options::default()).unwrap_or_else(|error| panic!("{}: {error}", entry.name));
            workload.check().unwrap_or_else(|error| panic!("{}: {error}", entry.name));
            assert_eq!(workload.name, entry.name);
        }
    }

    #[test]
    fn names_are_unique_and_tell_paper_and_program() {
        for (index, entry) in LIBRARY.iter().enumerate() {
            assert!(LIBRARY[..index].iter().all(|other| other.name != entry.name), "{}", entry.name);
            assert_eq!(entry.name.split('/').count(), 2, "{}", entry.name);
        }
    }

    #[test]
    fn every_file_says_where_its_parameters_come_from() {
        for entry in &LIBRARY {
            let NamedSource::File(text) = entry.source else { continue };
            let comment = text.split("*/").next().unwrap_or_default();
            assert!(comment.contains("/*") && comment.contains("Assumed:"), "{}", entry.name);
        }
    }
}
