/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch as a station of its own: it answers ARP requests (RFC 826) and ICMP echo (RFC 792) for
 * its address, so that hosts find it with the tools they know.
 */
#include <string.h>

#include <rte_arp.h>
#include <rte_ether.h>
#include <rte_icmp.h>
#include <rte_ip.h>

#include "pipeline/worker.h"

#include "pipeline/fastpath.h"

bool
worker_local_arp(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct rte_ether_hdr *eth = rte_pktmbuf_mtod(mbuf, struct rte_ether_hdr *);
	struct rte_arp_hdr *arp = (struct rte_arp_hdr *)(eth + 1);

	if (mbuf->data_len < sizeof(*eth) + sizeof(*arp))
		return false;
	if (arp->arp_opcode != rte_cpu_to_be_16(RTE_ARP_OP_REQUEST) ||
	    arp->arp_data.arp_tip != pipeline->ip_be)
		return false;
	worker->counters.local++;
	eth->dst_addr = eth->src_addr;
	memcpy(&eth->src_addr, pipeline->mac, sizeof(eth->src_addr));
	arp->arp_opcode = rte_cpu_to_be_16(RTE_ARP_OP_REPLY);
	arp->arp_data.arp_tha = arp->arp_data.arp_sha;
	arp->arp_data.arp_tip = arp->arp_data.arp_sip;
	memcpy(&arp->arp_data.arp_sha, pipeline->mac, sizeof(arp->arp_data.arp_sha));
	arp->arp_data.arp_sip = pipeline->ip_be;
	mbuf->ol_flags = 0;
	worker_send(worker, ingress_port(pipeline, mbuf), mbuf);
	return true;
}

/* An unfragmented echo request to the switch's address, without IP options and as long as its header says. */
static bool
is_echo_request(const struct pipeline *pipeline, const struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct rte_icmp_hdr *icmp = (const struct rte_icmp_hdr *)&headers->udp;
	uint16_t total = rte_be_to_cpu_16(headers->ip.total_len_be);

	if (mbuf->data_len < FANIN_ETH_LEN + FANIN_IP_LEN + sizeof(*icmp) ||
	    headers->ip.version_ihl != 0x45)
		return false;
	if (headers->ip.protocol != IPPROTO_ICMP || headers->ip.dst_be != pipeline->ip_be)
		return false;
	if ((headers->ip.fragment_be &
	     rte_cpu_to_be_16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) != 0)
		return false;
	if (total < FANIN_IP_LEN + sizeof(*icmp) || total > mbuf->data_len - FANIN_ETH_LEN)
		return false;
	return icmp->icmp_type == RTE_IP_ICMP_ECHO_REQUEST && icmp->icmp_code == 0;
}

void
worker_local_ip(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	struct rte_icmp_hdr *icmp = (struct rte_icmp_hdr *)&headers->udp;
	uint16_t icmp_len;

	if (!is_echo_request(pipeline, mbuf)) {
		worker_drop(worker, mbuf, FANIN_REASON_LOCAL);
		return;
	}
	worker->counters.local++;
	memcpy(headers->eth.dst, headers->eth.src, sizeof(headers->eth.dst));
	memcpy(headers->eth.src, pipeline->mac, sizeof(headers->eth.src));
	headers->ip.dst_be = headers->ip.src_be;
	headers->ip.src_be = pipeline->ip_be;
	headers->ip.ttl = 64;
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	icmp_len = (uint16_t)(rte_be_to_cpu_16(headers->ip.total_len_be) - FANIN_IP_LEN);
	icmp->icmp_type = RTE_IP_ICMP_ECHO_REPLY;
	icmp->icmp_cksum = 0;
	icmp->icmp_cksum = (uint16_t)~rte_raw_cksum(icmp, icmp_len);
	mbuf->ol_flags = 0;
	worker_send(worker, ingress_port(pipeline, mbuf), mbuf);
}
