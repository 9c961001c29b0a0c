//! The documents that this program writes, each with its JSON Schema.

use clap::ValueEnum;

/// Declares the documents: variant, file of the schema, which command writes it.
macro_rules! documents {
    ($($variant:ident $name:literal $doc:literal;)*) => {
        /// Documents with a schema.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
        pub enum SchemaName {
            $(#[doc = $doc] $variant,)*
        }

        impl SchemaName {
            /// The schema.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => include_str!(concat!("../../schemas/", $name, ".schema.json")),)*
                }
            }
        }
    };
}

documents! {
    Comparison "comparison" "`compare --json` and verdict.json";
    Loads "loads" "`compare --load --json`";
    Trial "trial" "`sim --json`, `vm run --json` and trials/*.json";
    CdfDio "cdf-dio" "`reproduce cdf-dio --json` and cdf-dio.json";
    Workload "workload" "Workload files; docs/workloads.md has examples";
    Error "error" "What a command with `--json` prints when it fails";
    Metrics "metrics" "`metrics list --json`";
    Written "written" "What commands whose result is files or a text say with `--json`: `report`, `machine convert` and others";
    Machines "machines" "`machine list --json`";
    Machine "machine" "`machine show --json` and `machine detect --json`";
    Generators "generators" "`workload list --json`";
    WorkloadSummary "workload-summary" "`workload show --json`";
    Fit "fit" "`workload fit --json`";
    Native "native" "`workload run --json`";
    Schedulers "schedulers" "`schedulers list --json` and `schedulers show --json`";
    SchedulerCheck "scheduler-check" "`schedulers check --json`";
    Explanation "explanation" "`explain --json`";
    Events "events" "`events --json`";
    Record "record" "`record --json`";
    Replay "replay" "`replay --json`";
    Groups "groups" "`group --json`";
    Study "study" "`study run --json`, study.json, and `study show RESULT --json`";
    StudySensitivity "study-sensitivity" "`study run --sensitivity --json` and sensitivity.json";
    StudyPlan "study-plan" "`study list --json`, `study show --json` of a study, and `study check --json`";
    Sweep "sweep" "`sweep --json` and sweep.json";
    MemoryProfiles "memory-profiles" "`memory profiles --json`";
    MemoryRun "memory-run" "`memory run --json`";
    MemoryValidation "memory-validation" "`validate memory --json`";
    Validation "validation" "`validate --json`";
    Programs "programs" "`validate programs --json`";
    HostSurvey "host-survey" "`host doctor --json`";
    HostRestore "host-restore" "`host restore --json`";
    HostPlan "host-plan" "`compare --on host --dry-run --json`";
    VmDoctor "vm-doctor" "`vm doctor --json`";
    VmKernels "vm-kernels" "`vm kernels --json`";
    VmBoot "vm-boot" "`vm boot --json`";
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::*;
    use crate::args::Arguments;

    /// Commands without `--json`, and why.
    const WITHOUT: [(&str, &str); 5] = [
        ("warmcore vm shell", "a person types into it"),
        ("warmcore vm exec", "it prints what its program prints"),
        ("warmcore schema", "it prints a JSON document"),
        ("warmcore completions", "it prints a script for a shell"),
        ("warmcore man", "it prints pages for man"),
    ];

    /// Every command that does something by itself, with its whole name.
    fn commands(command: &Command, before: &str, found: &mut Vec<(String, bool)>) {
        let name = format!("{before}{}", command.get_name());
        if !command.is_subcommand_required_set() {
            let json = command.get_arguments().any(|argument| argument.get_long() == Some("json"));
            found.push((name.clone(), json));
        }
        command.get_subcommands().for_each(|inner| commands(inner, &format!("{name} "), found));
    }

    #[test]
    fn every_command_prints_json_or_has_a_reason_not_to() {
        let mut found = Vec::new();
        commands(&Arguments::command(), "", &mut found);
        assert!(found.len() > 30, "{found:?}");
        for (name, json) in &found {
            let excepted = WITHOUT.iter().any(|(without, _)| without == name);
            assert!(*json != excepted, "{name} has {} --json", if *json { "an exception and" } else { "no" });
        }
        for (without, _) in WITHOUT {
            assert!(found.iter().any(|(name, _)| name == without), "{without} is no command");
        }
    }

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
