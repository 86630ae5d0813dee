/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rig as the hosts of a job whose blocks have leaders, see core_rig.h: all hosts of a block
 * except its leader send data to the leader, and the leader sends the result. So a switch receives
 * as many packets of a block as with any other handler, in two turns.
 */
#include <arpa/inet.h>
#include <string.h>

#include "lab/bench/core_rig.h"
#include "pipeline/worker.h"
#include "wire/arp.h"
#include "protocols/canary/canary.h"

/* A sum waits until it is complete: timeouts are not part of the measurement. */
#define TIMEOUT_US 1000000u

void
rig_leaders_job(const struct rig *rig, struct job_spec *spec)
{
	if (!rig->leaders)
		return;
	spec->n_ranks = spec->n_members;
	spec->n_parameters = 1;
	spec->parameters[0] = (struct job_parameter){ "timeout_us", TIMEOUT_US };
}

void
rig_leaders_open(struct rig *rig)
{
	for (uint16_t h = 0; h < rig->options.hosts && rig->leaders; h++) {
		const struct fanin_headers *headers = &rig->headers[h];
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(rig->pools[0]);
		struct fanin_arp arp;

		if (mbuf == NULL)
			rig_die("the pool has no packet left for ARP");
		fanin_arp_encode(&arp, FANIN_ARP_REPLY_BE, headers->eth.src, headers->ip.src_be,
				 rig->pipeline->ip_be);
		memcpy(arp.eth.dst, rig->pipeline->mac, sizeof(arp.eth.dst));
		memcpy(rte_pktmbuf_append(mbuf, sizeof(arp)), &arp, sizeof(arp));
		mbuf->port = rig->ethdevs[h];
		if (rte_ring_enqueue(rig->rx[h][0], mbuf) != 0)
			rig_die("a port takes no ARP message");
		worker_round(rig->pipeline->workers[0]);
	}
}

bool
rig_leaders_leads(const struct rig *rig, uint16_t h, uint32_t block)
{
	return rig->leaders && fanin_canary_leader(block, rig->options.hosts) == h;
}

/* Makes a packet to a leader, or the leader's result, which waits for the second turn. */
void
rig_leaders_packet(const struct rig *rig, struct rte_mbuf *mbuf, uint16_t h)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const uint16_t leader = fanin_canary_leader(headers->fanin.block, rig->options.hosts);

	headers->fanin.contributions = 1;
	if (h != leader) {
		headers->fanin.type = FANIN_TYPE_REDUCE;
		headers->fanin.members = UINT64_C(1) << h;
		headers->ip.dst_be = rig->headers[leader].ip.src_be;
		headers->ip.checksum_be = 0;
		headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
		return;
	}
	headers->fanin.type = FANIN_TYPE_RESULT;
	headers->fanin.key = rig->jobs[0]->params.keys.down;
	headers->fanin.contributions = rig->options.hosts;
	memcpy(headers + 1, hosts_result(&rig->data, headers->fanin.block), rig->options.payload);
}

bool
rig_leaders_waits(const struct rig *rig, const struct rte_mbuf *mbuf)
{
	return rig->leaders && rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin.type ==
				       FANIN_TYPE_RESULT;
}

/* Checks that a sum and the leader's own data make the result, and makes it. */
static void
check_sum(const struct rig *rig, uint16_t leader, struct rte_mbuf *mbuf)
{
	const struct rig_options *options = &rig->options;
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const uint32_t block = headers->fanin.block;

	if (headers->fanin.type != FANIN_TYPE_REDUCE ||
	    headers->fanin.contributions != options->hosts - 1)
		rig_die("the leader of block %u got a packet of type %u with data of %u hosts",
			block, headers->fanin.type, headers->fanin.contributions);
	fanin_kernel(options->isa, options->dtype,
		     options->op)(headers + 1, hosts_contribution(&rig->data, leader, block),
				  options->payload / fanin_dtype_size(options->dtype));
	if (memcmp(headers + 1, hosts_result(&rig->data, block), options->payload) != 0)
		rig_die("wrong sum of block %u", block);
}

uint64_t
rig_leaders_answer(struct rig *rig, unsigned int worker, void *argument)
{
	struct rte_mbuf **mbufs = rig_mbufs(rig, worker);
	uint32_t sums = 0;

	(void)argument;
	for (uint16_t h = 0; h < rig->options.hosts; h++) {
		struct rte_mbuf *mbuf;

		for (; rte_ring_dequeue(rig->tx[h][worker], (void **)&mbuf) == 0; sums++) {
			check_sum(rig, h, mbuf);
			rte_pktmbuf_free(mbuf);
		}
	}
	if (sums != rig->n_blocks / rig->options.n_workers)
		rig_die("leaders got %u sums, expected %u", sums,
			rig->n_blocks / rig->options.n_workers);
	for (uint32_t i = 0; i < rig_share(rig); i++) {
		const uint16_t h = rte_pktmbuf_mtod(mbufs[i], struct fanin_headers *)->fanin.rank;

		/* The other packets are back in the pool, with their contents unchanged. */
		if (rig_leaders_waits(rig, mbufs[i]) &&
		    rte_ring_enqueue(rig->rx[h][worker], mbufs[i]) != 0)
			rig_die("a leader's port takes no more packets");
	}
	return 0;
}
