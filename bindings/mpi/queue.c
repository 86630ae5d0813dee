/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The nonblocking calls of a communicator with a job. A thread carries them out in the program's
 * order, while the program computes. The request of each is a generalized request of MPI, which all
 * MPI calls accept. Calls that can be posted are in progress together. Blocking calls of the
 * communicator wait until the queue is empty, so that one thread at a time carries out its
 * collectives, and no lock is held during a wait.
 */
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
/* Maximum of collectives in progress in the network. */
#define MAX_POSTED 16

/* A nonblocking call. Its request and its queue hold it. */
struct entry {
	struct collective call;
	struct operation operation;
	MPI_Request req;
	bool owns_type, owns_send_type;
	bool errors_are_fatal;
	uint32_t n_holders; /* atomic */
	int error;          /* the request's error when it completes */
	int status;
	fanin_request *posted;   /* NULL: it could not be posted */
	struct entry *next;      /* in its queue */
	struct entry *next_open; /* of all queues */
};

/*
 * Entries of all queues that are not complete. The pointer to the first one is the only part that
 * is read without the lock.
 */
static struct entry *open_entries;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

struct queue {
	struct comm_state *state;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t added;
	struct entry *first, **last;
	bool ends;
	bool held;       /* a blocking call uses the channel */
	uint32_t n_open; /* entries that are not complete; atomic */
	/* Only the queue's thread uses these: entries that are posted, oldest first. */
	struct entry *posted[MAX_POSTED];
	unsigned int n_posted;
};

/* Called by MPI when the program waits for the request or tests it. */
static int
entry_query(void *entry, MPI_Status *status)
{
	const struct entry *done = entry;

	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = MPI_UNDEFINED;
	status->MPI_TAG = MPI_UNDEFINED;
	status->MPI_ERROR = done->error;
	return done->error;
}

static int
entry_release(void *of_request)
{
	struct entry *entry = of_request;

	if (__atomic_sub_fetch(&entry->n_holders, 1, __ATOMIC_ACQ_REL) == 0)
		free(entry);
	return MPI_SUCCESS;
}

/* Collectives can't be cancelled. */
static int
entry_cancel(void *entry, int is_complete)
{
	(void)entry;
	(void)is_complete;
	return MPI_SUCCESS;
}

/* Copies a type: the program may free it while its call is in progress. */
static bool
type_keep(MPI_Datatype *type)
{
	if (*type == MPI_DATATYPE_NULL || type_plain_bytes(*type) != 0)
		return false;
	if (PMPI_Type_dup(*type, type) != MPI_SUCCESS)
		no_memory();
	return true;
}

static void
entry_open(struct entry *entry)
{
	pthread_mutex_lock(&open_lock);
	entry->next_open = open_entries;
	__atomic_store_n(&open_entries, entry, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&open_lock);
}

static void
entry_close(const struct entry *entry)
{
	struct entry **link;

	pthread_mutex_lock(&open_lock);
	for (link = &open_entries; *link != entry; link = &(*link)->next_open)
		;
	__atomic_store_n(link, entry->next_open, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&open_lock);
}

static void
entry_complete(struct queue *queue, struct entry *entry, int error)
{
	entry->error = error;
	if (error != MPI_SUCCESS && entry->errors_are_fatal && !states_give_up())
		PMPI_Abort(MPI_COMM_WORLD, error);
	if (entry->owns_type)
		PMPI_Type_free(&entry->call.type);
	if (entry->owns_send_type)
		PMPI_Type_free(&entry->call.send_type);
	PMPI_Grequest_complete(entry->req);
	entry_close(entry);
	entry_release(entry);
	__atomic_sub_fetch(&queue->n_open, 1, __ATOMIC_RELEASE);
}

bool
request_is_open(MPI_Request req)
{
	const struct entry *entry;

	if (__atomic_load_n(&open_entries, __ATOMIC_RELAXED) == NULL)
		return false;
	pthread_mutex_lock(&open_lock);
	for (entry = open_entries; entry != NULL && entry->req != req; entry = entry->next_open)
		;
	pthread_mutex_unlock(&open_lock);
	return entry != NULL;
}

