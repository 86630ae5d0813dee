/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts wrong tokens by source address, and delays their refusals. Right tokens are never delayed,
 * whatever else comes from their address. No thread safety.
 */
#ifndef FANIN_CONTROL_GUARD_H
#define FANIN_CONTROL_GUARD_H

#include <stdint.h>
#include <sys/socket.h>

#define GUARD_SOURCES 256 /* addresses that are remembered */
#define GUARD_FREE 5      /* wrong tokens of an address refused at once, and one more each second */
#define GUARD_DELAY_MS 1000u /* delay of the refusal of any further one */
#define GUARD_HELD                                                                                 \
	16 /* maximum number of delayed refusals to one address at a time; others get              \
	      none */
#define GUARD_TELL_MS 60000u  /* between two lines of the log about one address */
#define GUARD_PAUSE_MS 10000u /* and about any */

/* An IPv4 address, or the network of an IPv6 one: a host has all addresses of that. */
struct guard_source {
	uint8_t bytes[8];
};

struct guard_entry {
	struct guard_source source;
	uint64_t last_ms; /* of the last wrong token; 0: unused */
	uint64_t told_ms; /* when the log was told; 0: never */
	uint64_t level;   /* milliseconds until nothing is left of the wrong tokens */
};

struct guard {
	struct guard_entry entries[GUARD_SOURCES];
	uint64_t told_ms;
};

/* Returns the source of a connection. */
struct guard_source guard_source_of(const struct sockaddr_storage *from);

/*
 * Counts a wrong token. Returns how long to delay its refusal, in milliseconds; logs now and then.
 */
uint32_t guard_wrong_token(struct guard *guard, const struct guard_source *source, uint64_t now_ms);

#endif
