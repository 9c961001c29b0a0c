"""The package as somebody uses it, beside the program that `WARMCORE` names: `make python`."""

import ast
import contextlib
import html
import inspect
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import duckdb
import pandas
import polars
import pyarrow
import pytest

import warmcore
from warmcore import _native

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = os.environ.get("WARMCORE", str(ROOT / "target/debug/warmcore"))
MACHINE, WORKLOAD, SCHEDULERS = "2s1n1l2c1t", "hackbench:-T,-p,-f2,-g1,-l20", ["cfs", "eevdf", "rr"]


@pytest.fixture(scope="module")
def comparison():
    return warmcore.compare(MACHINE, WORKLOAD, SCHEDULERS, trials=8)


def printed(*words):
    # The text of an object does not depend on a terminal's width.
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True, env=environment).stdout


def test_a_comparison_is_that_of_the_command_line_byte_for_byte(comparison):
    words = ["compare", "-m", MACHINE, "-w", WORKLOAD, "-s", ",".join(SCHEDULERS), "-n", "8", "--keep", "nothing"]
    assert comparison.json() == printed(*words, "--json")
    assert str(comparison) == printed(*words)
    assert comparison.document["verdict"]["sentence"] == comparison.verdict
    assert comparison.schedulers == SCHEDULERS


def test_columns_have_machines_workloads_and_cpus_of_their_own():
    columns = ["eevdf", "eevdf@cpus=0-1", "eevdf@machine=1s1n1l2c1t", "eevdf@pin=spread"]
    here = warmcore.compare(MACHINE, "spin:-n2,-d20ms", columns, trials=2)
    words = ["-m", MACHINE, "-w", "spin:-n2,-d20ms", "-s", ",".join(columns), "-n", "2", "--keep", "nothing", "--json"]
    assert here.json() == printed("compare", *words)


@pytest.mark.parametrize("trials", [-1, 0, 10_001, 4_000_000_000])
def test_trials_are_as_many_as_those_of_the_command_line(trials):
    with pytest.raises(warmcore.WarmcoreError, match=f"{trials} trials; there are 1 to 10000"):
        warmcore.compare(MACHINE, WORKLOAD, SCHEDULERS, trials=trials)


def test_strict_reading_refuses_what_a_scheduler_does_not_know(tmp_path):
    path = tmp_path / "limited.json"
    task = {"instances": 2, "taskgroup": "/g", "program": [{"run_ns": 30_000_000}]}
    own = {"groups": [{"name": "/g", "cpu_max": "20000"}], "tasks": {"a": task}}
    path.write_text(json.dumps({"tasks": {"a": {"instance": 0}}, "warmcore": own}))
    limited = warmcore.Workload(path, strict=True)
    assert warmcore.simulate(MACHINE, limited, "eevdf").elapsed_ns > 0
    for asked in (lambda: warmcore.simulate(MACHINE, limited, "ule"), lambda: warmcore.compare(MACHINE, limited, ["eevdf", "ule"])):
        with pytest.raises(warmcore.WarmcoreError, match="of ule, it knows no task groups"):
            asked()


def test_one_run_is_that_of_the_command_line_byte_for_byte():
    simulation = warmcore.simulate(warmcore.Machine(MACHINE), warmcore.Workload(WORKLOAD), "ule", seed=7)
    assert simulation.json() == printed("sim", "-m", MACHINE, "-w", WORKLOAD, "-s", "ule", "--seed", "7", "--json")
    assert simulation.elapsed_ns > 0 and len(simulation.tasks) == 5


def test_a_study_is_that_of_the_command_line_byte_for_byte():
    study = warmcore.Study.load("answers/smt-pool")
    result = study.run(trials=2)
    assert result.json() == subprocess.run(
        [PROGRAM, "study", "run", "answers/smt-pool", "-n", "2", "--json"], capture_output=True, text=True
    ).stdout
    assert len(polars.DataFrame(result.figures)) == len(study.expectations)
    for trials in (0, 4_000_000_000):
        with pytest.raises(warmcore.WarmcoreError, match=f"^{trials} trials; there are 1 to 10000"):
            study.run(trials=trials)


def test_tables_are_read_by_pyarrow_and_polars(comparison):
    trials = pyarrow.table(comparison.trials)
    assert trials.column_names == comparison.trials.column_names
    assert trials.num_rows == len(comparison.trials) > 0
    assert trials.schema.field("seed").type == pyarrow.int64()
    results = polars.DataFrame(comparison.results)
    assert results.to_dict(as_series=False) == comparison.results.to_dict()
    ratio = results.filter(scheduler="rr", metric=comparison.metric)["ratio"].item()
    rr = comparison.document["schedulers"][2]
    assert ratio == rr["measures"][comparison.metric]["comparison"]["ratio"]


