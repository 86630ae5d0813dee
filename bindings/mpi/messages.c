/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages for the user on standard error: each reason once in the program, printed by rank 0,
 * however many communicators and ranks have it. Another rank sends its message to rank 0, which
 * takes messages whenever it drives MPI's progress, and in MPI_Finalize. If the program ends
 * without MPI_Finalize, by MPI_Abort or by exit, the rank prints the message itself. The report
 * counts the causes of each message.
 */
#include "core.h"

#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_REASONS 32
#define TEXT_BYTES 1024
#define TAG 0
/* Hexadecimal digits of a job's name. */
#define NAME_DIGITS 16

struct message {
	/* A message as it is sent. */
	struct told {
		uint64_t key;
		char text[TEXT_BYTES];
	} told;
	uint64_t count; /* causes in this process; at rank 0 and at the end, in all */
	bool said;      /* printed by this process */
	bool is_sent;
	MPI_Request req;
};

/* Protected by the lock, except the message that is being sent. */
static struct message messages[MAX_REASONS];
static unsigned int n_messages;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int library_rank;
static pid_t process; /* the process that MPI knows, not one that it has forked */
static int n_taken;   /* at rank 0 */
static bool is_over;  /* nothing may be sent any more */

/* At rank 0: a receive of the next message of any other rank. */
static struct told arriving;
static MPI_Request arriving_req = MPI_REQUEST_NULL;
/* Who has this lock tests the request. */
static pthread_mutex_t arriving_lock = PTHREAD_MUTEX_INITIALIZER;

static void
arriving_begin(void)
{
	if (PMPI_Irecv(&arriving, (int)sizeof(arriving), MPI_BYTE, MPI_ANY_SOURCE, TAG,
		       library_comm, &arriving_req) != MPI_SUCCESS)
		arriving_req = MPI_REQUEST_NULL;
	else
		message_awaited(arriving_req);
}

void
messages_init(void)
{
	PMPI_Comm_rank(library_comm, &library_rank);
	process = getpid();
	if (library_rank == 0)
		arriving_begin();
}

/* Returns a key that is the same for texts that differ only in numbers and names of jobs. */
static uint64_t
key_of(const char *text)
{
	uint64_t key = 0xcbf29ce484222325u;

	while (*text != '\0') {
		const size_t n = strspn(text, "0123456789abcdef");

		if (n >= NAME_DIGITS) {
			text += n;
			continue;
		}
		if (!isdigit((unsigned char)*text))
			key = (key ^ (uint8_t)*text) * 0x100000001b3u;
		text++;
	}
	return key;
}

static void
print(const char *text)
{
	fprintf(stderr, "fanin-mpi: %s\n", text);
}

/* Finds a message, or adds it. Under the lock. NULL: there is no room. */
static struct message *
message_of(uint64_t key, const char *text)
{
	struct message *message = messages;

	while (message < messages + n_messages && message->told.key != key)
		message++;
	if (message == messages + MAX_REASONS)
		return NULL;
	if (message == messages + n_messages) {
		*message = (struct message){ .told.key = key };
		snprintf(message->told.text, TEXT_BYTES, "%s", text);
		n_messages++;
	}
	return message;
}

/* Prints a message. Under the lock. */
static void
message_say(struct message *message)
{
	if (!message->said)
		print(message->told.text);
	message->said = true;
}

/* Sends this process's first message of a reason to rank 0. Under the lock. */
static void
message_send(struct message *message)
{
	if (PMPI_Isend(&message->told, (int)sizeof(message->told), MPI_BYTE, 0, TAG, library_comm,
		       &message->req) == MPI_SUCCESS)
		message->is_sent = true;
	else
		message_say(message);
}

void
say(const char *reason, bool at_once, const char *format, ...)
{
	char text[TEXT_BYTES];
	struct message *message;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	pthread_mutex_lock(&lock);
	message = message_of(key_of(reason != NULL ? reason : text), text);
	if (message == NULL) {
		print(text);
	} else {
		message->count++;
		if (library_rank == 0 || at_once || is_over)
			message_say(message);
		else if (!message->is_sent && !message->said)
			message_send(message);
	}
	pthread_mutex_unlock(&lock);
}

