/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the recorder needs of a kernel, declared here. Where members lie in the running kernel is found when it is loaded, by their names
 * (CO-RE).
 */
#pragma once

typedef int s32;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))

/* BPF_RB_NO_WAKEUP. */
#define RING_NO_WAKEUP 1ULL

/* SOFTIRQ_OFFSET, HARDIRQ_OFFSET. */
#define SOFT 0x100U
#define HARD 0x10000U
#define MOST_CPUS 1024

enum kind { SWITCH, WAKING, WAKEUP, WAKEUP_NEW, MIGRATE, FORK, EXEC, EXIT, HOTPLUG, KINDS };

/* What the loader reads; the same in its source. */
struct record {
	u64 time_ns;
	u32 cpu;
	u32 kind;
	/* Thread that is running. */
	s32 by;
	/* The kernel's counter of nested interrupts there. */
	u32 preempt_count;
	s32 thread;
	s32 other;
	u64 state;
	u64 number;
	char comm[16];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_info {
	u32 cpu;
};

struct task_struct {
	struct thread_info thread_info;
	s32 pid;
	s32 tgid;
	char comm[16];
};

#pragma clang attribute pop

/* The loader makes it, as large as is asked for. */
char ring SEC(".maps");

/* A variable of each CPU in kernels from 6.15 on; the loader puts zero in its place elsewhere. */
extern const s32 __preempt_count __attribute__((section(".ksyms"), weak));

static long (*const bpf_probe_read_kernel)(void *to, u32 bytes, const void *from) = (void *)113;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static void *(*const bpf_ringbuf_reserve)(void *ring, u64 bytes, u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *record, u64 flags) = (void *)132;
static void *(*const bpf_this_cpu_ptr)(const void *variable) = (void *)154;

static __always_inline u32 preempt_count(void)
{
	s32 *counter = bpf_this_cpu_ptr(&__preempt_count);

	return *counter;
}
