/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel counts of frames that it drops: at the interfaces and sockets of ports, and on
 * the whole machine. Main thread.
 */
#ifndef FANIN_SWITCH_KERNEL_COUNTERS_H
#define FANIN_SWITCH_KERNEL_COUNTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Frames that the kernel dropped at an interface, in the direction that the interface sees. */
struct kernel_drops {
	uint64_t rx;
	uint64_t tx;
};

/*
 * The table of this network namespace's interfaces, as text that the caller frees. NULL if it can't
 * be read.
 */
char *kernel_interfaces_read(void);

/* The drops of an interface in that text; zeroes without text or interface. */
struct kernel_drops kernel_interface_drops(const char *interfaces, const char *interface);

/*
 * Frames that the backlogs of all CPUs did not take (net.core.netdev_max_backlog). They are of the
 * whole machine: of all network namespaces, and of traffic that has nothing to do with the switch.
 */
uint64_t kernel_backlog_drops(void);

/* The AF_XDP sockets of this process, at most max of them. Returns their number. */
size_t kernel_xdp_sockets(int *fds, size_t max);

/*
 * True, once, if an AF_XDP socket has lost its interface, which was removed or has left the network
 * namespace.
 */
bool kernel_xdp_is_lost(int fd);

/*
 * Frames that an AF_XDP socket did not take because its ring was full or it had no buffer, or that
 * did not fit into one.
 */
uint64_t kernel_xdp_drops(int fd);

#endif