def test_tables_are_read_by_pandas_and_duckdb(comparison):
    results = comparison.results
    frame = pandas.DataFrame.from_arrow(results)
    assert list(frame.columns) == results.column_names and len(frame) == len(results)
    assert list(frame["median"]) == results.to_dict()["median"]
    (median,) = duckdb.sql(f"select median from results where scheduler = 'rr' and metric = '{comparison.metric}'").fetchone()
    assert median == frame[(frame["scheduler"] == "rr") & (frame["metric"] == comparison.metric)]["median"].item()


def test_rows_are_those_of_the_columns_and_are_shown(comparison):
    table = comparison.results
    columns, rows = table.to_dict(), table.to_rows()
    assert [list(row.values()) for row in rows] == [list(values) for values in zip(*columns.values())]
    assert list(rows[0]) == table.column_names and len(rows) == len(table)
    shown = html.unescape(table._repr_html_())
    # Of long tables the first rows.
    assert shown.count("<tr>") - 1 == min(50, len(table)) and (f"{len(table) - 50} more rows" in shown) == (len(table) > 50)
    assert ">cfs<" in shown and f">{columns['trials'][0]}<" in shown and ">None<" not in shown


def test_who_reads_a_table_reads_the_same_memory(comparison):
    table = comparison.trials
    where = {pyarrow.table(table).column("value").chunk(0).buffers()[1].address for _ in range(2)}
    assert len(where) == 1


def test_a_table_outlives_what_it_came_from():
    table = pyarrow.table(warmcore.simulate(MACHINE, WORKLOAD, "rr").measures)
    assert table.column("value").null_count == 0


def test_a_notebook_shows_the_table_the_sentence_and_a_figure(comparison):
    page = html.unescape(comparison._repr_html_())
    assert "<table>" in page and comparison.verdict in page and "data:image/svg+xml;base64," in page
    assert len(comparison.explanation) == 2 and all(f"{sentence}." in page for sentence in comparison.explanation)


def test_figures_are_shown_and_have_files(comparison):
    ratio = comparison.figures()["ratio"]
    assert ratio.svg == str(ratio) and ratio.svg.startswith("<?xml") and ratio.title in html.unescape(ratio.svg)
    assert ratio.csv.count("\n") > 2 and ratio.pdf().startswith(b"%PDF-")
    assert "data:image/svg+xml;base64," in ratio._repr_html_() and ratio.caption in html.unescape(ratio._repr_html_())
    assert repr(ratio) == f"<warmcore.Figure ratio: {ratio.title}>"


def test_one_trial_is_looked_at_closely_as_by_the_command_line(tmp_path, comparison):
    closely = comparison.figures(closely=True)
    assert set(comparison.figures()) < set(closely)
    warmcore.compare(MACHINE, WORKLOAD, SCHEDULERS, trials=8, out=tmp_path / "run")
    printed("report", str(tmp_path / "run"), "--svg", str(tmp_path / "figures"))
    assert {path.stem: path.read_text() for path in (tmp_path / "figures").glob("*.svg")} == {name: one.svg for name, one in closely.items()}


def test_notebooks_show_every_object(comparison):
    simulation = warmcore.simulate(MACHINE, WORKLOAD, "rr")
    study = warmcore.Study.load("answers/smt-pool")
    shown = html.unescape(simulation._repr_html_())
    assert str(simulation) in shown
    shown = warmcore.Workload("periodic:-n3,-r1ms,-s3ms,-d20ms+spin:-n2,-d20ms")._repr_html_()
    assert re.search(">periodic</td><td[^>]*>3<", shown) and re.search(">spin</td><td[^>]*>2<", shown)
    assert ">created by others<" in warmcore.Workload(WORKLOAD)._repr_html_()
    shown = html.unescape(study._repr_html_())
    assert study.title in shown and all(name in shown for name in study.expectations)


