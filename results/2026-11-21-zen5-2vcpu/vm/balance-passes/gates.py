"""Why new-idle passes were or were not made: picks of the fair class that found nothing to run.

python3 gates.py RECORD

From the release on. A pick with nothing runnable looks for tasks unless no CPU has two (over), or the mean idleness (avg) is below what
a pass of the lowest domain once took (cost0); with cost1 on top of what was spent, the same for the next domain.
"""
import collections, re, sys

lines = open(sys.argv[1], errors="replace").read().split("\n")
release = next(int(line.split()[1]) for line in lines if re.match(r"release \d", line))
pattern = re.compile(r"^\s*(.+)-(\d+)\s+\[(\d+)\]\s+\S+\s+(\d+\.\d+): (\w+): (.*)$")
gate, state, open_picks = collections.Counter(), {}, {}


def close(cpu):
    """Counts the pick that a CPU has ended."""
    if cpu not in open_picks:
        return
    fields, comm, passes = open_picks.pop(cpu)
    of = {name: int(value, 0) for name, value in fields.items()}
    kind = "thread of the workload" if comm == "init" else "idle" if comm.startswith("<idle") else "kernel thread"
    if not of["over"]:
        why = "not overloaded"
    elif of["avg"] < of["cost0"]:
        why = "avg_idle < cost0"
    elif of["avg"] < of["cost1"]:
        why = "avg_idle < cost1 (second level only)"
    else:
        why = "pays"
    became = lambda span: max(("pulled" if moved else "made" for width, moved in passes if width == span), default="not")
    gate[(kind, why, "low " + became(4), "high " + became(12))] += 1
    state[cpu] = tuple(of[name] for name in ("cost0", "cost1", "avg", "ratio0", "ratio1"))


for match in filter(None, map(pattern.match, lines)):
    cpu, name = int(match[3]), match[5]
    if float(match[4]) * 1e9 < release:
        continue
    fields = dict(part.split("=") for part in re.findall(r"\w+=\S+", match[6]))
    if name in ("ni", "nir"):
        close(cpu)
    if name == "ni" and int(fields["nr"], 0) == 0:
        open_picks[cpu] = (fields, match[1], [])
    elif name == "bal" and int(fields["idle"], 0) == 2 and cpu in open_picks:
        open_picks[cpu][2].append([int(fields["w"], 0), 0])
    elif name == "balr" and cpu in open_picks and open_picks[cpu][2]:
        open_picks[cpu][2][-1][1] = int(fields["moved"], 0)
for key, count in sorted(gate.items()):
    print(count, *key, sep="  ")
for cpu in sorted(state):
    print("CPU", cpu, "cost0 %d cost1 %d avg_idle %d ratio %d %d" % state[cpu])
