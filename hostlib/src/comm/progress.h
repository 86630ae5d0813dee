/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress in the background: a thread that belongs to one context and sleeps in poll() until a
 * frame comes or a timer is due. It exists if the user asks for it, or if a protocol of the context
 * must answer other ranks.
 *
 * The context's lock protects the state of its communicators; without a thread, taking it costs one
 * comparison. Public calls hold it until they return, waiting included, so that a caller that waits
 * is not disturbed. Only joining does not hold it, as its objects do not belong to the context yet.
 */
#ifndef FANIN_HOSTLIB_PROGRESS_H
#define FANIN_HOSTLIB_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "hostlib/src/base/error.h"

struct fanin_ctx;

struct fanin_progress {
	pthread_t thread;
	pthread_mutex_t lock;      /* recursive: a callback of the user's may ask for a request's
				      progress */
	pthread_cond_t changed;    /* signals changes of the fields below */
	bool stop;                 /* callers: w, thread: r, under the lock */
	bool paused;               /* likewise */
	bool sleeping;             /* thread: w, callers: r, under the lock */
	uint32_t wanted;           /* callers waiting for the lock; atomic */
	int wake_fd;               /* ends the sleep */
	char text[FANIN_TEXT_LEN]; /* for callers: copy of a text that the thread may overwrite */
};

/*
 * Starts the context's thread, unless it runs already. Called by the thread that calls the context,
 * without the lock.
 *
 * Returns FANIN_OK, FANIN_ERR_NO_MEMORY or FANIN_ERR_SYSTEM with `error` filled in.
 */
int fanin_progress_start(struct fanin_ctx *ctx, struct fanin_error *error);

/*
 * Stops the thread, if there is one. Called by the thread that calls the context, without the lock.
 */
void fanin_progress_stop(struct fanin_ctx *ctx);

/*
 * Keeps the thread from making progress, and from sleeping on descriptors that are about to be
 * closed, until fanin_progress_resume. The caller holds the lock, once. Does nothing without a
 * thread.
 */
void fanin_progress_pause(struct fanin_ctx *ctx);
void fanin_progress_resume(struct fanin_ctx *ctx);

/* The slow paths of fanin_ctx_lock and the others, used if there is a thread. */
void fanin_progress_lock(struct fanin_progress *progress);
void fanin_progress_unlock(struct fanin_progress *progress);
void fanin_progress_wake(struct fanin_progress *progress);

#endif
