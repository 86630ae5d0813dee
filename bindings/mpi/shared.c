/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce with several ranks on a host, in memory that they share. A vector goes through the
 * memory in chunks, several of which are in progress: ranks copy a chunk in, each sums a part of it
 * over all ranks, the leader adds the sums of all hosts in the network, and ranks copy the result
 * out. Counters tell how many chunks each rank has done in each step; they continue from call to
 * call. All hosts do the same, so that leaders' calls match.
 */
#include "network.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES (128 << 10)
/* Number of chunks that the memory holds. */
#define DEPTH 4
/* A rank takes a chunk's result this many chunks after it has copied its data in. */
#define LAG (DEPTH - 1)
#define LINE 64

/*
 * Numbers of chunks that a rank has done. Each rank writes its own; only the leader writes the last
 * two.
 */
struct done {
	uint64_t filled __attribute__((aligned(LINE)));
	uint64_t reduced;
	uint64_t taken;
	uint64_t ready; /* chunks that have their result */
	int32_t status; /* a fanin_status of the network's step */
};

struct shared {
	size_t bytes;
	int node_size, node_rank;
	struct done *done; /* of each rank */
	uint8_t *in;       /* [rank][DEPTH] chunks */
	uint8_t *out;      /* [DEPTH] chunks */
	uint64_t n_chunks; /* number of chunks in all earlier calls */
};

static uint8_t *
chunk_in(const struct shared *shared, int rank, uint64_t chunk)
{
	return shared->in + ((size_t)rank * DEPTH + chunk % DEPTH) * CHUNK_BYTES;
}

static uint8_t *
chunk_out(const struct shared *shared, uint64_t chunk)
{
	return shared->out + chunk % DEPTH * CHUNK_BYTES;
}

/*
 * Makes the leader's memory object, of this size and with all of its pages. Returns -1 on failure.
 */
static int
object_make(const char *name, size_t bytes)
{
	const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);

	if (fd >= 0 && posix_fallocate(fd, 0, (off_t)bytes) != 0) {
		shm_unlink(name);
		close(fd);
		return -1;
	}
	return fd;
}

/* True if `mine` is true at all ranks of the host. */
static bool
all_have(MPI_Comm node, bool mine)
{
	int all = mine;

	return PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, node) == MPI_SUCCESS && all;
}

/*
 * This does not use a window of MPI: freeing one is collective, and ranks free communicators in any
 * order.
 */
struct shared *
shared_make(const char *job_name, int host, MPI_Comm node, int node_rank, int node_size)
{
	const size_t n = (size_t)node_size;
	const size_t bytes = n * sizeof(struct done) + (n + 1) * DEPTH * CHUNK_BYTES;
	struct shared *shared = calloc(1, sizeof(*shared));
	void *base = MAP_FAILED;
	char name[64];
	int fd = -1;

	if (shared == NULL)
		no_memory();
	*shared = (struct shared){ .node_rank = node_rank, .node_size = node_size, .bytes = bytes };
	snprintf(name, sizeof(name), "/fanin-%s-%d", job_name, host);
	if (node_rank == 0)
		fd = object_make(name, bytes);
	if (all_have(node, node_rank != 0 || fd >= 0) && node_rank != 0)
		fd = shm_open(name, O_RDWR, 0);
	if (fd >= 0) {
		base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	}
	shared->done = base;
	if (!all_have(node, base != MAP_FAILED)) {
		shared_free(shared);
		shared = NULL;
	} else {
		shared->in = (uint8_t *)base + n * sizeof(struct done);
		shared->out = shared->in + n * DEPTH * CHUNK_BYTES;
	}
	if (node_rank == 0 && fd >= 0)
		shm_unlink(name);
	return shared;
}

void
shared_free(struct shared *shared)
{
	if (shared == NULL)
		return;
	if ((void *)shared->done != MAP_FAILED)
		munmap(shared->done, shared->bytes);
	free(shared);
}

/* Waits until all ranks of the host have done n chunks in a step. */
#define WAIT_ALL(shared, step_done, n)                                                             \
	do {                                                                                       \
		unsigned int looks = 0;                                                            \
		for (int i = 0; i < (shared)->node_size; i++)                                      \
			while (__atomic_load_n(&(shared)->done[i].step_done, __ATOMIC_ACQUIRE) <   \
				       (n) &&                                                      \
			       !states_give_up())                                                  \
				wait_look(&looks);                                                 \
	} while (0)

#define PUBLISH(shared, step_done, n)                                                              \
	__atomic_store_n(&(shared)->done[(shared)->node_rank].step_done, n, __ATOMIC_RELEASE)

static void
wait_look(unsigned int *looks)
{
	if (++*looks % 16 == 0)
		mpi_progress();
	nap(*looks);
}

/* A call: its chunks have numbers from `first` on, counted over all calls. */
struct run {
	const struct step *step;
	struct shared *shared;
	uint64_t first, n_chunks;
	size_t type_bytes; /* of an element of the program's type */
	size_t per_chunk;  /* elements of a chunk */
	fanin_request *reqs[DEPTH];
	int status;
};

