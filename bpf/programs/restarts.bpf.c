// SPDX-License-Identifier: GPL-2.0-only
// One queue for the machine. A kernel ends it when a CPU goes offline or comes online, and its loader starts it again.
#include "sched.h"

#define SHARED 0

SEC("struct_ops/select_cpu")
s32 restarts_select_cpu(u64 *context)
{
	return select_idle(context);
}

SEC("struct_ops/enqueue")
void restarts_enqueue(u64 *context)
{
	scx_bpf_dsq_insert((void *)context[0], SHARED, SLICE_DEFAULT_NS, context[1]);
}

SEC("struct_ops/dispatch")
void restarts_dispatch(u64 *context)
{
	scx_bpf_dsq_move_to_local(SHARED);
}

SEC("struct_ops.s/init")
s32 restarts_init(u64 *context)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

EXIT(restarts_exit)

SEC(".struct_ops.link")
struct sched_ext_ops restarts = {
	.select_cpu = restarts_select_cpu,
	.enqueue = restarts_enqueue,
	.dispatch = restarts_dispatch,
	.init = restarts_init,
	.exit = restarts_exit,
	.timeout_ms = 5000,
	.name = "restarts",
};

char licence[] SEC("license") = "GPL";
