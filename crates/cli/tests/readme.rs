//! What `README.md` shows the program print is what it prints.

mod common;

use common::Scratch;

/// The commands of the page that are shown with their output, and that output.
fn samples(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("    $ warmcore ") else { continue };
        let mut output = String::new();
        while let Some(line) = lines.next_if(|line| line.is_empty() || line.starts_with("    ")) {
            output.push_str(line.strip_prefix("    ").unwrap_or_default());
            output.push('\n');
        }
        found.push((command.to_owned(), output));
    }
    found
}

#[test]
fn the_readme_s_sample_output_is_what_the_program_prints() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md"));
    let samples = samples(page);
    assert!(samples.iter().any(|(command, _)| command.starts_with("compare ")), "the first verdict is shown");
    let scratch = Scratch::new();
    for (command, output) in samples {
        let printed = scratch.run(&command).exits_with(0).out;
        assert_eq!(output.trim_end(), printed.trim_end(), "warmcore {command}");
    }
}
