import subprocess, sys, time, re
program, out, times, backend = sys.argv[1:]
run = subprocess.Popen([program, "record", "--backend", backend, "--out", out, "--force", "--", "perl", "pingpong.pl", times], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
most = {"recording": 0, "all": 0, "rss": 0}
while run.poll() is None:
    try:
        s = open(f"/proc/{run.pid}/status").read()
        anon = int(re.search(r"RssAnon:\s+(\d+)", s)[1]); rss = int(re.search(r"VmHWM:\s+(\d+)", s)[1])
        children = open(f"/proc/{run.pid}/task/{run.pid}/children").read().split()
    except (OSError, TypeError): break
    most["all"] = max(most["all"], anon); most["rss"] = rss
    if len(children) > (backend == "bpf"): most["recording"] = max(most["recording"], anon)
    time.sleep(0.02)
text = run.stdout.read()
print(backend, text.splitlines()[0], {k: round(v/1024,1) for k,v in most.items()})
