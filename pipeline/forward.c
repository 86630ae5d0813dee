/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Foreign frames: a transparent learning switch (IEEE 802.1Q). Source addresses are learned per
 * VLAN, known unicast goes to one port, everything else to all others; tags pass unchanged.
 */
#include <errno.h>
#include <string.h>

#include <rte_ether.h>

#include "pipeline/mac_table.h"
#include "pipeline/worker.h"

#include "pipeline/fastpath.h"

static inline bool
fits_mtu(const struct pipeline_port *port, const struct rte_mbuf *mbuf, bool tagged)
{
	return mbuf->pkt_len <=
	       (uint32_t)port->mtu + RTE_ETHER_HDR_LEN + (tagged ? RTE_VLAN_HLEN : 0);
}

/* 01-80-C2-00-00-00 to -0F: meant for the next bridge only, never forwarded (IEEE 802.1Q table 8-1). */
static inline bool
is_link_local_group(const uint8_t mac[6])
{
	static const uint8_t prefix[5] = { 0x01, 0x80, 0xc2, 0x00, 0x00 };

	return memcmp(mac, prefix, sizeof(prefix)) == 0 && mac[5] < 0x10;
}

static inline bool
is_zero_or_group(const uint8_t mac[6])
{
	static const uint8_t zero[6];

	return (mac[0] & 1) != 0 || memcmp(mac, zero, sizeof(zero)) == 0;
}

static void
flood(struct worker *worker, struct rte_mbuf *mbuf, uint16_t ingress, bool tagged)
{
	const struct pipeline *pipeline = worker->pipeline;

	worker->counters.flooded++;
	for (uint16_t port = 0; port < pipeline->n_ports; port++) {
		if (port == ingress)
			continue;
		if (unlikely(!fits_mtu(&pipeline->ports[port], mbuf, tagged))) {
			worker->counters.drops[FANIN_REASON_MTU]++;
			continue;
		}
		rte_pktmbuf_refcnt_update(mbuf, 1);
		worker_send(worker, port, mbuf);
	}
	rte_pktmbuf_free(mbuf);
}

void
worker_forward(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct pipeline *pipeline = worker->pipeline;
	uint16_t ingress = ingress_port(pipeline, mbuf);
	const struct fanin_eth *eth;
	uint16_t vlan = 0;
	bool tagged;
	int egress;

	/* Some drivers take the tag out of the frame: it goes back in, for each driver sends frames as they are. */
	if (unlikely((mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0 &&
		     rte_vlan_insert(&mbuf) != 0)) {
		worker_drop(worker, mbuf, FANIN_REASON_FRAME_SHORT);
		return;
	}
	mbuf->ol_flags = 0;
	eth = rte_pktmbuf_mtod(mbuf, const struct fanin_eth *);
	tagged = (eth->type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN) ||
		  eth->type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_QINQ)) &&
		 mbuf->data_len >= RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN;
	if (tagged)
		vlan = rte_be_to_cpu_16(((const struct rte_vlan_hdr *)(eth + 1))->vlan_tci) & 0xfff;
	if (unlikely(is_zero_or_group(eth->src))) {
		worker_drop(worker, mbuf, FANIN_REASON_SOURCE_MAC);
		return;
	}
	if (unlikely(is_link_local_group(eth->dst))) {
		worker_drop(worker, mbuf, FANIN_REASON_RESERVED_MAC);
		return;
	}
	if (mac_table_learn(pipeline->macs, mac_key_make(eth->src, vlan), ingress,
			    worker->now_seconds) != 0)
		worker->counters.learn_failed++;
	egress = (eth->dst[0] & 1) != 0
			 ? -ENOENT
			 : mac_table_lookup(pipeline->macs, mac_key_make(eth->dst, vlan));
	if (egress < 0) {
		flood(worker, mbuf, ingress, tagged);
	} else if (egress == ingress) {
		worker_drop(worker, mbuf, FANIN_REASON_SAME_PORT);
	} else if (!fits_mtu(&pipeline->ports[egress], mbuf, tagged)) {
		worker_drop(worker, mbuf, FANIN_REASON_MTU);
	} else {
		worker->counters.forwarded++;
		worker_send(worker, (uint16_t)egress, mbuf);
	}
}
