/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What these programs need of a kernel, declared here. Only members that are read stand in the structures; where they lie in the running
 * kernel is found when the program is loaded, by their names (CO-RE).
 */
#pragma once

typedef int s32;
typedef unsigned int u32;
typedef long long s64;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define KFUNC __attribute__((section(".ksyms")))

/* SCX_DSQ_LOCAL, SCX_SLICE_DFL, SCX_TASK_QUEUED. */
#define DSQ_LOCAL ((1ULL << 63) | 2)
#define SLICE_DEFAULT_NS 20000000ULL
#define TASK_QUEUED 1U

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_ext_entity {
	u64 slice;
	u64 dsq_vtime;
	u32 weight;
	u32 flags;
};

struct cpumask;

struct task_struct {
	s32 prio;
	s32 nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	struct sched_ext_entity scx;
};

struct scx_exit_info {
	s64 exit_code;
};

#pragma clang attribute pop

/* Members by name: order and place are the running kernel's. */
struct sched_ext_ops {
	void *select_cpu;
	void *enqueue;
	void *dispatch;
	void *running;
	void *stopping;
	void *enable;
	void *cpu_online;
	void *cpu_offline;
	void *init;
	void *exit;
	u32 timeout_ms;
	char name[128];
};

s32 scx_bpf_create_dsq(u64 dsq, s32 node) KFUNC;
s32 scx_bpf_select_cpu_dfl(struct task_struct *task, s32 prev_cpu, u64 wake_flags, _Bool *is_idle) KFUNC;
void scx_bpf_dsq_insert(struct task_struct *task, u64 dsq, u64 slice, u64 enq_flags) KFUNC;
void scx_bpf_dsq_insert_vtime(struct task_struct *task, u64 dsq, u64 slice, u64 vtime, u64 enq_flags) KFUNC;
_Bool scx_bpf_dsq_move_to_local(u64 dsq) KFUNC;
struct task_struct *scx_bpf_dsq_peek(u64 dsq) KFUNC;
s32 scx_bpf_task_cpu(struct task_struct *task) KFUNC;
_Bool scx_bpf_task_set_slice(struct task_struct *task, u64 slice) KFUNC;
_Bool scx_bpf_task_set_dsq_vtime(struct task_struct *task, u64 vtime) KFUNC;

s32 scx_bpf_pick_idle_cpu(const struct cpumask *mask, u64 flags) KFUNC;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) KFUNC;
void scx_bpf_reenqueue_local___v2(void) KFUNC;

/* Selects as the class does, and puts a task that gets an idle CPU there at once. */
static inline s32 select_idle(u64 *context)
{
	struct task_struct *task = (void *)context[0];
	_Bool is_idle = 0;
	s32 cpu = scx_bpf_select_cpu_dfl(task, context[1], context[2], &is_idle);

	if (is_idle)
		scx_bpf_dsq_insert(task, DSQ_LOCAL, SLICE_DEFAULT_NS, 0);
	return cpu;
}

/* An operation that keeps the code with which the program ends. Its loader starts it again if that asks for it. */
#define EXIT(name)                                                                       \
	s64 exit_code;                                                                   \
	SEC("struct_ops/exit")                                                           \
	void name(u64 *context)                                                          \
	{                                                                                \
		exit_code = ((struct scx_exit_info *)context[0])->exit_code;             \
	}

/* SCX_ENQ_WAKEUP, SCX_ENQ_REENQ, SCX_KICK_IDLE. */
#define ENQ_WAKEUP 1ULL
#define ENQ_REENQ (1ULL << 40)
#define KICK_IDLE 1ULL

/* MAX_RT_PRIO: below it are real-time tasks, and below 0 deadline tasks. */
#define REALTIME_PRIORITIES 100

/* Prints a line: numbers, and texts that the program has. */
#define bpf_printk(text, ...)                                                            \
	({                                                                               \
		static long (*const print)(const char *, u32, ...) = (void *)6;          \
		static const char format[] = text;                                       \
		print(format, sizeof(format), ##__VA_ARGS__);                            \
	})