/* At rank 0: takes another rank's message, which has come, and waits for the next one. */
static void
message_take(void)
{
	struct message *message;

	pthread_mutex_lock(&lock);
	n_taken++;
	message = message_of(arriving.key, arriving.text);
	if (message != NULL)
		message_say(message);
	else
		print(arriving.text);
	pthread_mutex_unlock(&lock);
	arriving_begin();
}

void
messages_look(void)
{
	int there = 0;

	if (arriving_req != MPI_REQUEST_NULL && pthread_mutex_trylock(&arriving_lock) == 0) {
		if (PMPI_Test(&arriving_req, &there, MPI_STATUS_IGNORE) == MPI_SUCCESS && there)
			message_take();
		pthread_mutex_unlock(&arriving_lock);
		return;
	}
	/* On a communicator of this process alone MPICH would not look at the network. */
	PMPI_Iprobe(MPI_ANY_SOURCE, TAG, library_comm, &there, MPI_STATUS_IGNORE);
}

/*
 * Adds other ranks' counts of rank 0's reasons, which are all reasons except those that have ended
 * the program.
 */
static void
counts_add(void)
{
	uint64_t keys[MAX_REASONS] = { 0 }, counts[MAX_REASONS] = { 0 };

	for (unsigned int i = 0; i < n_messages; i++)
		keys[i] = messages[i].told.key;
	PMPI_Bcast(keys, MAX_REASONS, MPI_UINT64_T, 0, library_comm);
	for (unsigned int i = 0; i < MAX_REASONS; i++)
		for (unsigned int k = 0; k < n_messages; k++)
			if (messages[k].told.key == keys[i])
				counts[i] = messages[k].count;
	/* MPICH's MPI_Reduce is wrong for some placements of ranks, so this is not one. */
	if (PMPI_Allreduce(MPI_IN_PLACE, counts, MAX_REASONS, MPI_UINT64_T, MPI_SUM,
			   library_comm) != MPI_SUCCESS)
		return;
	for (unsigned int i = 0; i < n_messages && library_rank == 0; i++)
		messages[i].count = counts[i];
}

/* At rank 0: takes the messages that are still to come, n of all, and ends the receive. */
static void
arriving_finish(int n)
{
	pthread_mutex_lock(&arriving_lock);
	while (n_taken < n && arriving_req != MPI_REQUEST_NULL &&
	       PMPI_Wait(&arriving_req, MPI_STATUS_IGNORE) == MPI_SUCCESS)
		message_take();
	if (arriving_req != MPI_REQUEST_NULL) {
		PMPI_Cancel(&arriving_req);
		PMPI_Wait(&arriving_req, MPI_STATUS_IGNORE);
	}
	pthread_mutex_unlock(&arriving_lock);
}

void
messages_finish(void)
{
	int n_sent = 0, n_all[2];

	for (unsigned int i = 0; i < n_messages; i++)
		n_sent += messages[i].is_sent;
	PMPI_Allreduce((int[]){ n_sent, (int)n_messages }, n_all, 2, MPI_INT, MPI_SUM,
		       library_comm);
	is_over = true;
	if (library_rank == 0)
		arriving_finish(n_all[0]);
	if (n_all[1] == 0)
		return;
	for (unsigned int i = 0; i < n_messages; i++)
		if (messages[i].is_sent) {
			PMPI_Wait(&messages[i].req, MPI_STATUS_IGNORE);
			messages[i].said = true;
		}
	counts_add();
}

const char *
message_next(unsigned int *place, uint64_t *count)
{
	if (*place == n_messages)
		return NULL;
	*count = messages[*place].count;
	return messages[(*place)++].told.text;
}

void
messages_say_sent(void)
{
	/* A thread may have ended while it had the lock. */
	if (is_over || getpid() != process || pthread_mutex_trylock(&lock) != 0)
		return;
	for (unsigned int i = 0; i < n_messages; i++)
		message_say(&messages[i]);
	pthread_mutex_unlock(&lock);
}

/* Called when the program ends without MPI_Finalize. */
__attribute__((destructor)) static void
messages_at_exit(void)
{
	messages_say_sent();
}
