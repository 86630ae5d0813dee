/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts: the common state of their communicators, the lock, and the loop that waits for them. */
#ifndef FANIN_HOSTLIB_CONTEXT_H
#define FANIN_HOSTLIB_CONTEXT_H

#include <pthread.h>

#include "hostlib/src/base/clock.h"
#include "hostlib/src/base/error.h"
#include "hostlib/src/base/options.h"
#include "hostlib/src/transport/transport.h"
#include "progress.h"

/*
 * Maximum of communicators' descriptors that a context can sleep on; with more, it does not sleep.
 */
#define FANIN_CTX_MAX_FDS (16 * FANIN_TRANSPORT_MAX_FDS)

struct fanin_ctx {
	struct fanin_log log; /* one line at a time; any thread */
	fanin_print_fn print; /* the user's, NULL: silent */
	void *print_arg;
	pthread_mutex_t print_lock;
	char transport[16];      /* name, as in the options */
	bool background;         /* as in the options: a thread makes progress, too */
	uint32_t receive_buffer; /* requested by each UDP socket, bytes */
	/* The progress thread, and the lock of the fields below; NULL: there is none. */
	struct fanin_progress *progress;
	fanin_interrupt_fn interrupt;
	void *interrupt_arg;
	uint64_t interrupt_next_ns;
	uint32_t interrupt_asked; /* fanin_ctx_interrupt was called. Atomic */
	int interrupt_fd;         /* readable then; -1: there is none */
	uint64_t sleeps;          /* waits in the kernel, for a frame or a timer */
	uint64_t yields;          /* yields of the core before them */
	struct fanin_error error; /* of public calls; the thread does not touch it */
	struct fanin_comm *comms;
};

/* Locks for public calls: keeps out the progress thread, if there is one. May be nested. */
static inline void
fanin_ctx_lock(struct fanin_ctx *ctx)
{
	if (__builtin_expect(ctx->progress != NULL, 0))
		fanin_progress_lock(ctx->progress);
}

static inline void
fanin_ctx_unlock(struct fanin_ctx *ctx)
{
	if (__builtin_expect(ctx->progress != NULL, 0))
		fanin_progress_unlock(ctx->progress);
}

/* Makes the thread check again for what it waits. With the lock held. */
static inline void
fanin_ctx_wake(struct fanin_ctx *ctx)
{
	if (__builtin_expect(ctx->progress != NULL, 0))
		fanin_progress_wake(ctx->progress);
}

/*
 * Wakes the thread after a caller's own poll, which has changed what to wait for: the thread sleeps
 * on the old descriptors, and the interrupt of shared memory may be off. Does nothing if there is
 * nothing to wait for.
 */
void fanin_ctx_polled(struct fanin_ctx *ctx);

/*
 * Adds a communicator that has joined to its context, and starts the progress thread if the context
 * or the protocol wants one. Called without the lock.
 *
 * Returns FANIN_OK, or what fanin_progress_start returns; then nothing has changed.
 */
int fanin_ctx_attach(struct fanin_ctx *ctx, struct fanin_comm *comm, struct fanin_error *error);

/*
 * Removes a communicator from its context, if it is there. With the lock held, and the thread
 * paused if descriptors are closed next.
 */
void fanin_ctx_detach(struct fanin_ctx *ctx, const struct fanin_comm *comm);

/*
 * Fills in the descriptors and events of all communicators for poll().
 *
 * fds: FANIN_CTX_MAX_FDS entries. sleep_ns: receives the longest time to sleep, 50 ms at most.
 * Returns how many entries are used.
 */
unsigned int fanin_ctx_poll_fds(struct fanin_ctx *ctx, struct pollfd *fds, uint64_t *sleep_ns);

/*
 * Reads pending socket errors, which would otherwise keep poll() from sleeping. fds: as returned by
 * poll().
 */
void fanin_ctx_clear_errors(const struct pollfd *fds, unsigned int n);

/*
 * Polls every communicator once.
 *
 * status: if not NULL, receives the last failure, or FANIN_OK. Returns the frames received.
 */
unsigned int fanin_ctx_poll(struct fanin_ctx *ctx, int *status);

/*
 * Polls until the request is no longer in progress. Returns its status; FANIN_ERR_INTERRUPTED; or
 * FANIN_IN_PROGRESS after the deadline, once nothing comes in any more. deadline_ns: on the clock
 * of fanin_now_ns; UINT64_MAX: none.
 */
int fanin_ctx_wait(struct fanin_ctx *ctx, const struct fanin_request *request,
		   uint64_t deadline_ns);

#endif
