/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch as a station of its own: it answers ICMP echo (RFC 792) to its address, so that users
 * can reach it with ping.
 */
#include <string.h>

#include <rte_ether.h>
#include <rte_icmp.h>
#include <rte_ip.h>

#include "pipeline/base/dpdk_names.h"
#include "pipeline/net/net.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

/*
 * Returns true for an unfragmented ICMP message to the switch's address, without IP options and as
 * long as its header says.
 */
static bool
is_icmp(const struct pipeline *pipeline, const struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	uint16_t total = rte_be_to_cpu_16(headers->ip.total_len_be);

	if (mbuf->data_len < FANIN_ETH_LEN + FANIN_IP_LEN + sizeof(struct rte_icmp_hdr) ||
	    headers->ip.version_ihl != 0x45)
		return false;
	if (headers->ip.protocol != IPPROTO_ICMP || headers->ip.dst_be != pipeline->ip_be)
		return false;
	if ((headers->ip.fragment_be &
	     rte_cpu_to_be_16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) != 0)
		return false;
	return total >= FANIN_IP_LEN + sizeof(struct rte_icmp_hdr) &&
	       total <= mbuf->data_len - FANIN_ETH_LEN;
}

bool
worker_local_ip(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	struct rte_icmp_hdr *icmp = (struct rte_icmp_hdr *)&headers->udp;
	uint16_t icmp_len;

	if (!is_icmp(pipeline, mbuf)) {
		worker_drop(worker, mbuf, FANIN_REASON_LOCAL);
		return true;
	}
	if (icmp->icmp_type != RTE_ICMP_TYPE_ECHO_REQUEST || icmp->icmp_code != 0)
		return false;
	worker->counters.local++;
	memcpy(headers->eth.dst, headers->eth.src, sizeof(headers->eth.dst));
	memcpy(headers->eth.src, pipeline->mac, sizeof(headers->eth.src));
	headers->ip.dst_be = headers->ip.src_be;
	headers->ip.src_be = pipeline->ip_be;
	headers->ip.ttl = 64;
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	icmp_len = (uint16_t)(rte_be_to_cpu_16(headers->ip.total_len_be) - FANIN_IP_LEN);
	icmp->icmp_type = RTE_ICMP_TYPE_ECHO_REPLY;
	icmp->icmp_cksum = 0;
	icmp->icmp_cksum = (uint16_t)~rte_raw_cksum(icmp, icmp_len);
	mbuf->ol_flags = 0;
	worker_send(worker, ingress_port(pipeline, mbuf), mbuf);
	return true;
}
