// SPDX-License-Identifier: GPL-2.0-only
// The scheduler of the manual's tutorial on sched_ext: tasks that wake go before tasks whose slice is over.
#include "sched.h"

#define WOKEN 0
#define OTHERS 1
#define SLICE_NS 4000000ULL

/* Gives a task that wakes an idle CPU, if there is one: it is not enqueued then. */
SEC("struct_ops/select_cpu")
s32 front_select_cpu(u64 *context)
{
	return select_idle(context);
}

/* A task needs a CPU and there is no idle one: it waits in one of two queues. */
SEC("struct_ops/enqueue")
void front_enqueue(u64 *context)
{
	struct task_struct *task = (void *)context[0];
	u64 flags = context[1];

	scx_bpf_dsq_insert(task, flags & ENQ_WAKEUP ? WOKEN : OTHERS, SLICE_NS, flags);
}

/* A CPU has nothing to run: those that woke come first. */
SEC("struct_ops/dispatch")
void front_dispatch(u64 *context)
{
	if (!scx_bpf_dsq_move_to_local(WOKEN))
		scx_bpf_dsq_move_to_local(OTHERS);
}

SEC("struct_ops.s/init")
s32 front_init(u64 *context)
{
	s32 error = scx_bpf_create_dsq(WOKEN, -1);

	return error ? error : scx_bpf_create_dsq(OTHERS, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops front = {
	.select_cpu = front_select_cpu,
	.enqueue = front_enqueue,
	.dispatch = front_dispatch,
	.init = front_init,
	.timeout_ms = 5000,
	.name = "front",
};

char licence[] SEC("license") = "GPL";
