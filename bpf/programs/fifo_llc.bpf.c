// SPDX-License-Identifier: GPL-2.0-only
// A queue for each LLC, first come first served; a CPU with nothing in its own looks into the others.
#include "sched.h"

#define MOST_CPUS 1024
#define MOST_LLCS 128

/* Written by the loader before the program is loaded. */
const volatile u32 llc_count = 1;
const volatile u32 llc_of_cpu[MOST_CPUS];

static u32 llc_of(u32 cpu)
{
	return cpu < MOST_CPUS ? llc_of_cpu[cpu] : 0;
}

SEC("struct_ops/select_cpu")
s32 fifo_llc_select_cpu(u64 *context)
{
	return select_idle(context);
}

SEC("struct_ops/enqueue")
void fifo_llc_enqueue(u64 *context)
{
	struct task_struct *task = (void *)context[0];

	scx_bpf_dsq_insert(task, llc_of(scx_bpf_task_cpu(task)), SLICE_DEFAULT_NS, context[1]);
}

SEC("struct_ops/dispatch")
void fifo_llc_dispatch(u64 *context)
{
	u32 own = llc_of(context[0]), step;

	for (step = 0; step < MOST_LLCS && step < llc_count; step++) {
		u32 llc = own + step;

		if (llc >= llc_count)
			llc -= llc_count;
		if (scx_bpf_dsq_move_to_local(llc))
			return;
	}
}

SEC("struct_ops.s/init")
s32 fifo_llc_init(u64 *context)
{
	u32 llc;

	for (llc = 0; llc < MOST_LLCS && llc < llc_count; llc++) {
		s32 error = scx_bpf_create_dsq(llc, -1);

		if (error)
			return error;
	}
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops fifo_llc = {
	.select_cpu = fifo_llc_select_cpu,
	.enqueue = fifo_llc_enqueue,
	.dispatch = fifo_llc_dispatch,
	.init = fifo_llc_init,
	.timeout_ms = 5000,
	.name = "fifo_llc",
};

char licence[] SEC("license") = "GPL";
