//! The paper's 37 applications (`docs/spec/ule.md` section 15.2): what stands for each on one core and on 32, or why nothing does.

use super::{CFS, MACHINE, ONE_CORE, ULE};
use crate::reproduce::check::Run;

/// An application.
pub(super) struct Program {
    /// The paper's name, in small letters.
    #[cfg_attr(not(test), expect(dead_code, reason = "the page has it, and a test compares both"))]
    pub name: &'static str,
    /// On one core.
    pub one_core: Model,
    /// On 32 cores.
    pub all_cores: Model,
}

/// What stands for an application.
#[derive(Clone, Copy)]
pub(super) enum Model {
    /// A workload.
    Workload(&'static str),
    /// A workload that binds its threads to the first core of the machine of 32.
    Bound(&'static str),
    /// One thread, alone on the core under either scheduler: fork-join programs have as many threads as there are cores. One workload
    /// is simulated for all of them.
    OneThread,
    /// Nothing, for this reason.
    #[cfg_attr(not(test), expect(dead_code, reason = "the page has it, and a test compares both"))]
    LeftOut(&'static str),
}

use Model::{Bound, LeftOut, OneThread, Workload};

/// The workload of all that are [`OneThread`].
const ONE_THREAD: &str = "forkjoin:-n1,-i100,-w30ms";

const fn program(name: &'static str, one_core: Model, all_cores: Model) -> Program {
    Program { name, one_core, all_cores }
}

/// Why NAS DC is on neither.
const DATA_CUBE: &str =
    "it writes views of a data cube to disk; how long its threads compute between two writes is not published";

/// In the paper's order.
pub(super) static PROGRAMS: [Program; 37] = [
    program("build-apache", Workload("transcode:-j1,-n8"), Workload("ule-cfs/build-apache")),
    program("build-php", Workload("transcode:-j1,-n16"), Workload("ule-cfs/build-php")),
    program("7zip", OneThread, Workload("ule-cfs/7zip")),
    program("gzip", OneThread, Workload("ule-cfs/gzip")),
    program("c-ray", Workload("ule-cfs/c-ray"), Workload("ule-cfs/c-ray")),
    program("dcraw", OneThread, Workload("ule-cfs/dcraw")),
    program("himeno", OneThread, Workload("ule-cfs/himeno")),
    program("hmmer", OneThread, Workload("ule-cfs/hmmer")),
    program(
        "scimark",
        Bound("ule-cfs/scimark"),
        LeftOut("what the Java threads do is assumed for one core; on 32 nothing makes them wait for each other"),
    ),
    program("john", OneThread, Workload("ule-cfs/john")),
    program(
        "apache",
        Bound("ule-cfs/apache-ab"),
        LeftOut("what 100 server threads and one client share on 32 cores is not published"),
    ),
    program("nas-bt", OneThread, Workload("ule-cfs/nas-bt")),
    program("nas-cg", OneThread, Workload("ule-cfs/nas-cg")),
    program("nas-dc", LeftOut(DATA_CUBE), LeftOut(DATA_CUBE)),
    program("nas-ep", OneThread, Workload("ule-cfs/ep")),
    program("nas-ft", OneThread, Workload("ule-cfs/nas-ft")),
    program("nas-is", OneThread, Workload("ule-cfs/nas-is")),
    program("nas-lu", OneThread, Workload("ule-cfs/nas-lu")),
    program("nas-mg", OneThread, Workload("ule-cfs/nas-mg")),
    program("nas-sp", OneThread, Workload("ule-cfs/nas-sp")),
    program("nas-ua", OneThread, Workload("ule-cfs/nas-ua")),
    program(
        "sysbench",
        Workload("sysbench:--test=oltp_read_write,--threads=80,--events=8000"),
        Workload("ule-cfs/sysbench-32"),
    ),
    program("rocksdb", Workload("ule-cfs/rocksdb"), Workload("ule-cfs/rocksdb")),
    program("blackscholes", OneThread, Workload("ule-cfs/blackscholes")),
    program("bodytrack", OneThread, Workload("ule-cfs/bodytrack")),
    program("canneal", OneThread, Workload("ule-cfs/canneal")),
    program("facesim", OneThread, Workload("ule-cfs/facesim")),
    program("ferret", Workload("ule-cfs/ferret"), Workload("ule-cfs/ferret")),
    program("fluidanimate", OneThread, Workload("ule-cfs/fluidanimate")),
    program("freqmine", OneThread, Workload("ule-cfs/freqmine")),
    program("raytrace", OneThread, Workload("ule-cfs/raytrace")),
    program("streamcluster", OneThread, Workload("ule-cfs/streamcluster")),
    program("swaptions", OneThread, Workload("ule-cfs/swaptions")),
    program("vips", OneThread, Workload("ule-cfs/vips")),
    program("x264", Workload("pipeline:-s8,-w5ms,-n400"), Workload("ule-cfs/x264")),
    program(
        "hackbench-800",
        LeftOut("the paper shows hackbench on 32 cores; the smaller of its two sizes stands for both here"),
        Workload("ule-cfs/hackbench-32000"),
    ),
    program("hackbench-10", Workload("hackbench:-T,-p,-f20,-g10,-l20"), Workload("ule-cfs/hackbench-10")),
];

/// Where programs run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cores {
    /// One at a time.
    One,
    /// All 32.
    All,
}

impl Program {
    fn on(&self, cores: Cores) -> Model {
        match cores {
            Cores::One => self.one_core,
            Cores::All => self.all_cores,
        }
    }
}

/// Runs under CFS and ULE of every modelled program, and of how many programs each pair is: those of one thread come first, as one.
pub(super) fn runs(cores: Cores) -> (Vec<Run>, usize) {
    let models = || PROGRAMS.iter().map(move |program| program.on(cores));
    let single = models().filter(|model| matches!(model, OneThread)).count();
    let alone = (single > 0).then_some((ONE_CORE, ONE_THREAD));
    let others = models().filter_map(|model| match model {
        Workload(workload) if cores == Cores::One => Some((ONE_CORE, workload)),
        Workload(workload) | Bound(workload) => Some((MACHINE, workload)),
        OneThread | LeftOut(_) => None,
    });
    let pair = |(machine, workload)| [CFS, ULE].map(|scheduler| Run::new(machine, workload, scheduler));
    (alone.into_iter().chain(others).flat_map(pair).collect(), single)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str) -> String {
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/").to_owned() + path).unwrap()
    }

    /// The names in `docs/spec/ule.md` section 15.2, as the paper gives them, in small letters: `NAS BT CG` are `nas-bt` and `nas-cg`,
    /// PARSEC's programs go by their names alone, and of two sizes each is a program.
    fn names_of_the_specification() -> Vec<String> {
        let text = page("spec/ule.md");
        let (_, section) = text.split_once("### 15.2 The 37 applications").expect("the section is there");
        let list = section.split("Performance =").next().unwrap().replace('\n', " ");
        let mut names = Vec::new();
        for part in list.split([',', ';']).map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once(' ') {
                Some(("NAS", suite)) => {
                    names.extend(suite.split(' ').map(|name| format!("nas-{}", name.to_lowercase())))
                }
                Some(("PARSEC", suite)) => names.extend(suite.split(' ').map(str::to_owned)),
                Some(("hackbench", sizes)) => {
                    let sizes = sizes.split_once("labels ").unwrap().1.split(')').next().unwrap().split(" and ");
                    names.extend(sizes.map(|size| format!("hackbench-{size}")));
                }
                Some((name, _)) => names.push(name.to_owned()),
                None => names.push(part.to_owned()),
            }
        }
        names
    }

