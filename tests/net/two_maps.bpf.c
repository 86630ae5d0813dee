/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An XDP program that a port of the switch may be given (xdp_prog= in its vdev) in place of the
 * driver's own, with two maps of AF_XDP sockets. Only the second one, which has the name that the
 * driver knows, gets its sockets.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct sockets {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
};

struct sockets other_map SEC(".maps");
struct sockets xsks_map SEC(".maps");

SEC("xdp")
int
two_maps(struct xdp_md *ctx)
{
	__u32 queue = ctx->rx_queue_index;

	if (bpf_map_lookup_elem(&other_map, &queue) != NULL)
		return (int)bpf_redirect_map(&other_map, queue, XDP_PASS);
	return (int)bpf_redirect_map(&xsks_map, queue, XDP_PASS);
}

char two_maps_license[] SEC("license") = "Dual BSD/GPL";
