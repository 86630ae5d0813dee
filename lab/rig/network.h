/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A network in one process, in virtual time: real pipelines, linked by ports that are plain memory,
 * and hosts. Whatever happens is an event with a time; between events no time passes, so that a
 * network of any size runs as fast as it goes, and the same seed is the same run. A switch is as
 * fast as is needed: what takes time are links, by their delay and by their ports' rates.
 *
 * One thread. The EAL has been initialised.
 */
#ifndef FANIN_LAB_RIG_NETWORK_H
#define FANIN_LAB_RIG_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>

#include "hostlib/src/transport/transport.h"
#include "pipeline/net/route_table.h"
#include "pipeline/pipeline.h"

#define RIG_ERROR_LEN 512
/* When virtual time begins: times of 0 mean "never" in places. */
#define RIG_START_NS UINT64_C(1000000000000)

struct rig;
struct rig_host;
struct rig_switch;

struct rig_options {
	uint64_t seed;      /* of what is random: switches' faults */
	uint32_t n_packets; /* that there are at a time, everywhere */
	uint16_t mtu;       /* of all links, bytes */
};

/* A link's end. */
struct rig_end {
	struct pipeline_egress egress; /* of a switch's port; a host's has a rate only */
	uint64_t delay_ns; /* that a frame takes to the other end, from its last byte on */
};

struct rig_switch_options {
	uint32_t ip_be;
	uint8_t prefix_len; /* of its hosts' subnet; 0: it has none */
	uint16_t n_ports;   /* PIPELINE_MAX_PORTS at most; whatever they lead to is said by rig_link
			       and rig_attach */
	uint64_t routed;    /* bitmap of the ports that lead to other switches */
	const struct route_spec *routes;
	uint16_t n_routes;
	const struct rig_end *ends; /* of each port */
	struct pipeline_faults faults;
	uint16_t max_jobs;
	uint32_t slots;
	uint32_t shared_slots; /* of each handler whose jobs share them; 0: none */
	uint16_t n_workers;    /* 0: one. They share a core, in turns */
};

/* What a link has carried in one direction. */
struct rig_traffic {
	uint64_t frames;
	uint64_t bytes;
};

/* error: RIG_ERROR_LEN bytes. Returns NULL with it filled. */
struct rig *rig_create(const struct rig_options *options, char *error);

/* With all switches and hosts. May be NULL. Returns how many packets are lost to a leak: 0. */
unsigned int rig_destroy(struct rig *rig);

uint64_t rig_now_ns(const struct rig *rig);

/* The same as a clock of hosts. rig: struct rig. */
uint64_t rig_clock(void *rig);

/*
 * A switch. Its MAC address is made of its number, in the order of calls. error as above.
 */
struct rig_switch *rig_switch_add(struct rig *rig, const struct rig_switch_options *options,
				  char *error);

/* The rig that a switch is in. */
struct rig *rig_of(const struct rig_switch *sw);

/* The links' MTU. */
uint16_t rig_mtu(const struct rig *rig);

/*
 * The switch's workers are said to be away, or there again: what waits for their next round, as the
 * end of a job or of a port, does not wait for ever in the one thread.
 */
void rig_switch_away(struct rig_switch *sw, bool away);

/*
 * The switch is dead from now on: whatever comes is lost, and it does nothing. Or there again, as
 * it was.
 */
void rig_switch_kill(struct rig_switch *sw, bool dead);

/* The rig's still. To jobs and counters. */
struct pipeline *rig_switch_pipeline(const struct rig_switch *sw);

/* Links two switches' ports, which nothing is linked to yet. */
void rig_link(struct rig_switch *one, uint16_t one_port, struct rig_switch *other,
	      uint16_t other_port);

/*
 * A host behind a switch's port, which answers ARP, and whose switch knows it from the first. There
 * may be several at a port: what the switch sends to all comes to each of them, and among
 * themselves they hear nothing. end: of its link. Returns NULL without memory.
 */
struct rig_host *rig_attach(struct rig_switch *sw, uint16_t port, uint32_t ip_be,
			    const struct rig_end *end);

/* The host's MAC address. */
const uint8_t *rig_host_mac(const struct rig_host *host);

/*
 * The host as a transport for an engine: Fanin's packets from switches and hosts, but for probes.
 * The rig's.
 */
struct fanin_transport *rig_host_transport(struct rig_host *host);

/*
 * Called when there are frames for the host's transport, and when rig_host_wake has asked for it;
 * after it the host is called again only for one of these.
 */
void rig_host_set_poll(struct rig_host *host, void (*poll)(struct rig_host *host, void *user),
		       void *user);

/*
 * Frames to the host, but for ARP, go to this function from now on, whole, and none to its
 * transport. The frame is valid during the call. NULL: to the transport again.
 */
void rig_host_set_take(struct rig_host *host,
		       void (*take)(struct rig_host *host, const void *frame, uint32_t len,
				    void *user),
		       void *user);

/* The host is dead from now on: whatever comes is lost, and it answers nothing. */
void rig_host_kill(struct rig_host *host);

/* The host wants to be called at this time, or earlier. */
void rig_host_wake(struct rig_host *host, uint64_t at_ns);

/*
 * Puts a frame on the host's link, as another program on it would. Returns false if there are no
 * packets.
 */
bool rig_host_send(struct rig_host *host, const void *frame, uint32_t len);

/* How long the host's link will take for what it was given. */
uint64_t rig_host_backlog_ns(const struct rig_host *host);

/*
 * Keeps the host's link from sending for this long, once it has sent what it was given: the host is
 * busy with something else.
 */
void rig_host_pause(struct rig_host *host, uint64_t pause_ns);

/* What a port of a switch has sent, and what a host has. */
struct rig_traffic rig_switch_traffic(const struct rig_switch *sw, uint16_t port);
struct rig_traffic rig_host_traffic(const struct rig_host *host);

/* Frames to a host that were not for its transport, ARP not counted. */
uint64_t rig_host_others(const struct rig_host *host);

/*
 * Lets time pass until the condition holds, which is looked at after each event, or until the time
 * has come.
 *
 * condition: NULL: none. Returns true if it holds.
 */
bool rig_run(struct rig *rig, uint64_t until_ns, bool (*condition)(void *user), void *user);

#endif
