//! The topology, as JSON.

use serde::Serialize;
use warmcore_topology::{CpuId, Machine};

/// The topology as it is embedded, and as it is written beside the trace. Columns by CPU.
pub fn topology_json(machine: &Machine) -> String {
    #[derive(Serialize)]
    struct Topology<'a> {
        schema: &'static str,
        machine: &'a str,
        /// The system's numbers, where these are not 0, 1, 2, ….
        #[serde(skip_serializing_if = "Vec::is_empty")]
        cpu: Vec<u32>,
        core: Vec<u32>,
        llc: Vec<u32>,
        node: Vec<u32>,
        socket: Vec<u32>,
        capacity: Vec<u32>,
    }
    let column = |value: &dyn Fn(CpuId) -> u32| machine.cpus().map(value).collect();
    let topology = Topology {
        schema: "warmcore-topology-1",
        machine: machine.name(),
        cpu: if machine.has_dense_numbers() { Vec::new() } else { column(&|cpu| machine.os_index(cpu)) },
        core: column(&|cpu| machine.core_of(cpu).0),
        llc: column(&|cpu| machine.llc_of(cpu).0),
        node: column(&|cpu| machine.node_os_index(machine.node_of(cpu))),
        socket: column(&|cpu| machine.socket_os_index(machine.socket_of(cpu))),
        capacity: column(&|cpu| machine.capacity(cpu)),
    };
    // Strings, numbers and lists of them can always be written.
    serde_json::to_string(&topology).unwrap_or_default()
}
