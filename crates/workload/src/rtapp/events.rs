//! rt-app events as steps.
//!
//! A key is an event if it begins with the event's name (`run0`, `lock_a`), as in rt-app. Sources: rt-app's
//! `doc/tutorial.txt` and the behaviour of its parser and `run_event`.

use std::collections::BTreeSet;

use super::json::Json;
use super::names::Names;
use super::node::{Node, Read};
use crate::build::add_warning;
use crate::{BarrierId, ConditionId, LockId, ProgramBuilder, Step, TimerMode};

/// Kinds of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Run,
    RunTime,
    Sleep,
    Timer,
    Lock,
    Unlock,
    Wait,
    Signal,
    Broad,
    Sync,
    Barrier,
    Suspend,
    Resume,
    SemPost,
    SemWait,
    Fork,
    Yield,
    MemRun,
    Mem,
    IoRun,
}

/// Names in the order in which they are tried: a name that begins with another one comes first.
const EVENTS: [(&str, Event); 20] = [
    ("runtime", Event::RunTime),
    ("run", Event::Run),
    ("sleep", Event::Sleep),
    ("timer", Event::Timer),
    ("lock", Event::Lock),
    ("unlock", Event::Unlock),
    ("wait", Event::Wait),
    ("signal", Event::Signal),
    ("broad", Event::Broad),
    ("sync", Event::Sync),
    ("barrier", Event::Barrier),
    ("suspend", Event::Suspend),
    ("resume", Event::Resume),
    ("sem_post", Event::SemPost),
    ("sem_wait", Event::SemWait),
    ("fork", Event::Fork),
    ("yield", Event::Yield),
    ("memrun", Event::MemRun),
    ("mem", Event::Mem),
    ("iorun", Event::IoRun),
];

/// Keys that begin with an event's name and are none.
const NO_EVENTS: [&str; 1] = ["membind_nodes"];

/// The event a key stands for, if it is one.
pub(super) fn event_of(key: &str) -> Option<Event> {
    if NO_EVENTS.contains(&key) {
        return None;
    }
    EVENTS.iter().find(|(name, _)| key.starts_with(name)).map(|(_, event)| *event)
}

pub(super) fn event_names() -> impl Iterator<Item = &'static str> {
    EVENTS.iter().map(|(name, _)| *name)
}

/// Size of the buffer of `mem` and `iorun` unless `global.mem_buffer_size` says otherwise.
pub(super) const DEFAULT_MEMORY_BYTES: u64 = 4 << 20;

/// Instruction cost of memory events when all data is in the L1 cache, by byte. What the caches add is the business of
/// a memory model. Assumed, for a core at 2.5 GHz: `mem` is a `memset` of 16 bytes per nanosecond; `read` and `write` of
/// `memrun` touch one byte in half a nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemoryKind {
    Set,
    ByteWise,
}

impl MemoryKind {
    /// Nanoseconds of work for `bytes` bytes.
    pub(super) fn work_ns(self, bytes: u64) -> u64 {
        match self {
            MemoryKind::Set => bytes.div_ceil(16),
            MemoryKind::ByteWise => bytes.div_ceil(2),
        }
    }
}

/// What events of all tasks mean together, found before they are compiled.
#[derive(Clone, Default)]
pub(super) struct Survey {
    /// Names in `suspend` events that are not the name of the task itself: conditions, as all such names are in rt-app.
    pub(super) foreign_suspends: BTreeSet<String>,
    /// Timers that some event declares absolute, which makes them so for all events; private ones with their task.
    pub(super) absolute_timers: BTreeSet<(String, String)>,
    /// Size of the buffer of `mem` and `iorun`.
    pub(super) memory_bytes: u64,
    /// Barriers whose number of participants is stated under the `warmcore` key.
    pub(super) counted_barriers: BTreeSet<BarrierId>,
    /// Whether the path of every step is wanted: that of a workload that cannot be run is in its error.
    pub(super) wants_paths: bool,
}

impl Survey {
    pub(super) fn look_at(&mut self, task: &str, event: Event, node: &Node<'_>) {
        match (event, node.value) {
            (Event::Suspend, Json::Text(name)) if !name.is_empty() && name != task => {
                self.foreign_suspends.insert(name.clone());
            }
            (Event::Timer, _) => {
                let text = |key: &str| match node.get(key).map(|node| node.value) {
                    Some(Json::Text(text)) => text.as_str(),
                    _ => "",
                };
                if text("mode") == "absolute" {
                    self.absolute_timers.insert(timer_key(task, text("ref")));
                }
            }
            _ => {}
        }
    }
}

