"""The package as somebody uses it, beside the program that `WARMCORE` names: `make python`."""

import ast
import html
import inspect
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import polars
import pyarrow
import pytest

import warmcore

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = os.environ.get("WARMCORE", str(ROOT / "target/debug/warmcore"))
MACHINE, WORKLOAD, SCHEDULERS = "2s1n1l2c1t", "hackbench:-T,-p,-f2,-g1,-l20", ["cfs", "eevdf", "rr"]


@pytest.fixture(scope="module")
def comparison():
    return warmcore.compare(MACHINE, WORKLOAD, SCHEDULERS, trials=8)


def printed(*words):
    return subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True).stdout


def test_a_comparison_is_that_of_the_command_line_byte_for_byte(comparison):
    words = ["compare", "-m", MACHINE, "-w", WORKLOAD, "-s", ",".join(SCHEDULERS), "-n", "8", "--keep", "nothing"]
    assert comparison.json() == printed(*words, "--json")
    assert str(comparison) == printed(*words, "-v")
    assert comparison.document["verdict"]["sentence"] == comparison.verdict
    assert comparison.schedulers == SCHEDULERS


def test_columns_have_machines_workloads_and_cpus_of_their_own():
    columns = ["eevdf", "eevdf@cpus=0-1", "eevdf@machine=1s1n1l2c1t", "eevdf@pin=spread"]
    here = warmcore.compare(MACHINE, "spin:-n2,-d20ms", columns, trials=2)
    words = ["-m", MACHINE, "-w", "spin:-n2,-d20ms", "-s", ",".join(columns), "-n", "2", "--keep", "nothing", "--json"]
    assert here.json() == printed("compare", *words)


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
    assert comparison.figures()["ratio"].startswith("<?xml")


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


def test_machines_are_read_from_hwloc_and_shown(tmp_path):
    export = printed("machine", "convert", MACHINE, "--to", "xml")
    (tmp_path / "export.xml").write_text(export)
    machine = warmcore.Machine(tmp_path / "export.xml")
    assert machine.cpu_count == warmcore.Machine(MACHINE).cpu_count == 4
    assert "genoa96" in warmcore.Machine.presets() and "socket" in str(machine)


def test_types_say_what_there_is():
    stub = ast.parse((pathlib.Path(warmcore.__file__).parent / "_native.pyi").read_text())
    defined = {node.name: node for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert set(defined) == set(warmcore.__all__) - {"__version__"}
    for name, node in defined.items():
        there = getattr(warmcore, name)
        assert inspect.getdoc(there), f"{name} has a docstring"
        if isinstance(node, ast.FunctionDef):
            wanted = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
            assert list(inspect.signature(there).parameters) == wanted
        elif not issubclass(there, BaseException) and not issubclass(there, Warning):
            said = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            own = {one for one in vars(there) if not one.startswith("_")}
            assert own <= said and all(hasattr(there, one) for one in said), name


def test_the_page_s_samples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/python.md").read_text()
    samples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(samples) >= 3
    names = {}
    for sample in samples:
        exec(compile(sample, "docs/python.md", "exec"), names)


def test_the_notebook_s_cells_run(monkeypatch):
    for path in (ROOT / "docs/notebooks").glob("*.ipynb"):
        notebook = json.loads(path.read_text())
        names = {"display": lambda *shown: [one._repr_html_() for one in shown if hasattr(one, "_repr_html_")]}
        code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert code, path
        for source in code:
            exec(compile("".join(source), str(path), "exec"), names)
