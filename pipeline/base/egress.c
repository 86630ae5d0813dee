/* SPDX-License-Identifier: BSD-3-Clause */
/* See egress.h. */
#include <rte_ether.h>
#include <rte_ip.h>

#include "pipeline/base/egress.h"
#include "pipeline/base/ipv4.h"

#include "pipeline/base/fastpath.h"

/*
 * The bucket counts thousandths of bits: a rate in Mbit/s is as many of them in a nanosecond, so
 * nothing is rounded.
 */
#define MILLIBITS_PER_BYTE 8000

/* Longest pause that fills a bucket, so that the sum does not overflow at any rate. */
#define BUCKET_MAX_NS (1000 * UINT64_C(1000000000))

/* The most frames of a queue with limits of its own: there has to be an mbuf for each. */
#define EGRESS_MAX_FRAMES 32768u

static uint32_t
full_frame_len(uint16_t mtu)
{
	return mtu + RTE_ETHER_HDR_LEN;
}

uint16_t
egress_frames(const struct pipeline_egress *options, uint16_t mtu)
{
	uint32_t frames;

	if (options->rate_mbit == 0 && options->queue_bytes == 0)
		return 0;
	frames = (uint32_t)(options->queue_bytes / full_frame_len(mtu) * 2);
	return (uint16_t)RTE_MIN(RTE_MAX(frames, EGRESS_FRAMES), EGRESS_MAX_FRAMES);
}

void
egress_init(struct egress *egress, const struct pipeline_egress *options, uint16_t mtu)
{
	const uint32_t full = full_frame_len(mtu);

	egress->options = *options;
	egress->own_frames = egress_frames(options, mtu);
	egress->frames = egress->own_frames != 0 ? egress->own_frames : EGRESS_FRAMES;
	if (egress->options.queue_bytes == 0)
		egress->options.queue_bytes = EGRESS_FRAMES * full;
	if (egress->options.bucket_bytes == 0)
		egress->options.bucket_bytes = RTE_MAX(2 * full,
						       options->rate_mbit / 8 * EGRESS_BUCKET_US);
	if (egress->options.detour_bytes == 0) {
		egress->options.detour_bytes = egress->options.queue_bytes / 2;
		if (options->ecn_bytes != 0)
			egress->options.detour_bytes = RTE_MIN(egress->options.detour_bytes,
							       options->ecn_bytes);
	}
	rte_spinlock_init(&egress->lock);
	egress->credit = (int64_t)egress->options.bucket_bytes * MILLIBITS_PER_BYTE;
}

static void
refill(struct egress *egress, uint64_t now_ns)
{
	const int64_t most = (int64_t)egress->options.bucket_bytes * MILLIBITS_PER_BYTE;
	uint64_t elapsed_ns;

	/* Each worker has rounds of its own: another worker's may have begun later. */
	if (now_ns <= egress->credit_ns)
		return;
	elapsed_ns = RTE_MIN(now_ns - egress->credit_ns, BUCKET_MAX_NS);
	egress->credit_ns = now_ns;
	egress->credit += (int64_t)(elapsed_ns * egress->options.rate_mbit);
	if (egress->credit > most)
		egress->credit = most;
}

uint16_t
egress_take(struct egress *egress, uint64_t now_ns, struct rte_mbuf *const *mbufs, uint16_t n)
{
	uint16_t taken = 0;

	refill(egress, now_ns);
	while (taken < n && egress->credit > 0)
		egress->credit -= (int64_t)mbufs[taken++]->pkt_len * MILLIBITS_PER_BYTE;
	return taken;
}

uint64_t
egress_due_ns(const struct egress *egress)
{
	if (egress->credit > 0)
		return egress->credit_ns;
	return egress->credit_ns + (uint64_t)-egress->credit / egress->options.rate_mbit + 1;
}

void
egress_give_back(struct egress *egress, struct rte_mbuf *const *mbufs, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++)
		egress->credit += (int64_t)mbufs[i]->pkt_len * MILLIBITS_PER_BYTE;
}

/*
 * Returns the first byte of a frame's IP header, which the EtherType announces; its version is not
 * checked. NULL: the frame has none, or some bytes that marking reads are not in the first segment.
 */
static uint8_t *
ip_header(const struct rte_mbuf *mbuf)
{
	uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
	size_t offset = offsetof(struct rte_ether_hdr, ether_type);
	rte_be16_t type;

	for (unsigned int tags = 0; tags <= 2; tags++, offset += RTE_VLAN_HLEN) {
		if (mbuf->data_len < offset + sizeof(type) + sizeof(struct rte_ipv4_hdr))
			return NULL;
		memcpy(&type, frame + offset, sizeof(type));
		if (type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) ||
		    type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV6))
			return frame + offset + sizeof(type);
		if (type != rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN) &&
		    type != rte_cpu_to_be_16(RTE_ETHER_TYPE_QINQ))
			return NULL;
	}
	return NULL;
}

/*
 * Returns the position of ECN's two bits in the second byte: at its end in IPv4, in the middle in
 * IPv6.
 */
static unsigned int
ecn_shift(const uint8_t *ip)
{
	return ip[0] >> 4 == 6 ? 4 : 0;
}

static bool
may_mark(const uint8_t *ip)
{
	const unsigned int ecn = ip[1] >> ecn_shift(ip) & RTE_IPV4_HDR_ECN_MASK;

	return (ip[0] >> 4 == 4 || ip[0] >> 4 == 6) && ecn != 0 && ecn != RTE_IPV4_HDR_ECN_CE;
}

bool
egress_mark(struct rte_mbuf **mbuf, struct rte_mempool *pool)
{
	uint8_t *ip = ip_header(*mbuf);
	struct rte_mbuf *copy;

	if (ip == NULL || !may_mark(ip))
		return false;
	if (rte_mbuf_refcnt_read(*mbuf) != 1 || !RTE_MBUF_DIRECT(*mbuf)) {
		copy = rte_pktmbuf_copy(*mbuf, pool, 0, UINT32_MAX);
		if (copy == NULL)
			return false;
		rte_pktmbuf_free(*mbuf);
		*mbuf = copy;
		ip = ip_header(copy);
		/* A pool's buffers are alike, but a long frame may have filled several. */
		if (ip == NULL)
			return false;
	}
	if (ecn_shift(ip) != 0)
		ip[1] |= RTE_IPV4_HDR_ECN_CE << 4;
	else
		ipv4_mark_congestion((struct fanin_ip *)ip);
	return true;
}

uint64_t
egress_backlog(const struct pipeline *pipeline, uint16_t port, uint32_t *frames)
{
	uint64_t bytes = 0;
	uint32_t n = 0;

	for (uint16_t i = 0; i < pipeline->n_workers; i++) {
		const struct tx_buffer *buffer = &pipeline->workers[i]->tx[port];

		bytes += __atomic_load_n(&buffer->waiting_bytes, __ATOMIC_RELAXED);
		n += __atomic_load_n(&buffer->n_waiting, __ATOMIC_RELAXED);
	}
	if (frames != NULL)
		*frames = n;
	return bytes;
}

bool
egress_is_congested(const struct pipeline *pipeline, uint16_t port, uint64_t backlog)
{
	return backlog > pipeline->egress[port].options.detour_bytes;
}
