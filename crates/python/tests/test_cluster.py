"""Studies over local Dask workers, and tuning with Optuna, beside the program that `WARMCORE` names."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from distributed import Client, LocalCluster

import warmcore
from warmcore import _dask

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = os.environ.get("WARMCORE", str(ROOT / "target/debug/warmcore"))

STUDY = """
schema = "warmcore-study-form-1"
title = "t"
question = "q"
source = "s"

[[cell]]
name = "one-llc"
machine = "1s1n1l2c1t"
workload = "hackbench:-T,-p,-f2,-g1,-l20"
schedulers = ["eevdf", "cache-aware"]
trials = 40

[[expect]]
name = "alike"
figure = "elapsed_ns[one-llc, eevdf] / elapsed_ns[one-llc, cache-aware]"
band = [0.5, 2]
reason = "r"
neutral = "none"
"""

TUNING = """
schema = "warmcore-tuning-form-1"
title = "Shorter turns, shorter waits"
machines = ["1s1n1l1c1t"]
workloads = ["periodic:-n1,-r100us,-s20ms,-d300ms+spin:-n2,-d300ms"]
scheduler = "rr"
metric = "wakeup_mean_ns"
budget = 6

[[knob]]
name = "quantum_ns"
from = 1000000
to = 20000000
log = true

[confirm]
trials = 8
"""


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as made:
        yield made


@pytest.fixture
def client(cluster):
    with Client(cluster) as made:
        yield made


@pytest.fixture
def file(tmp_path):
    (tmp_path / "it.toml").write_text(STUDY)
    return tmp_path / "it.toml"


@pytest.fixture
def study(file):
    return warmcore.Study.load(file)


@pytest.fixture
def program():
    # The program starts the python3 that has this package.
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return lambda *words: subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, env={**os.environ, "PATH": path})


def test_a_study_over_workers_has_the_bytes_of_one_computer(study, client):
    seen = []
    over = study.run(client=client, progress=lambda finished, total: seen.append((finished, total)))
    assert over.json() == study.run().json()
    assert seen[-1] == (80, 80)
    kinds = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert {"it/one_llc/eevdf/trials", "it/one_llc/cache_aware/trials"} <= set(kinds)


def test_the_program_gives_the_same_over_workers(file, study, cluster, program):
    over = program("study", "run", file, "--dask", cluster.scheduler_address, "--json")
    assert over.returncode == 0, over.stderr
    assert over.stdout == study.run().json()


def test_a_lost_worker_s_trials_are_run_again(study):
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as own, Client(own) as client:
        killed = []

        def kill(finished, total):
            if not killed:
                killed.append(own.workers[0].pid)
                os.kill(killed[0], signal.SIGKILL)

        assert study.run(client=client, progress=kill).json() == study.run().json()
        assert killed


def test_what_came_back_before_the_client_was_killed_is_taken_over(file, study, cluster, client, tmp_path):
    text = f"""
import os, signal, warmcore
from distributed import Client
with Client({cluster.scheduler_address!r}) as client:
    warmcore.Study.load({str(file)!r}).run(client=client, out={str(tmp_path / "out")!r},
        progress=lambda finished, total: finished > 20 and os.kill(os.getpid(), signal.SIGKILL))
