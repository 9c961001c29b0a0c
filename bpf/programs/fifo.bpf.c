// SPDX-License-Identifier: GPL-2.0-only
// One queue for the machine, first come first served.
#include "sched.h"

#define SHARED 0

SEC("struct_ops/select_cpu")
s32 fifo_select_cpu(u64 *context)
{
	return select_idle(context);
}

SEC("struct_ops/enqueue")
void fifo_enqueue(u64 *context)
{
	scx_bpf_dsq_insert((void *)context[0], SHARED, SLICE_DEFAULT_NS, context[1]);
}

SEC("struct_ops/dispatch")
void fifo_dispatch(u64 *context)
{
	scx_bpf_dsq_move_to_local(SHARED);
}

SEC("struct_ops.s/init")
s32 fifo_init(u64 *context)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops fifo = {
	.select_cpu = fifo_select_cpu,
	.enqueue = fifo_enqueue,
	.dispatch = fifo_dispatch,
	.init = fifo_init,
	.timeout_ms = 5000,
	.name = "fifo",
};

char licence[] SEC("license") = "GPL";
