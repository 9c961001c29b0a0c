//! Circumstances that a machine or a kernel gives a meaning: on which CPUs a scheduler's column of a table runs, and under which settings.

use std::cmp::Reverse;
use warmcore_agent::plan::Setting;

use warmcore_schedulers::Circumstances;
use warmcore_topology::{CpuId, CpuSet, Machine, parse_cpu_list};

use crate::place::{PlaceError, Request, Trouble};

/// The CPUs that circumstances name; `None` if they leave out none. With `smt=off` the first hardware thread of each core among them.
///
/// # Errors
/// What is no list, or names a CPU that is not online.
pub fn cpus_of(circumstances: &Circumstances, machine: &Machine) -> Result<Option<CpuSet>, String> {
    let named = circumstances.cpus.as_deref().map(|text| cpu_set(text, machine)).transpose()?;
    if !circumstances.smt_off {
        return Ok(named);
    }
    let cpus = named.unwrap_or_else(|| machine.all_cpus().clone());
    let is_first = |cpu: &CpuId| {
        let of_core = machine.cpus_of_core(machine.core_of(*cpu));
        of_core.iter().find(|sibling| cpus.contains(*sibling)) == Some(*cpu)
    };
    Ok(Some(cpus.iter().filter(is_first).collect()))
}

/// The CPUs of the largest socket, node or LLC (of equal ones the first), or of a list of the system's numbers.
fn cpu_set(text: &str, machine: &Machine) -> Result<CpuSet, String> {
    let largest = |cpus: Option<&CpuSet>| cpus.cloned().ok_or_else(|| "the machine has no CPU online".to_owned());
    Ok(match text {
        "one-socket" => largest(machine.largest_socket().map(|socket| machine.cpus_of_socket(socket)))?,
        "one-node" => {
            let sizes = machine.nodes().max_by_key(|node| (machine.cpus_of_node(*node).len(), Reverse(*node)));
            largest(sizes.map(|node| machine.cpus_of_node(node)))?
        }
        "one-llc" => largest(machine.largest_llc().map(|llc| machine.cpus_of_llc(llc)))?,
        list => {
            let numbers = parse_cpu_list(list)
                .map_err(|error| format!("CPUs {list}: {error} (or one-socket, one-node, one-llc)"))?;
            let cpu = |number: u32| {
                machine.cpu_by_os_index(number).ok_or_else(|| format!("CPUs {list}: there is no CPU {number} online"))
            };
            numbers.into_iter().map(cpu).collect::<Result<CpuSet, String>>()?
        }
    })
}

/// Files of the kernel that circumstances name, with their values. They are written last, over what all columns have there.
pub(crate) fn files_of(circumstances: &Circumstances) -> impl Iterator<Item = Setting> + '_ {
    let setting =
        |(path, value): &(String, String)| Setting { path: path.clone(), value: value.clone(), required: true };
    circumstances.files.iter().map(setting)
}

/// Checks that no circumstances are asked for in a place that has none, but for kernels and their files where it has those. What the
/// experiment makes of them, the request does not name.
pub(crate) fn check(request: &Request<'_>, has_kernels: bool) -> Result<(), PlaceError> {
    let mut circumstances = request.scheduler.circumstances().clone();
    if has_kernels {
        circumstances = Circumstances { kernel: None, files: Vec::new(), ..circumstances };
    }
    if circumstances.is_default() {
        return Ok(());
    }
    let mut message = format!("`{}`: there is no choice of `{circumstances}` here", request.scheduler);
    if let Some(tunable) = circumstances.files.first().and_then(|file| tunable_of(request, file)) {
        message = format!("{message}; in the simulator that is `{}:{tunable}`", request.scheduler.name());
    }
    let advice = match circumstances {
        Circumstances { numa_balancing: Some(_), .. } => {
            "in the simulator it is a tunable, such as `eevdf:numa_balancing=0`; or run it with --on host"
        }
        Circumstances { governor: Some(_), .. } => {
            "in the simulator it is a tunable, such as `eevdf:governor=schedutil`; or run it with --on host"
        }
        Circumstances { kernel: Some(_), .. } => "kernels are compared with --on vm",
        Circumstances { files, .. } if !files.is_empty() => {
            "the simulator has no files of a kernel: name the scheduler's tunable instead (`warmcore scheduler NAME` lists them), or run it with \
             --on host or --on vm"
        }
        _ => "run it with --on host, on a computer or in a guest",
    };
    Err(PlaceError::new(Trouble::Unfit, "warmcore::scheduler", message, advice))
}

/// The tunable that a file of the kernel is, or a word of `features`, with the value.
fn tunable_of(request: &Request<'_>, (path, value): &(String, String)) -> Option<String> {
    let named = |name: &str| request.scheduler.info().tunables().any(|tunable| tunable.name == name);
    let file = path.rsplit('/').next()?;
    if file == "features" {
        let (word, on) = value.strip_prefix("NO_").map_or((value.as_str(), 1), |word| (word, 0));
        let name = word.to_lowercase();
        return named(&name).then(|| format!("{name}={on}"));
    }
    let name = if file == "sched_autogroup_enabled" { "autogroup" } else { file };
    named(name).then(|| format!("{name}={value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_llc_node_or_socket_is_the_largest() {
        let machine = warmcore_topology::from_toml(
            "[topology]\nnodes = [{ id = 0, cpus = \"0\" }, { id = 1, cpus = \"1-6\" }]\n\
             sockets = [{ id = 0, cpus = \"0\" }, { id = 1, cpus = \"1-6\" }]\nllcs = [\"0\", \"1-2\", \"3-6\"]\n",
        )
        .unwrap();
        let cpus = |text: &str| cpu_set(text, &machine).unwrap().iter().map(|cpu| cpu.0).collect::<Vec<_>>();
        assert_eq!(cpus("one-llc"), [3, 4, 5, 6]);
        assert_eq!((cpus("one-node"), cpus("one-socket")), (vec![1, 2, 3, 4, 5, 6], vec![1, 2, 3, 4, 5, 6]));
    }

    #[test]
    fn sets_of_cpus_are_those_of_the_machine() {
        let machine = warmcore_topology::resolve("2s1n2l2c2t").unwrap();
        let cpus = |text: &str, smt_off| {
            let circumstances = Circumstances { cpus: Some(text.into()), smt_off, ..Circumstances::default() };
            cpus_of(&circumstances, &machine).map(|cpus| cpus.unwrap().iter().map(|cpu| cpu.0).collect::<Vec<_>>())
        };
        // Hardware threads of a core are eight numbers apart here.
        assert_eq!(cpus("one-llc", false).unwrap(), [0, 1, 8, 9]);
        assert_eq!(cpus("one-llc", true).unwrap(), [0, 1]);
        assert_eq!(cpus("one-node", false).unwrap(), cpus("one-socket", false).unwrap());
        assert_eq!(cpus("one-socket", false).unwrap(), [0, 1, 2, 3, 8, 9, 10, 11]);
        assert_eq!(cpus("8-9,1", true).unwrap(), [1, 8]);
        assert!(cpus("99", false).unwrap_err().contains("there is no CPU 99"));
        assert!(cpus("a-b", false).unwrap_err().contains("one-llc"));
        let all = Circumstances { smt_off: true, ..Circumstances::default() };
        assert_eq!(cpus_of(&all, &machine).unwrap().unwrap().len(), 8);
        assert_eq!(cpus_of(&Circumstances::default(), &machine), Ok(None));
    }
}
