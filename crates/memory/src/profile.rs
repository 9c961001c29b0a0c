//! The memory profile of a task or of one of its phases: a mixture of line classes (`docs/spec/memory-model.md` section
//! 2).
//!
//! A class is a set of cache lines that are touched at random, or in cyclic order, at a constant rate per instruction. A
//! *touch* is an access to another line of the class than the last one, so runs within a line count once. Rates are per
//! touch, not per load or store.
//!
//! Not described: which lines follow each other beyond "random" and "scan", and change over time within a profile.

use std::borrow::Cow;

use thiserror::Error;

use crate::hierarchy::Hierarchy;

/// Instructions per nanosecond that a running thread is taken to execute where a profile's rates, which are per instruction, are to be
/// rates in time and no model says how fast it runs: how soon it touches the pages of a region again. Assumed: between one and three
/// instructions per cycle at two to four GHz programs with large memory reach a quarter to a half.
pub const NOMINAL_INSTRUCTIONS_PER_NS: f64 = 1.0;

/// Most classes of a profile: the models' per-task state has this many entries.
pub const MAX_CLASSES: usize = 8;

/// Who touches the lines of a class.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Sharing {
    /// The task alone: every task with the profile has lines of its own.
    #[default]
    Private,
    /// All tasks of the process whose profile has a shared class of this name: the threads share the lines.
    Process,
    /// All members of a data group: of the named one, or of the only one the task belongs to.
    Data(Option<String>),
}

/// The tasks that share a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The threads of a process, by its number.
    Process(u32),
    /// The members of a data group, by its number.
    Data(u32),
}

/// On which NUMA nodes the pages of a class are.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Home {
    /// On the node where the task first ran.
    #[default]
    FirstTouch,
    /// Equally on all nodes with CPUs.
    Interleave,
    /// Shares by node, which sum to 1.
    Shares(Vec<f64>),
}

/// In what order the lines of a class are touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClassKind {
    /// Independent references, all lines alike.
    #[default]
    Random,
    /// From the first to the last and again.
    Scan,
}

/// A set of lines and how it is used.
#[derive(Clone, PartialEq, Debug)]
pub struct Class {
    /// Name, for messages and to tell shared classes apart: threads share classes of equal names.
    pub name: String,
    /// Size in bytes, W times the line size. At least 1.
    pub bytes: u64,
    /// Line touches per instruction, q. Above 0 and at most 1.
    pub touches_per_instruction: f64,
    /// Share of the touches that write, w, 0 to 1.
    pub write_fraction: f64,
    /// Who touches the lines.
    pub sharing: Sharing,
    /// Where their pages are.
    pub home: Home,
    /// Part of a miss's latency that prefetching does not hide, e: 1 for a pointer chase, 0.1 to 0.3 for a stream.
    pub exposure: f64,
    /// Order of the touches.
    pub kind: ClassKind,
    /// The lines are instructions: fetched through the L1 for instructions instead of that for data, and never written. The core
    /// waits for the part `exposure` of each fetch that misses it, whatever else is under way.
    pub code: bool,
}

impl Class {
    /// A private, randomly touched class with exposure 1.
    pub fn new(name: impl Into<String>, bytes: u64, touches_per_instruction: f64, write_fraction: f64) -> Self {
        Self {
            name: name.into(),
            bytes,
            touches_per_instruction,
            write_fraction,
            sharing: Sharing::Private,
            home: Home::FirstTouch,
            exposure: 1.0,
            kind: ClassKind::Random,
            code: false,
        }
    }

    /// Instructions of a program, fetched at random, which the threads of a process share.
    pub fn of_code(name: impl Into<String>, bytes: u64, touches_per_instruction: f64) -> Self {
        Self { sharing: Sharing::Process, code: true, ..Self::new(name, bytes, touches_per_instruction, 0.0) }
    }

    /// Number of lines of `line_bytes` bytes, W.
    pub fn lines(&self, line_bytes: u32) -> f64 {
        (self.bytes as f64 / f64::from(line_bytes)).max(1.0)
    }

