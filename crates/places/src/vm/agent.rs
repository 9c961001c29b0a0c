//! The guest agent: the program that `build.rs` built, as bytes.

use super::VmError;

// A constant would be embedded once for each unit of code that names it.
static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent"));
const REASON: &str = include_str!(concat!(env!("OUT_DIR"), "/agent-reason"));

/// The program, statically linked.
///
/// # Errors
/// When this build has none.
pub fn agent() -> Result<&'static [u8], VmError> {
    if AGENT.is_empty() { Err(VmError::NoAgent { reason: REASON.to_owned() }) } else { Ok(AGENT) }
}
