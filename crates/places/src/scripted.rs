//! A place that answers from a table: no clock, no machine, and whatever goes wrong is in the script. For tests of what stands above
//! places: order, going on with a run, failures, interruption.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use warmcore_kernel::Setup;
use warmcore_statistics::Design;
use warmcore_trace::{End, Event, Outcome};

use crate::place::{BatchConduct, Conditions, Place, PlaceError, PlaceKind, Report, Request, Run, Take, Trouble};

/// Its row in the registry.
pub static KIND: PlaceKind = PlaceKind {
    name: "scripted",
    summary: "answers from a table, for tests",
    needs: "a script",
    clock: ("scripted", "time in the script"),
    host: "script",
    simulated: false,
    keeps_to_cpus: false,
    events_cost_time: false,
    unmeasured: "",
    open: None,
    past: |table| {
        let script = table.and_then(|table| table.clone().try_into::<Script>().ok());
        let missing = || PlaceError::new(Trouble::Unfit, "warmcore::place", "it has no script", "start it anew");
        Ok(Arc::new(Scripted::new(script.ok_or_else(missing)?)))
    },
};

/// What is answered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Script {
    /// How trials belong together.
    pub design: Design,
    /// Schedulers that [`Place::check`] refuses.
    #[serde(default)]
    pub refused: Vec<String>,
    /// The caller is asked to stop after so many runs, as by a signal.
    #[serde(default)]
    pub interrupted_after: Option<usize>,
    /// Answers; the first that fits is given.
    pub answers: Vec<Answer>,
}

/// What is answered to a request.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// Of this scheduler; of any if there is none.
    pub scheduler: Option<String>,
    /// With this seed; with any if there is none.
    pub seed: Option<u64>,
    /// Length of the run, ns.
    pub elapsed_ns: u64,
    /// The run fails with these words.
    pub failure: Option<String>,
    /// Runs are handed over in the order of these numbers, equal ones in the order they were asked for.
    pub turn: u32,
    /// Events that were not recorded.
    pub events_lost: u64,
    /// What was not done as asked.
    pub departures: Vec<String>,
    /// What else must be known.
    pub notes: Vec<String>,
    /// The conditions document.
    pub conditions: Option<String>,
    /// What happened. Not kept in records.
    #[serde(skip)]
    pub events: Vec<Event>,
}

/// A place that answers from a table.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    asked: Mutex<Vec<(String, u64, Option<u32>)>>,
}

impl Scripted {
    /// One with this script.
    pub fn new(script: Script) -> Self {
        Self { script, asked: Mutex::new(Vec::new()) }
    }

    /// Scheduler and seed of every run that was begun, in order, and with which others it may share a boot.
    pub fn asked(&self) -> Vec<(String, u64, Option<u32>)> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn answer(&self, request: &Request<'_>) -> Answer {
        let label = request.scheduler.to_string();
        let fits = |answer: &&Answer| {
            answer.scheduler.as_ref().is_none_or(|name| *name == label)
                && answer.seed.is_none_or(|seed| seed == request.seed)
        };
        self.script.answers.iter().find(fits).cloned().unwrap_or_default()
    }
}

impl Place for Scripted {
    fn kind(&self) -> &'static PlaceKind {
        &KIND
    }

    fn record(&self) -> Option<toml::Table> {
        toml::Table::try_from(&self.script).ok()
    }

    fn design(&self) -> Design {
        self.script.design
    }

    fn repeatable(&self) -> bool {
        true
    }

    fn reopen(self: Arc<Self>) -> Result<Arc<dyn Place>, PlaceError> {
        Ok(self)
    }

    fn check(&self, requests: &[Request<'_>]) -> Result<(), PlaceError> {
        let label = |request: &Request<'_>| request.scheduler.to_string();
        match requests.iter().map(label).find(|label| self.script.refused.contains(label)) {
            Some(label) => {
                let message = format!("the script has no `{label}`");
                Err(PlaceError::new(Trouble::Unfit, "warmcore::place", message, "choose another one"))
            }
            None => Ok(()),
        }
    }

    fn run(&self, requests: &[Request<'_>], conduct: &BatchConduct, take: &Take<'_>) -> Result<(), PlaceError> {
        let mut order: Vec<(usize, Answer)> = requests.iter().map(|request| self.answer(request)).enumerate().collect();
        order.sort_by_key(|(position, answer)| (answer.turn, *position));
        let begun = AtomicUsize::new(0);
        for (position, answer) in order {
            if self.script.interrupted_after.is_some_and(|runs| begun.load(Ordering::Relaxed) >= runs) {
                conduct.stop.store(true, Ordering::Relaxed);
            }
            if conduct.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            begun.fetch_add(1, Ordering::Relaxed);
            let request = &requests[position];
            let run = (request.scheduler.to_string(), request.seed, request.shared);
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(run);
            if one(request, position, answer, take).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn one(request: &Request<'_>, position: usize, answer: Answer, take: &Take<'_>) -> ControlFlow<()> {
    let setup = match Setup::new(request.machine, request.workload, request.seed) {
        Ok(setup) => setup,
        Err(error) => return take(position, Err(error.into())),
    };
    let tables = setup.run_tables(Vec::new());
    let run = Run::new(&tables, 0.0, |sink| {
        if let Some(failure) = answer.failure {
            return Err(PlaceError::new(Trouble::Failed, "warmcore::place", failure, "mend the script"));
        }
        if let Some(sink) = sink {
            sink.events(&answer.events).map_err(warmcore_kernel::SimulationError::Sink)?;
        }
        let outcome = Outcome {
            warm_up_ns: request.workload.warm_up_ns.unwrap_or(0),
            recorders: request.workload.recorders.iter().map(|_| warmcore_trace::Histogram::new()).collect(),
            engine_events: answer.events.len() as u64,
            ..Outcome::new(End::AllExited, answer.elapsed_ns)
        };
        Ok(Report {
            events_lost: answer.events_lost,
            departures: answer.departures,
            notes: answer.notes,
            conditions: answer.conditions.map(|json| Conditions { directory: "host", json }),
            ..Report::new(outcome)
        })
    });
    take(position, Ok(run))
}
