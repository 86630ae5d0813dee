/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel's counters of dropped frames: at interfaces and sockets of ports, and on the whole
 * machine. Main thread.
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
 * Returns the table of this network namespace's interfaces, as text that the caller frees, or NULL
 * if it can't be read.
 */
char *kernel_interfaces_read(void);

/* Returns the drops of an interface in that text; zeroes without text or interface. */
struct kernel_drops kernel_interface_drops(const char *interfaces, const char *interface);

/*
 * Returns the frames that the backlogs of all CPUs did not take (net.core.netdev_max_backlog). The
 * count covers the whole machine: all network namespaces, and traffic unrelated to the switch.
 */
uint64_t kernel_backlog_drops(void);

/* Lists the AF_XDP sockets of this process, at most max of them. Returns their number. */
size_t kernel_xdp_sockets(int *fds, size_t max);

/*
 * Returns true, once, if an AF_XDP socket has lost its interface because the interface was removed
 * or left the network namespace.
 */
bool kernel_xdp_is_lost(int fd);

/*
 * Returns the frames that an AF_XDP socket did not take because its ring was full, it had no
 * buffer, or the frame did not fit into one.
 */
uint64_t kernel_xdp_drops(int fd);

#endif
