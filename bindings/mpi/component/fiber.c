/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker is a fiber: it has a stack of its own, and runs in whichever thread drives Open MPI's
 * progress, until it waits. Only one fiber runs at a time. Where a thread would block, a fiber says
 * what it waits for, and the progress engine goes on with other work; so the code that carries out
 * a collective in several steps is the same for threads and for fibers.
 *
 * Open MPI calls workers_look only while some worker is awake.
 */
#include "component.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <opal/runtime/opal_progress.h>

/*
 * Looks of a waiting thread without an event before it naps between looks, and the length of the
 * naps, if Open MPI was told that there are more processes than cores.
 */
#define QUIET_LOOKS 50
/* Looks before it leaves the core to others for a moment at each. */
#define BUSY_LOOKS 4
#define NAP_NS 20000

/* Room for MPI's own functions; the page below is not accessible. */
#define STACK_BYTES ((size_t)256 << 10)

/* Open MPI's parameter mpi_yield_when_idle. The headers of 4.1 lack it. */
extern bool ompi_mpi_yield_when_idle;

struct worker {
	ucontext_t context, caller;
	void *(*run)(void *);
	void *arg;
	uint8_t *stack;
	bool (*is_ready)(void *); /* NULL: waits only to be woken */
	void *ready_arg;
	bool is_woken; /* atomic */
	bool has_ended;
	struct worker *next;
};

/* Who has this lock runs fibers. */
static pthread_mutex_t run_lock = PTHREAD_MUTEX_INITIALIZER;
static struct worker *workers; /* under run_lock */
/* Events: workers that went on, packets that came; atomic. */
static uint32_t n_events;
/* Whether Open MPI calls workers_look. */
static pthread_mutex_t call_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_called;
/* The fiber that runs in this thread. */
static __thread __attribute__((tls_model("initial-exec"))) struct worker *current;

/* The result is not kept over a switch: the thread may be another one afterwards. */
static __attribute__((noinline)) struct worker *
worker_current(void)
{
	return current;
}

static __attribute__((noinline)) void
worker_set_current(struct worker *worker)
{
	current = worker;
}

/* The first function of a fiber. makecontext passes integers. */
static void
fiber_main(unsigned int high, unsigned int low)
{
	struct worker *worker = (struct worker *)(((uintptr_t)high << 32) | low);

	worker->run(worker->arg);
	worker->has_ended = true;
}

static bool
is_always_ready(void *arg)
{
	(void)arg;
	return true;
}

static bool
can_go_on(struct worker *worker)
{
	if (worker->has_ended)
		return false;
	if (worker->is_ready == is_always_ready)
		return true;
	if (!__atomic_exchange_n(&worker->is_woken, false, __ATOMIC_ACQ_REL) &&
	    (worker->is_ready == NULL || !worker->is_ready(worker->ready_arg)))
		return false;
	__atomic_fetch_add(&n_events, 1, __ATOMIC_RELAXED);
	return true;
}

static void
worker_go_on(struct worker *worker)
{
	worker_set_current(worker);
	swapcontext(&worker->caller, &worker->context);
	worker_set_current(NULL);
}

/* Called by a fiber: waits until it is woken, or until the condition holds. */
static void
fiber_wait(bool (*is_ready)(void *), void *arg)
{
	struct worker *worker = worker_current();

	worker->is_ready = is_ready;
	worker->ready_arg = arg;
	swapcontext(&worker->context, &worker->caller);
	worker->is_ready = NULL;
}

/* Makes Open MPI call workers_look, or not if all workers sleep. */
static void
calls_begin(void)
{
	pthread_mutex_lock(&call_lock);
	if (!is_called)
		opal_progress_register(workers_look);
	is_called = true;
	pthread_mutex_unlock(&call_lock);
}

static bool
some_are_awake(void)
{
	for (const struct worker *worker = workers; worker != NULL; worker = worker->next)
		if (!worker->has_ended && (worker->is_ready != NULL ||
					   __atomic_load_n(&worker->is_woken, __ATOMIC_ACQUIRE)))
			return true;
	return false;
}

static void
calls_end(void)
{
	pthread_mutex_lock(&call_lock);
	if (is_called && !some_are_awake()) {
		opal_progress_unregister(workers_look);
		is_called = false;
	}
	pthread_mutex_unlock(&call_lock);
}

int
workers_look(void)
{
	uint32_t before;
	int n = 0, n_gone_on = 0;

	if (pthread_mutex_trylock(&run_lock) != 0)
		return 0;
	before = __atomic_load_n(&n_events, __ATOMIC_RELAXED);
	for (struct worker *worker = workers; worker != NULL; worker = worker->next)
		if (can_go_on(worker)) {
			worker_go_on(worker);
			n_gone_on++;
		}
	if (n_gone_on != 0 && !some_are_awake())
		calls_end();
	n = (int)(__atomic_load_n(&n_events, __ATOMIC_RELAXED) - before);
	pthread_mutex_unlock(&run_lock);
	return n;
}

void
request_wait(ompi_request_t *req)
{
	const struct timespec pause = { .tv_nsec = NAP_NS };
	uint32_t events = 0;
	unsigned int looks = 0;

	while (!REQUEST_COMPLETE(req)) {
		const uint32_t now = __atomic_load_n(&n_events, __ATOMIC_RELAXED);

		looks = now == events ? looks + 1 : 0;
		events = now;
		opal_progress();
		if (looks > QUIET_LOOKS && ompi_mpi_yield_when_idle)
			nanosleep(&pause, NULL);
		else if (looks > BUSY_LOOKS)
			sched_yield();
	}
	opal_atomic_rmb();
}

