/* SPDX-License-Identifier: BSD-3-Clause */
/* The trees of a communicator, or the place of a tree's communicator among its siblings. */
#ifndef FANIN_HOSTLIB_COMM_TREES_H
#define FANIN_HOSTLIB_COMM_TREES_H

#include "hostlib/src/manager/manager.h"
#include "hostlib/src/request/request.h"

struct fanin_comm_trees {
	struct fanin_trees *all; /* NULL: one tree or none, described by the communicator itself */
	struct fanin_trees *siblings; /* of the communicator of one of several trees, which borrows
					 the manager; else NULL */
	uint16_t index;               /* likewise; else 0 */
	uint16_t n;                   /* 0: it runs among the ranks */
	uint16_t n_asked;
	char reason[FANIN_TEXT_LEN / 2]; /* why there are fewer than asked for */
};

/* Joins a job that has several trees. answer: the manager's. */
int fanin_comm_trees_join(struct fanin_comm *comm, const struct fanin_join_opts *options,
			  struct fanin_manager_answer *answer, uint64_t deadline_ns,
			  struct fanin_error *error);

/*
 * Posts a request to all trees together. Returns what fanin_split_post returns, or for a sparse
 * request what fanin_vector_layout does.
 */
int fanin_comm_trees_post(struct fanin_trees *trees, struct fanin_request *request, uint64_t count);

/* Fails all trees, and every request, unless they have failed already. status: negative. */
void fanin_comm_trees_abort(struct fanin_trees *trees, int status, const struct fanin_error *error);

/*
 * Polls the trees that are joined already, while another one is being joined: they may have moved,
 * and other ranks wait there.
 */
void fanin_comm_trees_poll_joined(struct fanin_trees *trees);

#endif
