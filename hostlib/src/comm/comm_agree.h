/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement of a communicator's ranks, on the density of a sparse request: the request and those
 * behind it wait for that before they are posted.
 */
#ifndef FANIN_HOSTLIB_COMM_AGREE_H
#define FANIN_HOSTLIB_COMM_AGREE_H

#include "hostlib/src/request/request.h"

struct fanin_agreement {
	bool is_open;                   /* there are requests that wait */
	struct fanin_request_list held; /* these; the first one for the agreement */
	struct fanin_request request;
	uint64_t data[3];      /* the request's */
	uint64_t maybe_sparse; /* as struct fanin_report has them */
	uint64_t maybe_sparse_taken;
};

/*
 * Takes a request that can't be posted yet: a sparse one, whose blocks depend on the largest
 * density of all ranks, or one behind such a one, as block numbers have to be the same at all
 * ranks. The first one has the ranks agree. count: as for post.
 *
 * Returns FANIN_OK, the request then being in progress, or what the protocol's post does.
 */
int fanin_comm_hold(struct fanin_comm *comm, struct fanin_request *request, uint64_t count);

/*
 * True if a request depends on what the ranks have yet to agree on. The same at all ranks, whenever
 * it is asked.
 */
bool fanin_comm_must_agree(const struct fanin_comm *comm, const struct fanin_request *request);

/* After a poll: posts what has waited long enough. Returns true if something was posted. */
bool fanin_comm_agree(struct fanin_comm *comm);

#endif