static size_t
chunk_elements(const struct run *run, uint64_t chunk)
{
	const size_t before = (size_t)(chunk - run->first) * run->per_chunk;
	const size_t left = (size_t)run->step->call->count - before;

	return left < run->per_chunk ? left : run->per_chunk;
}

static void
chunk_fill(const struct run *run, uint64_t chunk)
{
	struct shared *shared = run->shared;
	const uint8_t *from = own_data(run->step->call);

	/* Waits until all ranks have summed the chunk that was at this place before. */
	if (chunk >= DEPTH)
		WAIT_ALL(shared, reduced, chunk - DEPTH + 1);
	memcpy(chunk_in(shared, shared->node_rank, chunk),
	       from + (chunk - run->first) * run->per_chunk * run->type_bytes,
	       chunk_elements(run, chunk) * run->type_bytes);
	PUBLISH(shared, filled, chunk + 1);
}

/* Sums this rank's part of the chunk, in the order of ranks. */
static void
chunk_reduce(const struct run *run, uint64_t chunk)
{
	struct shared *shared = run->shared;
	const struct step *step = run->step;
	const size_t n = chunk_elements(run, chunk);
	const size_t from = n * (size_t)shared->node_rank / (size_t)shared->node_size;
	const size_t to = n * (size_t)(shared->node_rank + 1) / (size_t)shared->node_size;
	const size_t offset = from * run->type_bytes;
	fenv_t programs;

	WAIT_ALL(shared, filled, chunk + 1);
	/* Waits until all ranks have taken the result that was at this place before. */
	if (chunk >= DEPTH)
		WAIT_ALL(shared, taken, chunk - DEPTH + 1);
	memcpy(chunk_out(shared, chunk) + offset, chunk_in(shared, 0, chunk) + offset,
	       (to - from) * run->type_bytes);
	arithmetic_enter(&programs);
	for (int rank = 1; rank < shared->node_size; rank++)
		local_combine(step->dtype, step->op, chunk_out(shared, chunk) + offset,
			      chunk_in(shared, rank, chunk) + offset,
			      (to - from) * run->type_bytes / step->element_bytes);
	arithmetic_leave(&programs);
	PUBLISH(shared, reduced, chunk + 1);
}

static void
chunk_post(struct run *run, uint64_t chunk)
{
	const struct step *step = run->step;
	uint8_t *sums = chunk_out(run->shared, chunk);
	fanin_request **req = &run->reqs[chunk % DEPTH];

	WAIT_ALL(run->shared, reduced, chunk + 1);
	*req = NULL;
	if (run->status == FANIN_OK)
		run->status = fanin_iallreduce(sums, sums,
					       chunk_elements(run, chunk) * run->type_bytes /
						       step->element_bytes,
					       step->dtype, step->op, step->state->channel->comm,
					       req);
}

static void
chunk_finish(struct run *run, uint64_t chunk)
{
	fanin_request *req = run->reqs[chunk % DEPTH];
	const int status = req == NULL ? FANIN_OK : posted_finish(run->step->state, FANIN_OK, req);

	if (run->status == FANIN_OK)
		run->status = status;
	/* After a failure the communicator does not use this memory any more. */
	if (run->status != FANIN_OK)
		__atomic_store_n(&run->shared->done[0].status, run->status, __ATOMIC_RELAXED);
	PUBLISH(run->shared, ready, chunk + 1);
}

static void
chunk_take(const struct run *run, uint64_t chunk)
{
	struct shared *shared = run->shared;
	uint8_t *to = run->step->call->recv;
	unsigned int looks = 0;

	while (__atomic_load_n(&shared->done[0].ready, __ATOMIC_ACQUIRE) < chunk + 1 &&
	       !states_give_up())
		wait_look(&looks);
	memcpy(to + (chunk - run->first) * run->per_chunk * run->type_bytes,
	       chunk_out(shared, chunk), chunk_elements(run, chunk) * run->type_bytes);
	PUBLISH(shared, taken, chunk + 1);
}

int
shared_allreduce(const struct step *step)
{
	struct shared *shared = step->state->shared;
	const bool leads = shared->node_rank == 0;
	struct run run = { .step = step,
			   .shared = shared,
			   .first = shared->n_chunks,
			   .type_bytes = type_plain_bytes(step->call->type),
			   .status = FANIN_OK };

	run.per_chunk = CHUNK_BYTES / run.type_bytes;
	run.n_chunks = ((size_t)step->call->count + run.per_chunk - 1) / run.per_chunk;
	shared->n_chunks += run.n_chunks;
	for (uint64_t chunk = run.first; chunk < shared->n_chunks + LAG; chunk++) {
		if (chunk < shared->n_chunks) {
			chunk_fill(&run, chunk);
			chunk_reduce(&run, chunk);
			if (leads)
				chunk_post(&run, chunk);
		}
		if (chunk >= run.first + LAG) {
			if (leads)
				chunk_finish(&run, chunk - LAG);
			chunk_take(&run, chunk - LAG);
		}
	}
	if (states_give_up())
		return FANIN_ERR_INTERRUPTED;
	return __atomic_load_n(&shared->done[0].status, __ATOMIC_RELAXED);
}
