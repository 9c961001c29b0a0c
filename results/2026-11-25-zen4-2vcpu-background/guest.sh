#!/bin/sh
OUT=$PWD
T=/sys/kernel/tracing
[ -e $T/trace ] || mount -t tracefs nodev $T
cd $T
echo 0 > tracing_on
echo 8000 > buffer_size_kb
echo mono > trace_clock
for e in sched/sched_switch sched/sched_waking workqueue/workqueue_execute_start timer/timer_expire_entry; do echo 1 > events/$e/enable || echo no $e; done
N=$1
phase() { name=$1; shift; sleep 1; echo > $T/trace; echo 1 > $T/tracing_on; "$@"; echo 0 > $T/tracing_on; cat $T/trace > $OUT/$name.txt; echo phase $name done; }
phase idle sleep 3
phase hog load hog $N 4
phase half load sleep $N 4 600000 5000
phase fork load fork 10 3 600000
ps -e > $OUT/ps.txt 2>/dev/null || for p in /proc/[0-9]*; do cat $p/stat; done > $OUT/ps.txt 2>/dev/null
ls /proc/sys/vm > /dev/null
cat /proc/interrupts > $OUT/interrupts.txt
