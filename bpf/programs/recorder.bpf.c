// SPDX-License-Identifier: GPL-2.0-only
// What the scheduler does, from raw tracepoints into a ring. A record that finds no room is counted and not written.
#include "recorder.h"

/* Records of each kind that found no room. */
u64 lost[KINDS];

/* How interrupts are nested on each CPU, counted by the programs at the end of this file, where the kernel does not tell. */
u32 nesting[MOST_CPUS] SEC(".data");

static __always_inline u32 nesting_on(u32 cpu)
{
	if (&__preempt_count)
		return preempt_count();
	return nesting[cpu % MOST_CPUS];
}

static __always_inline int nest(u32 by)
{
	nesting[bpf_get_smp_processor_id() % MOST_CPUS] += by;
	return 0;
}

static __always_inline struct record *begin(u32 kind)
{
	struct record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);

	if (!record) {
		__sync_fetch_and_add(&lost[kind], 1);
		return 0;
	}
	record->time_ns = bpf_ktime_get_ns();
	record->cpu = bpf_get_smp_processor_id();
	record->kind = kind;
	record->by = (u32)bpf_get_current_pid_tgid();
	record->preempt_count = nesting_on(record->cpu);
	record->thread = 0;
	record->other = 0;
	record->state = 0;
	record->number = 0;
	__builtin_memset(record->comm, 0, sizeof(record->comm));
	return record;
}

static __always_inline void end(struct record *record)
{
	/* The reader looks by itself. */
	bpf_ringbuf_submit(record, RING_NO_WAKEUP);
}

static __always_inline s32 thread_of(struct task_struct *task)
{
	s32 pid = 0;

	bpf_probe_read_kernel(&pid, sizeof(pid), &task->pid);
	return pid;
}

static __always_inline s32 process_of(struct task_struct *task)
{
	s32 tgid = 0;

	bpf_probe_read_kernel(&tgid, sizeof(tgid), &task->tgid);
	return tgid;
}

static __always_inline u32 cpu_of(struct task_struct *task)
{
	u32 cpu = 0;

	bpf_probe_read_kernel(&cpu, sizeof(cpu), &task->thread_info.cpu);
	return cpu;
}

/* A thread and its name, with a number of the kind's own. */
static __always_inline int one(u32 kind, struct task_struct *task, s32 other, u64 number)
{
	struct record *record = begin(kind);

	if (!record)
		return 0;
	record->thread = thread_of(task);
	record->other = other;
	record->number = number;
	bpf_probe_read_kernel(record->comm, sizeof(record->comm), &task->comm);
	end(record);
	return 0;
}

SEC("raw_tp/sched_switch")
int record_switch(u64 *context)
{
	struct task_struct *prev = (void *)context[1], *next = (void *)context[2];
	struct record *record;

	/* No switch is in an interrupt: a count that began in the middle of one is right from here on. */
	nesting[bpf_get_smp_processor_id() % MOST_CPUS] = 0;
	record = begin(SWITCH);
	if (!record)
		return 0;
	record->thread = thread_of(prev);
	record->other = thread_of(next);
	/* The third argument says it since 5.18. */
	record->state = context[3];
	/* Preempted: it is still runnable, whatever its state. */
	record->number = context[0] & 1;
	bpf_probe_read_kernel(record->comm, sizeof(record->comm), &next->comm);
	end(record);
	return 0;
}

SEC("raw_tp/sched_waking")
int record_waking(u64 *context)
{
	return one(WAKING, (void *)context[0], 0, cpu_of((void *)context[0]));
}

SEC("raw_tp/sched_wakeup")
int record_wakeup(u64 *context)
{
	return one(WAKEUP, (void *)context[0], 0, cpu_of((void *)context[0]));
}

SEC("raw_tp/sched_wakeup_new")
int record_wakeup_new(u64 *context)
{
	return one(WAKEUP_NEW, (void *)context[0], 0, cpu_of((void *)context[0]));
}

SEC("raw_tp/sched_migrate_task")
int record_migrate(u64 *context)
{
	return one(MIGRATE, (void *)context[0], (s32)context[1], cpu_of((void *)context[0]));
}

SEC("raw_tp/sched_process_fork")
int record_fork(u64 *context)
{
	struct task_struct *child = (void *)context[1];

	/* The number is the child's process. */
	return one(FORK, child, thread_of((void *)context[0]), (u32)process_of(child));
}

SEC("raw_tp/sched_process_exec")
int record_exec(u64 *context)
{
	return one(EXEC, (void *)context[0], (s32)context[1], 0);
}

SEC("raw_tp/sched_process_exit")
int record_exit(u64 *context)
{
	return one(EXIT, (void *)context[0], 0, 0);
}

/* A CPU goes offline or comes online: the CPU, the state that it goes to, and the step's own. */
SEC("raw_tp/cpuhp_enter")
int record_hotplug(u64 *context)
{
	struct record *record = begin(HOTPLUG);

	if (!record)
		return 0;
	record->thread = (s32)context[0];
	record->other = (s32)context[1];
	record->number = (u32)context[2];
	end(record);
	return 0;
}

/* Interrupts that wake threads; what a kernel has no tracepoint for is left out. */
#define NEST(tracepoint, by)						\
	SEC("raw_tp/" #tracepoint)					\
	int nest_##tracepoint(u64 *context)				\
	{								\
		return nest(by);					\
	}

NEST(softirq_entry, SOFT)
NEST(softirq_exit, -SOFT)
NEST(irq_handler_entry, HARD)
NEST(irq_handler_exit, -HARD)
NEST(local_timer_entry, HARD)
NEST(local_timer_exit, -HARD)
NEST(reschedule_entry, HARD)
NEST(reschedule_exit, -HARD)
NEST(call_function_entry, HARD)
NEST(call_function_exit, -HARD)
NEST(call_function_single_entry, HARD)
NEST(call_function_single_exit, -HARD)
NEST(irq_work_entry, HARD)
NEST(irq_work_exit, -HARD)

char licence[] SEC("license") = "GPL";
