/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds whether super-frames of UDP can leave by a packet socket (see super_frame.h): the kernel
 * and the interface must both support them.
 */
#ifndef FANIN_SWITCH_SUPER_FRAME_KERNEL_H
#define FANIN_SWITCH_SUPER_FRAME_KERNEL_H

#include <stdbool.h>

enum super_frame_kernel {
	SUPER_FRAME_KERNEL_TAKES,
	SUPER_FRAME_KERNEL_REFUSES, /* before Linux 6.2; the kernel drops received ones as well */
	SUPER_FRAME_KERNEL_OLD,     /* the same, by the kernel's release: a test was impossible */
};

/*
 * Finds whether this kernel's packet sockets take super-frames of UDP. Sends one to the loopback
 * interface, where no program receives it; if that interface is down, the kernel's release decides.
 */
enum super_frame_kernel super_frame_kernel_probe(void);

/*
 * True if the interface takes super-frames of UDP as they are (ethtool's tx-udp-segmentation).
 * Otherwise the kernel splits them, and reports that the whole had no room if its last frame found
 * none, so it would be sent again and again. Turning checksums off also turns this off; so does an
 * XDP program at the other end of a veth. Waits for the kernel's lock on interfaces. Any thread.
 */
bool super_frame_interface_takes(const char *interface);

#endif
