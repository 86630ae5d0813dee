/* SPDX-License-Identifier: BSD-3-Clause */
/* See progress.h. */
#include "progress.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "comm.h"

void
fanin_progress_lock(struct fanin_progress *progress)
{
	__atomic_add_fetch(&progress->wanted, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&progress->lock);
	__atomic_sub_fetch(&progress->wanted, 1, __ATOMIC_RELAXED);
}

void
fanin_progress_unlock(struct fanin_progress *progress)
{
	pthread_mutex_unlock(&progress->lock);
}

void
fanin_progress_wake(struct fanin_progress *progress)
{
	if (progress->sleeping)
		eventfd_write(progress->wake_fd, 1);
}

/*
 * Lets callers take the lock: a mutex goes to the first thread that asks, and this thread would
 * always be first.
 */
static void
lock_yield(struct fanin_ctx *ctx)
{
	struct fanin_progress *progress = ctx->progress;
	uint64_t yields = 0;

	pthread_mutex_unlock(&progress->lock);
	for (; __atomic_load_n(&progress->wanted, __ATOMIC_RELAXED) != 0; yields++)
		sched_yield();
	pthread_mutex_lock(&progress->lock);
	ctx->yields += yields;
}

/* Sleeps without the lock until a frame comes in, a timer is due or a caller wakes the thread. */
static void
progress_sleep(struct fanin_ctx *ctx)
{
	struct fanin_progress *progress = ctx->progress;
	struct pollfd fds[FANIN_CTX_MAX_FDS + 1];
	struct timespec timeout = { 0 };
	uint64_t sleep_ns;
	unsigned int n = fanin_ctx_poll_fds(ctx, fds, &sleep_ns);
	uint64_t yields = 0;
	bool errors = false;
	eventfd_t ignored;

	timeout.tv_nsec = (long)sleep_ns;
	fds[n] = (struct pollfd){ .fd = progress->wake_fd, .events = POLLIN };
	progress->sleeping = true;
	ctx->sleeps++;
	pthread_mutex_unlock(&progress->lock);
	if (ppoll(fds, n + 1, &timeout, NULL) > 0) {
		for (unsigned int i = 0; i < n; i++)
			errors = errors || (fds[i].revents & POLLERR) != 0;
		if (fds[n].revents != 0)
			eventfd_read(progress->wake_fd, &ignored);
	}
	for (; __atomic_load_n(&progress->wanted, __ATOMIC_RELAXED) != 0; yields++)
		sched_yield();
	pthread_mutex_lock(&progress->lock);
	ctx->yields += yields;
	progress->sleeping = false;
	if (!errors)
		return;
	/* Meanwhile a descriptor may have been closed and its number reused. */
	n = fanin_ctx_poll_fds(ctx, fds, &sleep_ns);
	if (poll(fds, n, 0) > 0)
		fanin_ctx_clear_errors(fds, n);
}

static void *
progress_run(void *arg)
{
	struct fanin_ctx *ctx = arg;
	struct fanin_progress *progress = ctx->progress;

	pthread_mutex_lock(&progress->lock);
	while (!progress->stop) {
		if (progress->paused) {
			pthread_cond_broadcast(&progress->changed);
			pthread_cond_wait(&progress->changed, &progress->lock);
		} else if (fanin_ctx_poll(ctx, NULL) != 0) {
			lock_yield(ctx);
		} else {
			progress_sleep(ctx);
		}
	}
	pthread_mutex_unlock(&progress->lock);
	return NULL;
}

static void
progress_free(struct fanin_progress *progress)
{
	close(progress->wake_fd);
	pthread_cond_destroy(&progress->changed);
	pthread_mutex_destroy(&progress->lock);
	free(progress);
}

/*
 * Starts the thread with all signals blocked except those of faults. Other signals are meant for
 * the application's threads, whose waits they end. A fault's signal goes to the thread that caused
 * it, and the application's handler must see it: an application may free a buffer that is in use.
 * Returns 0 or an errno.
 */
static int
thread_create(struct fanin_ctx *ctx)
{
	sigset_t all, before;
	int errnum;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	errnum = pthread_create(&ctx->progress->thread, NULL, progress_run, ctx);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (errnum == 0)
		pthread_setname_np(ctx->progress->thread, "fanin-progress");
	return errnum;
}

int
fanin_progress_start(struct fanin_ctx *ctx, struct fanin_error *error)
{
	struct fanin_progress *progress;
	pthread_mutexattr_t recursive;
	int errnum;

	if (ctx->progress != NULL)
		return FANIN_OK;
	progress = calloc(1, sizeof(*progress));
	if (progress == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	progress->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (progress->wake_fd < 0) {
		free(progress);
		return fanin_error_set(error, FANIN_ERR_SYSTEM,
				       "no eventfd for the progress thread: %s", strerror(errno));
	}
	pthread_mutexattr_init(&recursive);
	pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&progress->lock, &recursive);
	pthread_mutexattr_destroy(&recursive);
	pthread_cond_init(&progress->changed, NULL);
	ctx->progress = progress;
	errnum = thread_create(ctx);
	if (errnum == 0)
		return FANIN_OK;
	ctx->progress = NULL;
	progress_free(progress);
	return fanin_error_set(error, FANIN_ERR_SYSTEM, "the progress thread can't be started: %s",
			       strerror(errnum));
}

void
fanin_progress_stop(struct fanin_ctx *ctx)
{
	struct fanin_progress *progress = ctx->progress;

	if (progress == NULL)
		return;
	fanin_progress_lock(progress);
	progress->stop = true;
	pthread_cond_broadcast(&progress->changed);
	fanin_progress_wake(progress);
	fanin_progress_unlock(progress);
	pthread_join(progress->thread, NULL);
	ctx->progress = NULL;
	progress_free(progress);
}

void
fanin_progress_pause(struct fanin_ctx *ctx)
{
	struct fanin_progress *progress = ctx->progress;

	if (progress == NULL)
		return;
	progress->paused = true;
	fanin_progress_wake(progress);
	while (progress->sleeping)
		pthread_cond_wait(&progress->changed, &progress->lock);
}

void
fanin_progress_resume(struct fanin_ctx *ctx)
{
	struct fanin_progress *progress = ctx->progress;

	if (progress == NULL)
		return;
	progress->paused = false;
	pthread_cond_broadcast(&progress->changed);
}
