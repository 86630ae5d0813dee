/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ARP (RFC 826) of the switch itself: it answers requests for its address, learns its neighbors
 * from their ARP messages, and asks for neighbors that it has packets for.
 */
#include <string.h>

#include <rte_arp.h>
#include <rte_ether.h>
#include <rte_ring_elem.h>

#include "pipeline/base/egress.h"
#include "pipeline/net/net.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

#define ASK_BURST 8

struct arp_frame {
	struct rte_ether_hdr eth;
	struct rte_arp_hdr arp;
	uint8_t padding[RTE_ETHER_MIN_LEN - RTE_ETHER_CRC_LEN - sizeof(struct rte_ether_hdr) -
			sizeof(struct rte_arp_hdr)];
};

static bool
is_of_ipv4_on_ethernet(const struct rte_arp_hdr *arp)
{
	return arp->arp_hardware == rte_cpu_to_be_16(RTE_ARP_HRD_ETHER) &&
	       arp->arp_protocol == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) &&
	       arp->arp_hlen == RTE_ETHER_ADDR_LEN && arp->arp_plen == sizeof(uint32_t);
}

/*
 * Learns the sender of an ARP message. Hosts are those of the own subnet; on routed ports only next
 * hops are neighbors. RFC 826: a message to another station updates what is known, and adds
 * nothing.
 */
static void
learn_sender(struct worker *worker, const struct rte_arp_hdr *arp, uint16_t ingress, bool to_switch)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct neighbor_table *neighbors = pipeline->neighbors;
	mac_key mac = mac_key_make(arp->arp_data.arp_sha.addr_bytes, 0);
	uint32_t ip_be = arp->arp_data.arp_sip;
	neighbor_key key = neighbor_key_make(ip_be, NEIGHBOR_HOSTS);
	int32_t position;

	if (!is_of_ipv4_on_ethernet(arp) || mac_key_is_invalid(mac))
		return;
	if (pipeline->ports[ingress].routed) {
		key = neighbor_key_make(ip_be, NEIGHBOR_ON_PORT(ingress));
		position = neighbor_find(neighbors, key);
	} else if (!is_host_address(pipeline, ip_be)) {
		return;
	} else if (to_switch) {
		position = neighbor_find_or_add(neighbors, key);
	} else {
		position = neighbor_find(neighbors, key);
	}
	if (position < 0)
		return;
	/*
	 * A request from a next hop does not show that it receives frames: once it is dead, only an
	 * answer does.
	 */
	if (to_switch && arp->arp_opcode == rte_cpu_to_be_16(RTE_ARP_OP_REPLY))
		neighbor_note_answer(neighbors, position, worker->now_ns);
	else if (neighbor_is_dead(neighbors, position))
		return;
	neighbor_confirm(neighbors, position, ip_be, mac, worker->now_seconds);
}

bool
worker_local_arp(struct worker *worker, struct rte_mbuf *mbuf, uint32_t *sender_be)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct rte_ether_hdr *eth = rte_pktmbuf_mtod(mbuf, struct rte_ether_hdr *);
	struct rte_arp_hdr *arp = (struct rte_arp_hdr *)(eth + 1);
	uint16_t ingress = ingress_port(pipeline, mbuf);
	mac_key source = mac_key_make(eth->src_addr.addr_bytes, 0);
	bool to_switch;

	*sender_be = 0;
	if (mbuf->data_len < sizeof(*eth) + sizeof(*arp) || mac_key_is_invalid(source) ||
	    (mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0)
		return false;
	to_switch = arp->arp_data.arp_tip == pipeline->ip_be;
	learn_sender(worker, arp, ingress, to_switch);
	/*
	 * A neighbor's announcement about itself ends here; hosts' announcements go to all hosts.
	 */
	if (!to_switch && pipeline->ports[ingress].routed && is_of_ipv4_on_ethernet(arp) &&
	    arp->arp_data.arp_sip == arp->arp_data.arp_tip) {
		worker->counters.local++;
		rte_pktmbuf_free(mbuf);
		return true;
	}
	if (!to_switch)
		return false;
	if (!pipeline->ports[ingress].routed)
		worker_learn(worker, source, ingress);
	*sender_be = arp->arp_data.arp_sip;
	worker->counters.local++;
	if (arp->arp_opcode != rte_cpu_to_be_16(RTE_ARP_OP_REQUEST)) {
		rte_pktmbuf_free(mbuf);
		return true;
	}
	eth->dst_addr = eth->src_addr;
	memcpy(&eth->src_addr, pipeline->mac, sizeof(eth->src_addr));
	arp->arp_opcode = rte_cpu_to_be_16(RTE_ARP_OP_REPLY);
	arp->arp_data.arp_tha = arp->arp_data.arp_sha;
	arp->arp_data.arp_tip = arp->arp_data.arp_sip;
	memcpy(&arp->arp_data.arp_sha, pipeline->mac, sizeof(arp->arp_data.arp_sha));
	arp->arp_data.arp_sip = pipeline->ip_be;
	mbuf->ol_flags = 0;
	worker_send(worker, ingress, mbuf);
	return true;
}

