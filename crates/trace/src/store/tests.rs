//! Stores written and read back, cut off, damaged, and refused.

use std::fs;
use std::path::Path;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use proptest::prelude::*;
use tempfile::TempDir;

use super::schema::{self, SCHEMA_KEY};
use super::table::{Cell, TableWriter};
use super::*;
use crate::random_events::RandomRun;
use crate::{Event, EventKind, Sink, Slice, SliceBuilder, TaskId};

fn info() -> StoreInfo {
    StoreInfo {
        tool_version: "warmcore 0.1.0".to_owned(),
        clock: "simulated".to_owned(),
        host_id: "host".to_owned(),
        run_id: "run-1".to_owned(),
    }
}

const SMALL: StoreOptions = StoreOptions { row_group_rows: 50 };

fn create(directory: &Path, run: &RandomRun, options: StoreOptions) -> Store {
    Store::create(directory, &run.machine, &run.tables, &info(), options).unwrap()
}

/// Stores a run and returns its directory.
fn stored(run: &RandomRun, end_ns: u64) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut store = create(directory.path(), run, SMALL);
    for batch in run.events.chunks(64) {
        store.events(batch).unwrap();
    }
    store.finish(end_ns, &run.task_infos()).unwrap();
    directory
}

fn events(directory: &Path) -> Result<Vec<Event>, StoreError> {
    StoreReader::open(directory)?.events()?.collect()
}

fn slices(directory: &Path) -> Result<Vec<Slice>, StoreError> {
    StoreReader::open(directory)?.slices()?.collect()
}

fn file_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_and_slices_come_back_as_they_were(seed: u64, steps in 0..400_usize) {
        let run = RandomRun::new(seed, steps, 20);
        let end_ns = run.events.last().map_or(0, |event| event.time_ns) + 100;
        let directory = stored(&run, end_ns);
        let reader = StoreReader::open(directory.path()).unwrap();
        prop_assert_eq!(reader.info(), &info());
        prop_assert_eq!((reader.end_ns(), reader.event_count()), (end_ns, run.events.len() as u64));
        prop_assert_eq!(reader.tables(), &run.tables);
        prop_assert_eq!(reader.tasks(), &run.task_infos()[..]);
        prop_assert_eq!(&events(directory.path()).unwrap(), &run.events);

        let mut builder = SliceBuilder::new();
        let mut expected: Vec<Slice> = run.events.iter().filter_map(|event| builder.push(event).unwrap()).collect();
        expected.extend(builder.open_slices(end_ns));
        prop_assert_eq!(slices(directory.path()).unwrap(), expected);
    }
}

#[test]
fn equal_runs_give_equal_bytes_whatever_the_batches() {
    let run = RandomRun::new(3, 2_000, 30);
    let first = stored(&run, 1_000_000);
    let second = tempfile::tempdir().unwrap();
    let mut store = create(second.path(), &run, SMALL);
    store.events(&run.events).unwrap();
    store.finish(1_000_000, &run.task_infos()).unwrap();
    let names = file_names(first.path());
    assert_eq!((names.len(), &names), (17, &file_names(second.path())));
    for name in names {
        let bytes = |directory: &TempDir| fs::read(directory.path().join(&name)).unwrap();
        assert!(bytes(&first) == bytes(&second), "{name} differs");
    }
}

#[test]
fn a_run_without_scores_has_no_table_of_them() {
    let mut run = RandomRun::new(3, 500, 10);
    run.tables.scores.clear();
    run.events.retain(|event| !matches!(event.kind, EventKind::Score { .. }));
    let directory = stored(&run, 0);
    assert!(!file_names(directory.path()).contains(&"scores.parquet".to_owned()));
    assert_eq!(events(directory.path()).unwrap(), run.events);
    let mut store = create(tempfile::tempdir().unwrap().path(), &run, SMALL);
    let score = Event { kind: EventKind::Score { score: 0, task: TaskId(0), value: 1 }, ..run.events[0] };
    let error = store.events(&[score]).unwrap_err();
    assert!(error.to_string().contains("scores, which has 0"), "{error}");
}

#[test]
fn wakers_are_unknown_in_a_store_from_before_they_were_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let columns = schema::WAKING.columns.split_last().unwrap().1;
    let before = schema::Table { columns, ..schema::WAKING };
    let mut writer = super::table::TableWriter::create(before, directory.path(), SMALL.row_group_rows).unwrap();
    let number = super::table::Cell::Int;
    (0..3).for_each(|row| writer.push([number(row), number(row), number(0), number(7), number(2)]).unwrap());
    writer.finish(&[(schema::SCHEMA_KEY.into(), "1.1".into())]).unwrap();
    let mut reader = super::read_table::TableReader::open(schema::WAKING, directory.path()).unwrap();
    for row in 0..3 {
        assert!(reader.advance().unwrap());
        assert_eq!((reader.int(0), reader.task(3).unwrap()), (row, TaskId(7)));
        assert_eq!(reader.optional_task(5).unwrap(), TaskId::IDLE);
    }
    assert!(!reader.advance().unwrap());
}