def test_a_run_directory_is_loaded_as_it_was_kept(tmp_path, comparison):
    kept = warmcore.compare(MACHINE, WORKLOAD, SCHEDULERS, trials=8, out=tmp_path / "run")
    loaded = warmcore.Comparison.load(tmp_path / "run")
    assert loaded.json() == kept.json() == comparison.json()
    assert loaded.trials.to_dict() == comparison.trials.to_dict()
    printed("sim", "-m", MACHINE, "-w", WORKLOAD, "-s", "ule", "--out", str(tmp_path / "one"))
    assert warmcore.Comparison.load(tmp_path / "one").schedulers == ["ule"]
    with pytest.raises(warmcore.WarmcoreError) as refused:
        warmcore.Comparison.load(tmp_path)
    assert refused.value.advice


RECORDING = ROOT / "examples/service/recording.dat"


def test_a_recording_is_threads_events_groups_and_a_workload(tmp_path):
    recording = warmcore.Recording(RECORDING)
    threads, events, groups = (table.to_dict() for table in (recording.threads, recording.events, recording.groups))
    # `examples/service/README.md`: four queues, each with a thread that takes connections and two workers, on four CPUs.
    assert recording.cpu_count == 4 and set(events["cpu"]) == {0, 1, 2, 3} and recording.name == "recording"
    assert sorted(name for name in threads["name"] if name.startswith("pool")) == [f"pool{queue}" for queue in range(4) for _ in range(2)]
    by_group = {}
    for name, group in zip(groups["name"], groups["group"]):
        by_group.setdefault(group, []).append(name)
    assert sorted(sorted(names) for group, names in by_group.items() if group is not None) == [
        [f"accept{queue}", f"pool{queue}", f"pool{queue}"] for queue in range(4)
    ]
    assert sorted(groups["thread"]) == sorted(threads["thread"])
    assert events["time_ns"] == sorted(events["time_ns"]) and events["time_ns"][-1] <= recording.span_ns
    # What threads ran is what lies between the switches to them and those away from them.
    ran, since = {}, {}
    for time_ns, cpu, event, about in zip(events["time_ns"], events["cpu"], events["event"], events["about"]):
        if event == "sched_switch":
            before, began = since.get(cpu, (0, 0))
            ran[before] = ran.get(before, 0) + time_ns - began
            since[cpu] = (about, time_ns)
    busiest = max(range(len(threads["thread"])), key=lambda index: threads["cpu_time_ns"][index])
    assert abs(ran[threads["thread"][busiest]] / threads["cpu_time_ns"][busiest] - 1) < 0.05
    # As the command line has it, which reads the recording as a workload too.
    here = warmcore.compare(MACHINE, recording.workload(), ["eevdf", "cfs"], trials=2)
    words = ["-m", MACHINE, "-w", str(RECORDING), "-s", "eevdf,cfs", "-n", "2", "--keep", "nothing", "--json"]
    assert here.json() == warmcore.compare(MACHINE, recording, ["eevdf", "cfs"], trials=2).json() == printed("compare", *words)
    with pytest.raises(warmcore.WarmcoreError) as refused:
        warmcore.compare(MACHINE, RECORDING, "eevdf")
    assert f'warmcore.Recording("{RECORDING}")' in refused.value.advice
    assert any("17 threads" in sentence for sentence in recording.fidelity)
    assert "17 threads, 4 CPUs" in repr(recording) and ">pool0<" in recording._repr_html_()


def test_threads_of_a_recording_are_chosen_and_a_run_is_one():
    chosen = warmcore.Recording(RECORDING, names=["pool0", "accept0"], recorded_on="1s1n1l4c1t")
    assert set(chosen.threads.to_dict()["name"]) == {"pool0", "accept0"}
    with pytest.raises(warmcore.WarmcoreError, match="no thread of the recording is called nobody"):
        warmcore.Recording(RECORDING, names="nobody")


