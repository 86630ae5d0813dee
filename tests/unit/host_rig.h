/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hosts and their switch in the test's process: the hosts' engines exchange frames with the real
 * pipeline, for any handler and number of hosts. Each host is in each of the rig's jobs, with an
 * engine of its own that lives as long as the rig, so successive collectives use the same slots.
 * Only the rig moves the hosts' clock. One rig at a time.
 */
#ifndef FANIN_TESTS_UNIT_HOST_RIG_H
#define FANIN_TESTS_UNIT_HOST_RIG_H

#include "hostlib/src/engine/engine.h"
#include "tests/unit/memory_link.h"
#include "tests/unit/ring_switch.h"

#define HOST_RIG_HOSTS RING_SWITCH_MAX_PORTS
#define HOST_RIG_JOBS 2
#define HOST_RIG_LAYOUTS 3
#define HOST_RIG_WAITING 1024

struct host_rig_frame {
	size_t len;
	uint8_t data[MEMORY_LINK_FRAME];
};

/* A host in one job: its engine, and its link to the port that it shares with its other jobs. */
struct host {
	struct memory_link link; /* first: a pointer to it is one to the host */
	uint16_t rank;
	struct job *job;
	struct fanin_endpoint *engine;
	struct fanin_tagger *tagger;    /* of the engine; NULL: the jobs have no tags */
	struct host_rig_frame *waiting; /* frames received from the port for another job; a ring */
	uint32_t waiting_head;
	uint32_t waiting_tail;
};

struct host_rig_options {
	const struct fanin_handler *handler;
	uint16_t n_hosts;
	uint16_t n_jobs; /* 0: one */
	int layout;      /* of workers: 0 one, 1 two, 2 two that share blocks */
	const struct pipeline_faults *faults;
	bool late;         /* ranks may be so late that others query them again */
	bool wide;         /* the jobs accumulate in f32, for the pairs of fanin_operation_widens */
	bool impatient;    /* hosts wait for present ranks no longer than for ranks that are gone */
	bool authenticate; /* the jobs have tags */
};

struct host_rig {
	struct ring_switch sw;
	struct host hosts[HOST_RIG_JOBS][HOST_RIG_HOSTS];
	struct job *jobs[HOST_RIG_JOBS];
	struct fanin_tagger *tagger; /* of the switch's rig, which joins for the hosts; NULL: the
					jobs have no tags */
	uint16_t n_hosts;
	uint16_t n_jobs;
	bool wide;
	bool lossy;
	bool late;
	bool impatient;
	bool failed; /* set by a test in which collectives were not finished */
	uint64_t now_ns;
	uint32_t steps;
};

extern struct host_rig host_rig;

/*
 * Opens switch and engines and joins all jobs, whatever the faults do. Aborts the test on failure.
 */
void host_rig_open(const struct host_rig_options *options);

/* Polls every engine and runs every worker once. Each host is the first one at times. */
void host_rig_step(void);

/*
 * Closes everything, and checks that each block was reduced once and that nothing was sent again,
 * except because of faults.
 */
void host_rig_close(void);

/*
 * The handlers that reduce for hosts of the window protocol: one by its number, from 0, and how
 * many there are.
 */
const struct fanin_handler *host_rig_handler(int number);
int host_rig_handlers(void);

#endif
