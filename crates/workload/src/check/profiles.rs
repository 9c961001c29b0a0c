//! Memory profiles: valid, known to those who name them, and with data to share.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_memory::{Profile, Sharing};

use super::{CheckError, CheckProblem};
use crate::nearest::suggestion;
use crate::{Task, TaskTemplateId, Workload, WorkloadError};

impl Workload {
    /// The memory profile a task names: one of the workload's own, or one that is shipped.
    pub fn profile_of(&self, task: &Task) -> Option<&Profile> {
        self.profile_called(task.profile.as_deref()?)
    }

    /// The memory profile of that name: one of the workload's own, or one that is shipped.
    pub fn profile_called(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name).or_else(|| warmcore_memory::library::find(name))
    }

    /// Adds profiles of which it has none of that name.
    pub(crate) fn offer(&mut self, profiles: &[Profile]) {
        for profile in profiles {
            if !self.profiles.iter().any(|own| own.name == profile.name) {
                self.profiles.push(profile.clone());
            }
        }
    }

    /// Removes those of the profiles offered that no task names.
    pub(crate) fn drop_unused(&mut self, offered: &[Profile]) {
        let named = |name: &str, task: &Task| {
            task.profile.as_deref() == Some(name) || task.phase_profiles.iter().any(|(_, known)| known == name)
        };
        let tasks = &self.tasks;
        self.profiles.retain(|own| !offered.contains(own) || tasks.iter().any(|task| named(&own.name, task)));
    }

    /// Gives tasks that name no memory profile one of those offered or shipped; tasks without work stay without. `text`: a profile, or, between
    /// commas, `ROLE=PROFILE` for tasks of a role or name, and a profile for all others.
    ///
    /// # Errors
    /// When there is no such profile or role, or no such task.
    pub(crate) fn assume_profile(&mut self, text: &str, offered: &[Profile]) -> Result<(), WorkloadError> {
        let refused = |of: &Self, message| CheckError::of_workload(of, CheckProblem::Profile { message });
        let (mut of_roles, mut of_others) = (BTreeMap::new(), None);
        for item in text.split(',') {
            let before = match item.rsplit_once('=') {
                Some((role, profile)) => of_roles.insert(role, profile),
                None => of_others.replace(item),
            };
            if before.is_some() {
                return Err(refused(self, format!("`{text}` names two memory profiles for the same tasks")).into());
            }
        }
        self.offer(offered);
        let programs = &self.programs;
        let without = |task: &&mut Task| {
            task.profile.is_none() && task.phase_profiles.is_empty() && !programs[task.program.index()].is_idle()
        };
        let (mut heeded, mut is_assumed) = (BTreeSet::new(), false);
        for task in self.tasks.iter_mut().filter(without) {
            let role = [&task.role, &task.name].into_iter().find_map(|of| of_roles.get_key_value(of.as_str()));
            let profile = role.map(|(_, profile)| *profile).or(of_others);
            heeded.extend(role.map(|(role, _)| *role));
            is_assumed |= profile.is_some();
            task.profile = profile.map(str::to_owned);
        }
        if let Some(role) = of_roles.keys().find(|role| !heeded.contains(*role)) {
            let roles: BTreeSet<&str> = self.tasks.iter().map(|task| task.role.as_str()).collect();
            let roles: Vec<&str> = roles.into_iter().take(8).collect();
            let message = format!(
                "no task with work and without a memory profile has the role \"{role}\"; roles are {}",
                roles.join(", ")
            );
            return Err(refused(self, message).into());
        }
        if !is_assumed {
            return Err(WorkloadError::NothingToAssume { profile: text.to_owned() });
        }
        self.drop_unused(offered);
        Ok(self.check()?)
    }

    /// Whether any task that can run names a memory profile.
    pub fn has_profiles(&self) -> bool {
        self.tasks.iter().any(|task| task.profile.is_some() || !task.phase_profiles.is_empty())
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
    for (phase, _) in &task.phase_profiles {
        if *phase as usize >= workload.phases.len() {
            return Err(CheckProblem::Profile { message: format!("there is no phase number {phase}") });
        }
    }
    let of_phases = task.phase_profiles.iter().map(|(_, name)| name);
    task.profile.iter().chain(of_phases).try_for_each(|name| check_use(workload, task, name))
}

/// A task's use of a profile.
fn check_use(workload: &Workload, task: &Task, name: &str) -> Result<(), CheckProblem> {
    let Some(profile) = workload.profile_called(name) else {
        let known = workload.profiles.iter().chain(warmcore_memory::library::profiles());
        let nearest = suggestion(name, known.map(|profile| profile.name.as_str()));
        let message = format!("there is no memory profile called \"{name}\"{nearest}");
        return Err(CheckProblem::Profile { message });
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
