// SPDX-License-Identifier: GPL-2.0-only
// A scheduler with a mistake that soaking finds: tasks bound to one CPU wait in a queue that no CPU takes from.
#include "sched.h"

#define SHARED 0
#define BOUND 1

SEC("struct_ops/enqueue")
void forgets_enqueue(u64 *context)
{
	struct task_struct *task = (void *)context[0];

	scx_bpf_dsq_insert(task, task->nr_cpus_allowed == 1 ? BOUND : SHARED, SLICE_DEFAULT_NS, context[1]);
}

SEC("struct_ops/dispatch")
void forgets_dispatch(u64 *context)
{
	scx_bpf_dsq_move_to_local(SHARED);
}

SEC("struct_ops.s/init")
s32 forgets_init(u64 *context)
{
	s32 error = scx_bpf_create_dsq(SHARED, -1);

	return error ? error : scx_bpf_create_dsq(BOUND, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops forgets = {
	.enqueue = forgets_enqueue,
	.dispatch = forgets_dispatch,
	.init = forgets_init,
	.timeout_ms = 5000,
	.name = "forgets",
};

char licence[] SEC("license") = "GPL";
