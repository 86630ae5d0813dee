/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A network in one process, in virtual time: real pipelines, linked by ports that are plain memory,
 * and hosts. Everything that happens is an event with a time, and no time passes between events. So
 * a network of any size runs as fast as the machine allows, and the same seed gives the same run.
 * Switches take no time; links do, by their delay and their ports' rates.
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
/* The start of virtual time: not 0, because some times of 0 mean "never". */
#define RIG_START_NS UINT64_C(1000000000000)

struct rig;
struct rig_host;
struct rig_switch;

struct rig_options {
	uint64_t seed;      /* of everything random: switches' faults */
	uint32_t n_packets; /* in existence at a time, everywhere */
	uint16_t mtu;       /* of all links, bytes */
};

/* A link's end. */
struct rig_end {
	struct pipeline_egress egress; /* of a switch's port; a host's has a rate only */
	uint64_t delay_ns;             /* from a frame's last byte at this end to the other end */
};

struct rig_switch_options {
	uint32_t ip_be;
	uint8_t prefix_len; /* of its hosts' subnet; 0: it has none */
	uint16_t n_ports;   /* at most PIPELINE_MAX_PORTS; rig_link and rig_attach connect them */
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

/*
 * Destroys a rig with all switches and hosts. May be NULL. Returns how many packets have leaked: 0.
 */
unsigned int rig_destroy(struct rig *rig);

uint64_t rig_now_ns(const struct rig *rig);

/* The rig's time as a clock for hosts. rig: struct rig. */
uint64_t rig_clock(void *rig);

/*
 * Adds a switch. Its MAC address is derived from its number, in the order of calls. error as above.
 */
struct rig_switch *rig_switch_add(struct rig *rig, const struct rig_switch_options *options,
				  char *error);

/* The rig that a switch is in. */
struct rig *rig_of(const struct rig_switch *sw);

/* The links' MTU. */
uint16_t rig_mtu(const struct rig *rig);

/*
 * Declares the switch's workers absent, or present again. Code that would wait for their next
 * round, such as the end of a job or of a port, would otherwise wait forever in the single thread.
 */
void rig_switch_away(struct rig_switch *sw, bool away);

/* Kills the switch: it does nothing, and all frames to it are lost. Or revives it as it was. */
void rig_switch_kill(struct rig_switch *sw, bool dead);

/* Returns the switch's pipeline, to reach jobs and counters. The rig keeps it. */
struct pipeline *rig_switch_pipeline(const struct rig_switch *sw);

/* Links two switches' ports, which nothing is linked to yet. */
void rig_link(struct rig_switch *one, uint16_t one_port, struct rig_switch *other,
	      uint16_t other_port);

/*
 * Attaches a host to a switch's port. The host answers ARP, and the switch knows it from the start.
 * A port may have several hosts: each of them gets what the switch sends to all, and they do not
 * hear each other. end: of its link. Returns NULL without memory.
 */
struct rig_host *rig_attach(struct rig_switch *sw, uint16_t port, uint32_t ip_be,
			    const struct rig_end *end);

/* The host's MAC address. */
const uint8_t *rig_host_mac(const struct rig_host *host);

/*
 * Returns the host as a transport for an engine: it takes Fanin's packets from switches and hosts,
 * except probes. The rig owns it.
 */
struct fanin_transport *rig_host_transport(struct rig_host *host);

/*
 * Sets the function that is called when there are frames for the host's transport, or when
 * rig_host_wake has asked for it. After a call the host is called again only for one of these.
 */
void rig_host_set_poll(struct rig_host *host, void (*poll)(struct rig_host *host, void *user),
		       void *user);

/*
 * From now on all frames to the host, except ARP, go whole to this function, and none to its
 * transport. The frame is valid during the call. NULL: back to the transport.
 */
void rig_host_set_take(struct rig_host *host,
		       void (*take)(struct rig_host *host, const void *frame, uint32_t len,
				    void *user),
		       void *user);

/* Kills the host: all frames to it are lost, and it answers nothing. */
void rig_host_kill(struct rig_host *host);

/* Has the host called at this time, or earlier. */
void rig_host_wake(struct rig_host *host, uint64_t at_ns);

/*
 * Sends a frame on the host's link, as another program on the host would. Returns false if there
 * are no free packets.
 */
bool rig_host_send(struct rig_host *host, const void *frame, uint32_t len);

/* Returns how long the host's link needs for what it was given. */
uint64_t rig_host_backlog_ns(const struct rig_host *host);

/*
 * Keeps the host's link from sending for this long after it has sent what it was given, as if the
 * host were busy with something else.
 */
void rig_host_pause(struct rig_host *host, uint64_t pause_ns);

/* What a port of a switch has sent, and what a host has. */
struct rig_traffic rig_switch_traffic(const struct rig_switch *sw, uint16_t port);
struct rig_traffic rig_host_traffic(const struct rig_host *host);

/* Counts frames to a host that were not for its transport, without ARP. */
uint64_t rig_host_others(const struct rig_host *host);

/*
 * Lets time pass until the condition holds, which is checked after each event, or until until_ns.
 *
 * condition: NULL: none. Returns true if it holds.
 */
bool rig_run(struct rig *rig, uint64_t until_ns, bool (*condition)(void *user), void *user);

#endif
