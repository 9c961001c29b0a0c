#!/bin/sh
# Interrupts and softirqs of a guest, by phase: at rest, N hogs, N half-asleep threads, threads that begin and end.
OUT=$PWD
T=/sys/kernel/tracing
[ -e $T/trace ] || mount -t tracefs nodev $T
cd $T
echo 0 > tracing_on
echo 8000 > buffer_size_kb
echo x86-tsc > trace_clock
for e in irq/irq_handler_entry irq/irq_handler_exit irq/softirq_entry irq/softirq_exit irq_vectors/local_timer_entry irq_vectors/local_timer_exit irq_vectors/reschedule_entry irq_vectors/reschedule_exit irq_vectors/call_function_entry irq_vectors/call_function_exit irq_vectors/call_function_single_entry irq_vectors/call_function_single_exit irq_vectors/irq_work_entry irq_vectors/irq_work_exit irq_vectors/x86_platform_ipi_entry irq_vectors/x86_platform_ipi_exit csd/csd_function_entry; do echo 1 > events/$e/enable || echo no $e; done
N=$1
mark() { read up rest < /proc/uptime; echo "uptime $up" > trace_marker; }
phase() { name=$1; shift; sleep 1; echo > $T/trace; cat /proc/interrupts > $OUT/$name-before.txt; echo 1 > $T/tracing_on; mark; "$@"; mark; echo 0 > $T/tracing_on; cat /proc/interrupts > $OUT/$name-after.txt; cat $T/trace > $OUT/$name.txt; echo phase $name done; }
phase idle sleep 5
phase hog load hog $N 4
phase half load sleep $N 4 600000 5000
phase fork load fork 10 3 600000
