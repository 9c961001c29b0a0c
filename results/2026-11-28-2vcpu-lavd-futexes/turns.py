"""How long the holders of a lock run: `turns.py WARMCORE RUN…`, each a run directory of `warmcore compare` with events.

For each scheduler: what the lockers got of two CPUs in each trial, in s; of the first trial, turns of more than 1 ms that begin with a sleep, by
`warmcore explain --events`: how many, which share ends with a preemption, quartiles of their lengths in ms."""
import json, re, statistics, subprocess, sys
from pathlib import Path

UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
SLICE = re.compile(r"\s*[\d.]+ cpu\d+\s+(locker\S*)\s+(?:-|[\d.]+ \w+)\s+(?:-|[\d.]+ \w+)\s+([\d.]+) (\w+) ([RS])")


def turns(lines):
    lengths, preempted, slept = [], 0, {}
    for found in filter(None, map(SLICE.match, lines)):
        task, length, state = found[1], float(found[2]) * UNITS[found[3]], found[4]
        if slept.get(task) and length > 1:
            lengths.append(length)
            preempted += state == "R"
        slept[task] = state == "S"
    quartiles = [round(part, 1) for part in statistics.quantiles(lengths, n=4)]
    return f"{len(lengths)} turns, {preempted / len(lengths):.2f} end with a preemption, quartiles {quartiles} ms"


for run in sys.argv[2:]:
    for index, scheduler in enumerate(["scx:scx_lavd", "scx:scx_lavd --no-futex-boost"]):
        trials = [json.loads(path.read_text()) for path in sorted(Path(run).glob(f"trials/s{index}-t*.json"))]
        got = [sum(task["cpu_time_ns"] for task in trial["tasks"] if task["role"] == "locker") / 1e9 for trial in trials]
        events = subprocess.run([sys.argv[1], "explain", "--events", run, "-s", scheduler], capture_output=True, text=True, check=True)
        print(f"{Path(run).name}, {scheduler}: lockers {[round(one, 2) for one in got]} s; {turns(events.stdout.splitlines())}")
