//! The pages of `docs/reference/` on commands, tunables, metrics and presets are what the program says of itself; with UPDATE_PAGES=1 they are
//! made so.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use warmcore_schedulers::TunableKind;

use crate::common::{Scratch, expect_file};

/// Where the options begin that every command has.
const EVERY_COMMAND: &str = "\nEvery command:\n";

/// A row of a table. A bar would end its cell, a `<` begin a mark of HTML.
fn row(page: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('<', "&lt;")).collect();
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

/// The first two lines of a table; `>` begins the name of a column of numbers.
fn head(page: &mut String, columns: &[&str]) {
    let names: Vec<&str> = columns.iter().map(|name| name.trim_start_matches('>')).collect();
    let lines: Vec<&str> = columns.iter().map(|name| if name.starts_with('>') { "--:" } else { "---" }).collect();
    let _ = writeln!(page, "| {} |\n|{}|", names.join(" | "), lines.join("|"));
}

/// The help of a command, without blanks at the ends of lines.
fn help(scratch: &Scratch, command: &str) -> String {
    let text = scratch.run(&format!("{command} --help")).exits_with(0).out;
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The commands below one, as its help lists them.
fn below(help: &str) -> Vec<&str> {
    let list = help.split_once("\nCommands:\n").map_or("", |(_, list)| list);
    let lines = list.lines().take_while(|line| !line.is_empty());
    // A line that goes on is indented more.
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help").collect()
}

/// Writes the help of a command and of those below it, each with its own options alone.
fn write_commands(page: &mut String, scratch: &Scratch, (command, every): (&str, &str)) {
    let text = help(scratch, command);
    let (own, shared) = text.split_once(EVERY_COMMAND).unwrap_or_else(|| panic!("{command} lacks the shared options"));
    assert_eq!(shared.trim_end(), every, "{command} has other shared options");
    let block: String = own.trim_end().lines().map(|line| format!("    {line}").trim_end().to_owned() + "\n").collect();
    let _ = write!(page, "\n## warmcore {command}\n\n{block}");
    for name in below(own) {
        write_commands(page, scratch, (&format!("{command} {name}"), every));
    }
}

#[test]
fn the_page_of_commands_has_the_help_of_every_command() {
    let scratch = Scratch::new();
    let text = help(&scratch, "");
    let (own, rest) = text.split_once(EVERY_COMMAND).expect("options of every command");
    let (every, after) = rest.split_once("\nExit codes:").expect("the exit codes follow");
    let every = every.trim_end();
    let mut page = String::from("# Commands\n\n`warmcore COMMAND --help` prints the same.\n\n## Every command\n\n");
    for line in format!("{every}\n\nExit codes:{after}").trim_end().lines() {
        page.push_str(format!("    {line}").trim_end());
        page.push('\n');
    }
    let commands = below(own);
    assert!(commands.len() >= 15 && commands.contains(&"compare"), "{commands:?}");
    for command in commands {
        write_commands(&mut page, &scratch, (command, every));
    }
    expect_file("docs/reference/commands.md", &page);
}

#[test]
fn the_page_of_tunables_has_every_tunable_of_every_scheduler() {
    let rows = |info: &warmcore_schedulers::SchedulerInfo| -> Vec<String> {
        let rows = info.tunables().map(|tunable| {
            let kind = match tunable.kind {
                TunableKind::Switch => "switch",
                TunableKind::Count(_) => "count",
                TunableKind::Time(_) => "time",
                TunableKind::Share(_) => "share",
                TunableKind::Choice { .. } => "choice",
                TunableKind::Fraction => "fraction",
                TunableKind::Percentages => "percentages",
            };
            let range = format!("{} {}", tunable.range(), tunable.unit());
            let name = format!("`{}`", tunable.name);
            let mut text = String::new();
            row(&mut text, &[&name, kind, range.trim_end(), &tunable.text(tunable.default), tunable.doc]);
            text
        });
        rows.collect()
    };
    let schedulers: Vec<_> = warmcore_schedulers::list().iter().map(|info| (info, rows(info))).collect();
    let everywhere = |row: &String| schedulers.iter().all(|(_, rows)| rows.contains(row));
    let table = |page: &mut String, rows: Vec<&String>| {
        head(page, &["tunable", "kind", "range", ">default", "meaning"]);
        rows.into_iter().for_each(|row| page.push_str(row));
    };
    let mut page = String::from(
        "# Tunables\n\n`-s NAME:TUNABLE=VALUE` sets them, and `warmcore scheduler NAME` prints the same.\n\n## Every scheduler\n\n",
    );
    let (_, first) = &schedulers[0];
    table(&mut page, first.iter().filter(|row| everywhere(row)).collect());
    for (info, rows) in &schedulers {
        let _ = write!(page, "\n## {}\n\n{}. Source: {}.\n", info.name, info.summary, info.source);
        let own: Vec<&String> = rows.iter().filter(|row| !everywhere(row)).collect();
        if !own.is_empty() {
            page.push('\n');
            table(&mut page, own);
        }
    }
    expect_file("docs/reference/tunables.md", &page);
}

/// Workloads that have metrics which others lack, and what those metrics are.
const WORKLOADS: [(&str, &str); 4] = [
    ("", "Every workload"),
    ("spin:-n2,-d1s", "With a memory model, and profiles of the workload's tasks"),
    ("hackbench:-g1", "hackbench"),
    ("schbench:-m1,-t1", "schbench; other programs and files name what they record in the same way"),
];

/// What workloads of several roles have for each of them.
const ROLES: &str = "\n## Roles\n\nA workload of 2 to 16 roles has `role_ROLE_wakeup_p99_ns`, `role_ROLE_wakeup_mean_ns` and \
                     `role_ROLE_wakeup_samples` of each role, and the same of `response`.\n";

#[test]
fn the_page_of_metrics_has_every_metric_with_unit_and_direction() {
    let scratch = Scratch::new();
    let mut page =
        String::from("# Metrics\n\n`--metric NAME` takes them, and `warmcore list metrics` prints the same.\n");
    let mut known: Vec<String> = Vec::new();
    for (workload, title) in WORKLOADS {
        let printed = scratch.run(&format!("list metrics {workload} --json")).exits_with(0).out;
        let document: Value = serde_json::from_str(&printed).expect("a document");
        let _ = write!(page, "\n## {title}\n\n");
        head(&mut page, &["metric", "unit", "better", "meaning"]);
        let mut own = 0;
        for metric in document["metrics"].as_array().expect("a list of metrics") {
            let text = |key: &str| metric[key].as_str().expect("a text").to_owned();
            // Each role has the same ones.
            if !known.contains(&text("name")) && !text("name").starts_with("role_") {
                let better = text("better").replace("neither", "-");
                row(&mut page, &[&format!("`{}`", text("name")), &text("unit"), &better, &text("definition")]);
                known.push(text("name"));
                own += 1;
            }
        }
        assert!(own > 0, "`{workload}` has no metric that is not listed above");
    }
    page.push_str(ROLES);
    expect_file("docs/reference/metrics.md", &page);
}

#[test]
fn the_page_of_presets_has_every_machine_with_its_parts_and_the_origins_of_its_values() {
    let mut page = String::from(
        "# Presets\n\n`-m NAME` takes them, and `warmcore machine show NAME` draws one with all values. Each is a file of `machines/`, whose \
         README says what origins are.\n\n",
    );
    head(&mut page, &["preset", ">sockets", ">nodes", ">LLCs", ">cores", ">CPUs", "also", "what it is"]);
    let mut origins = String::new();
    for preset in warmcore_topology::presets() {
        let machine = warmcore_topology::resolve(&preset.name).expect("a preset can be read");
        let counts = [
            machine.socket_count(),
            machine.node_count(),
            machine.llc_count(),
            machine.core_count(),
            machine.cpu_count(),
        ];
        let counts = counts.map(|count| count.to_string());
        let [sockets, nodes, llcs, cores, cpus] = counts.each_ref().map(String::as_str);
        let name = format!("`{}`", preset.name);
        row(&mut page, &[&name, sockets, nodes, llcs, cores, cpus, &preset.aliases.join(", "), &preset.summary]);
        // The names of values by the basis of their origins.
        let mut by_basis: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (value, origin) in machine.origins() {
            by_basis.entry(origin.short()).or_default().push(value);
        }
        let _ = write!(origins, "\n### {}\n\n", preset.name);
        for (basis, values) in &by_basis {
            let _ = writeln!(origins, "- {basis}: {}", values.join(", "));
        }
        for (tag, source) in machine.sources() {
            let _ = writeln!(origins, "- {tag} is {source}");
        }
    }
    let _ = write!(page, "\n## Origins of values\n{origins}");
    expect_file("docs/reference/presets.md", &page);
}