    /// Who shares the lines, for a task of a process that belongs to data groups (number and name); `None` if nobody does. A class shared by data
    /// group is the process's where the task is in no such group.
    pub fn scope(&self, process: u32, data: &[(u32, &str)]) -> Option<Scope> {
        let group = match &self.sharing {
            Sharing::Private => return None,
            Sharing::Process => None,
            Sharing::Data(None) => data.first(),
            Sharing::Data(Some(name)) => data.iter().find(|(_, known)| known == name),
        };
        Some(group.map_or(Scope::Process(process), |group| Scope::Data(group.0)))
    }

    /// Whether several tasks may touch the lines.
    pub fn is_shared(&self) -> bool {
        self.sharing != Sharing::Private
    }
}

/// What a task does to memory, and how fast it would run without it.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Name.
    pub name: String,
    /// One line for lists; may be empty.
    pub summary: String,
    /// Where the numbers come from: a source's tag, `assumed`, `fitted`, …; may be empty.
    pub origin: String,
    /// Cycles per instruction of the core alone, everything in L1.
    pub cpi0: f64,
    /// Mean number of demand misses in flight while the task waits for one. At least 1.
    pub mlp: f64,
    /// Most instructions per cycle, if the core alone does not say it.
    pub ipc_ceiling: Option<f64>,
    /// Cache lines that a message through a pipe is waited for, both sides together; `None` takes the machine's value.
    pub message_lines: Option<u32>,
    /// Line classes: those of data, small to large by convention, then those of code.
    pub classes: Vec<Class>,
}

/// A profile that cannot be.
#[derive(Clone, PartialEq, Debug, Error)]
#[error("memory profile `{profile}`{}: {problem}", class.as_ref().map(|name| format!(", class `{name}`")).unwrap_or_default())]
pub struct ProfileError {
    /// The profile.
    pub profile: String,
    /// The class, if it is one.
    pub class: Option<String>,
    /// What is wrong.
    pub problem: ProfileProblem,
}

/// What is wrong with a profile.
#[derive(Clone, PartialEq, Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ProfileProblem {
    #[error("{field} is {value}, but must be {allowed}")]
    Range { field: &'static str, value: f64, allowed: &'static str },
    #[error("the home shares sum to {sum}, not to 1")]
    HomeSum { sum: f64 },
    /// Home shares for nodes that the machine lacks, or not for all that it has.
    #[error("it has home shares for {given} nodes, but the machine has {nodes}")]
    HomeNodes { given: usize, nodes: usize },
    #[error("its classes touch {sum} lines per instruction in all; at most 1 is possible")]
    TouchSum { sum: f64 },
    #[error("it has {count} classes, at most {MAX_CLASSES} are possible; merge similar ones")]
    TooManyClasses { count: usize },
    #[error("it has no classes of data; a task without memory accesses has one tiny class")]
    NoClasses,
    #[error("it follows a class of code; put classes of data first")]
    DataAfterCode,
    #[error("the name is used by two classes; names must differ")]
    DuplicateClass,
    #[error("the name is used by two profiles; names must differ")]
    DuplicateProfile,
    #[error(
        "a shared class cannot be a scan; the coherence model knows independent touches only; write sharing = \"private\""
    )]
    SharedScan,
}

/// How far home shares may be from summing to 1.
const SHARE_TOLERANCE: f64 = 1e-6;

impl Profile {
    /// A profile with the core's cycles per instruction, the misses in flight and the classes alone.
    pub fn new(name: impl Into<String>, cpi0: f64, mlp: f64, classes: Vec<Class>) -> Self {
        Self {
            name: name.into(),
            summary: String::new(),
            origin: String::new(),
            cpi0,
            mlp,
            ipc_ceiling: None,
            message_lines: None,
            classes,
        }
    }

    /// Whether it has classes of lines to touch. Profiles without are made by
    /// [`library::computing`](crate::library::computing) alone; [`Profile::check`] refuses them.
    pub fn touches_memory(&self) -> bool {
        !self.classes.is_empty()
    }