/*
 * Makes a request for an address, to all stations, or to one station to check that it still has the
 * address. A request for the own address is an announcement (RFC 5227): stations that know the
 * address learn its current MAC address.
 */
static struct rte_mbuf *
make_request(struct worker *worker, uint32_t ip_be, mac_key known)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pipeline->pool);
	struct arp_frame *frame;

	if (mbuf == NULL)
		return NULL;
	frame = (struct arp_frame *)rte_pktmbuf_append(mbuf, sizeof(*frame));
	if (frame == NULL) {
		rte_pktmbuf_free(mbuf);
		return NULL;
	}
	memset(frame, 0, sizeof(*frame));
	memset(&frame->eth.dst_addr, 0xff, sizeof(frame->eth.dst_addr));
	if (known != 0)
		mac_key_get(known, frame->eth.dst_addr.addr_bytes);
	memcpy(&frame->eth.src_addr, pipeline->mac, sizeof(frame->eth.src_addr));
	frame->eth.ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP);
	frame->arp.arp_hardware = rte_cpu_to_be_16(RTE_ARP_HRD_ETHER);
	frame->arp.arp_protocol = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
	frame->arp.arp_hlen = RTE_ETHER_ADDR_LEN;
	frame->arp.arp_plen = sizeof(uint32_t);
	frame->arp.arp_opcode = rte_cpu_to_be_16(RTE_ARP_OP_REQUEST);
	memcpy(&frame->arp.arp_data.arp_sha, pipeline->mac, sizeof(pipeline->mac));
	frame->arp.arp_data.arp_sip = pipeline->ip_be;
	frame->arp.arp_data.arp_tip = ip_be;
	return mbuf;
}

/* Returns how long a frame that is sent now waits for earlier ones, by the port's rate. */
static uint64_t
wait_ns(const struct pipeline *pipeline, uint16_t port)
{
	const uint32_t rate_mbit = pipeline->ports[port].egress.rate_mbit;

	return rate_mbit == 0 ? 0 : egress_backlog(pipeline, port, NULL) * 8000 / rate_mbit;
}

void
worker_ask(struct worker *worker, neighbor_key neighbor)
{
	struct neighbor_table *neighbors = worker->pipeline->neighbors;
	uint32_t ip_be = neighbor_key_ip_be(neighbor);
	uint32_t where = neighbor_key_where(neighbor);
	int32_t position = neighbor_find(neighbors, neighbor);
	mac_key known = position < 0 ? 0 : neighbor_mac(neighbors, position, ip_be);
	struct rte_mbuf *mbuf = make_request(worker, ip_be, known);
	int port = -1;

	if (mbuf == NULL)
		return; /* asked again in a second */
	if (where != NEIGHBOR_HOSTS)
		port = (int)(where - NEIGHBOR_ON_PORT(0));
	else if (known != 0)
		port = worker_station_port(worker, known);
	if (where != NEIGHBOR_HOSTS && position >= 0)
		neighbor_note_request(neighbors, position,
				      worker->now_ns + wait_ns(worker->pipeline, (uint16_t)port));
	if (port >= 0)
		worker_send(worker, (uint16_t)port, mbuf);
	else
		worker_flood(worker, mbuf, WORKER_NO_PORT, false);
}

void
worker_ask_station(struct worker *worker, uint32_t ip_be, const uint8_t mac[6], uint16_t port)
{
	struct rte_mbuf *mbuf = make_request(worker, ip_be, mac_key_make(mac, 0));

	if (mbuf != NULL)
		worker_send(worker, port, mbuf);
}

void
worker_ask_due(struct worker *worker)
{
	struct neighbor_table *neighbors = worker->pipeline->neighbors;
	neighbor_key keys[ASK_BURST];
	unsigned int n = rte_ring_dequeue_burst_elem(neighbors->asks, keys, sizeof(keys[0]),
						     ASK_BURST, NULL);

	for (unsigned int i = 0; i < n; i++) {
		int32_t position;

		if (neighbor_key_ip_be(keys[i]) == worker->pipeline->ip_be) {
			worker_ask(worker, keys[i]);
			continue;
		}
		position = neighbor_find(neighbors, keys[i]);
		if (position < 0)
			continue;
		/* The main thread decides how often next hops are asked. */
		if (neighbors->neighbors[position].next_hop ||
		    neighbor_may_ask(neighbors, position, worker->now_seconds))
			worker_ask(worker, keys[i]);
	}
}
