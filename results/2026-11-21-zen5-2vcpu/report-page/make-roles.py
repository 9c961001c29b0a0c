"""3,000 threads of 12 roles as an rt-app file: make-roles.py > FILE. Durations as in make-workload.py."""
import json
import random
import sys

draw = random.Random(1)
made = {}
for role in range(12):
    steps = {"run0": draw.randint(37, 211), "sleep1": draw.randint(61, 403), "run2": draw.randint(23, 307), "sleep3": draw.randint(31, 359)}
    made[f"role{role:02}"] = {"instance": 250, "loop": 12, **steps}
json.dump({"tasks": made}, sys.stdout, indent=1)
