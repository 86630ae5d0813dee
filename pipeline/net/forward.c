/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Foreign frames: a transparent learning switch (IEEE 802.1Q). Source addresses are learned per
 * VLAN, known unicast goes to one port, everything else to all others; tags pass unchanged.
 */
#include <errno.h>
#include <string.h>

#include <rte_ether.h>

#include "pipeline/base/offload.h"
#include "pipeline/net/net.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

static inline bool
fits_mtu(const struct pipeline_port *port, const struct rte_mbuf *mbuf, bool tagged)
{
	return offload_link_len(mbuf) <=
	       (uint32_t)port->mtu + RTE_ETHER_HDR_LEN + (tagged ? RTE_VLAN_HLEN : 0);
}

/*
 * 01-80-C2-00-00-00 to -0F: meant for the next bridge only, never forwarded (IEEE 802.1Q table
 * 8-1).
 */
static inline bool
is_link_local_group(mac_key key)
{
	return key >> 20 == 0x0180c200000;
}

/*
 * Returns the entry of a station, and in *round this round's number, which no other round with
 * packets has.
 */
static inline struct station *
station_of(struct worker *worker, mac_key key, uint64_t *round)
{
	*round = worker->counters.bursts + 1;
	return &worker->stations[(key * 0x9e3779b97f4a7c15u) >> (64 - WORKER_STATION_BITS)];
}

static inline void
learn(struct worker *worker, mac_key key, uint16_t port)
{
	uint64_t round;
	struct station *station = station_of(worker, key, &round);

	if (likely(station->key == key && station->round == round && station->port == port &&
		   station->learned))
		return;
	if (unlikely(mac_table_learn(worker->pipeline->macs, key, port, worker->now_seconds) !=
		     0)) {
		worker->counters.learn_failed++;
		return;
	}
	*station = (struct station){ .key = key, .round = round, .port = port, .learned = true };
}

static inline int
look_up(struct worker *worker, mac_key key)
{
	uint64_t round;
	struct station *station = station_of(worker, key, &round);
	int port;

	if (likely(station->key == key && station->round == round))
		return station->port;
	port = mac_table_lookup(worker->pipeline->macs, key);
	if (port >= 0)
		*station = (struct station){ .key = key, .round = round, .port = (uint16_t)port };
	return port;
}

void
worker_learn(struct worker *worker, mac_key station, uint16_t port)
{
	learn(worker, station, port);
}

int
worker_station_port(struct worker *worker, mac_key station)
{
	return look_up(worker, station);
}

/*
 * Sends a frame to a DPDK device as a link carries it: by copies, as other ports may have the
 * frame, too.
 */
static __rte_noinline void
send_segments(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf)
{
	const uint32_t n = offload_segments(mbuf);

	for (uint32_t i = 0; i < n; i++) {
		/* The frame's own pool may have few packets, and large ones. */
		struct rte_mbuf *segment = rte_pktmbuf_alloc(worker->pipeline->pool);

		if (unlikely(segment == NULL)) {
			worker->counters.drops[FANIN_REASON_TX_FULL]++;
			break;
		}
		if (unlikely(offload_link_len(mbuf) > rte_pktmbuf_tailroom(segment))) {
			worker_drop(worker, segment, FANIN_REASON_MTU);
			break;
		}
		offload_copy_segment(mbuf, i, segment);
		worker_send(worker, port, segment);
	}
	rte_pktmbuf_free(mbuf);
}

void
worker_send_foreign(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf)
{
	if (unlikely(offload_is_needed(mbuf)) && worker->pipeline->ports[port].driver == NULL)
		send_segments(worker, port, mbuf);
	else
		worker_send(worker, port, mbuf);
}

void
worker_flood(struct worker *worker, struct rte_mbuf *mbuf, uint16_t ingress, bool tagged)
{
	const struct pipeline *pipeline = worker->pipeline;

	worker->counters.flooded++;
	for (uint16_t port = 0; port < pipeline->n_ports; port++) {
		if (port == ingress || pipeline->ports[port].routed)
			continue;
		if (unlikely(!fits_mtu(&pipeline->ports[port], mbuf, tagged))) {
			worker->counters.drops[FANIN_REASON_MTU]++;
			continue;
		}
		rte_pktmbuf_refcnt_update(mbuf, 1);
		worker_send_foreign(worker, port, mbuf);
	}
	rte_pktmbuf_free(mbuf);
}

void
worker_forward(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct pipeline *pipeline = worker->pipeline;
	uint16_t ingress = ingress_port(pipeline, mbuf);
	const struct fanin_eth *eth;
	mac_key source, destination;
	uint16_t vlan = 0;
	bool tagged;
	int egress;

	/*
	 * Some drivers remove the tag from the frame. It is inserted again, since every driver
	 * sends frames as they are.
	 */
	if (unlikely((mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0 &&
		     rte_vlan_insert(&mbuf) != 0)) {
		worker_drop(worker, mbuf, FANIN_REASON_FRAME_SHORT);
		return;
	}
	mbuf->ol_flags &= OFFLOAD_ALL;
	eth = rte_pktmbuf_mtod(mbuf, const struct fanin_eth *);
	tagged = (eth->type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN) ||
		  eth->type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_QINQ)) &&
		 mbuf->data_len >= RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN;
	if (tagged)
		vlan = rte_be_to_cpu_16(((const struct rte_vlan_hdr *)(eth + 1))->vlan_tci) & 0xfff;
	source = mac_key_make(eth->src, vlan);
	destination = mac_key_make(eth->dst, vlan);
	if (unlikely(mac_key_is_invalid(source))) {
		worker_drop(worker, mbuf, FANIN_REASON_SOURCE_MAC);
		return;
	}
	if (unlikely(is_link_local_group(destination))) {
		worker_drop(worker, mbuf, FANIN_REASON_RESERVED_MAC);
		return;
	}
	learn(worker, source, ingress);
	egress = (eth->dst[0] & 1) != 0 ? -ENOENT : look_up(worker, destination);
	if (unlikely(egress < 0 && memcmp(eth->dst, pipeline->mac, sizeof(eth->dst)) == 0)) {
		/* The frame is for this switch only and not IPv4, such as IPv6. */
		worker_drop(worker, mbuf, FANIN_REASON_LOCAL);
	} else if (egress < 0) {
		worker_flood(worker, mbuf, ingress, tagged);
	} else if (egress == ingress) {
		worker_drop(worker, mbuf, FANIN_REASON_SAME_PORT);
	} else if (!fits_mtu(&pipeline->ports[egress], mbuf, tagged)) {
		worker_drop(worker, mbuf, FANIN_REASON_MTU);
	} else {
		worker->counters.forwarded++;
		worker_send_foreign(worker, (uint16_t)egress, mbuf);
	}
}
