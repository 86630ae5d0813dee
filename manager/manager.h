/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manager: what its parts share. One thread does everything, from one poll loop: nothing here blocks but the database's
 * commits.
 *
 * discover.c finds hosts, faults.c what is not as the topology says, plan.c trees, install.c puts jobs onto switches and takes them off, trees.c makes several trees one
 * job, reconcile.c follows the switches, host.c serves hosts, commands.c people.
 */
#ifndef FANIN_MANAGER_MANAGER_H
#define FANIN_MANAGER_MANAGER_H

#include "manager/config.h"
#include "manager/group.h"
#include "manager/peer.h"
#include "manager/store.h"
#include "metrics/metrics.h"

/* What has happened, by kind. */
#define MANAGER_COUNTERS(X)                                                                        \
	X(joins, "joins that were taken")                                                          \
	X(joins_refused, "joins that were refused at once")                                        \
	X(reattached, "hosts that came back after a restart")                                      \
	X(hosts_lost, "hosts whose connection ended while they were members")                      \
	X(jobs_installed, "jobs that run in the network")                                          \
	X(jobs_ring, "jobs that run as a ring, without the network")                               \
	X(jobs_moved, "times that a job went on over another tree")                                \
	X(moves_failed, "times that there was no other tree for a job")                            \
	X(jobs_failed, "jobs that could not be made")                                              \
	X(jobs_ended, "jobs whose last host has gone")                                             \
	X(jobs_destroyed, "jobs that somebody destroyed, or that lost a host")                     \
	X(installs_undone, "attempts to install that were taken back")                             \
	X(removals, "jobs removed from a switch")                                                  \
	X(strays_removed, "jobs with our mark found on a switch that nobody knew")                 \
	X(missing, "jobs that a switch has lost")                                                  \
	X(switches_lost, "times that a switch died or closed the connection")

struct manager_counters {
#define MANAGER_COUNTER_FIELD(name, text) uint64_t name;
	MANAGER_COUNTERS(MANAGER_COUNTER_FIELD)
#undef MANAGER_COUNTER_FIELD
};

/* A job that is still to be removed from a switch. */
struct removal {
	TAILQ_ENTRY(removal) entry;
	char switch_name[TOPOLOGY_NAME_LEN];
	uint32_t job;
	bool asked; /* the switch has been told and has not answered */
};

struct waits;  /* waits.c: a question who waits for whom */
struct search; /* discover.c: for the hosts of a job */

struct manager {
	const struct manager_config *config;
	struct store *store;
	struct control *control;
	struct metrics_server *metrics; /* NULL: none */
	struct peer *peers;             /* one for each switch of the topology */
	struct peer_events events;
	int epoll_fd; /* the peers' connections, and the metrics' server */
	struct groups groups;
	uint16_t n_jobs;
	TAILQ_HEAD(removals, removal) removals;
	uint32_t last_id;               /* that a job was given */
	uint8_t foreign_ids[65536 / 8]; /* bitmap: others' jobs on some switch */
	uint64_t start_ms;
	uint64_t moves_from_ms; /* no job moves before */
	bool moves_begun;
	struct manager_counters counters;
	TAILQ_HEAD(all_waits, waits) waits; /* that are not answered yet */
	TAILQ_HEAD(searches, search) searches;
	uint32_t last_search; /* number */
	char **told_faults; /* faults.c: what the log has of each link of the topology, its hosts' links last */
};

/* ---- manager.c */

/*
 * Opens the database, takes up what it has, and listens. config: borrowed until manager_close. error: CONTROL_MESSAGE_LEN
 * bytes. Returns 0 and sets *manager, or -errno.
 */
int manager_open(const struct manager_config *config, struct manager **manager, char *error);

/*
 * Serves until wake_fd becomes readable. Returns 0 then, or -errno.
 */
int manager_serve(struct manager *manager, int wake_fd);

/* Closes connections and database; the jobs stay where they are. manager may be NULL. */
void manager_close(struct manager *manager);

/* Takes a group out, with the further trees of a job, and frees it; its members are told of the reason unless that is NULL. */
void manager_forget_group(struct manager *manager, struct group *group, const char *reason);

/* ---- discover.c */

/*
 * All ranks of a group have come, and are in order: installs it as soon as it is known where its hosts are, at once if all are
 * listed. Those that are not are asked for at the switches, if the topology allows it; what none finds in time can't be
 * installed. The group is GATHERING until then.
 */
