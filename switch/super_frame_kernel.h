/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether super-frames of UDP can leave by a packet socket (see super_frame.h): what this kernel
 * and an interface say.
 */
#ifndef FANIN_SWITCH_SUPER_FRAME_KERNEL_H
#define FANIN_SWITCH_SUPER_FRAME_KERNEL_H

#include <stdbool.h>

enum super_frame_kernel {
	SUPER_FRAME_KERNEL_TAKES,
	SUPER_FRAME_KERNEL_REFUSES, /* before Linux 6.2; those that come in are dropped as well */
	SUPER_FRAME_KERNEL_OLD,     /* likewise, as its release has it: it could not be tried */
};

/*
 * Do packet sockets of this kernel take super-frames of UDP? One is sent to the loopback interface,
 * where nobody is meant; if that is down, the kernel's release tells.
 */
enum super_frame_kernel super_frame_kernel_probe(void);

/*
 * Does the interface take super-frames of UDP as they are (ethtool's tx-udp-segmentation)? For one
 * that does not, the kernel takes them apart, and says of the whole that there was no room if the
 * last of its frames found none: it would be sent again and again. Turning checksums off turns it
 * off, and so does a program for XDP at the other end of a veth. Waits for the kernel's lock on
 * interfaces. Any thread.
 */
bool super_frame_interface_takes(const char *interface);

#endif
