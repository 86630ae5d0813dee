/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of a port that is not a DPDK device. The opener of such a port owns it. The
 * pipeline only calls the burst functions, from the workers that have the queue.
 */
#ifndef FANIN_PIPELINE_PORT_DRIVER_H
#define FANIN_PIPELINE_PORT_DRIVER_H

#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

/* A driver's counters since the port was opened. */
struct port_driver_stats {
	uint64_t rx_missed;  /* frames dropped because no worker took them in time */
	uint64_t rx_errors;  /* frames dropped because they are longer than the port takes */
	uint64_t rx_refused; /* frames dropped because what is left to be done on them can't be
				passed on (offload.h) */
	uint64_t tx_errors;  /* frames that the device will never take; their bursts counted them as
				sent */
	/* Super-frames (offload.h), and the frames that they stand for. */
	uint64_t rx_super_frames;
	uint64_t rx_super_segments;
	uint64_t tx_super_frames;
	uint64_t tx_super_segments;
};

struct port_driver {
	const char *name;

	/* A queue's handle. queue: below the port's number of queues. Any thread. */
	void *(*queue)(void *port, uint16_t queue);

	/*
	 * Takes at most max frames off a queue; their mbufs carry the number that the port was
	 * opened with. Returns their number. Never blocks. One thread at a time.
	 */
	uint16_t (*rx_burst)(void *queue, struct rte_mbuf **mbufs, uint16_t max);

	/*
	 * Returns how many more frames rx_burst might have returned, summed over all calls that
	 * left some waiting. NULL: each call returns max frames, or all there are. Any thread.
	 */
	uint64_t (*rx_left)(const void *queue);

	/*
	 * A descriptor that is readable (POLLIN) once a queue has frames. NULL: the driver has
	 * none. Any thread.
	 */
	int (*wake_fd)(const void *queue);

	/*
	 * Sends frames, and frees their mbufs. Returns the number of frames that it took, from the
	 * first on; the others stay the caller's, which may offer them again. Never blocks. One
	 * thread at a time, which need not be rx_burst's.
	 */
	uint16_t (*tx_burst)(void *queue, struct rte_mbuf **mbufs, uint16_t n);

	/* Main thread. */
	void (*stats)(void *port, struct port_driver_stats *stats);
	void (*mac)(const void *port, struct rte_ether_addr *mac);

	/* No worker may use the port any more. Main thread. */
	void (*close)(void *port);
};

/* The numbers of such ports, used in place of DPDK port ids, begin here. */
#define PORT_DRIVER_FIRST RTE_MAX_ETHPORTS

#endif
