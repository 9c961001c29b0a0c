//! Guests as a place: each run in a boot of its own, or several in one where the caller allows that.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use warmcore_agent::report::Hello;
use warmcore_statistics::Design;
use warmcore_topology::{Machine, MeasuredValue};
use warmcore_trace::Sink;

use super::VmError;
use super::boot::Lab;
use super::qemu::Execution;
use super::record::{GuestFacts, GuestRecord};
use super::select;
use super::trial::{self, Recorded};
use crate::circumstances;
use crate::files::pretty;
use crate::place::{
    BatchConduct, Conditions, Place, PlaceError, PlaceKind, PlaceOptions, Report, Request, Run, Take, Trouble,
    check_background, check_tunables, in_parallel,
};

/// Its row in the registry.
pub static KIND: PlaceKind = PlaceKind {
    name: "vm",
    summary: "a real kernel in a virtual machine",
    needs: "QEMU and a kernel: `warmcore doctor vm`",
    clock: ("mono", "time in the guest"),
    host: "guest",
    simulated: false,
    keeps_to_cpus: false,
    events_cost_time: false,
    unmeasured: "caches, coherence, memory, and what the kernel's own work costs. The guest's CPUs have none of the first three and \
                 share the speed of their emulator. Placement, queueing, switches, migrations and run times are the kernel's own. \
                 Nothing in this page is simulated.",
    open: Some(open),
    past: |table| {
        let guests = table.ok_or("it does not say what guests were made of").and_then(|table| {
            table.clone().try_into::<GuestRecord>().map_err(|_| "its record of the guests has another form")
        });
        let error = |reason| PlaceError::new(Trouble::Unfit, "warmcore::vm", reason, "start the experiment again");
        Ok(Arc::new(Guests::Past(guests.map_err(error)?)))
    },
};

/// Directory of what guests were like, in a run directory.
const CONDITIONS: &str = "guests";

/// Guests with a real kernel.
#[derive(Clone, Debug)]
pub enum Guests {
    /// Here and now.
    Open(Lab),
    /// As a run directory recorded them.
    Past(GuestRecord),
}

/// Guests with what the options say, knowing the programs that the schedulers are.
fn open(options: &PlaceOptions<'_>, note: &dyn Fn(&str)) -> Result<Arc<dyn Place>, PlaceError> {
    let lab =
        select::lab(&options.guests, note)?.with_programs(options.schedulers)?.with_kernels(options.schedulers)?;
    Ok(Arc::new(Guests::Open(lab)))
}

impl Guests {
    fn makings(&self) -> GuestRecord {
        match self {
            Self::Open(lab) => lab.record(),
            Self::Past(record) => record.clone(),
        }
    }

    fn lab(&self) -> Result<&Lab, PlaceError> {
        match self {
            Self::Open(lab) => Ok(lab),
            Self::Past(record) => {
                let message = format!("it ran in another place ({}) and cannot be run again", record.identity());
                let advice = "start the experiment again, in another directory";
                Err(PlaceError::new(Trouble::Failed, "warmcore::vm", message, advice))
            }
        }
    }
}

