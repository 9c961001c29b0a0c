//! How a test ends that needs what this computer does not have: a kernel to boot, root, the kernel's tracing, another program.
//!
//! There is one way, [`skip!`]. It never passes unseen: where `CI` is `true` it fails the test, and elsewhere it writes a line into
//! the file that `WARMCORE_SKIPPED` names, whose lines `make test` counts and prints at its end. It judges nothing: what a test needs
//! the test finds out.

use std::io::Write as _;

/// Ends a test that lacks something: `skip!("lstopo is not installed")`, or `skip!(unless can_boot())` with a `Result` whose error is
/// what is lacking.
///
/// # Panics
///
/// Where the environment variable `CI` is `true`: a computer that decides what is merged has what tests need.
#[macro_export]
macro_rules! skip {
    (unless $needed:expr) => {
        if let ::std::result::Result::Err(lacking) = $needed {
            $crate::skip!("{lacking}");
        }
    };
    ($($lacking:tt)+) => {{
        $crate::skipped(::std::module_path!(), &::std::format!($($lacking)+));
        return;
    }};
}

/// Notes that a test of a module is skipped, by the name of the test's thread; [`skip!`] calls it.
///
/// # Panics
///
/// As [`skip!`] does.
pub fn skipped(module: &str, lacking: &str) {
    let thread = std::thread::current();
    let line = line(module, thread.name(), lacking);
    assert!(
        std::env::var_os("CI").is_none_or(|value| value != "true"),
        "skipped, but nothing may be skipped here: {line}"
    );
    // Not through the macros, whose output the test runner keeps to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED {line}");
    if let Some(path) = std::env::var_os("WARMCORE_SKIPPED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// What is said of a skipped test, in one line. The name of a test's thread begins below its crate.
fn line(module: &str, thread: Option<&str>, lacking: &str) -> String {
    let lacking = lacking.split_whitespace().collect::<Vec<_>>().join(" ");
    let of = module.split("::").next().unwrap_or(module);
    match thread.filter(|name| *name != "main") {
        Some(test) => format!("{of}::{test}: {lacking}"),
        None => format!("{module}: {lacking}"),
    }
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_skipped_test_is_named_with_what_it_lacks_in_one_line() {
        let said = line("guests::vm", Some("vm::a_guest_boots"), "no QEMU:\n  install it");
        assert_eq!(said, "guests::vm::a_guest_boots: no QEMU: install it");
        assert_eq!(line("guests::vm", Some("main"), "no QEMU"), "guests::vm: no QEMU");
    }

    /// Runs itself again as a computer that decides, where the skip must fail.
    #[test]
    fn nothing_is_skipped_where_ci_is_true() {
        if std::env::var_os("WARMCORE_TESTING_SKIP").is_some() {
            crate::skip!(unless Err::<(), _>("what nobody has"));
        }
        let list = std::env::temp_dir().join(format!("warmcore-skipped-{}", std::process::id()));
        let run = |ci: &str| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "tests::nothing_is_skipped_where_ci_is_true"]);
            command.envs([("CI", ci), ("WARMCORE_TESTING_SKIP", "yes")]).env("WARMCORE_SKIPPED", &list);
            command.output().unwrap().status.success()
        };
        assert!(run("false") && !run("true"));
        let listed = std::fs::read_to_string(&list).unwrap();
        std::fs::remove_file(&list).unwrap();
        assert_eq!(listed, "warmcore_testing::tests::nothing_is_skipped_where_ci_is_true: what nobody has\n");
    }
}
