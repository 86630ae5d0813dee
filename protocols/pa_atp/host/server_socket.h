/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel's part of a parameter server: a UDP socket on the interface of its address. Frames are
 * never fragmented, and results leave by the same interface for the job's group.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_HOST_SERVER_SOCKET_H
#define FANIN_PROTOCOLS_PA_ATP_HOST_SERVER_SOCKET_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "hostlib/src/base/error.h"

/* The interface of an address. */
struct server_interface {
	uint32_t ip_be;
	char name[IF_NAMESIZE];
	int index;
	uint8_t mac[6];
	uint32_t mtu; /* UINT16_MAX at most */
};

/*
 * Finds the interface that has an address. Returns FANIN_OK, or an error with the text.
 */
int server_interface_find(uint32_t ip_be, struct server_interface *interface,
			  struct fanin_error *error);

/* Is the interface up, with a carrier? fd: any socket. */
bool server_interface_has_link(int fd, const struct server_interface *interface);

/*
 * Makes the socket. buffer_bytes: that received packets may take; set to what the kernel gives.
 * Returns a descriptor, or an error, which is negative, with the text.
 */
int server_socket_open(const struct server_interface *interface, uint16_t udp_port,
		       uint32_t *buffer_bytes, struct fanin_error *error);

#endif
