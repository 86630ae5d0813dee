/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Network interfaces: their driver and queues, and the rule by which switch and hosts choose
 * between AF_XDP and the kernel's own sockets. Each call asks the kernel anew, needs no rights, and
 * may be made by any thread.
 */
#ifndef FANIN_CONTROL_INTERFACE_INTERFACE_H
#define FANIN_CONTROL_INTERFACE_INTERFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INTERFACE_DRIVER_LEN 32
#define INTERFACE_WHY_LEN 128
/* The longest packet that AF_XDP takes: one page, less the headroom and the Ethernet header. */
#define INTERFACE_XDP_MAX_MTU 3474
/*
 * AF_XDP has a socket with its own memory for each receive queue; the rule opens no more than
 * these.
 */
#define INTERFACE_XDP_MAX_QUEUES 4

/* Runs a command of <linux/ethtool.h>. Returns false if the driver doesn't know it. */
bool interface_ethtool(const char *interface, void *command);

/*
 * Fills in the name of the interface's kernel driver, such as "veth" or "ice"; "unknown" if there
 * is none. driver: INTERFACE_DRIVER_LEN bytes.
 */
void interface_driver(const char *interface, char *driver);

/* Returns the receive queues in use, or 0 if the driver doesn't say. */
unsigned int interface_receive_queues(const char *interface);

/* True if a driver runs XDP programs itself (native XDP); AF_XDP is much slower with others. */
bool interface_driver_has_xdp(const char *driver);

/* True if a driver hands its packets to AF_XDP without copying them. */
bool interface_driver_has_zero_copy(const char *driver);

/*
 * The rule: AF_XDP if the driver has zero-copy, a packet fits and the queues are few; otherwise the
 * kernel's own sockets, whose super-frames AF_XDP doesn't have: packet sockets at the switch, UDP
 * sockets at hosts. mtu: bytes. queues: for receiving. combined: those that also send, which are
 * all that DPDK's driver serves. why: filled with the reason, INTERFACE_WHY_LEN bytes. Returns true
 * for AF_XDP. Makes no requests.
 */
bool interface_rule(const char *interface, const char *driver, unsigned int queues,
		    unsigned int combined, uint32_t mtu, char *why);

/* Applies the rule to an interface of this machine. */
bool interface_wants_xdp(const char *interface, uint32_t mtu, char *why);

#endif
