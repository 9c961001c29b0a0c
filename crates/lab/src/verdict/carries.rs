//! Which measure carries a verdict: the one asked for, or the workload's own, unless it cannot tell schedulers apart.
//!
//! It cannot where the baseline's value is nearly zero and no other's is clearly more, or no trial has one; where it is a percentile of so few
//! events that it is one of the longest of them, whatever the percentile; where it is a rate of fewer than five samples; and where it is an
//! elapsed time that timers and sleeps of the workload set. Then the verdict is about the next measure that can, a latency before the work done
//! where that is as much as arrives, and says so.
//!
//! What is fixed is read from the workload and from the baseline alone, and of the others only how many events they have. Their results do no
//! more than keep the measure that was asked for: one clearly above a baseline of nearly zero is compared with it, without a ratio.

use warmcore_workload::Workload;

use super::{Replaced, SchedulerResult, stands_out};
use crate::measures::{self, ELAPSED, Measure};
use crate::trial::Trial;
use crate::units::{duration, with_unit};

/// Events that a high percentile is one of where it is judged. With fewer, the 99th is the longest of all.
pub(crate) const FEWEST_EVENTS: f64 = 100.0;

/// Part of an elapsed time that timers and sleeps take where they fix it: what a scheduler could still win is a ninth of that.
const FIXED: f64 = 0.9;
/// Part of the run that a task lasts whose timers and sleeps fix its end, if it does not last all of it.
const LASTS: f64 = 0.5;

/// Of a percentile the fewest events that it is one of in a trial, and how many it takes to judge it, if there are fewer: then it has no value.
pub fn few_events(measure: &Measure, trials: &[Trial]) -> Option<(f64, f64)> {
    fewer_events(measure, trials, FEWEST_EVENTS)
}

/// The same for showing it, which takes so many that one lies beyond it: ten of a 90th percentile.
pub fn few_to_show(measure: &Measure, trials: &[Trial]) -> Option<(f64, f64)> {
    fewer_events(measure, trials, 0.0)
}

/// Samples of a rate of fewer than which one more or less decides it.
const FEWEST_SAMPLES: f64 = 5.0;

/// Of the rate of a recorder's samples the most that a trial has, if no trial has five: a sample that ends just inside of the run or just outside
/// is then a fifth of it or more.
pub(super) fn few_samples(measure: &Measure, trials: &[Trial]) -> Option<f64> {
    let samples = trials.iter().filter_map(|trial| measures::samples_of_rate(&measure.name, trial));
    samples.max_by(f64::total_cmp).filter(|most| *most < FEWEST_SAMPLES)
}

fn fewer_events(measure: &Measure, trials: &[Trial], fewest: f64) -> Option<(f64, f64)> {
    let needed = measures::events_needed(&measure.name, fewest)?;
    let events = trials.iter().filter_map(|trial| measures::events_behind(&measure.name, trial));
    events.min_by(f64::total_cmp).filter(|events| *events < needed).map(|fewest| (fewest, needed))
}

/// What a measure is chosen by.
pub(super) struct Candidates<'a, 'b> {
    pub workload: &'b Workload,
    pub catalogue: &'a [Measure],
    pub schedulers: &'b [SchedulerResult],
    pub trials: &'b [Vec<Trial>],
    pub baseline: usize,
}

