/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Routing of IPv4 (RFC 1812) between the hosts' subnet and the routed ports: longest prefix match,
 * one of several next hops by flow, time to live, MTU. A packet whose next hop's MAC address is
 * unknown is dropped: no packet waits for an ARP answer.
 */
#include <netinet/ip_icmp.h>
#include <string.h>

#include <rte_ether.h>

#include "pipeline/base/egress.h"
#include "pipeline/base/ipv4.h"
#include "pipeline/base/offload.h"
#include "pipeline/net/net.h"
#include "pipeline/net/route_table.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

/*
 * Returns the MAC address of a next hop, or 0 if the next hop can't be used: its address is
 * unknown, it does not answer, or its port has no link.
 */
static inline mac_key
next_hop_mac(const struct pipeline *pipeline, const struct next_hop *hop)
{
	if (unlikely(!pipeline_port_has_link(pipeline, hop->port)))
		return 0;
	return neighbor_mac(pipeline->neighbors, hop->neighbor, hop->ip_be);
}

/*
 * Returns the next hop of a flow, or NULL if none can be used. Flows of an unusable next hop are
 * spread over the others; all other flows stay where they are.
 */
static const struct next_hop *
choose(const struct pipeline *pipeline, const struct route *route, uint32_t hash, mac_key *mac)
{
	const uint32_t n = route->n_next_hops;
	const struct next_hop *hop = &route->next_hops[hash % n];
	const struct next_hop *usable[ROUTE_MAX_NEXT_HOPS];
	mac_key macs[ROUTE_MAX_NEXT_HOPS];
	uint32_t n_usable = 0;

	*mac = next_hop_mac(pipeline, hop);
	if (likely(*mac != 0))
		return hop;
	for (uint32_t i = 0; i < n; i++) {
		macs[n_usable] = next_hop_mac(pipeline, &route->next_hops[i]);
		if (macs[n_usable] != 0)
			usable[n_usable++] = &route->next_hops[i];
	}
	if (n_usable == 0)
		return NULL;
	*mac = macs[hash / n % n_usable];
	return usable[hash / n % n_usable];
}

/*
 * Returns the next hop with the smallest backlog if the port of the first choice is congested.
 * Among equal backlogs, the first choice wins, then the earlier next hop (Canary section 3.1).
 */
static const struct next_hop *
detour(const struct pipeline *pipeline, const struct route *route, const struct next_hop *hop,
       mac_key *mac)
{
	const struct next_hop *best = hop;
	uint64_t least = egress_backlog(pipeline, hop->port, NULL);

	if (!egress_is_congested(pipeline, hop->port, least))
		return hop;
	for (uint32_t i = 0; i < route->n_next_hops; i++) {
		const struct next_hop *other = &route->next_hops[i];
		const uint64_t backlog = egress_backlog(pipeline, other->port, NULL);
		const mac_key other_mac = backlog < least ? next_hop_mac(pipeline, other) : 0;

		if (other_mac == 0)
			continue;
		best = other;
		least = backlog;
		*mac = other_mac;
	}
	return best;
}

static void
ask_and_drop(struct worker *worker, struct rte_mbuf *mbuf, int32_t position, neighbor_key key)
{
	if (position >= 0 &&
	    neighbor_may_ask(worker->pipeline->neighbors, position, worker->now_seconds))
		worker_ask(worker, key);
	worker_drop(worker, mbuf, FANIN_REASON_NEIGHBOR);
}

/* Readies a packet for its next hop's link. */
static void
rewrite(struct worker *worker, struct rte_mbuf *mbuf, mac_key to)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	uint32_t len = FANIN_ETH_LEN + rte_be_to_cpu_16(headers->ip.total_len_be);

	mac_key_get(to, headers->eth.dst);
	memcpy(headers->eth.src, worker->pipeline->mac, sizeof(headers->eth.src));
	ipv4_decrement_ttl(&headers->ip);
	/*
	 * The padding of a short frame may stay; other bytes behind the packet must go.
	 * Super-frames have none.
	 */
	if ((mbuf->ol_flags & OFFLOAD_SEGMENTS) == 0 && mbuf->nb_segs == 1 &&
	    mbuf->data_len > RTE_ETHER_MIN_LEN - RTE_ETHER_CRC_LEN && mbuf->data_len > len) {
		mbuf->data_len =
			(uint16_t)RTE_MAX(len, (uint32_t)(RTE_ETHER_MIN_LEN - RTE_ETHER_CRC_LEN));
		mbuf->pkt_len = mbuf->data_len;
	}
	mbuf->ol_flags &= OFFLOAD_ALL;
	worker->counters.routed++;
}

static void
send_by(struct worker *worker, struct rte_mbuf *mbuf, uint16_t port, mac_key to)
{
	const struct fanin_ip *ip = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->ip;
	uint16_t mtu = worker->pipeline->ports[port].mtu;

	if (unlikely(RTE_MIN(rte_be_to_cpu_16(ip->total_len_be),
			     offload_link_len(mbuf) - FANIN_ETH_LEN) > mtu)) {
		if ((ip->fragment_be & rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG)) != 0)
			worker_unreachable(worker, mbuf, FANIN_REASON_MTU, ICMP_DEST_UNREACH,
					   ICMP_FRAG_NEEDED, mtu);
		else
			worker_drop(worker, mbuf, FANIN_REASON_MTU);
		return;
	}
	rewrite(worker, mbuf, to);
	worker_send_foreign(worker, port, mbuf);
}

