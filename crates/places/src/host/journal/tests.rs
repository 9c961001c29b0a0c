use super::*;
use proptest::prelude::*;
use std::fs;
use tempfile::TempDir;

const FILES: [(&str, &str); 4] = [
    ("sys/cpu1/online", "1\n"),
    ("sys/cpu2/online", "1\n"),
    ("proc/sys/kernel/numa_balancing", "1\n"),
    ("sys/governor", "powersave\n"),
];

fn computer() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, value) in FILES.iter().chain(&[(BOOT_ID, "boot-1\n")]) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value).unwrap();
    }
    root
}

fn state(root: &Path) -> Vec<String> {
    FILES.iter().map(|(path, _)| fs::read_to_string(root.join(path)).unwrap().trim_end().to_owned()).collect()
}

fn before() -> Vec<String> {
    FILES.iter().map(|(_, value)| value.trim_end().to_owned()).collect()
}

#[test]
fn everything_is_as_before_when_a_journal_is_dropped() {
    let (root, kept) = (computer(), tempfile::tempdir().unwrap());
    let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
    journal.set("sys/cpu1/online", "0").unwrap();
    journal.set("sys/cpu1/online", "1").unwrap();
    journal.set("sys/governor", "performance").unwrap();
    assert_eq!(state(root.path()), ["1", "1", "1", "performance"]);
    drop(journal);
    assert_eq!(state(root.path()), before());
    assert!(!kept.path().join(JOURNAL).exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// A process that is killed leaves the journal as far as it was written and the computer as far as it was changed: any whole number
    /// of changes, the last one written down but not made, and any part of a further line.
    #[test]
    fn a_computer_is_as_before_whenever_the_process_was_killed(
        changes in proptest::collection::vec((0_usize..FILES.len(), "[a-z0-9]{1,8}"), 1..12),
        made in 0_usize..13,
        torn in 0_usize..90,
    ) {
        let (root, kept) = (computer(), tempfile::tempdir().unwrap());
        let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
        for (file, value) in changes.iter().take(made) {
            journal.set(FILES[*file].0, value).unwrap();
        }
        let last = changes.get(made).map(|(file, value)| {
            let path = FILES[*file].0;
            let old = current(&root.path().join(path), value).unwrap();
            serde_json::to_string(&Entry::Value { path: path.into(), old, new: value.clone() }).unwrap() + "\n"
        });
        let mut text = fs::read_to_string(kept.path().join(JOURNAL)).unwrap();
        if let Some(last) = &last {
            text.push_str(&last[..torn.min(last.len())]);
        }
        // Killed: nothing is undone, and the lock is gone.
        journal.file = None;
        drop(journal);
        fs::write(kept.path().join(JOURNAL), text).unwrap();
        let undone = restore(kept.path(), root.path(), false).unwrap();
        prop_assert!(undone.iter().all(Undone::is_good), "{undone:?}");
        prop_assert_eq!(state(root.path()), before());
        prop_assert!(restore(kept.path(), root.path(), false).unwrap().is_empty());
    }
}

#[test]
fn a_control_group_is_gone_again_with_the_controller_it_needed() {
    let (root, kept) = (computer(), tempfile::tempdir().unwrap());
    let control = root.path().join(CONTROLLERS);
    fs::write(&control, "cpu memory\n").unwrap();
    // A directory of files holds what is written to them, and a kernel's own adds to its list.
    let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
    assert_eq!(current(&control, "+cpuset").unwrap(), "-cpuset");
    assert_eq!(current(&control, "-cpu").unwrap(), "+cpu");
    journal.directory("group", &[]).unwrap();
    assert!(root.path().join("group").is_dir());
    assert!(journal.directory("group", &[]).unwrap_err().to_string().contains("group"));
    drop(journal);
    assert!(!root.path().join("group").exists());
}

#[test]
fn what_somebody_else_changed_since_is_left_and_said() {
    let (root, kept) = (computer(), tempfile::tempdir().unwrap());
    let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
    journal.set("sys/governor", "performance").unwrap();
    journal.set("sys/cpu1/online", "0").unwrap();
    fs::write(root.path().join("sys/governor"), "schedutil\n").unwrap();
    let undone = journal.undo();
    let left = Undone::Left { path: "sys/governor".into(), present: "schedutil".into(), old: "powersave".into() };
    assert_eq!(undone, [Undone::Restored("sys/cpu1/online".into()), left]);
    assert!(kept.path().join(JOURNAL).exists(), "it is not forgotten");
    let error = Journal::begin(kept.path(), root.path()).unwrap_err();
    assert!(matches!(error, JournalError::Unfinished(2)), "{error}");
}

/// The kernel reads `0x3d` and shows 61; a file that holds something else than was written is put back too, also after a kill.
#[test]
fn a_value_that_the_kernel_writes_in_another_way_is_put_back() {
    let (root, kept) = (computer(), tempfile::tempdir().unwrap());
    let swappiness = root.path().join("sys/swappiness");
    fs::write(&swappiness, "60\n").unwrap();
    let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
    journal.set("sys/swappiness", "0x3d").unwrap();
    fs::write(&swappiness, "61\n").unwrap();
    let undone = journal.undo();
    assert!(undone.contains(&Undone::Restored("sys/swappiness".into())), "{undone:?}");
    assert_eq!(fs::read_to_string(&swappiness).unwrap().trim(), "60");
    for (one, other, same) in [("0x3d", "61", true), ("075", "61", true), ("-1", "-0x1", true), ("1 2", "1\t2", true)]
        .into_iter()
        .chain([("61", "62", false), ("on", "off", false), ("61", "61 61", false), ("", "0", false)])
    {
        assert_eq!(is_same(one, other), same, "{one:?} {other:?}");
    }
}

/// Root may always make a directory, so that it is not allowed is played: no file, as of a user who has nothing to change.
#[test]
fn who_may_keep_no_journal_changes_nothing_and_may_experiment_unless_somebody_does() {
    let (root, kept) = (computer(), tempfile::tempdir().unwrap());
    let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
    journal.file = None;
    let error = journal.set("sys/governor", "performance").unwrap_err();
    assert!(matches!(error, JournalError::Keep { operation: "make", .. }), "{error}");
    assert_eq!(state(root.path()), before());
    assert_eq!(journal.undo(), []);
    assert!(lock_of_another_user(&kept.path().join("nowhere")).unwrap().is_none());
    let held = lock(kept.path()).unwrap();
    assert!(matches!(lock_of_another_user(kept.path()), Err(JournalError::Busy(_))));
    drop(held);
    assert!(lock_of_another_user(kept.path()).unwrap().is_some());
}

#[test]
fn nothing_is_changed_if_it_cannot_be_written_down() {
    let (root, kept) = (computer(), tempfile::tempdir().unwrap());
    let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
    // A full disk.
    journal.file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let error = journal.set("sys/cpu1/online", "0").unwrap_err();
    assert!(matches!(error, JournalError::Keep { .. }), "{error}");
    assert_eq!(state(root.path()), before());
}

#[test]
fn one_experiment_at_a_time_and_none_after_another_boot_is_undone() {
    let (root, kept) = (computer(), tempfile::tempdir().unwrap());
    let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
    assert!(matches!(Journal::begin(kept.path(), root.path()), Err(JournalError::Busy(_))));
    assert!(matches!(restore(kept.path(), root.path(), false), Err(JournalError::Busy(_))));
    journal.set("sys/governor", "performance").unwrap();
    journal.file = None;
    drop(journal);
    fs::write(root.path().join(BOOT_ID), "boot-2\n").unwrap();
    assert_eq!(restore(kept.path(), root.path(), false).unwrap(), []);
    assert_eq!(state(root.path())[3], "performance", "the kernel of another boot was asked nothing");
    assert!(Journal::begin(kept.path(), root.path()).is_ok());
}

#[test]
fn a_copy_of_the_lock_in_a_forked_process_holds_nobody_up() {
    let (root, kept) = (computer(), tempfile::tempdir().unwrap());
    let journal = Journal::begin(kept.path(), root.path()).unwrap();
    let copy = journal._lock.as_ref().unwrap().0.try_clone().unwrap();
    drop(journal);
    assert_eq!(restore(kept.path(), root.path(), false).unwrap(), []);
    drop(copy);
}

#[test]
fn switches_and_choices_are_compared_as_the_kernel_shows_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("features");
    fs::write(&path, "PLACE_LAG NO_NEXT_BUDDY RUN_TO_PARITY\n").unwrap();
    assert_eq!(current(&path, "NEXT_BUDDY").unwrap(), "NO_NEXT_BUDDY");
    assert_eq!(current(&path, "NO_PLACE_LAG").unwrap(), "PLACE_LAG");
    fs::write(&path, "on [off] forceoff\n").unwrap();
    assert_eq!(current(&path, "on").unwrap(), "off");
    fs::write(&path, "250000\n").unwrap();
    assert_eq!(current(&path, "7").unwrap(), "250000");
}

