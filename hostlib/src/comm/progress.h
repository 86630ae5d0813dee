/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress in the background: a thread of the library's that belongs to one context and sleeps in poll() until a frame comes or
 * a timer is due. There is one if the user asks for it, or if a protocol of the context's has duties to other ranks.
 *
 * Everything that a context's communicators consist of is under the context's lock, which costs a comparison where there is no
 * thread. Public calls hold it as long as they last, waiting included, so that whoever waits is not disturbed; only joining does
 * not, as what it works on is not yet the context's.
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
	pthread_mutex_t lock; /* recursive: a callback of the user's may look at a request's progress */
	pthread_cond_t changed;    /* of what follows */
	bool stop;                 /* callers: w, thread: r, under the lock */
	bool paused;               /* likewise */
	bool sleeping;             /* thread: w, callers: r, under the lock */
	uint32_t wanted;           /* callers that want the lock; atomic */
	int wake_fd;               /* ends the sleep */
	char text[FANIN_TEXT_LEN]; /* the callers': a copy of what the thread may write */
};

/*
 * Starts the context's thread, unless there is one. By the thread that calls the context, which must not hold the lock.
 *
 * Returns FANIN_OK, FANIN_ERR_NO_MEMORY or FANIN_ERR_SYSTEM with what was found in `error`.
 */
int fanin_progress_start(struct fanin_ctx *ctx, struct fanin_error *error);

/* Ends it, if there is one. By the thread that calls the context, which must not hold the lock. */
void fanin_progress_stop(struct fanin_ctx *ctx);

/*
 * Keeps the thread from making progress, and from sleeping on descriptors that are to be closed, until fanin_progress_resume. The
 * caller holds the lock, once. Nothing if there is no thread.
 */
void fanin_progress_pause(struct fanin_ctx *ctx);
void fanin_progress_resume(struct fanin_ctx *ctx);

/* What fanin_ctx_lock and its likes do if there is a thread. */
void fanin_progress_lock(struct fanin_progress *progress);
void fanin_progress_unlock(struct fanin_progress *progress);
void fanin_progress_wake(struct fanin_progress *progress);

#endif
