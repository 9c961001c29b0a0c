//! Programs as rt-app events, where rt-app has the words.
//!
//! The result is a proposal: whoever uses it reads the document back and compares, because what an event means can
//! depend on other events (a timer that one event declares absolute is absolute for all).

use super::events::{DEFAULT_MEMORY_BYTES, MemoryKind};
use super::json::{Json, object};
use super::tasks::write_util_clamp;
use crate::{Affinity, Policy, Step, Task, TimerMode, Workload};

type Entries = Vec<(String, Json)>;

/// The keys of a task's `loop`, events and phases, or `None` if rt-app cannot say its program.
pub(super) fn express(workload: &Workload, task: &Task, with_memrun: bool) -> Option<Entries> {
    let steps = &workload.programs[task.program.index()].steps;
    policy_entries(task.policy)?;
    if task.policy.is_realtime() && (task.nice != 0 || task.slice_ns.is_some()) {
        return None;
    }
    let (times, inner) = match (steps.first()?, steps.last()?) {
        (Step::LoopStart { times, end }, Step::LoopEnd { .. }) if *end as usize + 1 == steps.len() => {
            (loop_value(*times)?, &steps[1..steps.len() - 1])
        }
        _ => (Json::Integer(1), steps.as_slice()),
    };
    let writer = Writer { workload, task: &task.name, policy: task.policy, with_memrun };
    let mut entries = vec![("loop".to_owned(), times)];
    match inner.first()? {
        Step::Phase(_) => {
            let phases = writer.phases(inner)?;
            entries.push(("phases".to_owned(), Json::Object(phases)));
        }
        _ => writer.events(inner, &mut entries)?,
    }
    Some(entries)
}

/// The keys of a policy with its parameters, or `None` if rt-app cannot say them.
pub(super) fn policy_entries(policy: Policy) -> Option<Entries> {
    let mut entries = vec![("policy".to_owned(), Json::from(policy.name()))];
    match policy {
        Policy::Fifo { priority } | Policy::RoundRobin { priority } => {
            entries.push(("priority".to_owned(), Json::Integer(priority.into())));
        }
        Policy::Deadline(reservation) => {
            for (key, ns) in [
                ("dl-runtime", reservation.runtime_ns),
                ("dl-deadline", reservation.deadline_ns),
                ("dl-period", reservation.period_ns),
            ] {
                entries.push((key.to_owned(), microseconds(ns)?));
            }
        }
        _ => {}
    }
    Some(entries)
}

/// The value of `loop` for a loop. Loops that run once or never have no form of their own.
fn loop_value(times: Option<u64>) -> Option<Json> {
    match times {
        None => Some(Json::Integer(-1)),
        Some(0 | 1) => None,
        Some(times) => Some(times.into()),
    }
}

struct Writer<'a> {
    workload: &'a Workload,
    task: &'a str,
    policy: Policy,
    with_memrun: bool,
}