def test_a_run_directory_is_a_recording_of_its_tasks(tmp_path):
    warmcore.compare(MACHINE, "pingpong:-n1,-d20ms", ["rr", "eevdf"], trials=1, out=tmp_path / "run")
    of_run = warmcore.Recording(tmp_path / "run", scheduler="eevdf")
    assert len(of_run.threads) == 2 and set(of_run.groups.to_dict()["group"]) == {1}
    with pytest.raises(warmcore.WarmcoreError, match="the run has no scheduler cfs") as refused:
        warmcore.Recording(tmp_path / "run", scheduler="cfs")
    assert refused.value.advice == "it has rr, eevdf"
    with pytest.raises(warmcore.WarmcoreError, match="scheduler is about run directories"):
        warmcore.Recording(RECORDING, scheduler="eevdf")
    (tmp_path / "none").write_bytes(b"\0\1nothing")
    with pytest.raises(warmcore.WarmcoreError, match="no recording that can be read"):
        warmcore.Recording(tmp_path / "none")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: warmcore.compare(3, WORKLOAD, "rr"), "it takes a text, a path or a warmcore.Machine, not int"),
        (lambda: warmcore.compare(MACHINE, {"tasks": {}}, "rr"), "a text, a path, a warmcore.Workload or a warmcore.Recording, not dict"),
        (lambda: warmcore.compare(MACHINE, WORKLOAD, [None]), "a list of texts, or one text with commas, not list"),
        (lambda: warmcore.compare(MACHINE, WORKLOAD, "rr", warm_up=0.5), "whole nanoseconds from 0 on, not float"),
        (lambda: warmcore.compare(MACHINE, WORKLOAD, "rr", progress=3), "a function, or True for a line on standard error, not int"),
        (lambda: warmcore.Workload(WORKLOAD, aggregate=3), "a text, or a list of texts, not int"),
        (lambda: warmcore.tune(3), "a file's path, or a dict, not int"),
    ],
)
def test_arguments_of_other_types_are_told_what_they_take(asked, words):
    with pytest.raises(TypeError, match=words):
        asked()


@pytest.mark.parametrize("jobs", [0, -1, 70_000])
def test_as_many_simulations_at_a_time_as_there_can_be(jobs):
    with pytest.raises(warmcore.WarmcoreError, match=f"jobs is {jobs}; it is a number from 1 to 65535"):
        warmcore.compare(MACHINE, WORKLOAD, "rr", jobs=jobs)


def test_an_empty_directory_s_name_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for asked in (
        lambda: warmcore.compare(MACHINE, WORKLOAD, "rr", trials=2, out=""),
        lambda: warmcore.simulate(MACHINE, WORKLOAD, "rr", out=""),
        lambda: warmcore.Study.load("answers/smt-pool").run(trials=1, out=""),
        lambda: warmcore.tune({}, out=""),
    ):
        with pytest.raises(warmcore.WarmcoreError, match="out is empty"):
            asked()
    assert not list(tmp_path.iterdir())


def test_progress_is_a_line_that_is_written_over(capsys):
    warmcore.compare(MACHINE, WORKLOAD, "rr", trials=3, progress=True)
    said = capsys.readouterr().err
    assert said.endswith("\r3 of 3 simulations\n") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("machine", "workload", "scheduler", "near"),
    [
        (MACHINE, WORKLOAD, "eevfd", "eevdf"),
        ("genoa69", WORKLOAD, "eevdf", "genoa96"),
        (MACHINE, "hackbanch", "eevdf", "hackbench"),
        (MACHINE, WORKLOAD, "eevdf:base_slice=1", "base_slice_ns"),
    ],
)
def test_what_there_is_not_names_the_nearest(machine, workload, scheduler, near):
    with pytest.raises(warmcore.WarmcoreError, match=near):
        warmcore.compare(machine, workload, [scheduler])


def test_errors_carry_advice():
    with pytest.raises(warmcore.WarmcoreError) as raised:
        warmcore.Study.load("answers/smt-pol")
    assert "answers/smt-pool" in raised.value.advice and raised.value.advice in str(raised.value)
    with pytest.raises(warmcore.WarmcoreError, match="trial"):
        warmcore.compare(MACHINE, WORKLOAD, "rr", trials=0)
    with pytest.raises(warmcore.WarmcoreError, match="baseline"):
        warmcore.compare(MACHINE, WORKLOAD, "rr", baseline="cfs")


LONG = {"machine": MACHINE, "workload": "hackbench:-T,-p,-f10,-g10,-l1000000", "schedulers": "eevdf", "trials": 2}


def test_control_c_stops_what_is_simulated():
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        warmcore.compare(**LONG)


def test_other_threads_run_meanwhile_and_an_exception_of_progress_ends_it():
    turns = 0

    def progress(finished, total):
        assert (finished, total) == (0, 2)
        time.sleep(0.05)
        raise RuntimeError(f"enough after {turns} turns")

    def count():
        nonlocal turns
        for _ in range(10):
            turns += 1

    thread = threading.Thread(target=count)
    thread.start()
    with pytest.raises(RuntimeError, match="enough after 10 turns"):
        warmcore.compare(**LONG, progress=progress)
    thread.join()


