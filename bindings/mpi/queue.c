/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of a communicator with a job that its worker carries out, in the program's order, while
 * the program computes. Calls that can be posted are in progress together. In the library to
 * preload these are the nonblocking calls: its blocking calls wait until the queue is empty, so
 * that one thread at a time carries out a communicator's collectives, and no lock is held during a
 * wait. In Open MPI's component these are all calls.
 */
#include "core.h"

#include <pthread.h>
#include <stdlib.h>

/* Maximum of collectives in progress in the network. */
#define MAX_POSTED 16

/* A call. */
struct entry {
	struct collective call;
	struct operation operation;
	struct own_request *request;
	bool owns_type, owns_send_type;
	bool errors_are_fatal;
	int status;
	fanin_request *posted; /* NULL: it could not be posted */
	struct entry *next;
};

struct queue {
	struct comm_state *state;
	struct worker *worker;
	pthread_mutex_t lock;
	struct entry *first, **last;
	bool ends;
	bool held;       /* a blocking call uses the channel */
	uint32_t n_open; /* entries that are not complete; atomic */
	/* Only the queue's worker uses these: entries that are posted, oldest first. */
	struct entry *posted[MAX_POSTED];
	unsigned int n_posted;
};

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
entry_complete(struct queue *queue, struct entry *entry, int error)
{
	struct own_request *request = entry->request;
	const bool is_fatal = entry->errors_are_fatal;

	if (entry->owns_type)
		PMPI_Type_free(&entry->call.type);
	if (entry->owns_send_type)
		PMPI_Type_free(&entry->call.send_type);
	free(entry);
	__atomic_sub_fetch(&queue->n_open, 1, __ATOMIC_RELEASE);
	request_complete(request, error, is_fatal);
}

/*
 * Waits for work, with the lock held. The program may compute for long, and the job is looked after
 * meanwhile.
 */
static void
queue_sleep(struct queue *queue)
{
	bool woken;

	pthread_mutex_unlock(&queue->lock);
	woken = worker_sleep(queue->worker);
	pthread_mutex_lock(&queue->lock);
	if (!woken && queue->first == NULL && !queue->held && !queue->ends &&
	    queue->state->channel != NULL)
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

	if (queue == NULL)
		return NULL;
	queue->state = state;
	queue->last = &queue->first;
	queue->held = true;
	pthread_mutex_init(&queue->lock, NULL);
	if (worker_start(queue_run, queue, &queue->worker))
		return queue;
	pthread_mutex_destroy(&queue->lock);
	free(queue);
	return NULL;
}

void
queue_wake(struct queue *queue)
{
	worker_wake(queue->worker);
}

void
queue_end(struct queue *queue)
{
	if (queue == NULL)
		return;
	pthread_mutex_lock(&queue->lock);
	queue->ends = true;
	pthread_mutex_unlock(&queue->lock);
	queue_wake(queue);
	queue_drain(queue);
	worker_join(queue->worker);
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
	*entry = (struct entry){ .call = *call,
				 .operation = *operation,
				 .errors_are_fatal = errors_are_fatal(call->comm) };
	entry->request = request_make(call->comm, req);
	if (entry->request == NULL)
		no_memory();
	/* The program may free the communicator, too, before the call is done. */
	entry->call.comm = queue->state->shadow;
	if (call->kind != COLLECTIVE_BARRIER)
		entry->owns_type = type_keep(&entry->call.type);
	if (call->kind == COLLECTIVE_ALLGATHER && call->send != MPI_IN_PLACE)
		entry->owns_send_type = type_keep(&entry->call.send_type);
	__atomic_add_fetch(&queue->n_open, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&queue->lock);
	*queue->last = entry;
	queue->last = &entry->next;
	pthread_mutex_unlock(&queue->lock);
	queue_wake(queue);
}