    #[test]
    fn each_of_the_37_applications_is_modelled_or_left_out_by_name() {
        let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        assert_eq!(names, names_of_the_specification());
        for workload in PROGRAMS.iter().flat_map(|program| [program.one_core, program.all_cores]) {
            if let Workload(workload) | Bound(workload) = workload {
                let no_files = |_: &str| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
                let made = warmcore_workload::resolve(workload, &Default::default(), no_files);
                assert!(made.is_ok(), "{workload}: {:?}", made.err());
            }
        }
    }

    /// What the page says of each: a row for every program.
    #[test]
    fn the_page_says_of_each_application_what_stands_for_it() {
        let text = page("reproductions.md");
        let cell = |model| match model {
            Workload(workload) | Bound(workload) => format!("`{workload}`"),
            OneThread => "one thread".to_owned(),
            LeftOut(reason) => format!("left out: {reason}"),
        };
        for program in &PROGRAMS {
            let row = format!("| {} | {} | {} |", program.name, cell(program.one_core), cell(program.all_cores));
            assert!(text.contains(&row), "docs/reproductions.md has no row\n{row}");
        }
    }

    #[test]
    fn a_mean_counts_every_modelled_program_once() {
        let counts = [Cores::One, Cores::All].map(|cores| {
            let (runs, single) = runs(cores);
            single + runs.len() / 2 - usize::from(single > 0)
        });
        assert_eq!(counts, [35, 34]);
    }
}
