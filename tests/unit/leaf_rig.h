/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A leaf in the test's own process: hosts 0 and 1 on ports 0 and 1, two spines behind the routed
 * ports 2 and 3, and routes of several lengths through them. The test acts as hosts and spines.
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

/* An ARP message, as on the link. */
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

/* Puts an ARP broadcast into a port. */
void leaf_put_arp(uint16_t port, uint16_t opcode, const uint8_t mac[6], uint32_t ip_be,
		  uint32_t target_be);

/*
 * Aborts the test unless the next frame of the port is a request for the address. known: the MAC
 * that it must be sent to; NULL: broadcast.
 */
void leaf_expect_ask(uint16_t port, uint32_t ip_be, const uint8_t *known);

/* Takes all frames that the ports have sent. */
void leaf_drain(void);

/* Aborts the test if a port has sent anything. */
void leaf_expect_silence(void);

/* ARP replies of a spine, of a host, and of all; all frames sent before the last one are taken. */
void leaf_hears_spine(unsigned int spine);
void leaf_hears_host(unsigned int h);
void leaf_hears_all(void);

/*
 * Makes a UDP packet to the switch's MAC with 64 bytes of data, don't fragment, TTL 64. Returns its
 * length.
 */
size_t leaf_packet(const char *source, const char *destination, uint16_t src_port, uint8_t *frame);

/* Sets the IPv4 checksum of a frame, over the length in the header. */
void leaf_set_checksum(uint8_t *frame);

/* Aborts the test unless the next frame of the port is this one, routed to the MAC address. */
void leaf_expect_routed(uint16_t port, const uint8_t *frame, size_t len, const uint8_t mac[6]);

/* Returns the count of a drop reason. */
uint64_t leaf_drops(enum fanin_reason reason);

/* Returns the spine that a packet goes to; -1: none. */
int leaf_spine_of(const uint8_t *frame, size_t len);

/* Returns the spine that a flow from host 0 goes to; -1: none. */
int leaf_spine_of_flow(const char *destination, uint16_t src_port);

#endif
