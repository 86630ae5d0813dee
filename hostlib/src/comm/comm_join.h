/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a communicator joins its job: on a switch (comm_switch.c, comm_memif.c), among the ranks
 * (comm_peers.c), or over switches that it does not join (comm_leaders.c), as the network manager
 * says (comm_manager.c). Several trees are joined one by one (comm_trees.h).
 */
#ifndef FANIN_HOSTLIB_COMM_JOIN_H
#define FANIN_HOSTLIB_COMM_JOIN_H

#include "comm.h"

/* comm_single.c */

/*
 * Opens the communicator's engine with its protocol. config: the caller's fields; the others are
 * filled in from the options.
 */
int fanin_comm_engine_open(struct fanin_comm *comm, const struct fanin_join_opts *options,
			   struct fanin_protocol_config *config, struct fanin_error *error);

/* comm_manager.c */

/*
 * Finds an interface by its name, or by its address if the name is NULL.
 *
 * ip_be: in: the address; set to the interface's. name: IF_NAMESIZE bytes. Returns false if no such
 * interface has an IPv4 address.
 */
bool fanin_interface_find(const char *wanted, uint32_t *ip_be, char *name);

/*
 * Asks the manager for the job, and connects the ranks with each other if it says so.
 *
 * options: if the job runs in the network, receives the switch's address and the job's number, key
 * and rank in its first tree; else comm->endpoint is set. beside: as for fanin_comm_join. answer:
 * owns the options' new strings. Returns FANIN_OK or a negative status.
 */
int fanin_comm_manager(struct fanin_comm *comm, struct fanin_join_opts *options,
		       const struct fanin_beside *beside, struct fanin_manager_answer *answer,
		       struct fanin_error *error);

/*
 * Fills in the options that a user would give to join a tree's job on its switch, and the link that
 * this tree uses. The answer owns the strings.
 */
int fanin_comm_tree_options(struct fanin_comm *comm, struct fanin_join_opts *options,
			    struct fanin_manager_answer *answer, uint16_t tree,
			    struct fanin_error *error);

/* comm_switch.c */

/*
 * Joins a job on a switch.
 *
 * options: checked here. peers: the manager's list for the tree, NULL: there is none. max_payload:
 * maximum of a packet's payload in bytes, even if the switch allows more; 0: as the switch allows.
 * deadline_ns: for all ranks to have joined.
 */
int fanin_comm_switch_join(struct fanin_comm *comm, struct fanin_join_opts *options,
			   const struct fanin_peer *peers, uint16_t max_payload,
			   uint64_t deadline_ns, struct fanin_error *error);

/*
 * Opens the transport that the context asks for, over a route to the job's switch.
 *
 * channel: to the switch; the transport takes its data socket. For a job with leaders it has none.
 * switch_mac: 6 bytes that exist as long as the transport is open. transport: set on success only.
 */
int fanin_comm_transport(const struct fanin_comm *comm, const struct fanin_route *route,
			 struct fanin_channel *channel, const uint8_t *switch_mac,
			 struct fanin_transport **transport, struct fanin_error *error);

/*
 * Tells the transport of a member that has joined whether super-frames pass on its way to the
 * switch, as far as that is known. Does not wait.
 */
void fanin_comm_path(struct fanin_comm *comm);

/*
 * Checks that this host uses the address that it has registered at the manager; otherwise the
 * switch would take it for another host.
 */
int fanin_comm_address_check(const struct fanin_comm *comm, struct fanin_error *error);

/* comm_memif.c */

/* True if the options ask for shared memory with the switch. */
bool fanin_comm_wants_memif(const struct fanin_ctx *ctx, const struct fanin_join_opts *options);

/*
 * Connects to the switch by memif: fills in route and switch_mac and opens the transport, which
 * also carries control packets.
 *
 * deadline_ns: for the switch's answers. channel: set on success only. Returns FANIN_OK or a
 * negative status.
 */
int fanin_comm_memif(struct fanin_comm *comm, const struct fanin_join_opts *options,
		     uint32_t switch_ip_be, uint64_t deadline_ns, struct fanin_channel *channel,
		     struct fanin_error *error);

/* comm_peers.c */

/*
 * Opens the protocol's engine among the ranks and waits until it is ready. comm->protocol is set.
 *
 * listener: from the protocol's listen; taken over.
 */
int fanin_comm_peers(struct fanin_comm *comm, const struct fanin_join_opts *options,
		     const struct fanin_manager_answer *answer, int listener, uint64_t deadline_ns,
		     struct fanin_error *error);

/*
 * Polls until the engine is ready, with all other ranks. options: for the timeout in the error's
 * text.
 */
int fanin_comm_ready_wait(struct fanin_comm *comm, const struct fanin_join_opts *options,
			  uint64_t deadline_ns, struct fanin_error *error);

/* comm_leaders.c */

/*
 * Opens the protocol's engine for a job whose blocks have leaders, and waits until it is ready.
 *
 * options: filled in by fanin_comm_tree_options. answer: the manager's.
 */
int fanin_comm_leaders(struct fanin_comm *comm, const struct fanin_join_opts *options,
		       const struct fanin_manager_answer *answer, uint64_t deadline_ns,
		       struct fanin_error *error);

/*
 * Checks whether the options fit a job of a handler whose hosts lead blocks. handler: NULL: not
 * known. Returns FANIN_OK, also for other handlers, or FANIN_ERR_INVALID.
 */
int fanin_comm_leaders_check(const struct fanin_ctx *ctx, const struct fanin_join_opts *options,
			     const char *handler, struct fanin_error *error);

#endif
