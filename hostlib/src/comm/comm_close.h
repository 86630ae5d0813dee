/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leaving together. A rank that has all results must not leave while another rank whose run was
 * lost may need one (docs/protocol.md, "Going on with another tree"). So all ranks take part in a
 * block without elements; a rank that sends it has all results. Nothing is done if this is
 * impossible, if requests are in progress, or if there never were any.
 */
#ifndef FANIN_HOSTLIB_COMM_CLOSE_H
#define FANIN_HOSTLIB_COMM_CLOSE_H

#include "hostlib/src/request/request.h"

struct fanin_closing {
	struct fanin_request request;
	bool has_begun;
	uint64_t timeout_ns; /* from the options */
};

/*
 * The first call posts the blocks. The second one waits for them, until the timeout at most, even
 * if ranks are merely late; the absence of ranks is not an error of the caller. The communicator
 * still belongs to its context.
 */
void fanin_comm_close_begin(struct fanin_comm *comm);
void fanin_comm_close_wait(struct fanin_comm *comm);

/* Makes leaving skip the wait, for this communicator and those beside it. */
void fanin_comm_close_skip(struct fanin_comm *comm);

#endif
