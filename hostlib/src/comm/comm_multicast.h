/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses how the broadcasts and allgathers of a communicator go. */
#ifndef FANIN_HOSTLIB_COMM_MULTICAST_H
#define FANIN_HOSTLIB_COMM_MULTICAST_H

#include "hostlib/src/base/error.h"
#include "hostlib/src/request/request.h"

struct fanin_comm_multicast {
	bool is_open; /* the job for multicast may still be joined */
	uint32_t use; /* enum fanin_multicast_use */
	char reason[FANIN_TEXT_LEN];
};

/*
 * Joins the job beside a communicator's for broadcasts and allgathers, if the options require one;
 * otherwise the first collective that is faster with it joins it. The communicator belongs to its
 * context already.
 *
 * options: as given to fanin_join, with defaults. Returns FANIN_OK, also if there is no such job
 * and none is required, or the reason why there is none.
 */
int fanin_comm_multicast_begin(struct fanin_comm *comm, const struct fanin_join_opts *options,
			       struct fanin_error *error);

/*
 * Called before a blocking call with this request, which has its layout: joins the other job, once,
 * if the request is faster with it.
 */
int fanin_comm_multicast_prepare(struct fanin_comm *comm, const struct fanin_request *request,
				 struct fanin_error *error);

/*
 * Returns the communicator that carries out a collective: this one, or the one beside it. The same
 * at all ranks.
 *
 * request: with its layout.
 */
struct fanin_comm *fanin_comm_for(struct fanin_comm *comm, const struct fanin_request *request);

/*
 * Handles the failure of a communicator beside another one. If it carries that one's broadcasts,
 * that one fails with its error: some ranks may know of the failure and others not yet, so they
 * would no longer agree on which collectives go by multicast. Called with the lock held; may be
 * called repeatedly.
 */
void fanin_comm_multicast_failed(struct fanin_comm *multicast, int status);

#endif