#[test]
fn a_scheduler_of_somebody_else_is_ended_and_started_again() {
    let script = "echo enabled > sys/kernel/sched_ext/state; trap 'echo disabled > sys/kernel/sched_ext/state; exit' TERM; \
                  echo >> starts; while [ -e starts ]; do sleep 0.2; done";
    let root = super::super::displaced::tests::computer("/bin/sh", &["-c", script]);
    let mut real = std::process::Command::new("/bin/sh").args(["-c", script]).current_dir(root.path()).spawn().unwrap();
    let starts = || std::fs::read_to_string(root.path().join("starts")).unwrap_or_default().len();
    while starts() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kept = tempfile::tempdir().unwrap();
    let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
    let found = Displaced::find(root.path()).unwrap();
    let found = Displaced { pid: i32::try_from(real.id()).unwrap(), ..found };
    let process = |pid: i32| root.path().join(format!("proc/{pid}"));
    std::fs::rename(process(4_000_000), process(found.pid)).unwrap();
    let line = serde_json::to_string(&Entry::Displaced(found.clone())).unwrap();
    journal.displace(found.clone()).unwrap();
    real.wait().unwrap();
    assert!(std::fs::read_to_string(kept.path().join(JOURNAL)).unwrap().contains(&line), "written down before");
    std::fs::remove_dir_all(process(found.pid)).unwrap();
    let undone = journal.undo();
    assert!(
        matches!(&undone[..], [Undone::Restored(what)] if what.starts_with("sched_ext scheduler /bin/sh")),
        "{undone:?}"
    );
    assert_eq!(starts(), 2);
}

