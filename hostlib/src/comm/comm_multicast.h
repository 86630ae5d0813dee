/* SPDX-License-Identifier: BSD-3-Clause */
/* By which way the broadcasts and allgathers of a communicator go. */
#ifndef FANIN_HOSTLIB_COMM_MULTICAST_H
#define FANIN_HOSTLIB_COMM_MULTICAST_H

#include "hostlib/src/base/error.h"
#include "hostlib/src/request/request.h"

struct fanin_comm_multicast {
	bool is_open; /* the job for them may still be joined */
	uint32_t use; /* enum fanin_multicast_use */
	char reason[FANIN_TEXT_LEN];
};

/*
 * Joins the job that is beside a communicator's for broadcasts and allgathers, if the options say
 * that there has to be one; else the first collective that is better off with it does. The
 * communicator is its context's already.
 *
 * options: as given to fanin_join, with defaults. Returns FANIN_OK, also if there is none and there
 * need not be, or the reason why there is none.
 */
int fanin_comm_multicast_begin(struct fanin_comm *comm, const struct fanin_join_opts *options,
			       struct fanin_error *error);

/*
 * Before a blocking call with this request, which has its layout: joins the other job, once, if the
 * request is better off with it.
 */
int fanin_comm_multicast_prepare(struct fanin_comm *comm, const struct fanin_request *request,
				 struct fanin_error *error);

/*
 * Returns the communicator that carries a collective out: this one, or the one beside it. The same
 * at all ranks.
 *
 * request: with its layout.
 */
struct fanin_comm *fanin_comm_for(struct fanin_comm *comm, const struct fanin_request *request);

/*
 * A communicator beside another one has failed. If it carries that one's broadcasts, that fails
 * with its error: some of its ranks may know of the failure and others not yet, so that they would
 * not agree any more what goes by multicast. Called with the lock held; again and again without
 * harm.
 */
void fanin_comm_multicast_failed(struct fanin_comm *multicast, int status);

#endif
