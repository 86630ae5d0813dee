/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A leaf in the test's own process: hosts 0 and 1 on ports 0 and 1, two spines behind the routed
 * ports 2 and 3, and routes of several lengths through them. The test plays hosts and spines.
 */
#ifndef FANIN_TESTS_UNIT_LEAF_RIG_H
#define FANIN_TESTS_UNIT_LEAF_RIG_H

#include <stddef.h>
#include <stdint.h>

#include <rte_arp.h>
#include <rte_ether.h>

#include "tests/unit/ring_switch.h"
#include "wire/arp.h"

#define SPINE_PORT 2u
#define N_SPINES 2u

/* An ARP message as it is on the link. */
struct arp_message {
	struct fanin_arp arp;
	uint8_t padding[18];
};

/* The frame that was taken last. */
extern uint8_t leaf_out[4096];
extern struct ring_switch leaf;

/*
 * A fixture: routes 10.77.0.0/16 to both spines, 10.77.5.0/24 to 1, 10.77.5.128/25 to 0,
 * 10.77.5.130/32 to 1.
 */
void leaf_open(void);

/* The same with limits of the ports' queues, one entry for each of the four. */
void leaf_open_limited(const struct pipeline_egress *limits);
void leaf_close(void);

/* Address and MAC of a spine. */
uint32_t spine_ip_be(unsigned int spine);
void spine_mac(unsigned int spine, uint8_t mac[6]);

/* An ARP message to all comes in on a port. */
void leaf_put_arp(uint16_t port, uint16_t opcode, const uint8_t mac[6], uint32_t ip_be,
		  uint32_t target_be);

/*
 * Aborts the test unless the next frame of the port asks for the address. known: the MAC it is to
 * go to; NULL: all.
 */
void leaf_expect_ask(uint16_t port, uint32_t ip_be, const uint8_t *known);

/* Takes what all ports have sent. */
void leaf_drain(void);

/* The same, and aborts the test if there is anything. */
void leaf_expect_silence(void);

/* ARP replies of a spine, of a host, and of all; what was sent until the last is taken. */
void leaf_hears_spine(unsigned int spine);
void leaf_hears_host(unsigned int h);
void leaf_hears_all(void);

/*
 * A UDP packet to the switch's MAC with 64 bytes of data, don't fragment, TTL 64. Returns its
 * length.
 */
size_t leaf_packet(const char *source, const char *destination, uint16_t src_port, uint8_t *frame);

/* Sets the IPv4 checksum of a frame right, as long as the header says that it is. */
void leaf_set_checksum(uint8_t *frame);

/* Aborts the test unless the next frame of the port is this one, routed to the MAC address. */
void leaf_expect_routed(uint16_t port, const uint8_t *frame, size_t len, const uint8_t mac[6]);

/* Count of a drop reason. */
uint64_t leaf_drops(enum fanin_reason reason);

/* The spine to which a packet goes; -1: to none. */
int leaf_spine_of(const uint8_t *frame, size_t len);

/* The same of a flow from host 0. */
int leaf_spine_of_flow(const char *destination, uint16_t src_port);

#endif
