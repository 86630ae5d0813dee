/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel's state of an interface, by the interface's number: another interface may have the
 * name by now. Any thread.
 */
#ifndef FANIN_SWITCH_KERNEL_LINK_H
#define FANIN_SWITCH_KERNEL_LINK_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

struct kernel_link {
	char name[IF_NAMESIZE];
	unsigned int flags; /* IFF_* */
	uint32_t mtu;
	/* number of the bridge or bond that the interface is a port of; 0: none */
	uint32_t master;
	uint32_t promiscuity; /* number of users that want promiscuous mode */
	uint32_t program;     /* id of its XDP program; 0: none */
};

/*
 * Reads the state of an interface. Waits for the kernel's lock on interfaces. Returns 0 with *link
 * filled; -ENODEV: this network namespace has no such interface; or another -errno.
 */
int kernel_link_read(unsigned int index, struct kernel_link *link);

/* True if the interface is set up and has a carrier. */
static inline bool
kernel_link_is_up(const struct kernel_link *link)
{
	return (link->flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
}

#endif
