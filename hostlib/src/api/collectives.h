/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions shared by the dense and the sparse calls. */
#ifndef FANIN_HOSTLIB_COLLECTIVES_H
#define FANIN_HOSTLIB_COLLECTIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fanin/fanin.h"
#include "hostlib/src/request/request.h"

/* True if two buffers have bytes in common. */
static inline bool
fanin_buffers_overlap(const void *a, uint64_t a_len, const void *b, uint64_t b_len)
{
	return a_len != 0 && b_len != 0 && (uintptr_t)a < (uintptr_t)b + b_len &&
	       (uintptr_t)b < (uintptr_t)a + a_len;
}

/*
 * Posts a request whose arguments are valid, with the context's lock.
 *
 * call: copied. count: as for the protocol's post. req: set on success only. Returns FANIN_OK, or a
 * negative status with the context's error set.
 */
int fanin_request_post(const struct fanin_request *call, size_t count, fanin_request **req);

/*
 * Turns a checked sum that may be sparse into a sparse allreduce, if the job supports one. The
 * sparse allreduce becomes a dense one again if it does not pay (comm_agree.c).
 *
 * call: has dtype, op, send and recv; gets `sparse`, which the caller frees if it can't be posted.
 * Returns FANIN_OK, or FANIN_ERR_NO_MEMORY with the context's error set.
 */
int fanin_vector_hint_take(struct fanin_request *call, size_t count);

/* Adds the request to its communicator's, which are freed with it. With the context's lock. */
void fanin_request_link(struct fanin_request *request);

#endif