/*
 * Waits for work, with the lock held. The program may compute for long, and the job is looked after
 * meanwhile.
 */
static void
queue_sleep(struct queue *queue)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += IDLE_NS;
	until.tv_sec += until.tv_nsec / NS_PER_SECOND;
	until.tv_nsec %= NS_PER_SECOND;
	if (pthread_cond_timedwait(&queue->added, &queue->lock, &until) == 0)
		return;
	if (queue->first == NULL && !queue->held && !queue->ends && queue->state->channel != NULL)
		fanin_progress(queue->state->channel->ctx);
}

/*
 * Returns the next entry, if it can begin before the posted ones are done. Sleeps if there is
 * nothing to do.
 */
static struct entry *
queue_next(struct queue *queue)
{
	struct comm_state *state = queue->state;
	struct entry *entry;

	pthread_mutex_lock(&queue->lock);
	while (queue->first == NULL && queue->n_posted == 0 && !queue->ends &&
	       !state_has_duty(state))
		queue_sleep(queue);
	entry = queue->first;
	if (state_phase(state) == PHASE_FAILED ||
	    (entry != NULL && queue->n_posted != 0 &&
	     (queue->n_posted == MAX_POSTED || queue->posted[queue->n_posted - 1]->posted == NULL ||
	      !collective_can_post(state, &entry->call, &entry->operation))))
		entry = NULL;
	if (entry != NULL) {
		queue->first = entry->next;
		if (queue->first == NULL)
			queue->last = &queue->first;
	}
	pthread_mutex_unlock(&queue->lock);
	return entry;
}

static void
entry_begin(struct queue *queue, struct entry *entry)
{
	struct comm_state *state = queue->state;

	state->in_background = true;
	state->ends_program = entry->errors_are_fatal;
	if (state_phase(state) != PHASE_IN_NETWORK ||
	    !collective_can_post(state, &entry->call, &entry->operation)) {
		entry_complete(queue, entry,
			       collective_carry_out(state, &entry->call, &entry->operation));
		return;
	}
	state->calls++;
	entry->status = collective_post(state, &entry->call, &entry->operation, &entry->posted);
	queue->posted[queue->n_posted++] = entry;
}

static void
entry_end(struct queue *queue, struct entry *entry)
{
	report_count(entry->call.kind, entry->status == FANIN_OK ? entry->operation.way : WAY_ERROR,
		     entry->operation.bytes);
	entry_complete(queue, entry, entry->status == FANIN_OK ? MPI_SUCCESS : MPI_ERR_OTHER);
}

/*
 * Waits for the oldest posted entry, but not for long: there may be others to post. After a failure
 * all posted entries end.
 */
static void
posted_wait(struct queue *queue)
{
	struct comm_state *state = queue->state;
	struct entry *entry = queue->posted[0];

	if (entry->posted != NULL)
		entry->status = channel_wait_some(state->channel, &entry->posted);
	if (entry->status == FANIN_IN_PROGRESS && states_give_up())
		entry->status = FANIN_ERR_INTERRUPTED;
	if (entry->status == FANIN_IN_PROGRESS)
		return;
	if (entry->status == FANIN_OK) {
		queue->n_posted--;
		for (unsigned int i = 0; i < queue->n_posted; i++)
			queue->posted[i] = queue->posted[i + 1];
		entry_end(queue, entry);
		return;
	}
	for (unsigned int i = 1; i < queue->n_posted; i++)
		if (queue->posted[i]->posted != NULL)
			queue->posted[i]->status = channel_wait_quietly(state->channel,
									&queue->posted[i]->posted);
	state_fail(state, entry->status, entry->errors_are_fatal);
	for (unsigned int i = 0; i < queue->n_posted; i++)
		entry_end(queue, queue->posted[i]);
	queue->n_posted = 0;
}

