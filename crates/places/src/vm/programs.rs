//! BPF programs that a guest's kernel runs by itself.

use std::sync::atomic::AtomicBool;

use warmcore_agent::PROTOCOL;
use warmcore_agent::plan::{Plan, Purpose};
use warmcore_agent::programs::{Came, PATH, Programs};
use warmcore_agent::report::{FrameKind, Hello, Sample};
use warmcore_topology::Machine;

use super::VmError;
use super::boot::{Boot, Lab, document};
use super::initramfs::Initramfs;

/// What came of programs.
#[derive(Clone, Debug)]
pub struct ProgramsRun {
    /// The guest.
    pub hello: Hello,
    /// Of each program, in order.
    pub came: Vec<Came>,
    /// Of the first ones that were refused: number, and the verifier's last words.
    pub words: Vec<(usize, String)>,
}

impl Lab {
    /// Boots a guest that loads these programs and runs each once.
    ///
    /// # Errors
    /// Those of a boot, and a guest that does not say of each program what came of it.
    pub fn run_programs(
        &self,
        machine: &Machine,
        programs: &Programs,
        stop: &AtomicBool,
    ) -> Result<ProgramsRun, VmError> {
        let plan = Plan { protocol: PROTOCOL, purpose: Purpose::Programs, runs: Vec::new() };
        let mut files = Initramfs::default();
        files.file(PATH, programs.encode());
        let (mut came, mut words) = (Vec::new(), Vec::new());
        let broken = |reason: &str| VmError::Protocol { reason: reason.to_owned() };
        let boot = Boot { machine, plan: &plan, files, extra_memory_mib: 128 };
        let hello = self.boot(boot, stop, |_, frame| {
            match frame.kind {
                FrameKind::Came => {
                    let some = Came::decode(&frame.payload, programs.value.len());
                    came.extend(some.ok_or_else(|| broken("what came of programs is cut off"))?);
                }
                FrameKind::Sample => {
                    let sample: Sample = document(&frame)?;
                    let numbered =
                        sample.texts.into_iter().filter_map(|(number, text)| Some((number.parse().ok()?, text)));
                    words.extend(numbered);
                }
                kind => return Err(broken(&format!("a frame {kind:?} while programs are run"))),
            }
            Ok(())
        })?;
        if came.len() != programs.programs.len() {
            return Err(broken(&format!("{} of {} programs came back", came.len(), programs.programs.len())));
        }
        Ok(ProgramsRun { hello, came, words })
    }
}
