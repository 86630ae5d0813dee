/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Other stations behind an interface of this host: a macvlan on it has a MAC address of its own,
 * for a container or a virtual machine. May block for the time of a system call; keeps no state.
 */
#ifndef FANIN_HOSTLIB_STATIONS_H
#define FANIN_HOSTLIB_STATIONS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Looks for a unicast address other than its own that an interface accepts frames for. The device
 * with that address may be in any network namespace.
 *
 * mac: the interface's, 6 bytes. other: 6 bytes, set if there is one. Returns false also if the
 * kernel can't be asked.
 */
bool fanin_station_behind(int ifindex, const uint8_t *mac, uint8_t *other);

#endif