void discover_and_install(struct manager *manager, struct group *group);

/* Ends the search for a group's hosts, if there is one: it is not complete any more, or is freed. */
void discover_end(struct manager *manager, const struct group *group);

/* Asks again where it is time to, and ends searches. Returns when to be called next, in milliseconds of clock_ms. */
uint64_t discover_tick(struct manager *manager, uint64_t now_ms);

/* ---- faults.c */

/* What the log has been told of. Returns 0, or -ENOMEM. */
int faults_begin(struct manager *manager);
void faults_end(struct manager *manager);

/*
 * Is a link of the topology, or one end of it or of a host's link, not as the switches say, as far as these have been heard? text:
 * CONTROL_MESSAGE_LEN bytes; filled if so.
 */
bool fault_of_link(const struct manager *manager, const struct topology_link *link, char *text);
bool fault_of_end(const struct manager *manager, const struct topology_end *end, char *text);

/* A switch has told its ports or next hops: logs what has changed, each fault once. Returns true if something has. */
bool faults_note(struct manager *manager);

/* ": FAULT; FAULT": links that are not as the topology says, and switches that are not reached; or nothing. */
void faults_describe(const struct manager *manager, char *text, size_t size);

/* ---- plan.c */

/*
 * Finds a tree for a group whose ranks are settled: its nodes, payload and slots. Returns 0; or -errno with *error filled: code
 * "no_path", "no_room", or "invalid" for what no switch can change.
 */
int plan_group(struct manager *manager, struct group *group, struct control_error *error);

/* The arguments of jobs.create for one node; a new reference. */
json_t *plan_create_args(const struct manager *manager, const struct group *group, uint16_t node);

/* ---- install.c */

/* All hosts are known: plans and installs the group, and answers its members in the end. */
void install_group(struct manager *manager, struct group *group);

/*
 * Asks the switches of the group's nodes to create its job; create's answers settle the rest. Returns 0, or -EIO with *error
 * filled if it can't be noted in the database; the group has no nodes then.
 */
int install_nodes(struct manager *manager, struct group *group, struct control_error *error);

/* Takes back what a group may have on switches, and out of the database; what is left has no nodes. */
void install_withdraw(struct manager *manager, struct group *group);

/* Notes that a group runs in the network. Returns false, with group->failure filled, if the database fails. */
bool install_note_network(struct manager *manager, struct group *group);

/* A job's trees are there and noted: answers its members. */
void install_finished(struct manager *manager, struct group *group);

/* A group that has nothing on any switch can't be installed: its hosts do without the network, or are told why not. */
void install_failed(struct manager *manager, struct group *group, const struct control_error *error);

/*
 * Ends the job of a group with all its trees: off the switches, out of the database, freed.
 *
 * reason: for its members; NULL: there are none to tell.
 */
void remove_group(struct manager *manager, struct group *group, const char *reason);

/* Notes that a job is to be removed from a switch, in memory only. */
void removal_add(struct manager *manager, const char *switch_name, uint32_t job);

/* Notes for all of a group's nodes, in the database as well, that they are to be removed, and begins with that. */
void removals_note(struct manager *manager, const struct group *group,
		   const struct group_node *nodes, uint16_t n_nodes);

struct removal *removal_find(const struct manager *manager, const char *switch_name, uint32_t job);

/* Asks all switches that can be reached to do what is left of the removals. */
void removals_go_on(struct manager *manager);

/* ---- trees.c */

/* A tree of a job is made: begins the next one that the job has asked for, or finishes. */
void trees_go_on(struct manager *manager, struct group *leader);

/* A further tree can't be had: it is freed, and the job finishes with those before it. */
void trees_end_at(struct manager *manager, struct group *group, const struct control_error *error);

/* True if switches have not answered yet what they were asked for any of the job's trees. */
bool trees_are_asked(const struct manager *manager, const struct group *leader);

/* Takes the further trees of a job off the switches and out of the database; trees_forget frees them. */
void trees_withdraw(struct manager *manager, const struct group *leader);

/* Frees the further trees of a job. */
void trees_forget(struct manager *manager, const struct group *leader);

/* After a start: puts the trees of each job together. What belongs to no job is removed. */
void trees_take_up(struct manager *manager);

/* True if a job has all its trees, and none is being installed. */
bool trees_are_whole(const struct manager *manager, const struct group *leader);

/* ---- move.c */

