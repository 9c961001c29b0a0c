// SPDX-License-Identifier: GPL-2.0-only
// Loads the scheduler that is linked into this program and waits.
#include <bpf/libbpf.h>
#include <stdio.h>
#include <unistd.h>
extern const unsigned char _binary_stall_bpf_o_start[], _binary_stall_bpf_o_end[];
int main(void)
{
	struct bpf_object *object = bpf_object__open_mem(_binary_stall_bpf_o_start, _binary_stall_bpf_o_end - _binary_stall_bpf_o_start, NULL);
	struct bpf_map *map;

	if (!object || bpf_object__load(object))
		return 1;
	map = bpf_object__find_map_by_name(object, "stall");
	if (!map || !bpf_map__attach_struct_ops(map))
		return 1;
	puts("stall: attached");
	fflush(stdout);
	for (;;)
		pause();
}