#[test]
fn reasons_of_places_are_unknown_in_a_store_from_before_they_were_told() {
    let directory = tempfile::tempdir().unwrap();
    let before = schema::Table { columns: &schema::WAKEUP.columns[..4], ..schema::WAKEUP };
    let mut writer = TableWriter::create(before, directory.path(), SMALL.row_group_rows).unwrap();
    (0..3).for_each(|row| writer.push([row, row, 0, 7].map(Cell::Int)).unwrap());
    writer.finish(&[(SCHEMA_KEY.into(), "1.2".into())]).unwrap();
    let mut reader = super::read_table::TableReader::open(schema::WAKEUP, directory.path()).unwrap();
    for row in 0..3 {
        assert!(reader.advance().unwrap());
        assert_eq!((reader.int(0), reader.optional_word(4), reader.optional_word(5)), (row, None, None));
    }
}

#[test]
fn a_run_that_is_finished_early_is_a_valid_store_of_what_it_had() {
    let run = RandomRun::new(4, 2_000, 30);
    let directory = tempfile::tempdir().unwrap();
    let mut store = create(directory.path(), &run, SMALL);
    store.events(&run.events[..500]).unwrap();
    store.finish(0, &[]).unwrap();
    assert_eq!(events(directory.path()).unwrap(), run.events[..500]);
}

#[test]
fn a_run_that_is_cut_off_cannot_be_taken_for_a_whole_one() {
    let run = RandomRun::new(5, 2_000, 30);
    let directory = tempfile::tempdir().unwrap();
    let mut store = create(directory.path(), &run, SMALL);
    store.events(&run.events).unwrap();
    drop(store);
    assert!(file_names(directory.path()).iter().all(|name| name.ends_with(".parquet.partial")));
    let error = StoreReader::open(directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::Interrupted { .. }), "{error}");
    // And its remains are not overwritten either.
    let again = Store::create(directory.path(), &run.machine, &run.tables, &info(), SMALL);
    assert!(matches!(again.err(), Some(StoreError::Exists { .. })));
}

#[test]
fn a_finished_store_is_never_overwritten() {
    let run = RandomRun::new(6, 50, 5);
    let directory = stored(&run, 0);
    let error = Store::create(directory.path(), &run.machine, &run.tables, &info(), SMALL).err().unwrap();
    assert!(error.to_string().contains("never overwritten"), "{error}");
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let run = RandomRun::new(6, 50, 5);
    let missing = Path::new("/no/such/directory");
    let error = Store::create(missing, &run.machine, &run.tables, &info(), SMALL).err().unwrap();
    assert!(error.to_string().contains("cannot create /no/such/directory/sched_switch.parquet"), "{error}");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let error = StoreReader::open(missing).unwrap_err();
    assert!(error.to_string().contains("cannot open /no/such/directory/meta.parquet"), "{error}");
}

#[test]
fn events_that_cannot_be_are_refused_and_the_rest_stays_valid() {
    let run = RandomRun::new(7, 300, 10);
    let directory = tempfile::tempdir().unwrap();
    let mut store = create(directory.path(), &run, SMALL);
    store.events(&run.events).unwrap();
    let last = *run.events.last().unwrap();
    let unknown = Event { kind: EventKind::Phase { task: TaskId(0), phase: 99 }, ..last };
    let error = store.events(&[unknown]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("phases, which has 3"), "{error}");
    store.finish(0, &[]).unwrap();
    assert_eq!(events(directory.path()).unwrap(), run.events);
}

/// Writes the `sched_wakeup` table of a store once more, with other metadata.
fn replace_wakeups(directory: &Path, version: &str, rows: &[[i64; 4]]) {
    fs::remove_file(directory.join("sched_wakeup.parquet")).unwrap();
    let mut table = TableWriter::create(schema::WAKEUP, directory, 10).unwrap();
    for [sequence, time, cpu, task] in rows.iter().map(|row| row.map(Cell::Int)) {
        table.push([sequence, time, cpu, task, Cell::None, Cell::None]).unwrap();
    }
    table.finish(&[(SCHEMA_KEY.to_owned(), version.to_owned())]).unwrap();
}

#[test]
fn newer_major_versions_are_refused_and_newer_minor_ones_read() {
    let directory = stored(&RandomRun::new(8, 0, 1), 0);
    replace_wakeups(directory.path(), "1.9", &[]);
    assert!(events(directory.path()).unwrap().is_empty());
    for version in ["2.0", "none", ""] {
        replace_wakeups(directory.path(), version, &[]);
        let error = events(directory.path()).unwrap_err();
        assert!(error.to_string().contains("this program reads up to 1"), "{error}");
    }
}