impl Place for Guests {
    fn kind(&self) -> &'static PlaceKind {
        &KIND
    }

    fn identity(&self) -> String {
        self.makings().identity()
    }

    fn record(&self) -> Option<toml::Table> {
        // Paths, texts and numbers can always be written.
        toml::Table::try_from(self.makings()).ok()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let record = self.makings();
        vec![
            ("kernel", record.release),
            ("kernel_sha256", record.sha256),
            ("qemu", record.qemu),
            ("execution", record.execution.to_string()),
        ]
    }

    fn caveats(&self) -> Vec<String> {
        if self.makings().execution == Execution::Kvm {
            return Vec::new();
        }
        let text = "emulated CPUs have no caches and share one emulator: placement, queueing and waiting are the kernel's own, \
                    what caches and the kernel's work cost is not shown";
        vec![text.into()]
    }

    /// Boots have nothing in common: a seed decides at which time of the tick a run begins, and nothing else.
    fn design(&self) -> Design {
        Design::Unpaired
    }

    fn reopen(self: Arc<Self>) -> Result<Arc<dyn Place>, PlaceError> {
        match &*self {
            Self::Open(_) => Ok(self),
            Self::Past(record) => Ok(Arc::new(Self::Open(record.reopen()?))),
        }
    }

    fn check(&self, requests: &[Request<'_>]) -> Result<(), PlaceError> {
        if requests.iter().any(|request| request.options.scores_every_ns.is_some()) {
            let message = "a real kernel does not report what it ranks tasks by";
            return Err(PlaceError::new(Trouble::Unfit, "warmcore::usage", message, "record without: --trace full"));
        }
        let lab = self.lab()?;
        for request in requests {
            check_tunables(request)?;
            circumstances::check(request, true)?;
            check_background(request)?;
            trial::check(&lab.of(request.scheduler)?, request)?;
        }
        Ok(())
    }

    fn costs(&self, machine: &Machine, stop: &AtomicBool) -> Result<Option<Vec<MeasuredValue>>, PlaceError> {
        Ok(Some(self.lab()?.measure_costs(machine, stop)?))
    }

    fn run(&self, requests: &[Request<'_>], conduct: &BatchConduct, take: &Take<'_>) -> Result<(), PlaceError> {
        let lab = self.lab()?;
        let boots = boots(requests);
        in_parallel(conduct, &boots, |boot| one_boot(lab, requests, boot, conduct, take))
    }
}

/// Positions of the requests of each boot.
fn boots(requests: &[Request<'_>]) -> Vec<Vec<usize>> {
    let mut boots: Vec<Vec<usize>> = Vec::new();
    for (position, request) in requests.iter().enumerate() {
        let kernel = |request: &Request<'_>| request.scheduler.circumstances().kernel.clone();
        let same = |other: &Request<'_>| {
            request.shared.is_some()
                && request.shared == other.shared
                && request.machine == other.machine
                && kernel(request) == kernel(other)
                && request.workload.isolcpus == other.workload.isolcpus
                && request.workload.nohz_full == other.workload.nohz_full
        };
        match boots.iter_mut().find(|boot| same(&requests[boot[0]])) {
            Some(boot) => boot.push(position),
            None => boots.push(vec![position]),
        }
    }
    boots
}

fn one_boot(
    lab: &Lab,
    requests: &[Request<'_>],
    boot: &[usize],
    conduct: &BatchConduct,
    take: &Take<'_>,
) -> ControlFlow<()> {
    let start = Instant::now();
    let runs: Vec<Request<'_>> = boot.iter().map(|position| requests[*position]).collect();
    let machine = requests[boot[0]].machine;
    let of_kernel = lab.of(runs[0].scheduler);
    let result = of_kernel.and_then(|lab| Ok((trial::run_all(&lab, machine, &runs, &conduct.stop)?, lab)));
    let seconds = start.elapsed().as_secs_f64() / boot.len() as f64;
    let (booted, lab) = match result {
        Ok(found) => found,
        Err(error) => {
            let error = PlaceError::from(error);
            return boot.iter().try_for_each(|position| take(*position, Err(error.clone())));
        }
    };
    boot.iter().zip(&booted.runs).try_for_each(|(position, (hello, recorded))| {
        let send = |sink: Option<&mut dyn Sink>| {
            if let Some(sink) = sink {
                recorded.replay(sink).map_err(warmcore_kernel::SimulationError::Sink)?;
            }
            Ok(report(&lab, hello, recorded, machine.cpu_count()))
        };
        take(*position, Ok(Run::new(&recorded.tables, seconds, send)))
    })?;
    let error = booted.error.map(PlaceError::from);
    error.map_or(ControlFlow::Continue(()), |error| {
        boot[booted.runs.len()..].iter().try_for_each(|position| take(*position, Err(error.clone())))
    })
}

fn report(lab: &Lab, hello: &Hello, recorded: &Recorded, cpus: usize) -> Report {
    Report {
        outcome: recorded.outcome.clone(),
        events_lost: recorded.events_lost,
        departures: recorded.warnings.clone(),
        notes: recorded.notes(cpus),
        foreign_run_ns: recorded.foreign_run_ns,
        settings: recorded.settings.clone(),
        operations: recorded.operations.clone(),
        sequences: recorded.sequences.clone(),
        conditions: Some(Conditions { directory: CONDITIONS, json: pretty(&GuestFacts::new(lab, hello, recorded)) }),
        output: None,
        measured: Vec::new(),
    }
}

impl From<VmError> for PlaceError {
    fn from(error: VmError) -> Self {
        let trouble = match &error {
            VmError::Interrupted => Trouble::Interrupted,
            VmError::NoQemu { .. }
            | VmError::NoAgent { .. }
            | VmError::NoKernel { .. }
            | VmError::Acceleration { .. } => Trouble::Unable,
            VmError::Kernel { .. }
            | VmError::Machine { .. }
            | VmError::Scheduler { .. }
            | VmError::Workload { .. }
            | VmError::Program { .. } => Trouble::Unfit,
            _ => Trouble::Failed,
        };
        let advice = error.advice();
        Self::new(trouble, "warmcore::vm", error, advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_schedulers::SchedulerSpec;

    #[test]
    fn runs_share_a_boot_only_where_they_may_and_the_machine_is_the_same() {
        let machine = |text: &str| warmcore_topology::resolve(text).unwrap();
        let (small, large) = (machine("1s1n1l2c1t"), machine("1s1n1l4c1t"));
        let workload = warmcore_workload::from_generator("spin:-n1,-d1ms").unwrap();
        let scheduler = SchedulerSpec::parse("eevdf").unwrap();
        let request = |machine, shared| Request { shared, ..Request::new(machine, &workload, &scheduler, 1) };
        let requests = [
            request(&small, Some(1)),
            request(&small, None),
            request(&small, Some(1)),
            request(&large, Some(1)),
            request(&small, None),
            request(&small, Some(2)),
        ];
        assert_eq!(boots(&requests), [vec![0, 2], vec![1], vec![3], vec![4], vec![5]]);
        let other = SchedulerSpec::parse("eevdf @ kernel=/boot/mine").unwrap();
        let other = Request { scheduler: &other, ..request(&small, Some(1)) };
        assert_eq!(boots(&[requests[0], other]), [vec![0], vec![1]], "a guest has one kernel");
    }
}