/* by_backlog: the packet may leave its flow's usual route. flow: as for worker_route_fanin. */
static void
send_to_next_hop(struct worker *worker, struct rte_mbuf *mbuf, const struct route *route,
		 bool by_backlog, const uint32_t *flow)
{
	const struct pipeline *pipeline = worker->pipeline;
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const uint32_t hash = flow != NULL ? *flow : ipv4_flow_hash(headers, pipeline->ip_be);
	const struct next_hop *hop;
	mac_key mac;

	hop = choose(pipeline, route, hash, &mac);
	if (by_backlog && hop != NULL)
		hop = detour(pipeline, route, hop, &mac);
	if (likely(hop != NULL)) {
		send_by(worker, mbuf, hop->port, mac);
		return;
	}
	hop = &route->next_hops[hash % route->n_next_hops];
	ask_and_drop(worker, mbuf, hop->neighbor,
		     neighbor_key_make(hop->ip_be, NEIGHBOR_ON_PORT(hop->port)));
}

static void
send_to_host(struct worker *worker, struct rte_mbuf *mbuf, uint32_t ip_be)
{
	struct neighbor_table *neighbors = worker->pipeline->neighbors;
	neighbor_key key = neighbor_key_make(ip_be, NEIGHBOR_HOSTS);
	mac_key mac = 0;
	int32_t position;
	int port;

	if (unlikely(!is_host_address(worker->pipeline, ip_be))) {
		worker_drop(worker, mbuf, FANIN_REASON_IP_ADDRESS);
		return;
	}
	position = neighbor_find_or_add(neighbors, key);
	if (likely(position >= 0))
		mac = neighbor_mac(neighbors, position, ip_be);
	if (unlikely(mac == 0)) {
		ask_and_drop(worker, mbuf, position, key);
		return;
	}
	port = worker_station_port(worker, mac);
	if (likely(port >= 0)) {
		send_by(worker, mbuf, (uint16_t)port, mac);
		return;
	}
	/*
	 * The station has not been seen for long: its frame is flooded, as for any unknown station.
	 */
	rewrite(worker, mbuf, mac);
	worker_flood(worker, mbuf, WORKER_NO_PORT, false);
}

/*
 * Returns true if a source address belongs to the port that its packet came in on (RFC 3704). Hosts
 * of the own subnet belong to the ports that are not routed. The destinations of a route belong to
 * the ports of all its next hops, as the other side chooses which one a flow takes. An address
 * without a route may come in on any routed port, where another switch has admitted it.
 */
static bool
source_belongs(const struct pipeline *pipeline, uint32_t ip_be, uint16_t ingress)
{
	const struct route *route = route_lookup(pipeline->routes, ip_be);
	const bool routed = pipeline->ports[ingress].routed;

	if (route == NULL)
		return routed || pipeline->subnet_mask_be == 0;
	if (route->n_next_hops == 0)
		return !routed && is_host_address(pipeline, ip_be);
	for (uint16_t i = 0; i < route->n_next_hops; i++) {
		if (route->next_hops[i].port == ingress)
			return true;
	}
	return false;
}

void
worker_route(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct pipeline *pipeline = worker->pipeline;
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	uint16_t ingress = ingress_port(pipeline, mbuf);
	mac_key source = mac_key_make(headers->eth.src, 0);
	enum fanin_reason reason = ipv4_check(headers, mbuf->pkt_len);
	const struct route *route;

	/* A tag that the driver took out: the switch itself is in no VLAN. */
	if (unlikely((mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0)) {
		if (pipeline->ports[ingress].routed)
			worker_drop(worker, mbuf, FANIN_REASON_ROUTED_PORT);
		else
			worker_forward(worker, mbuf);
		return;
	}
	if (unlikely(mac_key_is_invalid(source)))
		reason = FANIN_REASON_SOURCE_MAC;
	else if (!pipeline->ports[ingress].routed)
		worker_learn(worker, source, ingress);
	if (unlikely(reason != FANIN_REASON_NONE)) {
		worker_drop(worker, mbuf, reason);
		return;
	}
	if (unlikely(!source_belongs(pipeline, headers->ip.src_be, ingress))) {
		worker_drop(worker, mbuf, FANIN_REASON_SOURCE_PATH);
		return;
	}
	if (unlikely(headers->ip.ttl <= 1)) {
		worker_unreachable(worker, mbuf, FANIN_REASON_TTL, ICMP_TIME_EXCEEDED, ICMP_EXC_TTL,
				   0);
		return;
	}
	route = route_lookup(pipeline->routes, headers->ip.dst_be);
	if (unlikely(route == NULL))
		worker_unreachable(worker, mbuf, FANIN_REASON_NO_ROUTE, ICMP_DEST_UNREACH,
				   ICMP_NET_UNREACH, 0);
	else if (route->n_next_hops == 0)
		send_to_host(worker, mbuf, headers->ip.dst_be);
	else
		send_to_next_hop(worker, mbuf, route, false, NULL);
}

void
worker_route_fanin(struct worker *worker, struct rte_mbuf *mbuf, bool by_backlog,
		   const uint32_t *flow)
{
	const struct fanin_ip *ip = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->ip;
	const struct route *route = route_lookup(worker->pipeline->routes, ip->dst_be);

	if (unlikely(ip->ttl <= 1))
		worker_drop(worker, mbuf, FANIN_REASON_TTL);
	else if (unlikely(route == NULL))
		worker_drop(worker, mbuf, FANIN_REASON_NO_ROUTE);
	else if (route->n_next_hops == 0)
		send_to_host(worker, mbuf, ip->dst_be);
	else
		send_to_next_hop(worker, mbuf, route, by_backlog, flow);
}
