/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker is a thread, which calls MPI beside the program's threads. */
#include "preload.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

/*
 * Interval at which a job without collectives is looked after: the manager may be gone, or back,
 * which takes several looks.
 */
#define IDLE_NS 100000000
#define NS_PER_SECOND 1000000000

struct worker {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t woken;
	bool is_woken;
};

bool
worker_is_wanted(void)
{
	return mpi_settings.nonblocking;
}

bool
worker_start(void *(*run)(void *), void *arg, struct worker **started)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	pthread_condattr_t clock;
	sigset_t all, before;
	int error;

	if (worker == NULL)
		return false;
	*started = worker;
	pthread_mutex_init(&worker->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&worker->woken, &clock);
	pthread_condattr_destroy(&clock);
	/* The program's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	error = pthread_create(&worker->thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error == 0)
		return true;
	free(worker);
	return false;
}

void
worker_wake(struct worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	worker->is_woken = true;
	pthread_cond_signal(&worker->woken);
	pthread_mutex_unlock(&worker->lock);
}

bool
worker_sleep(struct worker *worker)
{
	struct timespec until;
	bool woken;
	int error = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += IDLE_NS;
	until.tv_sec += until.tv_nsec / NS_PER_SECOND;
	until.tv_nsec %= NS_PER_SECOND;
	pthread_mutex_lock(&worker->lock);
	while (!worker->is_woken && error == 0)
		error = pthread_cond_timedwait(&worker->woken, &worker->lock, &until);
	woken = worker->is_woken;
	worker->is_woken = false;
	pthread_mutex_unlock(&worker->lock);
	return woken;
}

void
worker_join(struct worker *worker)
{
	pthread_join(worker->thread, NULL);
	pthread_cond_destroy(&worker->woken);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
}

void
worker_leave(struct channel *channel, bool at_once)
{
	channel_leave(channel, at_once);
}

int
collective_wait(struct comm_state *state, const struct collective *call,
		const struct operation *operation)
{
	int error;

	queue_hold(state->queue);
	state->in_background = false;
	error = collective_carry_out(state, call, operation);
	queue_release(state->queue);
	return error;
}