/// A journal whose lines one cannot read tells of changes all the same.
#[test]
fn a_damaged_line_is_told_the_others_are_undone_and_the_journal_is_kept() {
    for damaged in [0, 1, 2] {
        let (root, kept) = (computer(), tempfile::tempdir().unwrap());
        let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
        journal.set("sys/cpu1/online", "0").unwrap();
        journal.set("sys/governor", "performance").unwrap();
        let path = kept.path().join(JOURNAL);
        let text = fs::read_to_string(&path).unwrap();
        let line = text.lines().nth(damaged).unwrap();
        let text = text.replace(line, &line[..line.len() / 2]);
        // As after a process that was killed: nothing is undone.
        journal.file = None;
        drop(journal);
        fs::write(&path, &text).unwrap();

        let error = Journal::begin(kept.path(), root.path()).unwrap_err();
        assert!(matches!(error, JournalError::Unfinished(_)), "{error}");
        let undone = restore(kept.path(), root.path(), false).unwrap();
        let told = undone.iter().filter(|undone| !undone.is_good()).collect::<Vec<_>>();
        assert!(
            matches!(&told[..], [Undone::Failed { path, .. }] if *path == format!("line {} of {JOURNAL}", damaged + 1)),
            "{undone:?}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "it is kept");
        let now = state(root.path());
        assert_eq!(now[0], if damaged == 1 { "0" } else { "1" });
        assert_eq!(now[3], if damaged == 2 { "performance" } else { "powersave" });
    }
}
