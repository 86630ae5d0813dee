/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leaving together. A rank that has all results must not leave while another rank whose run was
 * lost may need one (docs/protocol.md, "Going on with another tree"). So all ranks meet in a block
 * without elements; a rank that sends it has all results. Nothing is done where that is impossible,
 * or if requests are in progress, or if there never were any.
 */
#ifndef FANIN_HOSTLIB_COMM_CLOSE_H
#define FANIN_HOSTLIB_COMM_CLOSE_H

#include "hostlib/src/request/request.h"

struct fanin_closing {
	struct fanin_request request;
	bool has_begun;
	uint64_t timeout_ns; /* the options' */
};

/*
 * The first call posts the blocks, and the second one waits for them, until the timeout at most,
 * even if ranks are merely late; their absence is not an error of the caller. The communicator
 * still belongs to its context.
 */
void fanin_comm_close_begin(struct fanin_comm *comm);
void fanin_comm_close_wait(struct fanin_comm *comm);

/* This one and those beside it are left without waiting. */
void fanin_comm_close_skip(struct fanin_comm *comm);

#endif
