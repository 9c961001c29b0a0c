//! Which threads a cache-aware scheduler is to keep together: those of a process, unless somebody knows better.
//!
//! A choice can be made for a process, a task group or the users of a data group. Where several apply to a task, what
//! says more about it wins: data group, then task group, then process. Schedulers without cache awareness ignore all of this.

use std::collections::BTreeMap;

use crate::nearest::suggestion;
use crate::{DataGroupId, GroupId, ProcessId, Workload};

/// With whom a thread is kept together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Aggregate {
    /// With nobody.
    Off,
    /// With the threads of its process.
    #[default]
    Process,
    /// With everybody of that group: index into [`Aggregation::groups`].
    Group(u32),
}

/// The choices made in a workload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Aggregation {
    /// Names of groups.
    pub groups: Vec<String>,
    /// By index of the process.
    pub processes: BTreeMap<u32, Aggregate>,
    /// By index of the task group.
    pub task_groups: BTreeMap<u32, Aggregate>,
    /// By index of the data group.
    pub data_groups: BTreeMap<u32, Aggregate>,
}

/// Why a choice was not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum AggregateError {
    #[error(
        "\"{text}\" is not of the form process:NAME=CHOICE, taskgroup:PATH=CHOICE or data:NAME=CHOICE with off, process or group:NAME as the choice"
    )]
    Form { text: String },
    #[error("there is no {kind} called \"{name}\"{suggestion}")]
    Unknown { kind: &'static str, name: String, suggestion: String },
    #[error("\"{choice}\" is not off, process or group:NAME")]
    Choice { choice: String },
}

/// What a choice is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregateTarget {
    /// A process.
    Process,
    /// A task group.
    TaskGroup,
    /// The users of a data group.
    Data,
}

impl AggregateTarget {
    const fn kind(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::TaskGroup => "task group",
            Self::Data => "data group",
        }
    }
}

impl Aggregation {
    /// With whom a task is kept together.
    pub fn of(&self, process: ProcessId, group: Option<GroupId>, data_groups: &[DataGroupId]) -> Aggregate {
        let by_data = data_groups.iter().find_map(|data| self.data_groups.get(&data.0));
        let by_group = || group.and_then(|group| self.task_groups.get(&group.0));
        let choice = by_data.or_else(by_group).or_else(|| self.processes.get(&process.0));
        choice.copied().unwrap_or_default()
    }

    /// Whether nothing was chosen.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// A choice as it is written.
    pub fn text(&self, choice: Aggregate) -> String {
        match choice {
            Aggregate::Off => "off".to_owned(),
            Aggregate::Process => "process".to_owned(),
            Aggregate::Group(group) => format!("group:{}", self.groups[group as usize]),
        }
    }
}

impl Workload {
    /// Makes the choice in `TARGET:NAME=CHOICE`, such as `process:mysqld=off` or `data:rows=group:rows`.
    ///
    /// # Errors
    /// A text of another form, and names that nothing in the workload has.
    pub fn choose_aggregate(&mut self, text: &str) -> Result<(), AggregateError> {
        let form = || AggregateError::Form { text: text.to_owned() };
        let (target, choice) = text.split_once('=').ok_or_else(form)?;
        let (kind, name) = target.split_once(':').ok_or_else(form)?;
        let target = match kind {
            "process" => AggregateTarget::Process,
            "taskgroup" => AggregateTarget::TaskGroup,
            "data" => AggregateTarget::Data,
            _ => return Err(form()),
        };
        self.set_aggregate(target, name, choice)
    }

    /// Makes a choice for one thing.
    ///
    /// # Errors
    /// A choice that is none, and names that nothing in the workload has.
    pub(crate) fn set_aggregate(
        &mut self,
        target: AggregateTarget,
        name: &str,
        choice: &str,
    ) -> Result<(), AggregateError> {
        let names: Vec<&str> = match target {
            AggregateTarget::Process => self.processes.iter().map(|process| process.name.as_str()).collect(),
            AggregateTarget::TaskGroup => self.groups.iter().map(|group| group.name.as_str()).collect(),
            AggregateTarget::Data => self.data_groups.iter().map(|group| group.name.as_str()).collect(),
        };
        let Some(index) = names.iter().position(|known| *known == name) else {
            let suggestion = suggestion(name, names);
            return Err(AggregateError::Unknown { kind: target.kind(), name: name.to_owned(), suggestion });
        };
        let choice = self.parse_aggregate(choice)?;
        let table = match target {
            AggregateTarget::Process => &mut self.aggregation.processes,
            AggregateTarget::TaskGroup => &mut self.aggregation.task_groups,
            AggregateTarget::Data => &mut self.aggregation.data_groups,
        };
        table.insert(index as u32, choice);
        Ok(())
    }

