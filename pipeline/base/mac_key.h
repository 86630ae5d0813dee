/* SPDX-License-Identifier: BSD-3-Clause */
/* The key of a station in tables: its MAC address and VLAN in one number. */
#ifndef FANIN_PIPELINE_MAC_KEY_H
#define FANIN_PIPELINE_MAC_KEY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>

/* MAC address in the upper 48 bits as it is on the wire, VLAN id (0: untagged) in the lower 16. */
typedef uint64_t mac_key;

static inline mac_key
mac_key_make(const uint8_t mac[6], uint16_t vlan)
{
	rte_be32_t high;
	rte_be16_t low;

	memcpy(&high, mac, sizeof(high));
	memcpy(&low, mac + sizeof(high), sizeof(low));
	return (uint64_t)rte_be_to_cpu_32(high) << 32 | (uint64_t)rte_be_to_cpu_16(low) << 16 |
	       vlan;
}

/* The MAC address of a key. */
static inline void
mac_key_get(mac_key key, uint8_t mac[6])
{
	const rte_be64_t wire = rte_cpu_to_be_64(key);

	memcpy(mac, &wire, 6);
}

/* Returns true if no station can have this key: a group address, or zero. */
static inline bool
mac_key_is_invalid(mac_key key)
{
	return (key >> 56 & 1) != 0 || key >> 16 == 0;
}

#endif
