//! Costs of a guest's kernel: measured where the boots are, stored with them, and had by the simulated counterpart, so that it is a rule in which
//! the places differ and not the speed of an emulator.

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use warmcore_places::place::Place;
use warmcore_topology::{MeasuredValue, with_measured_values};
use warmcore_workload::{Drawn, Step, Workload};

use super::book::BookExperiment;
use super::run::ValidateError;
use super::stored::StoredResult;

/// A figure that was measured where the boots were.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredCost {
    /// Its name in a machine's file.
    pub name: String,
    /// The value, ns.
    pub value: u64,
    /// What samples are seldom below.
    pub low: u64,
    /// What samples are seldom above.
    pub high: u64,
}

impl From<MeasuredValue> for StoredCost {
    fn from(MeasuredValue { name, value, low, high }: MeasuredValue) -> Self {
        Self { name, value, low, high }
    }
}

/// What the kernel's own actions cost in the place, measured now on the machine of these experiments.
///
/// # Errors
/// When the caller asked to stop, or they cannot be measured.
pub fn measured_costs(
    place: &dyn Place,
    experiment: &BookExperiment,
    stop: &AtomicBool,
) -> Result<Vec<StoredCost>, ValidateError> {
    let measured = place.costs(&experiment.machine, stop).map_err(|source| match source.is_interruption() {
        true => ValidateError::Interrupted,
        false => ValidateError::Costs { machine: experiment.machine_text.clone(), source: Box::new(source) },
    })?;
    Ok(measured.into_iter().flatten().map(StoredCost::from).collect())
}

/// What a guest makes of a workload: its CPUs have no speed of their own, so work is time on CPU, with what the kernel does in it.
fn work_is_cpu_time(workload: &mut Workload) {
    for step in workload.programs.iter_mut().flat_map(|program| &mut program.steps) {
        match step {
            Step::Run { work_ns } => *step = Step::RunTime { cpu_ns: *work_ns },
            Step::Draw { what, .. } if *what == Drawn::Work => *what = Drawn::CpuTime,
            _ => {}
        }
    }
}

/// The experiment on its machine with the costs that were measured where the result is from, and with work as it is done there.
///
/// # Errors
/// Costs that no machine can have.
pub(crate) fn with_costs_of(
    experiment: &BookExperiment,
    result: Option<&StoredResult>,
) -> Result<BookExperiment, ValidateError> {
    let mut experiment = experiment.clone();
    let costs = result.map_or(&[][..], |result| &result.costs);
    let value = |cost: &StoredCost| MeasuredValue {
        name: cost.name.clone(),
        value: cost.value,
        low: cost.low,
        high: cost.high,
    };
    let values: Vec<MeasuredValue> = costs.iter().map(value).collect();
    if !values.is_empty() {
        let controls = experiment.controls.iter_mut().filter_map(|control| control.workload.as_mut());
        std::iter::once(&mut experiment.workload).chain(controls).for_each(work_is_cpu_time);
    }
    let note = "in the guest that it is compared with";
    // A guest has them as they are: it is the machine that is simulated which takes them over, and its background stays.
    experiment.simulated = with_measured_values(experiment.simulated, &values, note)
        .map_err(|error| ValidateError::Stored { path: experiment.name.clone(), reason: error.to_string() })?;
    Ok(experiment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::stored::RESULT_SCHEMA;
    use std::path::Path;
    use warmcore_topology::Background;

    const BOOK: &str = r#"
        schema = "warmcore-book-1"
        title = "two spinners"
        group = "shares"
        machine = "1s1n1l1c1t"
        workload = "spin:-n2"
        schedulers = ["eevdf"]
        duration_ms = 50
        [[check]]
        metric = "cpu_share"
        relative = 0.01
    "#;

    fn result(costs: &str) -> StoredResult {
        let text = format!(
            r#"{{"schema": "{RESULT_SCHEMA}", "identity": "", "kernel": "", "kernel_sha256": "", "qemu": "", "execution": "",
                "costs": [{costs}], "boots": []}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_counterpart_has_the_costs_of_the_result_and_its_machine_s_own_where_that_says_nothing() {
        let experiment = BookExperiment::parse(Path::new("x"), BOOK).unwrap();
        let own = experiment.machine.costs().clone();
        let measured = result(r#"{"name": "costs.wakeup_ns", "value": 4162, "low": 3928, "high": 4304}"#);
        let with = with_costs_of(&experiment, Some(&measured)).unwrap();
        assert_eq!((with.simulated.costs().wakeup_ns, with.simulated.costs().fork_ns), (4_162, own.fork_ns));
        assert_eq!(with.identity, experiment.identity, "results stay those of the experiment");
        let beside = with.clone().beside(&Background::named("quiet").unwrap()).unwrap();
        assert_eq!(beside.simulated.costs(), with.simulated.costs(), "another background leaves them as they are");
        let works = |experiment: &BookExperiment| {
            let steps = experiment.workload.programs.iter().flat_map(|program| &program.steps);
            steps.filter(|step| matches!(step, Step::Run { .. })).count()
        };
        assert!(works(&experiment) > 0);
        assert_eq!(works(&with), 0, "a guest's work is CPU time");
        assert_eq!(with_costs_of(&experiment, Some(&result(""))).unwrap().simulated.costs(), &own);
        let unknown = result(r#"{"name": "costs.wake_ns", "value": 1, "low": 1, "high": 1}"#);
        assert!(with_costs_of(&experiment, Some(&unknown)).unwrap_err().to_string().contains("costs.wake_ns"));
    }
}