    /// `off`, `process` or `group:NAME`. A group is one of [`Aggregation::groups`], or is called like a process, task group or data
    /// group: a mistyped name would silently make a group of its own.
    fn parse_aggregate(&mut self, choice: &str) -> Result<Aggregate, AggregateError> {
        let name = match choice {
            "off" => return Ok(Aggregate::Off),
            "process" => return Ok(Aggregate::Process),
            other => {
                other.strip_prefix("group:").ok_or_else(|| AggregateError::Choice { choice: choice.to_owned() })?
            }
        };
        if let Some(index) = self.aggregation.groups.iter().position(|known| known == name) {
            return Ok(Aggregate::Group(index as u32));
        }
        let processes = self.processes.iter().map(|process| &process.name);
        let others =
            self.groups.iter().map(|group| &group.name).chain(self.data_groups.iter().map(|group| &group.name));
        let known: Vec<&str> = processes.chain(others).chain(&self.aggregation.groups).map(String::as_str).collect();
        if !known.contains(&name) {
            let suggestion = suggestion(name, known);
            return Err(AggregateError::Unknown { kind: "aggregation group", name: name.to_owned(), suggestion });
        }
        self.aggregation.groups.push(name.to_owned());
        Ok(Aggregate::Group(self.aggregation.groups.len() as u32 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        let mut workload = Workload::empty("test");
        workload.add_process("server");
        workload.add_process("client");
        workload.add_group("/web");
        workload.add_data_group("rows", 1 << 20);
        workload
    }

    #[test]
    fn the_choice_that_says_most_about_a_task_wins() {
        let mut workload = workload();
        let (process, group, data) = (ProcessId(0), Some(GroupId(0)), [DataGroupId(0)]);
        assert_eq!(workload.aggregation.of(process, group, &data), Aggregate::Process);
        workload.choose_aggregate("process:server=off").unwrap();
        assert_eq!(workload.aggregation.of(process, group, &data), Aggregate::Off);
        assert_eq!(workload.aggregation.of(ProcessId(1), group, &data), Aggregate::Process);
        workload.choose_aggregate("taskgroup:/web=group:server").unwrap();
        assert_eq!(workload.aggregation.of(process, group, &data), Aggregate::Group(0));
        workload.choose_aggregate("data:rows=process").unwrap();
        assert_eq!(workload.aggregation.of(process, group, &data), Aggregate::Process);
        assert_eq!(workload.aggregation.of(process, None, &[]), Aggregate::Off);
    }

    #[test]
    fn things_with_one_group_name_are_together() {
        let mut workload = workload();
        workload.choose_aggregate("process:server=group:rows").unwrap();
        workload.choose_aggregate("process:client=group:rows").unwrap();
        assert_eq!(workload.aggregation.groups, ["rows"]);
        assert_eq!(workload.aggregation.processes.values().collect::<Vec<_>>(), [&Aggregate::Group(0); 2]);
    }

    #[test]
    fn mistakes_are_told_with_what_was_meant() {
        let mut workload = workload();
        let mut message = |text: &str| workload.choose_aggregate(text).unwrap_err().to_string();
        assert_eq!(message("process:sever=off"), "there is no process called \"sever\" (did you mean \"server\"?)");
        assert_eq!(
            message("process:server=group:row"),
            "there is no aggregation group called \"row\" (did you mean \"rows\"?)"
        );
        assert!(message("process:server=on").contains("off, process or group:NAME"));
        assert!(message("taskgroup:/wev=off").contains("no task group called \"/wev\" (did you mean \"/web\"?)"));
        assert!(message("data:rowz=off").contains("no data group called"));
        for text in ["server=off", "process:server", "thread:server=off"] {
            assert!(message(text).contains("process:NAME=CHOICE"), "{text}");
        }
        assert!(workload.aggregation.is_default(), "nothing was changed");
    }
}
