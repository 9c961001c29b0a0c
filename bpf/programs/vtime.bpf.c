// SPDX-License-Identifier: GPL-2.0-only
// One queue for the machine in the order of virtual time, which passes by weight.
#include "sched.h"

#define SHARED 0

/* The greatest virtual time at which a task has begun to run. */
static u64 now;

/* A task's virtual time with what it has used of its slice. */
static u64 charged(struct task_struct *task)
{
	u64 left = task->scx.slice;
	u64 used = left < SLICE_DEFAULT_NS ? SLICE_DEFAULT_NS - left : 0;

	return task->scx.dsq_vtime + used * 100 / task->scx.weight;
}

SEC("struct_ops/select_cpu")
s32 vtime_select_cpu(u64 *context)
{
	return select_idle(context);
}

/* A sleeper brings one slice of credit at most. */
SEC("struct_ops/enqueue")
void vtime_enqueue(u64 *context)
{
	struct task_struct *task = (void *)context[0];
	u64 earliest = now - SLICE_DEFAULT_NS, own = task->scx.dsq_vtime;

	if ((s64)(own - earliest) < 0)
		own = earliest;
	scx_bpf_dsq_insert_vtime(task, SHARED, SLICE_DEFAULT_NS, own, context[1]);
}

/*
 * The task that ran is in no queue now: it is compared here, or two tasks would take turns whatever their weights. It may be about to sleep,
 * and then goes on by no means.
 */
SEC("struct_ops/dispatch")
void vtime_dispatch(u64 *context)
{
	struct task_struct *prev = (void *)context[1], *head;

	if (prev && (prev->scx.flags & TASK_QUEUED)) {
		head = scx_bpf_dsq_peek(SHARED);
		if (head) {
			u64 own = charged(prev);

			if ((s64)(own - head->scx.dsq_vtime) < 0) {
				scx_bpf_task_set_dsq_vtime(prev, own);
				scx_bpf_task_set_slice(prev, SLICE_DEFAULT_NS);
				return;
			}
		}
	}
	scx_bpf_dsq_move_to_local(SHARED);
}

SEC("struct_ops/running")
void vtime_running(u64 *context)
{
	struct task_struct *task = (void *)context[0];
	u64 own = task->scx.dsq_vtime;

	if ((s64)(own - now) > 0)
		now = own;
}

SEC("struct_ops/stopping")
void vtime_stopping(u64 *context)
{
	struct task_struct *task = (void *)context[0];

	scx_bpf_task_set_dsq_vtime(task, charged(task));
}

SEC("struct_ops/enable")
void vtime_enable(u64 *context)
{
	scx_bpf_task_set_dsq_vtime((void *)context[0], now);
}

SEC("struct_ops.s/init")
s32 vtime_init(u64 *context)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops vtime = {
	.select_cpu = vtime_select_cpu,
	.enqueue = vtime_enqueue,
	.dispatch = vtime_dispatch,
	.running = vtime_running,
	.stopping = vtime_stopping,
	.enable = vtime_enable,
	.init = vtime_init,
	.timeout_ms = 5000,
	.name = "vtime",
};

char licence[] SEC("license") = "GPL";
