// SPDX-License-Identifier: GPL-2.0-only
// One queue for the machine, and beside it programs of tracing that print what they see: at switches and at the first wakeup of tasks, by the records of the
// tracepoints; at exits, by the tracepoint's arguments; and at samples of each CPU's clock, which the loader opens.
#include "sched.h"

#define SHARED 0

/* What the tracepoint leaves (events/sched/sched_switch/format in tracefs). */
struct switch_record {
	u64 common;
	char prev_comm[16];
	s32 prev_pid;
	s32 prev_prio;
	s64 prev_state;
	char next_comm[16];
	s32 next_pid;
	s32 next_prio;
};

/* The same of sched_wakeup_new. */
struct wakeup_record {
	u64 common;
	char comm[16];
	s32 pid;
	s32 prio;
	s32 target_cpu;
};

/* Registers, nanoseconds from one sample to the next, and an address that a clock does not have (struct bpf_perf_event_data). */
struct clock_sample {
	u64 registers[21];
	u64 period;
	u64 address;
};

static u64 (*const current_pid_tgid)(void) = (void *)14;

SEC("struct_ops/enqueue")
void traced_enqueue(u64 *context)
{
	scx_bpf_dsq_insert((void *)context[0], SHARED, SLICE_DEFAULT_NS, context[1]);
}

SEC("struct_ops/dispatch")
void traced_dispatch(u64 *context)
{
	scx_bpf_dsq_move_to_local(SHARED);
}

SEC("tp/sched/sched_switch")
s32 traced_switch(struct switch_record *record)
{
	bpf_printk("switch from %d to %d, priority %d", record->prev_pid, record->next_pid, record->next_prio);
	return 0;
}

SEC("tp/sched/sched_wakeup_new")
s32 traced_new(struct wakeup_record *record)
{
	bpf_printk("new is %d on CPU %d, priority %d", record->pid, record->target_cpu, record->prio);
	return 0;
}

SEC("tp_btf/sched_process_exit")
s32 traced_exit(u64 *context)
{
	bpf_printk("exit of %d", (u32)current_pid_tgid());
	return 0;
}

SEC("perf_event")
s32 traced_sample(struct clock_sample *sample)
{
	bpf_printk("sample of %d after %d", (u32)current_pid_tgid(), sample->period);
	return 0;
}

SEC("struct_ops.s/init")
s32 traced_init(u64 *context)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops traced = {
	.enqueue = traced_enqueue,
	.dispatch = traced_dispatch,
	.init = traced_init,
	.timeout_ms = 5000,
	.name = "traced",
};

char licence[] SEC("license") = "GPL";