    /// Refuses what no model can use.
    ///
    /// # Errors
    /// The first thing found, with its class.
    pub fn check(&self) -> Result<(), ProfileError> {
        let fail = |class: Option<&Class>, problem| {
            Err(ProfileError { profile: self.name.clone(), class: class.map(|class| class.name.clone()), problem })
        };
        let range = |field, value: f64, least: f64, most: f64, allowed| {
            // Written so that NaN fails.
            if value >= least && value <= most { Ok(()) } else { Err(ProfileProblem::Range { field, value, allowed }) }
        };
        let core = range("cpi0", self.cpi0, 0.05, 100.0, "0.05 to 100 cycles")
            .and_then(|()| range("mlp", self.mlp, 1.0, 64.0, "1 to 64 misses in flight"))
            .and_then(|()| range("ipc_ceiling", self.ipc_ceiling.unwrap_or(1.0), 0.01, 16.0, "0.01 to 16"));
        if let Err(problem) = core {
            return fail(None, problem);
        }
        if self.classes.iter().all(|class| class.code) {
            return fail(None, ProfileProblem::NoClasses);
        }
        if self.classes.len() > MAX_CLASSES {
            return fail(None, ProfileProblem::TooManyClasses { count: self.classes.len() });
        }
        for (position, class) in self.classes.iter().enumerate() {
            let bytes = class.bytes as f64;
            let numbers = range("size", bytes, 1.0, (1_u64 << 50) as f64, "1 byte to 1 PiB")
                .and_then(|()| {
                    range("touches_per_ki", class.touches_per_instruction * 1e3, 1e-9, 1e3, "above 0 and at most 1000")
                })
                .and_then(|()| range("write_fraction", class.write_fraction, 0.0, 1.0, "0 to 1"))
                .and_then(|()| range("exposure", class.exposure, 0.0, 1.0, "0 to 1"));
            if let Err(problem) = numbers {
                return fail(Some(class), problem);
            }
            if let Home::Shares(shares) = &class.home {
                if let Some(&value) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
                    return fail(
                        Some(class),
                        ProfileProblem::Range { field: "a home share", value, allowed: "0 to 1" },
                    );
                }
                let sum: f64 = shares.iter().sum();
                if (sum - 1.0).abs() > SHARE_TOLERANCE {
                    return fail(Some(class), ProfileProblem::HomeSum { sum });
                }
            }
            if class.code {
                if let Err(problem) = range("write_fraction", class.write_fraction, 0.0, 0.0, "0 for code") {
                    return fail(Some(class), problem);
                }
            } else if self.classes[..position].iter().any(|earlier| earlier.code) {
                return fail(Some(class), ProfileProblem::DataAfterCode);
            }
            if class.is_shared() && class.kind == ClassKind::Scan {
                return fail(Some(class), ProfileProblem::SharedScan);
            }
            if self.classes[..position].iter().any(|earlier| earlier.name == class.name) {
                return fail(Some(class), ProfileProblem::DuplicateClass);
            }
        }
        let sum: f64 = self.classes.iter().map(|class| class.touches_per_instruction).sum();
        if sum > 1.0 {
            return fail(None, ProfileProblem::TouchSum { sum });
        }
        Ok(())
    }

    /// Refuses home shares that are not for a machine of `nodes` nodes.
    ///
    /// # Errors
    /// The first class that has such.
    pub fn check_homes(&self, nodes: usize) -> Result<(), ProfileError> {
        self.classes.iter().try_for_each(|class| match &class.home {
            Home::Shares(shares) if shares.len() != nodes => Err(ProfileError {
                profile: self.name.clone(),
                class: Some(class.name.clone()),
                problem: ProfileProblem::HomeNodes { given: shares.len(), nodes },
            }),
            _ => Ok(()),
        })
    }

    /// The profile as a machine shows it: without classes of code where not every core has an L1 for instructions (classes keep their
    /// numbers, as those of code come last), and interleaved over the nodes that have memory.
    pub fn on(&self, hierarchy: &Hierarchy) -> Cow<'_, Profile> {
        let mut shown = Cow::Borrowed(self);
        if hierarchy.l1i.is_empty() && self.has_code() {
            shown.to_mut().classes.retain(|class| !class.code);
        }
        let some_have_none = hierarchy.interleaved.contains(&0.0);
        if some_have_none && self.classes.iter().any(|class| class.home == Home::Interleave) {
            for class in shown.to_mut().classes.iter_mut().filter(|class| class.home == Home::Interleave) {
                class.home = Home::Shares(hierarchy.interleaved.clone());
            }
        }
        shown
    }

    /// Whether any class is code.
    pub fn has_code(&self) -> bool {
        self.classes.last().is_some_and(|class| class.code)
    }

    /// Line touches per instruction, all classes.
    pub fn touches_per_instruction(&self) -> f64 {
        self.classes.iter().map(|class| class.touches_per_instruction).sum()
    }

    /// Whether any class is shared.
    pub(crate) fn has_shared_classes(&self) -> bool {
        self.classes.iter().any(Class::is_shared)
    }

    /// Core cycles per instruction, the ceiling taken into account.
    pub(crate) fn core_cpi(&self) -> f64 {
        self.ipc_ceiling.map_or(self.cpi0, |ceiling| self.cpi0.max(1.0 / ceiling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(classes: Vec<Class>) -> Profile {
        Profile::new("p", 0.5, 2.0, classes)
    }

    fn problem(change: impl FnOnce(&mut Profile)) -> ProfileProblem {
        let mut profile = profile(vec![Class::new("a", 1 << 20, 0.1, 0.3)]);
        assert_eq!(profile.check(), Ok(()));
        change(&mut profile);
        profile.check().unwrap_err().problem
    }

    #[test]
    fn negative_and_nan_values_are_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(problem(|p| p.cpi0 = bad), ProfileProblem::Range { field: "cpi0", .. }));
            assert!(matches!(problem(|p| p.mlp = bad), ProfileProblem::Range { field: "mlp", .. }));
            let of_class = |p: &mut Profile| p.classes[0].touches_per_instruction = bad;
            assert!(matches!(problem(of_class), ProfileProblem::Range { field: "touches_per_ki", .. }));
            let of_class = |p: &mut Profile| p.classes[0].write_fraction = bad;
            assert!(matches!(problem(of_class), ProfileProblem::Range { field: "write_fraction", .. }));
            let of_class = |p: &mut Profile| p.classes[0].exposure = bad;
            assert!(matches!(problem(of_class), ProfileProblem::Range { field: "exposure", .. }));
        }
        assert!(matches!(problem(|p| p.classes[0].bytes = 0), ProfileProblem::Range { field: "size", .. }));
    }

    #[test]
    fn shares_that_do_not_sum_are_refused() {
        let home = |shares: Vec<f64>| problem(move |p| p.classes[0].home = Home::Shares(shares));
        assert!(matches!(home(vec![0.5, 0.4]), ProfileProblem::HomeSum { .. }));
        assert!(matches!(home(vec![1.5, -0.5]), ProfileProblem::Range { field: "a home share", .. }));
        let sum = |p: &mut Profile| {
            p.classes[0].touches_per_instruction = 0.7;
            p.classes.push(Class::new("b", 64, 0.6, 0.0));
        };
        assert!(matches!(problem(sum), ProfileProblem::TouchSum { .. }));
    }

    #[test]
    fn impossible_sets_of_classes_are_refused() {
        assert_eq!(problem(|p| p.classes.clear()), ProfileProblem::NoClasses);
        assert_eq!(problem(|p| p.classes.push(p.classes[0].clone())), ProfileProblem::DuplicateClass);
        let many = |p: &mut Profile| {
            p.classes = (0..9).map(|index| Class::new(format!("c{index}"), 64, 0.01, 0.0)).collect();
        };
        assert_eq!(problem(many), ProfileProblem::TooManyClasses { count: 9 });
        let scan = |p: &mut Profile| {
            p.classes[0].kind = ClassKind::Scan;
            p.classes[0].sharing = Sharing::Process;
        };
        assert_eq!(problem(scan), ProfileProblem::SharedScan);
    }
}
