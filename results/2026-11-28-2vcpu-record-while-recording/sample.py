"""Most anonymous memory of `warmcore record`: while its command runs, and until its end. Usage: sample.py PROGRAM OUT TIMES"""
import subprocess, sys, time, re
program, out, times = sys.argv[1:]
run = subprocess.Popen([program, "record", "--out", out, "--", "perl", "pingpong.pl", times], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
most = {"recording": 0, "all": 0}
while run.poll() is None:
    try:
        anon = int(re.search(r"RssAnon:\s+(\d+)", open(f"/proc/{run.pid}/status").read())[1])
        children = open(f"/proc/{run.pid}/task/{run.pid}/children").read().split()
    except (OSError, TypeError):
        break
    most["all"] = max(most["all"], anon)
    if children:
        most["recording"] = max(most["recording"], anon)
    time.sleep(0.02)
text = run.stdout.read()
print(f"{text.splitlines()[0]}; most anonymous memory while the command ran {most['recording'] / 1024:.1f} MiB, in all {most['all'] / 1024:.1f} MiB")
