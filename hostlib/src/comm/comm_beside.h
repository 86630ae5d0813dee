/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs of the same ranks beside a communicator's. */
#ifndef FANIN_HOSTLIB_COMM_BESIDE_H
#define FANIN_HOSTLIB_COMM_BESIDE_H

#include "hostlib/src/protocol/protocol.h"

struct fanin_beside {
	struct fanin_comm *owner; /* the communicator that it belongs beside; NULL: it is a job of
				     its own */
	enum fanin_beside_use use;
	const char *number; /* in the job's name, of several for the same use; "": there is one */
	const char *what;   /* names the use, in messages */
	uint16_t trees;
	const struct fanin_manager_parameter *parameters; /* n_parameters of the handler's
							     parameters */
	size_t n_parameters;
};

/* The options that a communicator was joined with, to join other jobs later. */
struct fanin_kept_options {
	struct fanin_join_opts options;
	char *texts[4]; /* copies that the options point to */
};

/*
 * Returns why this rank can't join a job beside the communicator's, or NULL. options: as the
 * communicator was joined.
 */
const char *fanin_comm_beside_obstacle(struct fanin_comm *comm,
				       const struct fanin_join_opts *options,
				       enum fanin_beside_use use, const char *number);

/*
 * Joins a job beside its owner's if all ranks can join it. All ranks call this, without the lock.
 *
 * obstacle: why this rank can't join; NULL: it can. joined: set if all ranks are in the job. why:
 * FANIN_TEXT_LEN bytes; the reason, if they are not. Returns FANIN_OK in both cases, or a negative
 * status with `error`: the communicator has failed.
 */
int fanin_comm_beside_join(const struct fanin_join_opts *options, const struct fanin_beside *job,
			   const char *obstacle, struct fanin_comm **joined, char *why,
			   struct fanin_error *error);

/*
 * Leaves the jobs beside a communicator's, and removes the communicator from beside its owner.
 * Returns FANIN_OK, or the last failure with its error.
 */
int fanin_comm_beside_leave(struct fanin_comm *comm, struct fanin_error *error);

/*
 * Finds the minimum of each of some values over all ranks, by an allreduce on the communicator.
 * what: names the use, in messages. Returns FANIN_OK or a negative status. An interruption makes
 * the communicator fail: nothing refers to the values any more, and no rank goes on as if all had
 * agreed.
 */
int fanin_comm_min_of_all(struct fanin_comm *comm, const char *what, enum fanin_dtype dtype,
			  void *values, uint64_t n, struct fanin_error *error);

/*
 * Keeps the options that a communicator was joined with. Returns FANIN_OK, or FANIN_ERR_NO_MEMORY
 * with its error; forget frees them in both cases.
 */
int fanin_comm_options_keep(struct fanin_comm *comm, const struct fanin_join_opts *options,
			    struct fanin_error *error);
void fanin_comm_options_forget(struct fanin_comm *comm);

#endif