"""
    assert subprocess.run([sys.executable, "-c", text]).returncode == -signal.SIGKILL
    totals = set()
    again = study.run(client=client, out=tmp_path / "out", progress=lambda finished, total: totals.add(total))
    assert again.json() == study.run().json()
    assert len(totals) == 1 and 0 < totals.pop() < 60
    # It is a directory of runs as any other, whose checksums hold.
    assert study.run(out=tmp_path / "out").json() == again.json()


def test_a_worker_of_another_version_is_refused_by_name(study):
    def other():
        from warmcore import _dask, _native

        _native.identity = _dask.identity = lambda: ("0.0.9", "f" * 64)

    def late():
        from warmcore import _dask

        _dask.identity = lambda: ("0.0.8", "e" * 64)

    for change, version in ((late, "0.0.8"), (other, "0.0.9")):
        with LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as own, Client(own) as client:
            (worker,) = client.run(change)
            with pytest.raises(warmcore.WarmcoreError, match=f"worker {worker} has version {version} ") as refused:
                study.run(client=client)
            assert "same wheel" in refused.value.advice


def test_a_scheduler_that_does_not_answer_and_a_client_that_is_gone_are_said(study, cluster, monkeypatch):
    monkeypatch.setattr(_dask, "ANSWERS", 1)
    with pytest.raises(warmcore.WarmcoreError, match="no Dask scheduler answers at tcp://127.0.0.1:9 within 1 s"):
        _dask.connect("tcp://127.0.0.1:9")
    with pytest.raises(warmcore.WarmcoreError, match="no Dask scheduler answers at nonsense://"):
        _dask.connect("nonsense://x")
    gone = Client(cluster)
    gone.close()
    with pytest.raises(warmcore.WarmcoreError, match="is gone"):
        study.run(client=gone)
    with pytest.raises(warmcore.WarmcoreError, match="'tcp://h:1' is no dask.distributed.Client"):
        study.run(client="tcp://h:1")


def test_a_client_that_goes_away_in_the_middle_is_said(study, cluster):
    leaving = Client(cluster)
    with pytest.raises(warmcore.WarmcoreError, match="is gone") as gone:
        study.run(client=leaving, progress=lambda finished, total: leaving.close())
    assert "taken over" in gone.value.advice


def test_the_shortest_turn_is_found_and_confirmed_here_over_workers_and_by_the_program(tmp_path, cluster, client, program):
    (tmp_path / "it.toml").write_text(TUNING)
    tried = []
    here = warmcore.tune(tmp_path / "it.toml", out=tmp_path / "out", progress=lambda *words: tried.append(words))
    document = json.loads(here.json())
    assert document["answer"] == "better" and here.best.startswith("rr:quantum_ns="), here
    assert document["searched"]["interval"]["high"] < 0.6
    assert tried[-1][:2] == (6, 6) and len(document["candidates"]) == 6
    assert here.figure().svg == (tmp_path / "out/sensitivity.svg").read_text()
    assert warmcore.tune(tmp_path / "it.toml", client=client).json() == here.json()
    # In its directory it goes on, and what it gives is the same.
    again = program("tune", tmp_path / "it.toml", "--out", tmp_path / "out", "--json")
    assert (again.returncode, again.stdout) == (0, here.json()), again.stderr
    again = program("tune", tmp_path / "it.toml", "--dask", cluster.scheduler_address)
    assert (again.returncode, again.stdout) == (0, str(here)), again.stderr


def test_a_placement_is_tuned_here_and_over_workers_and_told_as_commands(client):
    # Two threads share data, and left alone they are spread over two LLCs. The first value is tried in any case.
    asked = {
        "machines": ["1s1n2l2c1t@turin128"],
        "workloads": ["verilator:-t2,-C100"],
        "scheduler": "eevdf{where}",
        "budget": 3,
        "knob": [{"name": "where", "values": ["@pin=gathered", "", "@pin=spread"], "default": ""}],
        "confirm": {"trials": 8},
    }
    here = warmcore.tune(asked)
    assert here.best == "eevdf @ pin=gathered", here
    assert here.document["searched"]["interval"]["high"] < 1
    (line,) = here.commands
    assert "taskset" in line and "0" in line and "1" in line
    assert warmcore.tune(asked, client=client).json() == here.json()


def test_a_dict_is_tuned_as_its_file(tmp_path):
    (tmp_path / "tuning.toml").write_text(TUNING)
    knob = {"name": "quantum_ns", "from": 1_000_000, "to": 20_000_000, "log": True}
    asked = {
        "title": "Shorter turns, shorter waits",
        "machines": ["1s1n1l1c1t"],
        "workloads": ("periodic:-n1,-r100us,-s20ms,-d300ms+spin:-n2,-d300ms",),
        "scheduler": "rr",
        "metric": "wakeup_mean_ns",
        "budget": 6,
        "knob": [knob],
        "confirm": {"trials": 8},
    }
    assert warmcore.tune(asked).json() == warmcore.tune(tmp_path / "tuning.toml").json()
    with pytest.raises(warmcore.WarmcoreError, match="tuning.toml: .*unknown field `budgets`"):
        warmcore.tune({**asked, "budgets": 3})
    with pytest.raises(TypeError, match="texts, numbers, lists and dicts, not NoneType"):
        warmcore.tune({**asked, "budget": None})


def test_a_search_whose_program_was_killed_ends_and_goes_on_with_the_same_bytes(tmp_path, program):
    (tmp_path / "it.toml").write_text(TUNING)
    words = ["tune", str(tmp_path / "it.toml"), "--out", str(tmp_path / "out"), "--json"]
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    started = subprocess.Popen([PROGRAM, *words], env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob("out/experiments/*/trials/*.json")):
        assert started.poll() is None
        time.sleep(0.02)
    started.kill()
    started.wait()

    def at_work():
        lines = (path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.exists())
        return any(b"warmcore._service" in line and str(tmp_path).encode() in line for line in lines)

    for _ in range(500):
        with contextlib.suppress(OSError):
            if not at_work():
                break
        time.sleep(0.02)
    else:
        pytest.fail("the package goes on without the program")
    again = program(*words)
    assert (again.returncode, again.stdout) == (0, warmcore.tune(tmp_path / "it.toml").json()), again.stderr


def test_a_knob_that_cannot_matter_beats_nothing(tmp_path):
    text = TUNING.replace("periodic:-n1,-r100us,-s20ms,-d300ms+spin:-n2,-d300ms", "spin:-n1,-d20ms")
    (tmp_path / "it.toml").write_text(text.replace("wakeup_mean_ns", "elapsed_ns"))
    nothing = warmcore.tune(tmp_path / "it.toml")
    assert nothing.best is None and nothing.commands == []
    assert nothing.answer.startswith("Nothing beats the default, rr: none of 6 candidates")


def test_a_real_kernel_s_commands_are_told(tmp_path):
    text = TUNING.replace('"rr"', '"eevdf"').replace("quantum_ns", "base_slice_ns").replace("from = 1000000", "from = 100000")
    (tmp_path / "it.toml").write_text(text.replace("to = 20000000", "to = 200000"))
    (line,) = warmcore.tune(tmp_path / "it.toml").commands
    assert line.startswith("echo 1") and line.endswith(" > /sys/kernel/debug/sched/base_slice_ns")


def test_what_is_wrong_with_a_tuning_is_said_before_anything_runs(tmp_path, program):
    for wrong, words in ((("quantum_ns", "quantun_ns"), "did you mean `quantum_ns`?"), (("budget = 6", "budget = 0"), "`budget` is 0")):
        (tmp_path / "it.toml").write_text(TUNING.replace(*wrong))
        with pytest.raises(warmcore.WarmcoreError) as refused:
            warmcore.tune(tmp_path / "it.toml")
        assert words in str(refused.value)
        typed = program("tune", tmp_path / "it.toml")
        assert typed.returncode == 2 and words in " ".join(typed.stderr.split())
