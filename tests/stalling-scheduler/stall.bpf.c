// SPDX-License-Identifier: GPL-2.0-only
// A sched_ext scheduler that stalls: global FIFO for one second, then no task is ever dispatched again. For tests by hand.
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
#define SEC(name) __attribute__((section(name), used))

struct task_struct {
	int pid;
} __attribute__((preserve_access_index));
struct sched_ext_ops {
	void (*enqueue)(struct task_struct *task, u64 flags);
	u32 timeout_ms;
	char name[128];
};

void scx_bpf_dsq_insert(struct task_struct *task, u64 queue, u64 slice, u64 flags) __attribute__((section(".ksyms")));
static u64 (*const ktime_get_ns)(void) = (void *)5;

static u64 begun;

SEC("struct_ops/stall_enqueue")
void stall_enqueue(u64 *context)
{
	u64 now = ktime_get_ns();

	if (!begun)
		begun = now;
	if (now - begun < 1000000000ULL)
		// SCX_DSQ_GLOBAL, 20 ms.
		scx_bpf_dsq_insert((struct task_struct *)context[0], (1ULL << 63) | 1, 20000000, context[1]);
}

SEC(".struct_ops.link")
struct sched_ext_ops stall = { .enqueue = (void *)stall_enqueue, .timeout_ms = 2000, .name = "stall" };

char licence[] SEC("license") = "GPL";
