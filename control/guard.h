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
/* Wrong tokens of an address that are refused at once, besides one each second. */
#define GUARD_FREE 5
#define GUARD_DELAY_MS 1000u /* delay of further refusals */
/* Maximum number of delayed refusals to one address at a time; others get none. */
#define GUARD_HELD 16
#define GUARD_TELL_MS 60000u  /* between two log lines about one address */
#define GUARD_PAUSE_MS 10000u /* between two log lines about any addresses */

/* An IPv4 address, or the network of an IPv6 address, of which one host may have all addresses. */
struct guard_source {
	uint8_t bytes[8];
};

struct guard_entry {
	struct guard_source source;
	uint64_t last_ms; /* of the last wrong token; 0: unused */
	uint64_t told_ms; /* when it was last logged; 0: never */
	uint64_t level;   /* rises with each wrong token; milliseconds until it is 0 again */
};

struct guard {
	struct guard_entry entries[GUARD_SOURCES];
	uint64_t told_ms;
};

/* Returns the source of a connection. */
struct guard_source guard_source_of(const struct sockaddr_storage *from);

/*
 * Counts a wrong token, and logs from time to time. Returns the delay of its refusal, milliseconds.
 */
uint32_t guard_wrong_token(struct guard *guard, const struct guard_source *source, uint64_t now_ms);

#endif
