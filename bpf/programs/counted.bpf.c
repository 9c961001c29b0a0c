// SPDX-License-Identifier: GPL-2.0-only
// One queue for the machine in the order of instructions, which count by weight: a task pays for what it executes, not for the time that it waits for
// memory. Each CPU's counter of instructions is read at both ends of a task's turn.
#include "sched.h"

#define SHARED 0
#define MOST_CPUS 1024
/* Instructions that a sleeper may lag behind: about a slice of a fast task. */
#define CREDIT (1ULL << 26)
#define THIS_CPU 0xffffffffULL

/* The loader puts a counter of instructions of each CPU into it (BPF_MAP_TYPE_PERF_EVENT_ARRAY). */
struct {
	int (*type)[4];
	u32 *key;
	u32 *value;
} instructions SEC(".maps");

struct perf_value {
	u64 count, enabled, running;
};

static long (*const read_counter)(void *map, u64 flags, struct perf_value *value, u32 bytes) = (void *)55;
static u32 (*const this_cpu)(void) = (void *)8;

/* The greatest count at which a task has begun to run, and what each CPU's counter said when its task began. */
static u64 now;
static u64 begun[MOST_CPUS];

static inline u64 counted(void)
{
	struct perf_value value = {};

	read_counter(&instructions, THIS_CPU, &value, sizeof(value));
	return value.count;
}

/* A task's count with what it has executed in its present turn on this CPU, which is paid with this. */
static inline u64 pay(struct task_struct *task)
{
	u32 cpu = this_cpu() & (MOST_CPUS - 1);
	u64 here = counted(), executed = here - begun[cpu];

	begun[cpu] = here;
	return task->scx.dsq_vtime + executed * 100 / task->scx.weight;
}

SEC("struct_ops/select_cpu")
s32 counted_select_cpu(u64 *context)
{
	return select_idle(context);
}

SEC("struct_ops/enqueue")
void counted_enqueue(u64 *context)
{
	struct task_struct *task = (void *)context[0];
	u64 earliest = now - CREDIT, own = task->scx.dsq_vtime;

	if ((s64)(own - earliest) < 0)
		own = earliest;
	scx_bpf_dsq_insert_vtime(task, SHARED, SLICE_DEFAULT_NS, own, context[1]);
}

/* As in vtime.bpf.c, the task that ran is compared here. */
SEC("struct_ops/dispatch")
void counted_dispatch(u64 *context)
{
	struct task_struct *prev = (void *)context[1], *head;

	if (prev && (prev->scx.flags & TASK_QUEUED)) {
		head = scx_bpf_dsq_peek(SHARED);
		if (head) {
			u64 own = pay(prev);

			scx_bpf_task_set_dsq_vtime(prev, own);
			if ((s64)(own - head->scx.dsq_vtime) < 0) {
				scx_bpf_task_set_slice(prev, SLICE_DEFAULT_NS);
				return;
			}
		}
	}
	scx_bpf_dsq_move_to_local(SHARED);
}

SEC("struct_ops/running")
void counted_running(u64 *context)
{
	struct task_struct *task = (void *)context[0];
	u64 own = task->scx.dsq_vtime;

	begun[this_cpu() & (MOST_CPUS - 1)] = counted();
	if ((s64)(own - now) > 0)
		now = own;
}

SEC("struct_ops/stopping")
void counted_stopping(u64 *context)
{
	struct task_struct *task = (void *)context[0];

	scx_bpf_task_set_dsq_vtime(task, pay(task));
}

SEC("struct_ops/enable")
void counted_enable(u64 *context)
{
	scx_bpf_task_set_dsq_vtime((void *)context[0], now);
}

SEC("struct_ops.s/init")
s32 counted_init(u64 *context)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops counted_ops = {
	.select_cpu = counted_select_cpu,
	.enqueue = counted_enqueue,
	.dispatch = counted_dispatch,
	.running = counted_running,
	.stopping = counted_stopping,
	.enable = counted_enable,
	.init = counted_init,
	.timeout_ms = 5000,
	.name = "counted",
};

char licence[] SEC("license") = "GPL";
