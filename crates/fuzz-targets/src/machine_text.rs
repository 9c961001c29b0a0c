//! Every reader of machine descriptions and of what runs beside them, on the same bytes; what is read must survive being written and read
//! again.
use warmcore_topology as topology;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = topology::from_hwloc_xml(text);
    let _ = topology::from_synthetic(text);
    let _ = topology::resolve(text);
    let _ = topology::CpuSet::parse_list(text);
    let _ = topology::background_from_toml(text);
    if let Ok(machine) = topology::from_toml(text) {
        let written = topology::to_toml(&machine);
        let again = topology::from_toml(&written).expect("what was written is read");
        assert_eq!(again.cpu_count(), machine.cpu_count());
        let _ = topology::render(&machine);
    }
}
