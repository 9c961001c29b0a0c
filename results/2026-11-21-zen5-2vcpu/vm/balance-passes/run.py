"""Boots a guest whose only program is given, in virtual time, and keeps what it sends.

python3 run.py PROGRAM RECORD SHIFT OPTIONS [LLCSxCORES[xTHREADS]]

Without the last, 64 CPUs in 8 LLCs and 2 nodes. The kernel is the one `warmcore vm kernels --fetch` fetched.
"""
import os, subprocess, sys

program, record, shift, options = sys.argv[1:5]
shape = sys.argv[5] if len(sys.argv) > 5 else None
release = "7.2.13+deb14-cloud-amd64"
cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
kernel = f"{cache}/warmcore/kernels/{release}/vmlinuz"


def entry(name, data, mode, inode, device=(0, 0)):
    """A member of a cpio archive."""
    name = name.encode() + b"\0"
    fields = [inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name), 0]
    head = ("070701" + "".join(f"{field:08x}" for field in fields)).encode() + name
    head += b"\0" * (-len(head) % 4)
    return head + data + b"\0" * (-len(data) % 4)


with open(program, "rb") as file:
    archive = entry("dev", b"", 0o40755, 1) + entry("dev/console", b"", 0o20600, 2, (5, 1))
    archive += entry("init", file.read(), 0o100755, 3) + entry("TRAILER!!!", b"", 0, 4)
with open(record + ".cpio", "wb") as file:
    file.write(archive)
if shape:
    llcs, cores, threads = (list(map(int, shape.split("x"))) + [1])[:3]
    memory, nodes = 600, []
else:
    llcs, cores, threads, memory = 8, 8, 1, 1600
    nodes = ["-object", "memory-backend-ram,id=m0,size=800M", "-numa", "node,nodeid=0,cpus=0-31,memdev=m0"]
    nodes += ["-object", "memory-backend-ram,id=m1,size=800M", "-numa", "node,nodeid=1,cpus=32-63,memdev=m1"]
    nodes += ["-numa", "dist,src=0,dst=1,val=20", "-numa", "dist,src=1,dst=0,val=20"]
words = "console=ttyS0 panic=-1 oops=panic mitigations=off tsc=reliable transparent_hugepage=never nowatchdog"
command = ["timeout", "900", "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
command += ["-machine", "q35", "-accel", "tcg,thread=single", "-cpu", "max,la57=off", "-icount", f"shift={shift},sleep=off"]
command += ["-rtc", "clock=vm,base=2026-01-01", "-m", f"{memory}M", *nodes]
command += ["-smp", f"{llcs * cores * threads},sockets={llcs},dies=1,cores={cores},threads={threads}"]
command += ["-kernel", kernel, "-initrd", record + ".cpio"]
command += ["-append", f"{words} random.trust_cpu=on quiet loglevel=4 {options}"]
command += ["-serial", f"file:{record}.console", "-chardev", f"file,id=frames,path={record}"]
command += ["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=frames,name=frames"]
sys.exit(subprocess.run(command).returncode)
