// SPDX-License-Identifier: GPL-2.0-only
// One queue for the machine, and operations for CPUs that go offline and come online.
#include "sched.h"

#define SHARED 0

u64 changes;

SEC("struct_ops/select_cpu")
s32 hotplug_select_cpu(u64 *context)
{
	return select_idle(context);
}

SEC("struct_ops/enqueue")
void hotplug_enqueue(u64 *context)
{
	scx_bpf_dsq_insert((void *)context[0], SHARED, SLICE_DEFAULT_NS, context[1]);
}

SEC("struct_ops/dispatch")
void hotplug_dispatch(u64 *context)
{
	scx_bpf_dsq_move_to_local(SHARED);
}

/* It counts changes. Without these operations a kernel ends it. */
SEC("struct_ops/cpu_online")
void hotplug_cpu_online(u64 *context)
{
	changes++;
}

SEC("struct_ops/cpu_offline")
void hotplug_cpu_offline(u64 *context)
{
	changes++;
}

SEC("struct_ops.s/init")
s32 hotplug_init(u64 *context)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

EXIT(hotplug_exit)

SEC(".struct_ops.link")
struct sched_ext_ops hotplug = {
	.select_cpu = hotplug_select_cpu,
	.enqueue = hotplug_enqueue,
	.dispatch = hotplug_dispatch,
	.cpu_online = hotplug_cpu_online,
	.cpu_offline = hotplug_cpu_offline,
	.init = hotplug_init,
	.exit = hotplug_exit,
	.timeout_ms = 5000,
	.name = "hotplug",
};

char licence[] SEC("license") = "GPL";