bool
worker_is_wanted(void)
{
	return true;
}

bool
worker_start(void *(*run)(void *), void *arg, struct worker **started)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct worker *worker = calloc(1, sizeof(*worker));
	void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (worker == NULL || stack == MAP_FAILED || mprotect(stack, page, PROT_NONE) != 0 ||
	    getcontext(&worker->context) != 0) {
		if (stack != MAP_FAILED)
			munmap(stack, STACK_BYTES);
		free(worker);
		return false;
	}
	worker->run = run;
	worker->arg = arg;
	worker->stack = stack;
	worker->context.uc_stack.ss_sp = stack;
	worker->context.uc_stack.ss_size = STACK_BYTES;
	worker->context.uc_link = &worker->caller;
	makecontext(&worker->context, (void (*)(void))fiber_main, 2,
		    (unsigned int)((uintptr_t)worker >> 32), (unsigned int)(uintptr_t)worker);
	*started = worker;
	pthread_mutex_lock(&run_lock);
	worker->next = workers;
	workers = worker;
	pthread_mutex_unlock(&run_lock);
	worker_wake(worker);
	return true;
}

void
worker_wake(struct worker *worker)
{
	__atomic_store_n(&worker->is_woken, true, __ATOMIC_RELEASE);
	calls_begin();
}

bool
worker_sleep(struct worker *worker)
{
	(void)worker;
	fiber_wait(NULL, NULL);
	return true;
}

void
worker_join(struct worker *worker)
{
	struct worker **link;

	for (unsigned int looks = 0; !__atomic_load_n(&worker->has_ended, __ATOMIC_ACQUIRE);
	     looks++) {
		mpi_progress();
		nap(looks);
	}
	pthread_mutex_lock(&run_lock);
	for (link = &workers; *link != worker; link = &(*link)->next)
		;
	*link = worker->next;
	pthread_mutex_unlock(&run_lock);
	munmap(worker->stack, STACK_BYTES);
	free(worker);
}

/* ---- what the shared code waits for */

void
mpi_progress(void)
{
	if (worker_current() == NULL)
		messages_look();
}

void
nap(unsigned int looks)
{
	if (worker_current() != NULL)
		fiber_wait(is_always_ready, NULL);
	else
		thread_nap(looks);
}

static bool
mpi_is_complete(void *req)
{
	return REQUEST_COMPLETE((ompi_request_t *)req);
}

static bool
mpi_is_complete_or_given_up(void *req)
{
	return mpi_is_complete(req) || states_give_up();
}

static int
mpi_wait(MPI_Request *req, bool may_give_up)
{
	while (worker_current() != NULL && !mpi_is_complete(*req)) {
		if (may_give_up && states_give_up())
			return MPI_ERR_OTHER;
		fiber_wait(may_give_up ? mpi_is_complete_or_given_up : mpi_is_complete, *req);
	}
	return PMPI_Wait(req, MPI_STATUS_IGNORE);
}

int
mpi_finish(int posted, MPI_Request *req, bool in_background)
{
	(void)in_background;
	return posted == MPI_SUCCESS ? mpi_wait(req, true) : posted;
}

int
mpi_finish_surely(MPI_Request *req, bool in_background)
{
	(void)in_background;
	return mpi_wait(req, false);
}

/* A request of the network that a fiber waits for. */
struct network_wait {
	struct channel *channel;
	fanin_request *req;
};

/* Packets that come are events, too: a thread that waits does not leave its core to others. */
static bool
network_is_done(void *arg)
{
	const struct network_wait *wait = arg;

	if (fanin_progress(wait->channel->ctx) > 0)
		__atomic_fetch_add(&n_events, 1, __ATOMIC_RELAXED);
	return fanin_test(wait->req) != FANIN_IN_PROGRESS || states_give_up();
}

int
channel_wait_some(struct channel *channel, fanin_request **req)
{
	struct network_wait wait = { channel, *req };

	if (fanin_test(*req) == FANIN_IN_PROGRESS)
		fiber_wait(network_is_done, &wait);
	return fanin_test(*req) == FANIN_IN_PROGRESS ? FANIN_IN_PROGRESS : fanin_wait(req);
}

int
channel_wait(struct channel *channel, fanin_request **req)
{
	return channel_wait_quietly(channel, req);
}

/* A job that is left by a thread: leaving waits for other ranks. */
struct leave {
	struct channel *channel;
	bool at_once;
	bool is_done; /* atomic */
};

static void *
leave_run(void *arg)
{
	struct leave *leave = arg;

	channel_leave(leave->channel, leave->at_once);
	__atomic_store_n(&leave->is_done, true, __ATOMIC_RELEASE);
	return NULL;
}

static bool
leave_is_done(void *arg)
{
	return __atomic_load_n(&((struct leave *)arg)->is_done, __ATOMIC_ACQUIRE);
}

void
worker_leave(struct channel *channel, bool at_once)
{
	struct leave leave = { .channel = channel, .at_once = at_once };
	sigset_t all, before;
	pthread_t thread;
	int error = 1;

	if (channel == NULL)
		return;
	if (worker_current() != NULL) {
		/* The program's signals are for its own threads. */
		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, &before);
		error = pthread_create(&thread, NULL, leave_run, &leave);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	if (error != 0) {
		channel_leave(channel, at_once);
		return;
	}
	while (!leave_is_done(&leave))
		fiber_wait(leave_is_done, &leave);
	pthread_join(thread, NULL);
}