/*
 * Moves a group whose tree has something missing, or may have a better chance now, to another tree, if there is one. Of a group
 * that is being installed nothing is noticed: to be called when that has ended. why: for the log.
 */
void move_if_broken(struct manager *manager, struct group *group, const char *why);

/* The same of all groups. */
void moves_go_on(struct manager *manager, const char *why);

/* As plan_group, for a group that moves: with the packets and slots that it has. */
int move_plan(struct manager *manager, struct group *group, struct control_error *error);

/* The installation of a group that moves has ended. */
void move_succeeded(struct manager *manager, struct group *group);
void move_failed(struct manager *manager, struct group *group, const struct control_error *error);

/* ---- reconcile.c */

/* A switch can be asked: learns what it is and has. */
void reconcile_ready(void *user, struct peer *peer);

/* A switch is lost. */
void reconcile_lost(void *user, struct peer *peer);

/* Pings and comparisons that are due. */
void reconcile_tick(struct manager *manager, struct peer *peer, uint64_t now_ms);

/*
 * When reconcile_tick has something to do for a switch, in milliseconds of clock_ms, as things are: whatever comes from the
 * switch may change that.
 */
uint64_t reconcile_due(const struct peer *peer);

/* True if one of the group's nodes is at the switch; with a port, if one of its links or hosts is at that. */
bool group_uses(const struct manager *manager, const struct group *group, uint16_t switch_index,
		const char *port);

/*
 * True if a switch has room for one more job when it has done what it was asked. A place that the group has there counts as
 * free: it is given up before the group gets another one.
 */
bool group_has_room(const struct manager *manager, const struct group *group,
		    const struct peer *peer);

/* Notes how many jobs a switch has now. Jobs that have found no room there are tried again if there is some. */
void peer_note_jobs(struct manager *manager, struct peer *peer, uint32_t n_jobs);

/* True if a switch says that one of its ports is down. */
bool peer_port_is_down(const struct peer *peer, const char *port);

/* ---- host.c */

json_t *host_join(void *user, struct control_client *client, json_t *id, const json_t *args,
		  struct control_error *error);
json_t *host_reattach(void *user, struct control_client *client, json_t *id, const json_t *args,
		      struct control_error *error);
json_t *host_heartbeat(void *user, struct control_client *client, json_t *id, const json_t *args,
		       struct control_error *error);
json_t *host_leave(void *user, struct control_client *client, json_t *id, const json_t *args,
		   struct control_error *error);

/* What a member is told of its group: a new reference. */
json_t *host_result(const struct manager *manager, const struct group *group, uint16_t rank);

/*
 * A job is made: tells the others of the members that have gone meanwhile, or destroys it if that is configured; the group is no
 * more then.
 */
void host_tell_gone(struct manager *manager, struct group *group);

/* A member's connection has ended. */
void host_closed(void *user, struct control_client *client, void *data);

/* Tells the members of every job which of them are silent, if that has changed: a connection, or a port, went down or came back. */
void host_tell_silent(struct manager *manager);

/* Gives up waiting for the members that did not come back after a restart. */
void host_end_grace(struct manager *manager, uint64_t now_ms);

/* Sends an event to all members that are there but one, which may be NULL. event: taken. */
void host_notify(const struct group *group, const struct group_member *except, json_t *event);

/* ---- waits.c */

/* Asks all switches of a job's tree, or of all jobs' trees, which blocks wait there, and answers for whom. */
json_t *command_waits(void *user, struct control_client *client, json_t *id, const json_t *args,
		      struct control_error *error);

/* Forgets the questions that are not answered; the peers must have ended. */
void waits_end(struct manager *manager);

/* ---- metrics.c */

/*
 * What the manager's metrics are, and the values that they are taken from: the answers to people's commands, and what is counted
 * by kind or state. user: struct manager. Returns a new reference, or NULL without memory.
 */
extern const struct metrics_family manager_metrics[];
json_t *manager_metrics_values(void *user);

/* ---- commands.c */

json_t *command_version(void *user, const json_t *args, struct control_error *error);
json_t *command_topology(void *user, const json_t *args, struct control_error *error);
json_t *command_jobs(void *user, const json_t *args, struct control_error *error);
json_t *command_trees(void *user, const json_t *args, struct control_error *error);
json_t *command_stats(void *user, const json_t *args, struct control_error *error);
json_t *command_jobs_destroy(void *user, const json_t *args, struct control_error *error);

#endif
