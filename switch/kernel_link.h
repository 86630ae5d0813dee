/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel says of an interface, by its number: the name may be another interface's by now.
 * Any thread.
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
	uint32_t master;      /* number of the bridge or bond that it is a port of; 0: of none */
	uint32_t promiscuity; /* how many users want promiscuous mode */
	uint32_t program;     /* id of its XDP program; 0: there is none */
};

/*
 * Waits for the kernel's lock on interfaces. Returns 0 with *link filled; -ENODEV: this network
 * namespace has no such interface; or another -errno.
 */
int kernel_link_read(unsigned int index, struct kernel_link *link);

/* Is the interface set up, and does it have a carrier? */
static inline bool
kernel_link_is_up(const struct kernel_link *link)
{
	return (link->flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
}

#endif