#[test]
fn values_that_cannot_be_are_named_with_row_and_column() {
    let directory = stored(&RandomRun::new(8, 0, 1), 0);
    replace_wakeups(directory.path(), "1.0", &[[0, 5, -2, 0]]);
    fs::remove_file(directory.path().join("meta.parquet")).unwrap();
    let mut meta = TableWriter::create(schema::META, directory.path(), 10).unwrap();
    let facts = [("clock", "c"), ("end_ns", "9"), ("events", "1"), ("host_id", ""), ("machine", ""), ("run_id", "")];
    for (key, value) in facts
        .iter()
        .chain(&[("tables", r#"{"restrictions":[],"counters":[],"phases":[],"decisions":[]}"#), ("tool_version", "t")])
    {
        meta.push([Cell::Text(&(*key).into()), Cell::Text(&(*value).into())]).unwrap();
    }
    meta.finish(&[(SCHEMA_KEY.to_owned(), "1.0".to_owned())]).unwrap();
    let error = events(directory.path()).unwrap_err();
    assert!(error.to_string().contains("row 0 of column cpu holds -2"), "{error}");
}

#[test]
fn events_missing_from_a_table_are_noticed() {
    let run = RandomRun::new(9, 500, 10);
    let directory = stored(&run, 0);
    replace_wakeups(directory.path(), "1.0", &[]);
    let first = run.events.iter().position(|event| matches!(event.kind, EventKind::Wakeup { .. })).unwrap();
    let error = events(directory.path()).unwrap_err();
    assert!(error.to_string().contains(&format!("event {first} of {}", run.events.len())), "{error}");
}

#[test]
fn ids_beyond_their_column_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = TableWriter::create(schema::WAKEUP, directory.path(), 10).unwrap();
    let error = table
        .push([Cell::Int(0), Cell::Int(0), Cell::Int(i64::from(i32::MAX) + 1), Cell::Int(0), Cell::None, Cell::None])
        .unwrap_err();
    assert!(error.to_string().contains("2147483648 does not fit column cpu"), "{error}");
}

#[test]
fn unknown_columns_are_ignored_and_missing_ones_are_named() {
    use parquet::data_type::{Int32Type, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::types::Type;
    use std::sync::Arc;

    let directory = stored(&RandomRun::new(8, 0, 1), 0);
    let path = directory.path().join("sched_wakeup.parquet");
    // Another order, a column more, numbers wider than ours, and optional where ours are not.
    let write = |names: &[&str]| {
        let field = |name: &&str| {
            let physical = if *name == "note" { Physical::INT32 } else { Physical::INT64 };
            let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
            Arc::new(builder.with_logical_type(None::<LogicalType>).build().unwrap())
        };
        let fields = names.iter().map(field).collect();
        let schema = Arc::new(Type::group_type_builder("other").with_fields(fields).build().unwrap());
        let version = parquet::file::metadata::KeyValue::new(SCHEMA_KEY.to_owned(), "1.3".to_owned());
        let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![version])).build();
        let mut writer =
            SerializedFileWriter::new(fs::File::create(&path).unwrap(), schema, Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for name in names {
            let mut column = group.next_column().unwrap().unwrap();
            if *name == "note" {
                column.typed::<Int32Type>().write_batch(&[], Some(&[0]), None).unwrap();
            } else {
                column.typed::<Int64Type>().write_batch(&[0], Some(&[1]), None).unwrap();
            }
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    };
    write(&["task", "note", "cpu", "sequence", "time_ns"]);
    assert!(events(directory.path()).is_ok());
    write(&["task", "cpu", "sequence"]);
    let error = events(directory.path()).unwrap_err();
    assert!(error.to_string().contains("column time_ns is missing"), "{error}");
}

#[test]
fn damaged_files_give_errors_not_panics() {
    let run = RandomRun::new(10, 600, 10);
    let directory = stored(&run, 0);
    let mut refused = 0;
    for name in ["sched_switch.parquet", "meta.parquet", "tasks.parquet", "slices.parquet"] {
        let path = directory.path().join(name);
        let whole = fs::read(&path).unwrap();
        for position in (0..whole.len()).step_by(1 + whole.len() / 100) {
            let mut flipped = whole.clone();
            flipped[position] ^= 0x55;
            for damaged in [flipped, whole[..position].to_vec()] {
                fs::write(&path, damaged).unwrap();
                refused += u32::from(events(directory.path()).is_err() || slices(directory.path()).is_err());
            }
        }
        fs::write(&path, whole).unwrap();
    }
    assert!(refused > 400, "{refused}");
    assert_eq!(events(directory.path()).unwrap(), run.events);
}
