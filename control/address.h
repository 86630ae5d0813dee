/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses of TCP sockets as people write them: HOST:PORT, [IPV6]:PORT. No state; any thread may
 * call.
 */
#ifndef FANIN_CONTROL_ADDRESS_H
#define FANIN_CONTROL_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define ADDRESS_TEXT_LEN 256 /* longest text that is parsed */
#define ADDRESS_ERROR_LEN 512

struct address {
	struct sockaddr_storage socket;
	socklen_t len;
	char host[ADDRESS_TEXT_LEN]; /* as written, without brackets */
};

/*
 * Parses an address.
 *
 * default_port: used if text has none; 0: a port is required. resolve: look up names, which may
 * take seconds; otherwise only numeric addresses are valid. error: ADDRESS_ERROR_LEN bytes. Returns
 * 0 with *address set, or -EINVAL with the error filled in.
 */
int address_parse(const char *text, uint16_t default_port, bool resolve, struct address *address,
		  char *error);

/* True for a loopback address: only this machine can reach it. */
bool address_is_loopback(const struct address *address);

/* Returns the port, host order. */
uint16_t address_port(const struct address *address);
void address_set_port(struct address *address, uint16_t port);

#endif
