/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ICMP errors (RFC 792) of the router: the packet that ends here becomes the message, and goes back
 * to the link that it came from, except in the cases that RFC 1812 section 4.3.2 forbids.
 */
#include <string.h>

#include <rte_ether.h>
#include <rte_icmp.h>

#include "pipeline/base/dpdk_names.h"
#include "pipeline/base/ipv4.h"
#include "pipeline/net/net.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

/* An error quotes as much of the packet's data as names its flow. */
#define QUOTED_DATA 8
#define MESSAGE_OFFSET (FANIN_ETH_LEN + FANIN_IP_LEN + sizeof(struct rte_icmp_hdr))
#define TTL 64

static bool
is_icmp_query(uint8_t type)
{
	return type == RTE_ICMP_TYPE_ECHO_REQUEST || type == RTE_ICMP_TYPE_ECHO_REPLY;
}

/*
 * An error never answers another error, a fragment other than the first, or a packet of the switch
 * itself.
 */
static bool
may_be_answered(const struct pipeline *pipeline, const struct rte_mbuf *mbuf)
{
	const struct fanin_ip *ip = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->ip;
	unsigned int header_len = ipv4_header_len(ip);

	if (mbuf->port == RTE_MBUF_PORT_INVALID || ip->src_be == pipeline->ip_be)
		return false;
	if ((ip->fragment_be & rte_cpu_to_be_16(RTE_IPV4_HDR_OFFSET_MASK)) != 0)
		return false;
	if (ip->protocol != IPPROTO_ICMP)
		return true;
	return rte_be_to_cpu_16(ip->total_len_be) > header_len &&
	       is_icmp_query(((const uint8_t *)ip)[header_len]);
}

static bool
is_within_rate(struct worker *worker)
{
	if (worker->icmp_seconds != worker->now_seconds) {
		worker->icmp_seconds = worker->now_seconds;
		worker->icmp_sent = 0;
	}
	return worker->icmp_sent++ < WORKER_ICMP_RATE;
}

void
worker_unreachable(struct worker *worker, struct rte_mbuf *mbuf, enum fanin_reason reason,
		   uint8_t type, uint8_t code, uint16_t mtu)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	uint8_t *frame = (uint8_t *)headers;
	struct rte_icmp_hdr *icmp = (struct rte_icmp_hdr *)(frame + FANIN_ETH_LEN + FANIN_IP_LEN);
	uint16_t total = rte_be_to_cpu_16(headers->ip.total_len_be);
	uint16_t quoted = (uint16_t)RTE_MIN(total, ipv4_header_len(&headers->ip) + QUOTED_DATA);
	uint16_t icmp_len = (uint16_t)(sizeof(*icmp) + quoted);
	uint32_t sender_be = headers->ip.src_be;

	if (!may_be_answered(pipeline, mbuf) ||
	    MESSAGE_OFFSET + quoted > (uint32_t)mbuf->data_len + rte_pktmbuf_tailroom(mbuf) ||
	    !is_within_rate(worker)) {
		worker_drop(worker, mbuf, reason);
		return;
	}
	worker->counters.drops[reason]++;
	/* The quoted bytes are in the first of several mbufs. */
	rte_pktmbuf_free(mbuf->next);
	mbuf->next = NULL;
	mbuf->nb_segs = 1;
	memmove(frame + MESSAGE_OFFSET, &headers->ip, quoted);
	*icmp = (struct rte_icmp_hdr){
		.icmp_type = type,
		.icmp_code = code,
		/* RFC 1191: the lower half of the unused word. */
		.icmp_seq_nb = rte_cpu_to_be_16(mtu),
	};
	icmp->icmp_cksum = (uint16_t)~rte_raw_cksum(icmp, icmp_len);
	memcpy(headers->eth.dst, headers->eth.src, sizeof(headers->eth.dst));
	memcpy(headers->eth.src, pipeline->mac, sizeof(headers->eth.src));
	headers->ip = (struct fanin_ip){
		.version_ihl = 0x45,
		.total_len_be = rte_cpu_to_be_16((uint16_t)(FANIN_IP_LEN + icmp_len)),
		.ttl = TTL,
		.protocol = IPPROTO_ICMP,
		.src_be = pipeline->ip_be,
		.dst_be = sender_be,
	};
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	mbuf->data_len = (uint16_t)(FANIN_ETH_LEN + FANIN_IP_LEN + icmp_len);
	mbuf->pkt_len = mbuf->data_len;
	mbuf->ol_flags = 0;
	worker_send(worker, ingress_port(pipeline, mbuf), mbuf);
}
