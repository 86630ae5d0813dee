/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement of a communicator's ranks on the density of a sparse request. The request, and the
 * requests behind it, are posted after the agreement.
 */
#ifndef FANIN_HOSTLIB_COMM_AGREE_H
#define FANIN_HOSTLIB_COMM_AGREE_H

#include "hostlib/src/request/request.h"

struct fanin_agreement {
	bool is_open;                   /* some requests wait */
	struct fanin_request_list held; /* these requests; the first one waits for the agreement */
	struct fanin_request request;
	uint64_t data[3];      /* the agreement request's */
	uint64_t maybe_sparse; /* as in struct fanin_report */
	uint64_t maybe_sparse_taken;
};

/*
 * Takes a request that can't be posted yet: a sparse one, whose blocks depend on the largest
 * density of all ranks, or one behind such a request, as block numbers have to be the same at all
 * ranks. The first one makes the ranks agree. count: as for post.
 *
 * Returns FANIN_OK, the request then being in progress, or what the protocol's post does.
 */
int fanin_comm_hold(struct fanin_comm *comm, struct fanin_request *request, uint64_t count);

/* True if a request depends on an agreement of the ranks. The same at all ranks and at any time. */
bool fanin_comm_must_agree(const struct fanin_comm *comm, const struct fanin_request *request);

/*
 * To be called after a poll: posts the requests that no longer have to wait. Returns true if
 * something was posted.
 */
bool fanin_comm_agree(struct fanin_comm *comm);

#endif