fn timer_key(task: &str, name: &str) -> (String, String) {
    let owner = if name.starts_with("unique") { task } else { "" };
    (owner.to_owned(), name.to_owned())
}

/// Compiles the events of one task.
pub(super) struct Compiler<'n> {
    pub(super) names: &'n mut Names,
    pub(super) survey: &'n Survey,
    pub(super) task: &'n str,
    /// How many tasks of this kind start: each counts at a barrier.
    pub(super) instances: u32,
    pub(super) builder: ProgramBuilder,
    /// Path of every step of the builder, if that is wanted.
    pub(super) paths: Vec<String>,
}

impl Compiler<'_> {
    /// Appends a step that came from `node`.
    pub(super) fn push(&mut self, step: Step, node: &Node<'_>) {
        self.builder.push(step);
        self.came_from(node);
    }

    /// Remembers where the last step came from.
    pub(super) fn came_from(&mut self, node: &Node<'_>) {
        if self.survey.wants_paths {
            self.paths.push(node.path.clone());
        }
    }

    /// Appends a loop around what `body` appends, or just that if it runs once.
    pub(super) fn repeat(
        &mut self,
        times: Option<u64>,
        node: &Node<'_>,
        body: impl FnOnce(&mut Self) -> Read<()>,
    ) -> Read<()> {
        if times == Some(1) {
            return body(self);
        }
        let start = self.builder.begin_loop(times);
        self.came_from(node);
        body(self)?;
        self.builder.end_loop(start);
        self.came_from(node);
        Ok(())
    }

    /// Counts something accepted but not modelled.
    pub(super) fn warn(&mut self, what: impl Into<String>, consequence: &str) {
        add_warning(&mut self.names.workload.warnings, what.into(), consequence.to_owned(), 1);
    }

    /// Appends the steps of one event.
    pub(super) fn event(&mut self, event: Event, node: &Node<'_>) -> Read<()> {
        match event {
            Event::Run => self.push(Step::Run { work_ns: node.microseconds()? }, node),
            Event::RunTime => self.push(Step::RunTime { cpu_ns: node.microseconds()? }, node),
            Event::Sleep => self.push(Step::Sleep { duration_ns: node.microseconds()? }, node),
            Event::Timer => self.timer(node)?,
            Event::Lock => {
                let lock = self.names.lock(node.text("the name of a mutex")?);
                self.push(Step::Lock(lock), node);
            }
            Event::Unlock => {
                let lock = self.names.lock(node.text("the name of a mutex")?);
                self.push(Step::Unlock(lock), node);
            }
            Event::Signal => {
                let condition = self.names.condition(node.text("the name of a condition")?);
                self.push(Step::Signal(condition), node);
            }
            Event::Broad => {
                let condition = self.names.condition(node.text("the name of a condition")?);
                self.push(Step::Broadcast(condition), node);
            }
            Event::Wait | Event::Sync => self.wait(event, node)?,
            Event::Barrier => self.barrier(node)?,
            Event::Suspend => self.suspend(node)?,
            Event::Resume => self.resume(node)?,
            Event::SemPost => {
                let semaphore = self.names.semaphore(node.text("the name of a semaphore")?);
                self.push(Step::SemPost(semaphore), node);
            }
            Event::SemWait => {
                let semaphore = self.names.semaphore(node.text("the name of a semaphore")?);
                self.push(Step::SemWait(semaphore), node);
            }
            Event::Fork => {
                let task = self.names.task(node)?;
                self.push(Step::Fork(task), node);
            }
            Event::Yield => self.push(Step::Yield, node),
            Event::Mem => {
                let count = node.u64("a number of bytes")?;
                self.memory(MemoryKind::Set, count, self.survey.memory_bytes, node);
            }
            Event::MemRun => self.memrun(node)?,
            Event::IoRun => self.push(Step::IoRun { bytes: node.u64("a number of bytes")? }, node),
        }
        Ok(())
    }

    fn timer(&mut self, node: &Node<'_>) -> Read<()> {
        self.ignore_other_keys("timer", &["ref", "period", "mode"], node)?;
        let name = node.get("ref").map_or(Ok("unknown"), |node| node.text("the name of a timer"))?;
        let period_ns = node.get("period").map_or(Ok(0), |node| node.microseconds())?;
        if let Some(mode) = node.get("mode") {
            mode.word("relative or absolute", &[("relative", ()), ("absolute", ())])?;
        }
        let absolute = self.survey.absolute_timers.contains(&timer_key(self.task, name));
        let mode = if absolute { TimerMode::Absolute } else { TimerMode::Relative };
        let timer = self.names.timer(name);
        self.push(Step::Timer { timer, period_ns, mode }, node);
        Ok(())
    }

    fn wait(&mut self, event: Event, node: &Node<'_>) -> Read<()> {
        let name = if event == Event::Wait { "wait" } else { "sync" };
        self.ignore_other_keys(name, &["ref", "mutex"], node)?;
        let advice = "write { \"ref\": CONDITION, \"mutex\": MUTEX }";
        let condition = node.require("ref", advice)?;
        let condition = self.names.condition(condition.text("the name of a condition")?);
        let lock = node.require("mutex", advice)?;
        let lock = self.names.lock(lock.text("the name of a mutex")?);
        let step = match event {
            Event::Wait => Step::Wait { condition, lock },
            _ => Step::SignalAndWait { condition, lock },
        };
        self.push(step, node);
        Ok(())
    }

    fn barrier(&mut self, node: &Node<'_>) -> Read<()> {
        let barrier = self.names.barrier(node.text("the name of a barrier")?);
        // rt-app counts every reference, once per instance.
        if !self.survey.counted_barriers.contains(&barrier) {
            let participants = &mut self.names.workload.barriers[barrier.index()].participants;
            *participants = participants.saturating_add(self.instances);
        }
        self.push(Step::Barrier(barrier), node);
        Ok(())
    }

    /// Waits on the condition of that name, as rt-app does. Where only the task of that name does so, that is [`Step::Suspend`].
    fn suspend(&mut self, node: &Node<'_>) -> Read<()> {
        let name = match node.value {
            Json::Null => "",
            _ => node.text("the name of a task or condition")?,
        };
        let name = if name.is_empty() { self.task } else { name };
        if self.survey.foreign_suspends.contains(name) {
            self.at_condition(name, |condition, lock| Step::Wait { condition, lock }, node);
        } else {
            self.push(Step::Suspend, node);
        }
        Ok(())
    }

    /// Wakes all that wait on the condition of that name.
    fn resume(&mut self, node: &Node<'_>) -> Read<()> {
        let name = node.text("the name of a task")?;
        if self.survey.foreign_suspends.contains(name) {
            self.at_condition(name, |condition, _| Step::Broadcast(condition), node);
        } else {
            let task = self.names.task(node)?;
            self.push(Step::Resume(task), node);
        }
        Ok(())
    }

    /// A step at the condition of a name, with the mutex of that name held.
    fn at_condition(&mut self, name: &str, step: impl Fn(ConditionId, LockId) -> Step, node: &Node<'_>) {
        let (condition, lock) = (self.names.condition(name), self.names.lock(name));
        for step in [Step::Lock(lock), step(condition, lock), Step::Unlock(lock)] {
            self.push(step, node);
        }
    }

    fn memrun(&mut self, node: &Node<'_>) -> Read<()> {
        self.ignore_other_keys("memrun", &["type", "size", "stride", "pattern", "count", "ref"], node)?;
        let advice = "write { \"type\": \"read\", \"size\": BYTES, \"count\": BYTES }";
        let kinds = [("read", Some(MemoryKind::ByteWise)), ("write", Some(MemoryKind::ByteWise)), ("chase", None)];
        let kind = node.require("type", advice)?.word("read, write or chase", &kinds)?;
        let region_bytes = node.require("size", advice)?.u64("a number of bytes")?;
        let count = node.require("count", advice)?.u64("a number of bytes or hops")?;
        self.warn(
            "event \"memrun\"",
            "its size and number of bytes or hops are kept; read or write, stride, pattern and ref are not",
        );
        match kind {
            Some(kind) => self.memory(kind, count, region_bytes, node),
            None => self.push(Step::Chase { hops: count, region_bytes }, node),
        }
        Ok(())
    }

    fn memory(&mut self, kind: MemoryKind, bytes: u64, region_bytes: u64, node: &Node<'_>) {
        self.push(Step::Memory { bytes, region_bytes }, node);
        self.push(Step::Run { work_ns: kind.work_ns(bytes) }, node);
    }

    fn ignore_other_keys(&mut self, event: &str, known: &[&str], node: &Node<'_>) -> Read<()> {
        for (key, _) in node.entries(&format!("an object with {}", known.join(", ")))? {
            if !known.contains(&key) {
                self.warn(format!("key \"{key}\" of event \"{event}\""), "ignored, as rt-app does");
            }
        }
        Ok(())
    }
}
