/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives that move data and combine none: broadcast and allgather. Ranks may describe the same
 * data by different types: a rank packs data of types that are not plain, whatever the other ranks
 * do.
 */
#include "network.h"

#include <stdlib.h>
#include <string.h>

int
post_broadcast(const struct step *step, fanin_request **req)
{
	return fanin_ibroadcast(step->call->recv, step->bytes, FANIN_U8, (uint16_t)step->call->root,
				step->state->channel->comm, req);
}

/* Broadcasts bytes. data: the vector, to be sent from the root. */
static int
bytes_broadcast(const struct step *step, void *data)
{
	struct comm_state *state = step->state;

	return NETWORK_CALL(state, fanin_ibroadcast(data, step->bytes, FANIN_U8,
						    (uint16_t)step->call->root,
						    state->channel->comm, &posted_req));
}

/*
 * Returns the address at which MPI finds the program's data, with the type *seen. MPICH neither
 * packs nor unpacks at MPI_BOTTOM, which is NULL: the address is then that of the type's first
 * data, and *seen is a new type, which begins at 0.
 */
static void *
data_address(const void *data, MPI_Datatype type, MPI_Datatype *seen)
{
	const int one = 1;
	MPI_Datatype moved;
	MPI_Aint low, extent, back;

	*seen = type;
	if (data != NULL || PMPI_Type_get_true_extent(type, &low, &extent) != MPI_SUCCESS)
		return (void *)(uintptr_t)data;
	back = -low;
	if (PMPI_Type_create_hindexed(1, &one, &back, type, &moved) != MPI_SUCCESS)
		return NULL;
	PMPI_Type_commit(&moved);
	*seen = moved;
	return (void *)(uintptr_t)low;
}

static void
seen_free(MPI_Datatype seen, MPI_Datatype type)
{
	if (seen != type)
		PMPI_Type_free(&seen);
}

static int
pack(const void *from, MPI_Count count, MPI_Datatype type, void *bytes, size_t n, MPI_Comm comm)
{
	MPI_Datatype seen;
	const void *data = data_address(from, type, &seen);
	int position = 0, status;

	status = mpi_status(PMPI_Pack(data, (int)count, seen, bytes, (int)n, &position, comm));
	seen_free(seen, type);
	/* Bytes beyond the rank's data must not show other memory. */
	if (status == FANIN_OK)
		memset((uint8_t *)bytes + position, 0, n - (size_t)position);
	return status;
}

static int
unpack(const void *bytes, size_t n, void *to, MPI_Count count, MPI_Datatype type, MPI_Comm comm)
{
	MPI_Datatype seen;
	void *data = data_address(to, type, &seen);
	int position = 0, status;

	status = mpi_status(PMPI_Unpack(bytes, (int)n, &position, data, (int)count, seen, comm));
	seen_free(seen, type);
	return status;
}

/*
 * Ranks may describe the same data by different types: a rank packs data of types that are not
 * plain, whatever the other ranks do.
 */
int
run_broadcast(const struct step *step)
{
	const struct collective *call = step->call;
	const bool is_root = call->root == step->state->rank;
	void *packed;
	int status = FANIN_OK;

	if (type_plain_bytes(call->type) != 0)
		return bytes_broadcast(step, call->recv);
	packed = malloc(step->bytes);
	if (packed == NULL)
		return FANIN_ERR_NO_MEMORY;
	if (is_root)
		status = pack(call->recv, call->count, call->type, packed, step->bytes, call->comm);
	if (status == FANIN_OK)
		status = bytes_broadcast(step, packed);
	if (status == FANIN_OK && !is_root)
		status = unpack(packed, step->bytes, call->recv, call->count, call->type,
				call->comm);
	free(packed);
	return status;
}

/* Posts an allgather whose data needs no packing. */
int
post_allgather(const struct step *step, fanin_request **req)
{
	const struct collective *call = step->call;
	const uint8_t *in_place = (const uint8_t *)call->recv +
				  (size_t)step->state->rank * step->part;

	return fanin_iallgather(call->send == MPI_IN_PLACE ? in_place : call->send, call->recv,
				step->part, FANIN_U8, step->state->channel->comm, req);
}

/* Gathers bytes. data: the parts of all ranks. mine: this rank's part, there or elsewhere. */
static int
bytes_allgather(const struct step *step, const void *mine, uint8_t *data)
{
	struct comm_state *state = step->state;

	return NETWORK_CALL(state, fanin_iallgather(mine, data, step->part, FANIN_U8,
						    state->channel->comm, &posted_req));
}

/*
 * MPI lets a rank send fewer elements than the others receive from it, though the standard does
 * not.
 */
bool
is_sent_as_is(const struct collective *call)
{
	return call->send == MPI_IN_PLACE ||
	       (type_plain_bytes(call->send_type) != 0 &&
		(size_t)call->send_count * type_plain_bytes(call->send_type) ==
			(size_t)call->count * type_plain_bytes(call->type));
}

/*
 * Returns the rank's own part of an allgather as bytes: in the program's buffers, or packed at
 * `mine`.
 */
static const void *
own_part(const struct step *step, uint8_t *mine, int *status)
{
	const struct collective *call = step->call;
	const size_t rank = (size_t)step->state->rank;
	MPI_Aint low, extent;

	*status = FANIN_OK;
	if (call->send != MPI_IN_PLACE) {
		if (is_sent_as_is(call))
			return call->send;
		*status = pack(call->send, call->send_count, call->send_type, mine, step->part,
			       call->comm);
		return mine;
	}
	if (type_plain_bytes(call->type) != 0)
		return (const uint8_t *)call->recv + rank * step->part;
	PMPI_Type_get_extent(call->type, &low, &extent);
	*status = pack((const uint8_t *)call->recv + (MPI_Aint)rank * call->count * extent,
		       call->count, call->type, mine, step->part, call->comm);
	return mine;
}

int
run_allgather(const struct step *step)
{
	const struct collective *call = step->call;
	const struct comm_state *state = step->state;
	const bool is_plain = type_plain_bytes(call->type) != 0;
	uint8_t *packed = NULL, *data = call->recv;
	MPI_Aint low, extent;
	const void *mine;
	int status;

	if (!is_plain || !is_sent_as_is(call)) {
		packed = malloc(step->bytes);
		if (packed == NULL)
			return FANIN_ERR_NO_MEMORY;
		data = packed;
	}
	mine = own_part(step, data + (size_t)state->rank * step->part, &status);
	if (status == FANIN_OK)
		status = bytes_allgather(step, mine, data);
	if (packed != NULL && status == FANIN_OK && is_plain)
		memcpy(call->recv, packed, step->bytes);
	if (packed != NULL && !is_plain) {
		PMPI_Type_get_extent(call->type, &low, &extent);
		for (int i = 0; i < state->size && status == FANIN_OK; i++)
			status = unpack(packed + (size_t)i * step->part, step->part,
					(uint8_t *)call->recv + (MPI_Aint)i * call->count * extent,
					call->count, call->type, call->comm);
	}
	free(packed);
	return status;
}
