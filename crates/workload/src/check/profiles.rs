//! Memory profiles: valid, known to those who name them, and with data to share.

use warmcore_memory::{Profile, Sharing};

use super::{CheckError, CheckProblem};
use crate::{Task, TaskTemplateId, Workload};

impl Workload {
    /// The memory profile a task names: one of the workload's own, or one that is shipped.
    pub fn profile_of(&self, task: &Task) -> Option<&Profile> {
        let name = task.profile.as_deref()?;
        self.profiles.iter().find(|profile| profile.name == name).or_else(|| warmcore_memory::library::find(name))
    }

    /// Whether any task that can run names a memory profile.
    pub fn has_profiles(&self) -> bool {
        self.tasks.iter().any(|task| task.profile.is_some())
    }
}

pub(super) fn check(workload: &Workload) -> Result<(), CheckError> {
    for profile in &workload.profiles {
        let problem = |error: warmcore_memory::ProfileError| CheckProblem::Profile { message: error.to_string() };
        profile.check().map_err(|error| CheckError::of_workload(workload, problem(error)))?;
    }
    for (index, task) in workload.tasks.iter().enumerate() {
        check_task(workload, task)
            .map_err(|problem| CheckError::of_task(workload, TaskTemplateId(index as u32), problem))?;
    }
    for (index, data) in workload.data_groups.iter().enumerate() {
        let used = workload.tasks.iter().flat_map(|task| &task.data_groups).any(|id| id.index() == index);
        if !used {
            let problem = CheckProblem::DataGroupWithoutMembers { group: data.name.clone() };
            return Err(CheckError::of_workload(workload, problem));
        }
    }
    Ok(())
}

fn check_task(workload: &Workload, task: &Task) -> Result<(), CheckProblem> {
    let Some(name) = &task.profile else { return Ok(()) };
    let Some(profile) = workload.profile_of(task) else {
        return Err(CheckProblem::Profile { message: format!("there is no memory profile called \"{name}\"") });
    };
    for class in &profile.classes {
        let Sharing::Data(wanted) = &class.sharing else { continue };
        let mut groups = task.data_groups.iter().map(|id| &workload.data_groups[id.index()]);
        let group = match wanted {
            Some(wanted) => groups.find(|group| group.name == *wanted),
            None if task.data_groups.len() == 1 => groups.next(),
            None => None,
        };
        let Some(group) = group else {
            return Err(CheckProblem::NoDataGroup {
                class: class.name.clone(),
                wanted: wanted.clone().unwrap_or_else(|| "exactly one".to_owned()),
                groups: task.data_groups.len(),
            });
        };
        if class.bytes > group.bytes {
            return Err(CheckProblem::ClassLargerThanData {
                class: class.name.clone(),
                class_bytes: class.bytes,
                group: group.name.clone(),
                group_bytes: group.bytes,
            });
        }
    }
    Ok(())
}
