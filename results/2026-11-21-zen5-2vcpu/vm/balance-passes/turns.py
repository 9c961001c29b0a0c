"""What ended the turns of threads that bursts of init.c makes (bal.bursts=1 bal.switches).

python3 turns.py RECORD
"""
import collections, re, sys

SHORT = 1e6
lines = open(sys.argv[1], errors="replace").read().split("\n")
release = next(int(line.split()[1]) for line in lines if re.match(r"release \d", line))
pattern = re.compile(
    r"^.*\[(\d+)\]\s+\S+\s+(\d+\.\d+): sched_switch: prev_comm=(.*) prev_pid=(\d+) prev_prio=\d+ prev_state=(\S+)"
    r" ==> next_comm=(.*) next_pid=(\d+)"
)
kind = lambda comm: {"init": "thread"}.get(comm, re.sub(r"[/\d:.]+.*", "", comm))
by_cpu = collections.defaultdict(list)
for match in filter(None, map(pattern.match, lines)):
    time = float(match[2]) * 1e9 - release
    by_cpu[int(match[1])].append((time, int(match[4]), kind(match[3]), match[5], int(match[7]), kind(match[6])))
turns = []
for switches in by_cpu.values():
    for before, after in zip(switches, switches[1:]):
        if after[2] == "thread" and before[4] == after[1] and before[0] > 0:
            turns.append((after[0] - before[0], after[1], before[2], after[3], after[5], after[4]))
parent = collections.Counter(turn[1] for turn in turns).most_common(1)[0][0]
turns = [turn for turn in turns if turn[1] != parent]
of_kernel = lambda who: who not in ("thread", "swapper")
cut = sum(of_kernel(turn[4]) for turn in turns)
print(f"{len(turns)} turns of children, {sum(turn[0] for turn in turns) / len(turns) / 1e6:.2f} ms in the mean; a kernel thread ended {cut}")
short = [turn for turn in turns if turn[0] < SHORT]
print(f"{len(short)} below 1 ms:")
for key, count in collections.Counter((t[2], t[3], t[4]) for t in short).most_common():
    print(f"  {count}  after {key[0]}, left in state {key[1]} for {key[2]}")
for name, has in (("beside no kernel thread", False), ("the others", True)):
    of = [t[0] for t in turns if (of_kernel(t[2]) or of_kernel(t[4])) == has]
    print(f"turns {name}: {len(of)}, {sum(of) / max(1, len(of)) / 1e6:.2f} ms in the mean")
