/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of a job with several ranks on a host (docs/local.md): the ranks of each host reduce
 * in shared memory, and the leader of each host takes part in a job of hosts. A protocol like those
 * in the network, whose endpoint is made by fanin_local_open. One thread at a time.
 */
#ifndef FANIN_HOSTLIB_LOCAL_LOCAL_H
#define FANIN_HOSTLIB_LOCAL_LOCAL_H

#include "hostlib/src/protocol/protocol.h"
#include "meeting.h"

/* The placement of a job's ranks on hosts. */
struct fanin_local_layout {
	uint16_t rank, size;
	uint16_t host; /* this rank's */
	uint16_t n_hosts;
	uint16_t most;        /* ranks of the host that has most */
	bool in_row;          /* ranks of each host are consecutive */
	uint16_t *host_of;    /* of each rank */
	uint16_t *place_of;   /* of each rank among those of its host */
	uint16_t *neighbors;  /* ranks of this host, ascending */
	uint16_t n_neighbors; /* with this one */
	uint8_t isa;          /* enum fanin_isa of the kernels */
};

/*
 * Makes the layout. hosts: of each rank, numbered in the order of their lowest ranks. Returns
 * FANIN_OK, FANIN_ERR_INVALID with an error that names the wrong entry, or FANIN_ERR_NO_MEMORY.
 */
int fanin_local_layout_make(struct fanin_local_layout *layout, const uint16_t *hosts, uint16_t rank,
			    uint16_t size, struct fanin_error *error);
void fanin_local_layout_free(struct fanin_local_layout *layout);

/* The job of hosts, as the leader's endpoint uses it. Not called at other ranks. */
struct fanin_local_network {
	/* Posts a request, whose rank is the host. Returns FANIN_OK or a negative status. */
	int (*post)(void *arg, struct fanin_request *request, uint64_t count);
	/* Fails the job with all its requests: other hosts must learn that a rank has failed. */
	void (*abort)(void *arg, int status, const struct fanin_error *error);
	/* Returns the job's failure; an empty text if it has not failed. */
	const struct fanin_error *(*error)(void *arg);
	/* Fills in the hosts that the job waits for. */
	void (*missing)(void *arg, struct fanin_ranks *hosts);
	/* Fills in a report. */
	void (*report)(void *arg, struct fanin_report *report);
	void *arg;
};

struct fanin_local_config {
	struct fanin_local_layout layout;   /* the endpoint's from now on */
	struct fanin_local_meeting meeting; /* likewise */
	struct fanin_local_network network; /* without `post`: there is one host, or this rank does
					       not lead */
	uint64_t wait_limit_ns;             /* longest wait for late ranks; 0: none */
};

/* The second one has sparse allreduces. */
extern const struct fanin_protocol fanin_local_protocol;
extern const struct fanin_protocol fanin_local_sparse_protocol;

/*
 * Makes the endpoint of a rank whose host's leader has joined. Returns FANIN_OK, or
 * FANIN_ERR_NO_MEMORY, and layout and meeting are still the caller's.
 */
int fanin_local_open(const struct fanin_local_config *config, struct fanin_endpoint **endpoint,
		     struct fanin_error *error);

/*
 * Writes a failure into the memory, for all ranks of the host, unless there is one, and wakes them.
 */
void fanin_local_tell(struct fanin_local_meeting *meeting, int status,
		      const struct fanin_error *error);

/* Returns the failure that a rank of the host has written, or FANIN_OK. */
int fanin_local_told(const struct fanin_local_meeting *meeting, struct fanin_error *error);

/*
 * Called before this rank leaves: if collectives are under way, they fail at all ranks. The job of
 * hosts may be left afterwards, and the endpoint closed.
 */
void fanin_local_end(struct fanin_endpoint *endpoint);

/* Returns the ranks of a set of hosts. */
struct fanin_ranks fanin_local_ranks_of(const struct fanin_local_layout *layout,
					const struct fanin_ranks *hosts);

/*
 * Makes an error about ranks of one about hosts, which are the ranks of their job. Returns status.
 */
int fanin_local_error_of(const struct fanin_local_layout *layout, int status,
			 const struct fanin_error *hosts, struct fanin_error *error);

#endif
