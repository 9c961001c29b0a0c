//! The documents that this program writes, each with its JSON Schema.

use std::sync::LazyLock;

use clap::ValueEnum;

/// Declares the documents: variant, file of the schema, which command writes it.
macro_rules! documents {
    ($($variant:ident $name:literal $doc:literal;)*) => {
        /// Documents with a schema.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
        pub enum SchemaName {
            $(#[doc = $doc] $variant,)*
            /// Study files; docs/reference/studies.md explains the keys
            StudyForm,
        }

        impl SchemaName {
            /// The schema.
            pub fn text(self) -> &'static str {
                static STUDY_FORM: LazyLock<String> = LazyLock::new(warmcore_study::file::form_schema);
                match self {
                    $(Self::$variant => include_str!(concat!("../../schemas/", $name, ".schema.json")),)*
                    Self::StudyForm => &STUDY_FORM,
                }
            }
        }
    };
}

documents! {
    Comparison "comparison" "`compare --json` and verdict.json";
    Loads "loads" "`compare --load --json`";
    Trial "trial" "`sim --json` and trials/*.json";
    Workload "workload" "Workload files; docs/workloads.md has examples";
    Error "error" "What a command with `--json` prints when it fails";
    Metrics "metrics" "`list metrics --json`";
    Written "written" "Commands whose result is a text or files, with `--json`: `report`, `machine convert` and others";
    Machines "machines" "`list machines --json`";
    Machine "machine" "`machine show --json` and `machine show host --json`";
    Generators "generators" "`list workloads --json`";
    WorkloadSummary "workload-summary" "`workload show --json`";
    Fit "fit" "`workload fit --json`";
    Native "native" "`workload run --json`";
    Schedulers "schedulers" "`list schedulers --json` and `scheduler --json`";
    SchedulerCheck "scheduler-check" "`scheduler --json`";
    Soak "soak" "`scheduler --soak --json`";
    Explanation "explanation" "`explain --json`";
    Schedstat "schedstat" "`explain schedstat:… --json`";
    Events "events" "`explain --events --json`";
    Record "record" "`record --json`";
    Replay "replay" "`replay --json`";
    Groups "groups" "`group --json`";
    GroupWatch "group-watch" "A line of `group watch:PID --json`";
    Study "study" "`study run --json`, study.json, and `study show RESULT --json`";
    StudySensitivity "study-sensitivity" "`study run --sensitivity --json` and sensitivity.json";
    StudyPlan "study-plan" "`list studies --json`, `study show --json` of a study, and `study run --dry-run --json`";
    Tuning "tuning" "`tune --json` and tuning.json";
    Sweep "sweep" "`sweep --json` and sweep.json";
    MemoryProfiles "memory-profiles" "`list profiles --json`";
    MemoryRun "memory-run" "`memory --json`";
    MemoryValidation "memory-validation" "`validate memory --json`";
    Validation "validation" "`validate --json`";
    HostSurvey "host-survey" "`doctor host --json`";
    HostRestore "host-restore" "`doctor restore --json`";
    HostPlan "host-plan" "`compare --on host:dry-run --json`";
    VmDoctor "vm-doctor" "`doctor vm --json`";
    VmKernels "vm-kernels" "`list kernels --json`";
    VmBoot "vm-boot" "`vm --json`";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_json_with_a_title_and_what_the_document_is_called() {
        for name in SchemaName::value_variants() {
            let schema: serde_json::Value = serde_json::from_str(name.text()).unwrap();
            assert!(schema["title"].is_string() && schema["description"].is_string(), "{name:?}");
            let id = schema["properties"]["schema"]["const"].as_str();
            assert!(*name == SchemaName::Workload || id.is_some_and(|id| id.starts_with("warmcore-")), "{name:?}");
        }
    }
}