def test_a_run_directory_is_one_of_the_program_s(tmp_path, comparison):
    kept = warmcore.compare(MACHINE, WORKLOAD, SCHEDULERS, trials=8, out=tmp_path / "run")
    assert kept.json() == (tmp_path / "run/verdict.json").read_text() == comparison.json()
    assert "cfs" in printed("report", str(tmp_path / "run"), "--markdown", "-")
    with pytest.raises(warmcore.WarmcoreError, match="run") as raised:
        warmcore.compare(MACHINE, WORKLOAD, SCHEDULERS, out=tmp_path / "run")
    # Python has no options of the command line.
    assert "another `out`" in raised.value.advice and "--" not in raised.value.advice


@pytest.mark.parametrize(
    ("asked", "keyword"),
    [
        (lambda: warmcore.compare(MACHINE, WORKLOAD, "rr", baseline="cfs"), "schedulers"),
        (lambda: warmcore.compare(MACHINE, WORKLOAD, "rr", warm_up="1h"), "warm_up"),
        (lambda: warmcore.Study.load("answers/smt-pool").run(only=["nothing is called so"]), "only"),
        (lambda: warmcore.Workload("spin:-n1,-d1ms", assume_profile="spin"), "assume_profile"),
        (lambda: warmcore.simulate(MACHINE, warmcore.Workload("forkjoin:-n2,-i2,-w1ms", assume_profile="spin"), "rr", memory="none"), 'memory="none"'),
    ],
)
def test_errors_name_keywords_of_python(asked, keyword):
    with pytest.raises(warmcore.WarmcoreError) as raised:
        asked()
    assert keyword in str(raised.value) and "--" not in str(raised.value)


def test_flags_of_workloads_and_commands_stay_in_errors():
    with pytest.raises(warmcore.WarmcoreError, match="--trails"):
        warmcore.compare(MACHINE, "sysbench:--trails=2", "rr")


def test_the_command_of_the_package_is_the_program(tmp_path):
    as_module = [sys.executable, "-m", "warmcore"]
    for words, code in ((["--version"], 0), (["list", "machines", "--json"], 0), (["sim", "-m", "nowhere", "--json"], 2), ([], 2)):
        typed, run = (subprocess.run([*start, *words], capture_output=True, text=True) for start in ([PROGRAM], as_module))
        assert (typed.returncode, typed.stdout, typed.stderr) == (run.returncode, run.stdout, run.stderr)
        assert typed.returncode == code, words
    words = ["sim", "-m", MACHINE, "-w", "spin:-n1,-d1ms", "-s", "eevdf", "--out", str(tmp_path / "run")]
    subprocess.run([*as_module, *words], check=True, capture_output=True)
    command = json.loads((tmp_path / "run/environment.json").read_text())["command"]
    assert pathlib.Path(command[0]).name == "warmcore" and command[1:] == words


def test_control_c_ends_the_command_with_what_had_finished(tmp_path):
    words = ["compare", "-m", MACHINE, "-w", LONG["workload"], "-s", "eevdf", "-n", "2", "--out", str(tmp_path / "run")]
    started = subprocess.Popen([sys.executable, "-m", "warmcore", *words], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run/experiment.toml").exists():
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    said = started.communicate()[1]
    assert started.returncode == 130 and "interrupted" in said and "Traceback" not in said


def test_guests_and_real_threads_start_the_command_again():
    script = pathlib.Path(sys.executable).parent / "warmcore"
    own = [sys.executable, "-m", "warmcore"]
    refused = subprocess.run([*own, "vm", "-m", "1s1n1l1c1t", "--", "warmcore", "--version"], capture_output=True, text=True)
    assert refused.returncode == 4 and "guests have no Python" in refused.stderr
    words = ["workload", "run", "spin:-n2,-d10ms", "--report"]
    run = subprocess.run([script, "-q", *words], check=True, capture_output=True, text=True)
    assert len(json.loads(run.stdout)["tasks"]) == 2


def test_machines_workloads_and_studies_are_made_from_texts(tmp_path):
    text = warmcore.Machine(MACHINE).to_toml()
    machine = warmcore.Machine.parse(text, name="mine")
    assert machine.to_toml() == text and repr(machine) == "<warmcore.Machine mine: 4 CPUs>"
    (tmp_path / "pair.json").write_text(warmcore.Workload(WORKLOAD).to_rtapp())
    workload = warmcore.Workload.parse((tmp_path / "pair.json").read_text(), name="pair")
    assert (workload.name, workload.tasks) == ("pair", warmcore.Workload(tmp_path / "pair.json").tasks)
    columns = ["eevdf", "eevdf@cpus=0-1", f"eevdf@machine={MACHINE}"]
    here = warmcore.compare(machine, workload, columns, trials=2, out=tmp_path / "run")
    there = warmcore.compare(MACHINE, tmp_path / "pair.json", columns, trials=2)
    assert here.trials.to_dict()["value"] == there.trials.to_dict()["value"]
    assert "eevdf" in printed("report", str(tmp_path / "run"), "--markdown", "-")
    path = ROOT / "studies/answers/smt-pool.toml"
    parsed, loaded = (study.run(trials=1) for study in (warmcore.Study.parse(path.read_text(), name="smt-pool"), warmcore.Study.load(path)))
    assert parsed.json() == loaded.json() and parsed.document == json.loads(parsed.json())
    assert parsed.drawings()["smt-pool"].title == "smt-pool: expected and found"


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (lambda: warmcore.Machine.parse("nonsense = 1", name="mine"), "mine: "),
        (lambda: warmcore.Workload.parse('{"tasks": {"a": {"run": -1}}}', name="mine"), "tasks.a.run"),
        (lambda: warmcore.Study.parse('schema = "warmcore-study-form-1"\ntitle = 3\n', name="mine"), "mine.toml:2"),
    ],
)
def test_texts_that_are_none_say_where(asked, where):
    with pytest.raises(warmcore.WarmcoreError, match=re.escape(where)):
        asked()


