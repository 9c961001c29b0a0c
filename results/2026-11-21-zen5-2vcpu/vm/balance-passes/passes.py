"""What run.py recorded: when each CPU passed each domain, and what SCHED softirqs took.

python3 passes.py RECORD CPU,CPU,...

Times in ms since the release. b: the CPU was busy, i: idle, n: newly idle; (+3): three tasks moved; ~: the pass
ended at once (4 us or less with 2 ns per instruction), most often because another CPU of the group was entitled.
"""
import collections, re, sys

lines = open(sys.argv[1], errors="replace").read().split("\n")
release = next(int(line.split()[1]) for line in lines if re.match(r"release \d", line))
pattern = re.compile(r"^\s*(.+)-(\d+)\s+\[(\d+)\]\s+\S+\s+(\d+\.\d+): (\w+): (.*)$")
open_passes, passes, entered, softirqs = collections.defaultdict(list), [], {}, []
looks, asked = collections.Counter(), {}
for match in filter(None, map(pattern.match, lines)):
    cpu, time, name, text = int(match[3]), float(match[4]) * 1e9 - release, match[5], match[6]
    fields = dict(part.split("=") for part in re.findall(r"\w+=\S+", text))
    if name == "bal":
        open_passes[cpu].append((time, fields))
    elif name == "balr" and open_passes[cpu]:
        begun, of = open_passes[cpu].pop()
        passes.append((begun, time - begun, int(of["cpu"], 0), int(of["idle"], 0), int(of["w"], 0), int(fields["moved"], 0)))
    elif name == "softirq_entry":
        entered[cpu] = time
    elif name == "softirq_exit" and cpu in entered:
        softirqs.append((entered[cpu], time - entered.pop(cpu)))
    elif name == "det":
        asked[cpu] = fields
    elif name == "detr" and cpu in asked:
        of = asked.pop(cpu)
        looks[(int(of["pid"], 0), "failed " + of["failed"], "granted" if int(fields["ok"], 0) & 0xFF else "refused")] += time > 0
for low, high in ((0, 50), (50, 250), (250, 650), (0, 1000)):
    inside = [took for begun, took in softirqs if low * 1e6 <= begun < high * 1e6]
    print(f"{low} to {high} ms: {len(inside)} SCHED softirqs, {sum(inside) / 1e6:.1f} ms in all")
    kinds = collections.defaultdict(list)
    for begun, took, _, idle, span, moved in passes:
        if low * 1e6 <= begun < high * 1e6:
            kinds[("busy", "idle", "newly idle")[idle], span, moved > 0].append((took, moved))
    for (idle, span, any_moved), of in sorted(kinds.items()):
        mean = sum(took for took, _ in of) / len(of) / 1e3
        print(f"  {idle}, span {span}: {len(of)} passes {'that' if any_moved else 'without'} moved {sum(m for _, m in of)}, {mean:.0f} us each")
for span in sorted({entry[4] for entry in passes}):
    first = {}
    for begun, _, cpu, _, of, _ in sorted(passes):
        if of == span:
            first.setdefault(cpu, begun)
    zero = min(entry[0] for entry in passes)
    print(f"span {span}: first pass of {len(first)} CPUs, ms after the first of all:", dict(sorted(collections.Counter(round((t - zero) / 4e6) * 4 for t in first.values()).items())))
for cpu in map(int, sys.argv[2].split(",")):
    for span in sorted({entry[4] for entry in passes}):
        words = [
            f"{begun / 1e6:.0f}{'bin'[idle]}{f'(+{moved})' if moved else ''}{'' if took > 4e3 else '~'}"
            for begun, took, of, idle, width, moved in sorted(passes)
            if of == cpu and width == span
        ]
        print(f"CPU {cpu}, span {span}:", " ".join(words)[:400])
for key, count in sorted(looks.items()):
    print("can_migrate_task of", *key, count)
