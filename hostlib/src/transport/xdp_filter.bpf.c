/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The XDP program of the AF_XDP transport: takes untagged IPv4 packets of one job to Fanin's UDP
 * port, or to the process's own, and leaves everything else to the kernel, including unicast
 * packets to another host's MAC address. Compiled for BPF and embedded in the library; the
 * constants are set before it is loaded.
 */
#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_QUEUES 64
#define FRAGMENT_MASK 0x3fff /* the more-fragments flag, and the offset */

const volatile __u16 fanin_udp_port;  /* host order */
const volatile __u16 fanin_data_port; /* port of answers to this process, host order; 0: none */
const volatile __u32 fanin_job;
const volatile __u8 fanin_mac[ETH_ALEN]; /* the interface's */

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} fanin_sockets SEC(".maps");

/* The start of struct fanin_hdr (wire/wire.h). wire.h includes headers that can't be used here. */
struct fanin_start {
	__u8 version;
	__u8 type;
	__u16 flags;
	__u32 job;
};

struct frame {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct fanin_start fanin;
} __attribute__((packed));

/* True if the frame is to a multicast group or to this host itself. */
static __always_inline bool
is_ours(const struct ethhdr *eth)
{
	if ((eth->h_dest[0] & 1) != 0)
		return true;
	for (int i = 0; i < ETH_ALEN; i++) {
		if (eth->h_dest[i] != fanin_mac[i])
			return false;
	}
	return true;
}

SEC("xdp")
int
fanin_filter(struct xdp_md *ctx)
{
	const struct frame *frame = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;

	if ((const void *)(frame + 1) > end)
		return XDP_PASS;
	if (frame->eth.h_proto != bpf_htons(ETH_P_IP) || frame->ip.version != 4 ||
	    frame->ip.ihl != 5 || frame->ip.protocol != IPPROTO_UDP ||
	    (frame->ip.frag_off & bpf_htons(FRAGMENT_MASK)) != 0)
		return XDP_PASS;
	if ((frame->udp.dest != bpf_htons(fanin_udp_port) &&
	     frame->udp.dest != bpf_htons(fanin_data_port)) ||
	    frame->fanin.job != fanin_job)
		return XDP_PASS;
	if (!is_ours(&frame->eth))
		return XDP_PASS;
	return bpf_redirect_map(&fanin_sockets, ctx->rx_queue_index, XDP_PASS);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