impl Writer<'_> {
    fn phases(&self, steps: &[Step]) -> Option<Entries> {
        // Indices of loop ends are those of the whole program; here only the order of steps matters.
        let mut phases: Entries = Vec::new();
        let mut policy = self.policy;
        let mut rest = steps;
        while let Some((Step::Phase(name), after)) = rest.split_first() {
            let length = after.iter().position(|step| matches!(step, Step::Phase(_))).unwrap_or(after.len());
            let (body, others) = after.split_at(length);
            rest = others;
            let name = self.workload.phases[*name as usize].clone();
            if phases.iter().any(|(earlier, _)| *earlier == name) {
                return None;
            }
            phases.push((name, Json::Object(self.phase(body, &mut policy)?)));
        }
        rest.is_empty().then_some(phases)
    }

    /// A phase that begins under a policy. Under a real-time one the keys of nice value and slice mean something else.
    fn phase(&self, steps: &[Step], current: &mut Policy) -> Option<Entries> {
        let mut entries = Entries::new();
        let mut rest = steps;
        let mut fair_policy_set = false;
        while let Some((step, after)) = rest.split_first() {
            let (key, value) = match step {
                Step::SetAffinity(Affinity::OsCpus(list)) => ("cpus", cpu_list(list)),
                // No "cpus" means the task's own.
                Step::SetAffinity(_) => {
                    rest = after;
                    continue;
                }
                Step::SetNice(_) | Step::SetSlice { .. } if current.is_realtime() => return None,
                // A key can be there once.
                Step::SetPolicy(_) if entries.iter().any(|(key, _)| key == "policy") => return None,
                Step::SetPolicy(policy) => {
                    *current = *policy;
                    fair_policy_set = !policy.is_realtime();
                    entries.extend(policy_entries(*policy)?);
                    rest = after;
                    continue;
                }
                Step::SetNice(nice) => ("priority", Json::Integer((*nice).into())),
                Step::SetSlice { slice_ns } => ("dl-runtime", microseconds(*slice_ns)?),
                Step::SetUtilClamp(clamp) => {
                    entries.extend(write_util_clamp(*clamp).map(|(key, value)| (key.to_owned(), value)));
                    rest = after;
                    continue;
                }
                Step::SetGroup(group) => {
                    let path = &self.workload.groups[group.index()].name;
                    ("taskgroup", path.starts_with('/').then(|| Json::Text(path.clone()))?)
                }
                _ => break,
            };
            entries.push((key.to_owned(), value));
            rest = after;
        }
        if fair_policy_set && !entries.iter().any(|(key, _)| key == "priority") {
            return None;
        }
        let body = match (rest.first(), rest.last()) {
            (Some(Step::LoopStart { times, .. }), Some(Step::LoopEnd { .. })) => {
                entries.push(("loop".to_owned(), loop_value(*times)?));
                &rest[1..rest.len() - 1]
            }
            _ => rest,
        };
        self.events(body, &mut entries)?;
        Some(entries)
    }

    /// Appends events with keys that differ: json-c keeps only one value of a repeated key.
    fn events(&self, steps: &[Step], entries: &mut Entries) -> Option<()> {
        let mut counts: Vec<(&'static str, u32)> = Vec::new();
        let mut rest = steps;
        if rest.is_empty() {
            return None;
        }
        while let Some((step, mut after)) = rest.split_first() {
            let (name, value) = match (step, after.first()) {
                (Step::Memory { bytes, region_bytes }, Some(Step::Run { work_ns })) => {
                    after = &after[1..];
                    self.memory(*bytes, *region_bytes, *work_ns)?
                }
                _ => self.event(step)?,
            };
            let number = match counts.iter_mut().find(|(counted, _)| *counted == name) {
                Some((_, number)) => {
                    *number += 1;
                    *number
                }
                None => {
                    counts.push((name, 0));
                    0
                }
            };
            let key = if number == 0 { name.to_owned() } else { format!("{name}{number}") };
            entries.push((key, value));
            rest = after;
        }
        Some(())
    }

    fn memory(&self, bytes: u64, region_bytes: u64, work_ns: u64) -> Option<(&'static str, Json)> {
        if region_bytes == DEFAULT_MEMORY_BYTES && work_ns == MemoryKind::Set.work_ns(bytes) {
            return Some(("mem", bytes.into()));
        }
        if !self.with_memrun {
            return None;
        }
        // Whether bytes were read or written is not kept; the time is the same.
        (work_ns == MemoryKind::ByteWise.work_ns(bytes)).then(|| ("memrun", memrun("write", region_bytes, bytes)))
    }

    fn event(&self, step: &Step) -> Option<(&'static str, Json)> {
        let workload = self.workload;
        let text = |table: &[String], index: usize| Json::Text(table[index].clone());
        let value = match step {
            Step::Chase { hops, region_bytes } if self.with_memrun => {
                return Some(("memrun", memrun("chase", *region_bytes, *hops)));
            }
            Step::Run { work_ns: ns } | Step::RunTime { cpu_ns: ns } | Step::Sleep { duration_ns: ns } => {
                microseconds(*ns)?
            }
            Step::Timer { timer, period_ns, mode } => {
                let mode = if *mode == TimerMode::Absolute { "absolute" } else { "relative" };
                let reference = text(&workload.timers, timer.index());
                object([("ref", reference), ("period", microseconds(*period_ns)?), ("mode", mode.into())])
            }
            Step::Lock(lock) | Step::Unlock(lock) => text(&workload.locks, lock.index()),
            Step::Wait { condition, lock } | Step::SignalAndWait { condition, lock } => {
                let reference = text(&workload.conditions, condition.index());
                object([("ref", reference), ("mutex", text(&workload.locks, lock.index()))])
            }
            Step::Signal(condition) | Step::Broadcast(condition) => text(&workload.conditions, condition.index()),
            Step::Barrier(barrier) => Json::Text(workload.barriers[barrier.index()].name.clone()),
            Step::Suspend => Json::from(self.task),
            Step::Resume(task) | Step::Fork(task) => Json::Text(workload.tasks[task.index()].name.clone()),
            Step::SemPost(semaphore) | Step::SemWait(semaphore) => {
                Json::Text(workload.semaphores[semaphore.index()].name.clone())
            }
            Step::Yield => Json::from(""),
            Step::IoRun { bytes } => (*bytes).into(),
            _ => return None,
        };
        Some((step.name(), value))
    }
}

/// Whole microseconds.
pub(super) fn microseconds(ns: u64) -> Option<Json> {
    ns.is_multiple_of(1_000).then(|| Json::from(ns / 1_000))
}

/// A list of CPU numbers.
pub(super) fn cpu_list(list: &[u32]) -> Json {
    Json::Array(list.iter().map(|&cpu| Json::from(cpu)).collect())
}

fn memrun(kind: &str, region_bytes: u64, count: u64) -> Json {
    object([("type", Json::from(kind)), ("size", region_bytes.into()), ("count", count.into())])
}
