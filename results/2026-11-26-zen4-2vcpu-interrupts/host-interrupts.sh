#!/bin/bash
# Interrupts and softirqs of this computer: host-interrupts.sh OUT SECONDS
T=/sys/kernel/tracing/instances/irq
mkdir -p $T && cd $T
echo 0 > tracing_on; echo > trace
echo 60000 > buffer_size_kb
echo x86-tsc > trace_clock
for e in irq/irq_handler_entry irq/irq_handler_exit irq/softirq_entry irq/softirq_exit irq_vectors/local_timer_entry irq_vectors/local_timer_exit irq_vectors/reschedule_entry irq_vectors/reschedule_exit irq_vectors/call_function_entry irq_vectors/call_function_exit irq_vectors/call_function_single_entry irq_vectors/call_function_single_exit irq_vectors/irq_work_entry irq_vectors/irq_work_exit irq_vectors/x86_platform_ipi_entry irq_vectors/x86_platform_ipi_exit csd/csd_function_entry; do echo 1 > events/$e/enable || echo no $e; done
mark() { read up rest < /proc/uptime; echo "uptime $up" > trace_marker; }
cat /proc/interrupts > $1-before.txt
echo 1 > tracing_on; mark; sleep $2; mark; echo 0 > tracing_on
cat /proc/interrupts > $1-after.txt
cat trace > $1.txt
grep -h -E "overrun|dropped" per_cpu/cpu*/stats
echo 0 > events/enable
cd /; rmdir $T
