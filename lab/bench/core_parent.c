/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rig as the parent of a switch that is not the root, see core_rig.h: it has one more rank, and
 * a port after the hosts'.
 */
#include <arpa/inet.h>
#include <string.h>

#include "lab/bench/core_rig.h"

#define PARENT_IP 0x0a4d01feu
#define PARENT_MAC                                                                                 \
	{                                                                                          \
		0x02, 0, 0, 0, 0, 0xfd                                                             \
	}
/* The parent's number of a job's run. */
#define PARENT_EPOCH(job) ((job)->params.id + 1000u)

void
rig_parent_member(const struct rig *rig, struct job_spec *spec)
{
	if (!rig->options.parent)
		return;
	spec->n_ranks = spec->n_members + 1u;
	spec->has_parent = true;
	spec->parent.port = rig->options.hosts;
	spec->parent.ip_be = htonl(PARENT_IP);
	memcpy(spec->parent.mac, (const uint8_t[])PARENT_MAC, sizeof(spec->parent.mac));
}

void
rig_parent_start(const struct rig *rig, struct job *job)
{
	struct fanin_hdr hdr = { 0 };
	struct fanin_join_body join;
	struct fanin_join_ack_body ack;
	const struct fanin_ranks none = { 0 };

	if (!rig->options.parent)
		return;
	job_parent_join(job, &hdr, &join);
	hdr = (struct fanin_hdr){ .epoch = PARENT_EPOCH(job) };
	ack = (struct fanin_join_ack_body){
		.nonce = join.nonce,
		.state = FANIN_JOIN_ACTIVE,
		.size = join.size,
		.window = UINT16_MAX,
		.payload_bytes = (uint16_t)job->params.payload_bytes,
	};
	job_parent_ack(rig->pipeline->jobs, job, &hdr, &ack, &none);
}

/* Makes the parent's result of a sum that came up: the job's other rank sends no data. */
static struct rte_mbuf *
make_result(const struct rig *rig, unsigned int worker, const struct rte_mbuf *up)
{
	const struct fanin_headers *from = rte_pktmbuf_mtod(up, const struct fanin_headers *);
	const struct job *job = rig->jobs[from->fanin.job - 1];
	const struct fanin_flow flow = {
		.dst_mac = { 0x01, 0x00, 0x5e, (uint8_t)(ntohl(job->group_be) >> 16 & 0x7f),
			     (uint8_t)(ntohl(job->group_be) >> 8), (uint8_t)ntohl(job->group_be) },
		.dst_ip_be = job->group_be,
		.src_mac = PARENT_MAC,
		.src_ip_be = htonl(PARENT_IP),
		.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.src_port = FANIN_WIRE_DEFAULT_UDP_PORT,
	};
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(rig->pools[worker]);
	struct fanin_headers *headers;

	if (mbuf == NULL)
		rig_die("the pool has no packet left for a result");
	headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	memcpy(headers, from, up->data_len);
	mbuf->data_len = up->data_len;
	mbuf->pkt_len = up->pkt_len;
	mbuf->port = rig->ethdevs[rig->options.hosts];
	fanin_wire_encode_l4(headers, &flow, up->data_len - (uint32_t)sizeof(*headers));
	headers->fanin.type = FANIN_TYPE_RESULT;
	headers->fanin.key = job->params.keys.down;
	headers->fanin.flags = 0;
	headers->fanin.rank = 0;
	headers->fanin.contributions = job->params.n_ranks;
	return mbuf;
}

uint64_t
rig_parent_answer(struct rig *rig, unsigned int worker, void *argument)
{
	const uint16_t port = rig->options.hosts;
	struct rte_mbuf *up;
	uint32_t n = 0;

	(void)argument;
	for (; rte_ring_dequeue(rig->tx[port][worker], (void **)&up) == 0; n++) {
		const struct fanin_headers *headers =
			rte_pktmbuf_mtod(up, const struct fanin_headers *);

		if (headers->fanin.type != FANIN_TYPE_CONTRIBUTION)
			rig_die("the parent got a packet of type %u", headers->fanin.type);
		if (rte_ring_enqueue(rig->rx[port][worker], make_result(rig, worker, up)) != 0)
			rig_die("the parent's port takes no more packets");
		rte_pktmbuf_free(up);
	}
	if (n != rig->n_blocks / rig->options.n_workers)
		rig_die("the parent got %u contributions, expected %u", n,
			rig->n_blocks / rig->options.n_workers);
	return 0;
}
