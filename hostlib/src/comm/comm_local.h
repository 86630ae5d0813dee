/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joining a job with several ranks on a host: the ranks of the host meet, their leader joins a job
 * of hosts, and tells the others.
 */
#ifndef FANIN_HOSTLIB_COMM_LOCAL_H
#define FANIN_HOSTLIB_COMM_LOCAL_H

#include "comm.h"

/*
 * True if the options place several ranks on one host. options: with a size.
 */
bool fanin_comm_is_local(const struct fanin_join_opts *options);

/*
 * Joins such a job. comm: without an endpoint, which it gets; with the leader's communicator of
 * the hosts, which belongs to the same context. The arguments and the result are as for fanin_join.
 */
int fanin_comm_local_join(struct fanin_comm *comm, const struct fanin_join_opts *options,
			  struct fanin_error *error);

/*
 * Leaves the job of hosts. The communicator is no longer polled afterwards. Called without the
 * lock; the result is as for fanin_leave, with its error.
 */
int fanin_comm_local_leave(struct fanin_comm *comm, struct fanin_error *error);

#endif
