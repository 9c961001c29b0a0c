# Makes parents.csv in the current directory: scx_lavd (1.1.4) before and after launchers had a history. Two programs and scx_lavd are in PATH:
# warmcore-before (7befb782) and warmcore-after.
import csv, json, subprocess
def sleepers():
    tasks = {f"p{n}": {"instance": 2, "loop": -1, "delay": d, "run": 2000, "timer": {"ref": "unique", "period": 10000}} for n, d in enumerate((1000, 3500, 6000, 8500))}
    tasks["spinner"] = {"instance": 6, "loop": -1, "run": 100000}
    return {"tasks": tasks, "global": {"duration": 2}}
json.dump(sleepers(), open("sleepers.json", "w"))
CASES = [
    ("spinners", "1s1n2l4c1t", "spin:-n12,-d1s", ["", "--per-cpu-dsq", "--virt-llc=4-4"], []),
    ("8 spinners", "1s1n2l4c1t", "spin:-n8,-d1s", ["--virt-llc=4-4"], []),
    ("sleepers beside spinners", "1s1n2l4c1t", "sleepers.json", ["", "--per-cpu-dsq"], ["--warm-up", "700ms"]),
    ("transcode", "spr32", "transcode:-j4,-n8,-i20,-c0-31", ["", "--virt-llc=4-4 --per-cpu-dsq"], []),
]
out = csv.writer(open("parents.csv", "w"))
out.writerow(["load", "machine", "arguments", "program", "seed", "elapsed, s", "busy share", "mean wakeup, us", "migrations per s"])
for load, machine, workload, arguments, more in CASES:
    for argument in arguments:
        for which in ("before", "after"):
            for seed in range(1, 3 if machine == "spr32" else 9):
                ran = subprocess.run([f"warmcore-{which}", "sim", "-m", machine, "-w", workload, "-s", f"scx:scx_lavd {argument}".strip(), "--seed", str(seed), *more, "--json"], capture_output=True, text=True, check=True)
                measures = json.loads(ran.stdout)["measures"]
                value = lambda name, unit: f"{(measures[name]['value'] if isinstance(measures[name], dict) else measures[name]) / unit:.4g}" if measures.get(name) is not None else ""
                out.writerow([load, machine, argument, which, seed, value("elapsed_ns", 1e9), value("busy_share", 1), value("wakeup_mean_ns", 1e3), value("migrations_ran_per_s", 1)])
