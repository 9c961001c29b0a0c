//! What guests are made of, in an experiment's record: enough to say where results come from, and to go on with a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use warmcore_agent::report::{Hello, Sample};
use warmcore_schedulers::SchedulerSpec;

use super::VmError;
use super::boot::Lab;
use super::kernel::Kernel;
use super::qemu::{Execution, Qemu};
use super::trial::Recorded;
use crate::files::{find_program, sha256_of_file};

/// The makings of guests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestRecord {
    /// The kernel's image.
    pub image: PathBuf,
    /// Its configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// `uname -r`.
    pub release: String,
    /// Identifies the image.
    pub sha256: String,
    /// QEMU's version.
    pub qemu: String,
    /// How guests are executed.
    pub execution: Execution,
    /// Longest time of a boot, s.
    pub limit_s: u64,
    /// Trace buffer, KiB per CPU.
    pub buffer_kib: u32,
    /// sched_ext programs and what identifies each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
    /// Other kernels that schedulers name, by what was typed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kernels: BTreeMap<String, Kernel>,
}

impl GuestRecord {
    /// What a result depends on, in one line.
    pub fn identity(&self) -> String {
        let mut text =
            format!("vm: kernel {} ({}), QEMU {}, {}", self.release, short(&self.sha256), self.qemu, self.execution);
        for (program, sum) in &self.programs {
            let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
            text.push_str(&format!(", {name} ({})", short(sum)));
        }
        for (typed, kernel) in &self.kernels {
            text.push_str(&format!(", {typed} is kernel {} ({})", kernel.release, short(&kernel.sha256)));
        }
        text
    }

    /// Guests of the same makings, here and now.
    ///
    /// # Errors
    /// When one of them is gone or is another one now.
    pub fn reopen(&self) -> Result<Lab, VmError> {
        let changed = |what: String| VmError::Changed { what };
        let qemu = Qemu::find()?;
        if qemu.version != self.qemu {
            return Err(changed(format!("QEMU is {} now, and was {}", qemu.version, self.qemu)));
        }
        let GuestRecord { image, config, release, sha256, .. } = self.clone();
        let kernel = Kernel { image, config, release, sha256 }.reopen()?;
        let others = self.kernels.iter().map(|(typed, kernel)| Ok((typed.clone(), kernel.reopen()?)));
        for (program, sum) in &self.programs {
            if identify(program)? != *sum {
                return Err(changed(format!("{program} is another program")));
            }
        }
        Ok(Lab {
            qemu,
            kernel,
            execution: self.execution,
            limit: Duration::from_secs(self.limit_s),
            buffer_kib: self.buffer_kib,
            programs: self.programs.clone(),
            kernels: others.collect::<Result<_, VmError>>()?,
        })
    }
}

/// What the guest of a trial was like: a file of the run directory.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GuestFacts {
    schema: &'static str,
    /// `uname -r` and `uname -m`.
    release: String,
    architecture: String,
    /// QEMU's version, and how the guest was executed.
    qemu: String,
    execution: String,
    /// The guest's clock source.
    clocksource: String,
    /// Guest time from the kernel's start to the first program, ns.
    boot_ns: u64,
    memory_bytes: u64,
    /// Scheduling domains of CPU 0, lowest first.
    domains: Vec<String>,
    /// Settings in force during the run, read back: path and value.
    settings: Vec<(String, String)>,
    /// Files of the scheduler's directory as the kernel had them at the boot.
    sched: Vec<(String, String)>,
    llc_balancing: Vec<(String, String)>,
    /// The sched_ext scheduler as the kernel named it.
    scx: Option<String>,
    /// How often the kernel was asked during the run whether that scheduler still schedules.
    scx_checks: u32,
    /// Events that each CPU's trace buffer took and did not take.
    buffers: Vec<(u64, u64)>,
    /// CPU time of threads that are not the workload's, ns.
    foreign_run_ns: u64,
    /// The kernel's `/proc/schedstat` before and after the run.
    samples: Vec<Sample>,
}

impl GuestFacts {
    /// Of one trial.
    pub fn new(lab: &Lab, hello: &Hello, recorded: &Recorded) -> Self {
        Self {
            schema: "warmcore-guest-1",
            release: hello.release.clone(),
            architecture: hello.architecture.clone(),
            qemu: lab.qemu.version.clone(),
            execution: lab.execution.to_string(),
            clocksource: hello.clocksource.clone(),
            boot_ns: hello.boot_ns,
            memory_bytes: hello.memory_bytes,
            domains: hello.domains.clone(),
            settings: recorded.settings.clone(),
            sched: hello.sched.clone(),
            llc_balancing: hello.llc_balancing.clone(),
            scx: recorded.scx.as_ref().map(|(name, _)| name.clone()),
            scx_checks: recorded.scx.as_ref().map_or(0, |(_, checks)| *checks),
            buffers: recorded.buffers.clone(),
            foreign_run_ns: recorded.foreign_run_ns,
            samples: recorded.samples.clone(),
        }
    }
}

impl Lab {
    /// Its record.
    pub fn record(&self) -> GuestRecord {
        GuestRecord {
            image: self.kernel.image.clone(),
            config: self.kernel.config.clone(),
            release: self.kernel.release.clone(),
            sha256: self.kernel.sha256.clone(),
            qemu: self.qemu.version.clone(),
            execution: self.execution,
            limit_s: self.limit.as_secs(),
            buffer_kib: self.buffer_kib,
            programs: self.programs.clone(),
            kernels: self.kernels.clone(),
        }
    }

    /// The same, knowing the programs that these schedulers are: results depend on what is in them.
    ///
    /// # Errors
    /// A program that cannot be read.
    pub fn with_programs(mut self, schedulers: &[SchedulerSpec]) -> Result<Self, VmError> {
        for spec in schedulers {
            if let Some(scx) = spec.program() {
                self.programs.insert(scx.program.clone(), identify(&scx.program)?);
            }
        }
        Ok(self)
    }
}

fn identify(program: &str) -> Result<String, VmError> {
    let path = find_program(program);
    Ok(sha256_of_file(&path)?)
}

fn short(sum: &str) -> &str {
    &sum[..12.min(sum.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_kernel_emulator_and_programs() {
        let record = GuestRecord {
            image: "/k/vmlinuz".into(),
            config: None,
            release: "7.2.13".into(),
            sha256: "0123456789abcdef".into(),
            qemu: "7.2.22".into(),
            execution: Execution::VirtualTime { shift: 1 },
            limit_s: 900,
            buffer_kib: 4096,
            programs: BTreeMap::from([("/opt/scx_lavd".to_owned(), "ff00ff00ff00ff00".to_owned())]),
            kernels: BTreeMap::new(),
        };
        let wanted = "vm: kernel 7.2.13 (0123456789ab), QEMU 7.2.22, emulated, virtual time (2 ns per instruction), \
                      scx_lavd (ff00ff00ff00)";
        assert_eq!(record.identity(), wanted);
        let text = toml::to_string(&record).unwrap();
        assert_eq!(toml::from_str::<GuestRecord>(&text).unwrap(), record);
    }
}
