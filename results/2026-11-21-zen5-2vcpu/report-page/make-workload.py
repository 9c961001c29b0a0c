"""An rt-app file whose slices are hard to compress: make-workload.py TASKS LOOPS [LAST] > FILE.

TASKS tasks each LOOPS times run, sleep, run, sleep, with durations drawn once per task (seed 1) from 37..211, 61..403, 23..307
and 31..359 microseconds; LAST more loops of one task with a single run and sleep, to reach a number of slices exactly.
"""
import json
import random
import sys

tasks, loops = int(sys.argv[1]), int(sys.argv[2])
last = int(sys.argv[3]) if len(sys.argv) > 3 else 0
draw = random.Random(1)
ranges = [("run", 37, 211), ("sleep", 61, 403), ("run", 23, 307), ("sleep", 31, 359)]
made = {}
for task in range(tasks):
    steps = {f"{kind}{index}": draw.randint(low, high) for index, (kind, low, high) in enumerate(ranges)}
    made[f"task{task:04}"] = {"loop": loops, **steps}
if last:
    made["last"] = {"loop": last, "run0": 50, "sleep1": 100}
json.dump({"tasks": made}, sys.stdout, indent=1)