static void *
queue_run(void *arg)
{
	struct queue *queue = arg;
	struct comm_state *state = queue->state;
	struct entry *entry;

	for (;;) {
		entry = queue_next(queue);
		if (entry != NULL)
			entry_begin(queue, entry);
		else if (queue->n_posted != 0)
			posted_wait(queue);
		else if (state_has_duty(state))
			state_do_duty(state);
		else
			return NULL;
	}
}

struct queue *
queue_start(struct comm_state *state)
{
	struct queue *queue = calloc(1, sizeof(*queue));
	pthread_condattr_t clock;
	sigset_t all, before;
	int error;

	if (queue == NULL)
		return NULL;
	queue->state = state;
	queue->last = &queue->first;
	queue->held = true;
	pthread_mutex_init(&queue->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&queue->added, &clock);
	pthread_condattr_destroy(&clock);
	/* The program's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	error = pthread_create(&queue->thread, NULL, queue_run, queue);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error == 0)
		return queue;
	free(queue);
	return NULL;
}

void
queue_wake(struct queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	pthread_cond_signal(&queue->added);
	pthread_mutex_unlock(&queue->lock);
}

void
queue_end(struct queue *queue)
{
	if (queue == NULL)
		return;
	pthread_mutex_lock(&queue->lock);
	queue->ends = true;
	pthread_cond_signal(&queue->added);
	pthread_mutex_unlock(&queue->lock);
	queue_drain(queue);
	pthread_join(queue->thread, NULL);
	pthread_cond_destroy(&queue->added);
	pthread_mutex_destroy(&queue->lock);
	free(queue);
}

uint32_t
queue_open(const struct queue *queue)
{
	return queue == NULL ? 0 : __atomic_load_n(&queue->n_open, __ATOMIC_ACQUIRE);
}

void
queue_drain(struct queue *queue)
{
	unsigned int looks = 0;

	while (queue_open(queue) != 0) {
		mpi_progress();
		nap(looks++);
	}
}

static void
queue_set_held(struct queue *queue, bool held)
{
	pthread_mutex_lock(&queue->lock);
	queue->held = held;
	pthread_mutex_unlock(&queue->lock);
}

void
queue_hold(struct queue *queue)
{
	if (queue == NULL)
		return;
	queue_drain(queue);
	queue_set_held(queue, true);
}

void
queue_release(struct queue *queue)
{
	if (queue != NULL)
		queue_set_held(queue, false);
}

/*
 * True if an error ends the program. MPI does not associate these requests with a communicator, and
 * passes their errors to MPI_COMM_WORLD's handler.
 */
bool
errors_are_fatal(MPI_Comm comm)
{
	MPI_Errhandler handler;
	bool are_fatal;

	if (PMPI_Comm_get_errhandler(comm, &handler) != MPI_SUCCESS)
		return true;
	are_fatal = handler == MPI_ERRORS_ARE_FATAL;
	PMPI_Errhandler_free(&handler);
	return are_fatal;
}

void
queue_add(struct queue *queue, const struct collective *call, const struct operation *operation,
	  MPI_Request *req)
{
	struct entry *entry = malloc(sizeof(*entry));

	if (entry == NULL)
		no_memory();
	*entry = (struct entry){
		.call = *call, .operation = *operation, .error = MPI_ERR_OTHER, .n_holders = 2
	};
	if (PMPI_Grequest_start(entry_query, entry_release, entry_cancel, entry, &entry->req) !=
	    MPI_SUCCESS)
		no_memory();
	/* The program may free the communicator, too, before the call is done. */
	entry->call.comm = queue->state->shadow;
	entry->errors_are_fatal = errors_are_fatal(call->comm);
	if (call->kind != COLLECTIVE_BARRIER)
		entry->owns_type = type_keep(&entry->call.type);
	if (call->kind == COLLECTIVE_ALLGATHER && call->send != MPI_IN_PLACE)
		entry->owns_send_type = type_keep(&entry->call.send_type);
	*req = entry->req;
	entry_open(entry);
	__atomic_add_fetch(&queue->n_open, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&queue->lock);
	*queue->last = entry;
	queue->last = &entry->next;
	pthread_cond_signal(&queue->added);
	pthread_mutex_unlock(&queue->lock);
}
