//! Which settings of a kernel are worth a trial for a workload on a machine, when nobody names schedulers.
//!
//! All are what an administrator of a Linux 7.2 can type: its fair class with cache-aware scheduling on or off, slices, NUMA balancing, sets of
//! CPUs. The baseline is the fair class by itself: a kernel with `CONFIG_SCHED_CACHE` begins with cache-aware scheduling on.

use warmcore_lab::load::{LoadError, scheduler};
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::Machine;
use warmcore_workload::Workload;

use crate::threads::unroll;

/// By how much slices are made longer.
const LONGER: u64 = 4;

/// The settings, the baseline first. `caches` says whether the run has what caches hold: without, it cannot say what a place near others is
/// worth, and no place is tried.
///
/// # Errors
/// A scheduler that is not known: a fault of this program.
pub fn candidates(machine: &Machine, workload: &Workload, caches: bool) -> Result<Vec<SchedulerSpec>, LoadError> {
    let eevdf = scheduler("eevdf")?;
    let slice =
        eevdf.effective(machine.cpu_count()).iter().find(|(name, _)| *name == "base_slice_ns").map(|(_, ns)| *ns);
    let threads = unroll(workload, machine).threads.len();
    let (llcs, sockets) = (machine.llc_count(), machine.socket_count());
    let of_llc = machine.largest_llc().map_or(0, |llc| machine.cpus_of_llc(llc).len());
    let of_socket = machine.largest_socket().map_or(0, |socket| machine.cpus_of_socket(socket).len());
    // Of threads that come and go nobody knows how many there are; they can be kept to CPUs, not pinned.
    let fits = |cpus: usize| threads <= cpus;
    let placed = caches && llcs > 1;
    let pinned = placed && threads > 0 && fits(machine.cpu_count());
    let mut texts: Vec<String> = vec!["eevdf".into()];
    let mut add = |wanted: bool, text: &str| {
        if wanted {
            texts.push(text.to_owned());
        }
    };
    add(llcs > 1, "cache-aware");
    add(placed && fits(of_llc), "eevdf@cpus=one-llc");
    add(placed && sockets > 1 && sockets < llcs && fits(of_socket), "eevdf@cpus=one-socket");
    add(pinned, "eevdf@pin=spread");
    add(pinned, "eevdf@pin=gathered");
    add(machine.smt_width() > 1 && fits(machine.cpu_count()), "eevdf@smt=off");
    add(machine.nodes().count() > 1 && caches, "eevdf:numa_balancing=0");
    if let Some(slice) = slice {
        add(true, &format!("eevdf:base_slice_ns={}", slice * LONGER));
    }
    texts.iter().map(|text| scheduler(text)).collect()
}