impl<'a> Candidates<'a, '_> {
    /// The measure asked for, or another one and why.
    pub fn choose(&self, asked: &'a Measure) -> (&'a Measure, Option<Replaced>) {
        if self.schedulers.len() < 2 {
            return (asked, None);
        }
        let Some(because) = self.objection(asked) else { return (asked, None) };
        let mean = measures::mean_beside(&asked.name).into_iter();
        // Work that arrivals fix is the same under all schedulers.
        let fixed = asked.name == ELAPSED || self.workload.has_fixed_rate();
        let latencies = if fixed { measures::latencies(self.workload) } else { Vec::new() };
        let others = mean.chain(latencies).chain(measures::instead(self.workload).map(str::to_owned));
        let known = |name: String| self.catalogue.iter().find(|measure| measure.name == name && name != asked.name);
        match others.filter_map(known).find(|measure| self.objection(measure).is_none()) {
            Some(other) => {
                let reason = format!("{because}, so the verdict is about {}", other.title);
                (other, Some(Replaced { metric: asked.name.clone(), reason }))
            }
            None => (asked, None),
        }
    }

    /// Why a measure cannot carry the verdict.
    fn objection(&self, measure: &Measure) -> Option<String> {
        self.next_to_nothing(measure)
            .or_else(|| self.of_few_events(measure))
            .or_else(|| self.of_few_samples(measure))
            .or_else(|| self.fixed_by_arrivals(measure))
    }

    fn next_to_nothing(&self, measure: &Measure) -> Option<String> {
        let median = |scheduler: &SchedulerResult| scheduler.measures.get(&measure.name)?.summary.median;
        let base = &self.schedulers[self.baseline];
        if self.schedulers.iter().all(|scheduler| median(scheduler).is_none()) {
            return Some(format!(
                "{} is not measurable here: no trial has a value of it{}",
                measure.title,
                measure.needs()
            ));
        }
        let differs = |scheduler: &SchedulerResult| {
            scheduler.measures.get(&measure.name).is_some_and(|result| stands_out(&result.summary, measure))
        };
        if median(base).is_none_or(|median| median >= measure.least) || self.schedulers.iter().any(differs) {
            return None;
        }
        let value = |scheduler: &SchedulerResult| {
            Some(format!("{} under {}", with_unit(median(scheduler)?, measure.unit), scheduler.label))
        };
        let values: Vec<String> = self.schedulers.iter().filter_map(value).collect();
        Some(format!(
            "{} is not measurable here: it is nearly zero under {} ({})",
            measure.title,
            base.label,
            values.join(", ")
        ))
    }

    fn of_few_events(&self, measure: &Measure) -> Option<String> {
        let of = |(scheduler, trials): (_, &Vec<Trial>)| Some((few_events(measure, trials)?, scheduler));
        let all = self.schedulers.iter().zip(self.trials).filter_map(of);
        let ((fewest, needed), scheduler) = all.min_by(|a, b| a.0.0.total_cmp(&b.0.0))?;
        Some(format!(
            "{} is not measurable here: it is a percentile of {fewest:.0} events in a trial under {}, fewer than {needed:.0}",
            measure.title, scheduler.label
        ))
    }

    /// Where one scheduler has more samples than that, the others have clearly fewer.
    fn of_few_samples(&self, measure: &Measure) -> Option<String> {
        let most: Option<Vec<f64>> = self.trials.iter().map(|trials| few_samples(measure, trials)).collect();
        let most = most?.into_iter().max_by(f64::total_cmp)?;
        Some(format!(
            "{} is not measurable here: no trial has more than {most:.0} samples, and one more or less decides it",
            measure.title
        ))
    }

    fn fixed_by_arrivals(&self, measure: &Measure) -> Option<String> {
        let trial = self.trials[self.baseline].first().filter(|_| measure.name == ELAPSED)?;
        let elapsed_ns = trial.measure(ELAPSED)?;
        let last = trial.tasks.iter().max_by_key(|task| task.exited_ns)?.exited_ns?;
        let (name, least_ns) = trial.tasks.iter().find_map(|task| {
            let template = self.workload.template_name(&task.name);
            let template = self.workload.tasks.iter().find(|known| known.name == template)?;
            let program = &self.workload.programs[template.program.index()];
            // A loop without end sets no end: something else does.
            let least_ns = Some(program.least_time_ns()).filter(|ns| *ns < u64::MAX)? as f64;
            let exited_ns = task.exited_ns?;
            let lifetime_ns = exited_ns.saturating_sub(task.started_ns) as f64;
            let all = least_ns >= FIXED * elapsed_ns;
            let end = exited_ns == last && least_ns >= FIXED * lifetime_ns && lifetime_ns >= LASTS * elapsed_ns;
            (all || end).then_some((&task.name, least_ns))
        })?;
        Some(format!(
            "elapsed time is fixed by when work arrives: timers and sleeps of {name} take {} of {}",
            duration(least_ns),
            duration(elapsed_ns)
        ))
    }
}
