//! TEMPORARY SHIM
use crate::console::Console;
use crate::failure::Failure;
use warmcore_workload::Workload;
pub fn run(_w: &Workload, _m: Option<u64>, _json: bool, _console: &Console) -> Result<(), Failure> {
    Err(Failure::unable("shim", "shim"))
}
