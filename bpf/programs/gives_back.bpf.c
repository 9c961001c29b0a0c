// SPDX-License-Identifier: GPL-2.0-only
// A local queue for each CPU. When a real-time or deadline task takes a CPU, whoever waits there goes to a queue of the machine, and an idle CPU
// is asked to fetch it.
#include "sched.h"

#define SHARED 0

/* Tasks that came back. */
u64 returned;

SEC("struct_ops/select_cpu")
s32 gives_back_select_cpu(u64 *context)
{
	return select_idle(context);
}

SEC("struct_ops/enqueue")
void gives_back_enqueue(u64 *context)
{
	struct task_struct *task = (void *)context[0];
	u64 flags = context[1];
	s32 cpu;

	if (!(flags & ENQ_REENQ)) {
		scx_bpf_dsq_insert(task, DSQ_LOCAL, SLICE_DEFAULT_NS, flags);
		return;
	}
	returned++;
	scx_bpf_dsq_insert(task, SHARED, SLICE_DEFAULT_NS, 0);
	cpu = scx_bpf_pick_idle_cpu(task->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, KICK_IDLE);
}

SEC("struct_ops/dispatch")
void gives_back_dispatch(u64 *context)
{
	scx_bpf_dsq_move_to_local(SHARED);
}

/* The arguments are whether the kernel was preempted, who leaves, who comes, and the state of the former. */
SEC("tp_btf/sched_switch")
s32 gives_back_switch(u64 *context)
{
	struct task_struct *prev = (void *)context[1];
	struct task_struct *next = (void *)context[2];

	if (next->prio < REALTIME_PRIORITIES && prev->prio >= REALTIME_PRIORITIES)
		scx_bpf_reenqueue_local___v2();
	return 0;
}

SEC("struct_ops.s/init")
s32 gives_back_init(u64 *context)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops gives_back = {
	.select_cpu = gives_back_select_cpu,
	.enqueue = gives_back_enqueue,
	.dispatch = gives_back_dispatch,
	.init = gives_back_init,
	.timeout_ms = 5000,
	.name = "gives_back",
};

char licence[] SEC("license") = "GPL";