def test_machines_are_read_from_hwloc_and_shown(tmp_path):
    export = printed("machine", "convert", MACHINE, "--to", "xml")
    (tmp_path / "export.xml").write_text(export)
    machine = warmcore.Machine(tmp_path / "export.xml")
    assert machine.cpu_count == warmcore.Machine(MACHINE).cpu_count == 4
    assert "genoa96" in warmcore.Machine.presets() and "socket" in str(machine)


def test_types_say_what_there_is():
    stub = ast.parse((pathlib.Path(warmcore.__file__).parent / "_native.pyi").read_text())
    defined = {node.name: node for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert set(defined) == {name for name in vars(_native) if not name.startswith("_")} >= set(warmcore.__all__) - {"__version__"}
    for name, node in defined.items():
        there = getattr(_native, name)
        assert inspect.getdoc(there), f"{name} has a docstring"
        if isinstance(node, ast.FunctionDef):
            wanted = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
            assert list(inspect.signature(there).parameters) == wanted
        elif not issubclass(there, BaseException) and not issubclass(there, Warning):
            said = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            own = {one for one in vars(there) if not one.startswith("_") or one == "_repr_html_"}
            assert own <= said and all(hasattr(there, one) for one in said), name
            for one in (one for one in node.body if isinstance(one, ast.FunctionDef)):
                if not one.name.startswith("_"):
                    assert inspect.getdoc(getattr(there, one.name)), f"{name}.{one.name} has a docstring"
                if not one.name.startswith("_") and not any(ast.unparse(made) == "property" for made in one.decorator_list):
                    wanted = [argument.arg for argument in one.args.args + one.args.kwonlyargs]
                    assert list(inspect.signature(getattr(there, one.name)).parameters) == wanted, f"{name}.{one.name}"


def test_types_are_those_at_run_time():
    checked = subprocess.run([sys.executable, "-m", "mypy.stubtest", "warmcore"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_page_s_samples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/python.md").read_text()
    samples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(samples) >= 3
    names = {}
    for sample in samples:
        exec(compile(sample, "docs/python.md", "exec"), names)


NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


def shown_by(path):
    """What a notebook's cells show, in order: the value of each last line, and what was printed, as Jupyter does it."""
    notebook = json.loads(path.read_text())
    names, shown = {}, []
    for cell in notebook["cells"]:
        assert not cell.get("outputs"), f"{path.name} has outputs, which nothing keeps true"
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"]), str(path)).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(ast.Module(body, []), str(path), "exec"), names)
            value = None if last is None else eval(compile(ast.Expression(last.value), str(path), "eval"), names)
        shown.append((out.getvalue(), value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)))
    return shown


def test_each_reader_has_a_notebook():
    assert {path.stem for path in NOTEBOOKS} >= {"service", "scheduler", "sweep", "lesson"}
    page = (ROOT / "docs/python.md").read_text()
    assert all(f"(notebooks/{path.name})" in page for path in NOTEBOOKS), "the page names every notebook"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_the_same_again(path):
    first = shown_by(path)
    assert 0 < len(first) <= 12
    assert shown_by(path) == first
