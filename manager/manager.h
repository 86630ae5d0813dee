/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manager: the state that its parts share, and its lifetime. One thread does everything in one
 * poll loop: nothing blocks but commits to the database.
 *
 * Each part has a header: discover.c finds hosts, faults.c differences from the topology, plan.c
 * trees; install.c installs jobs on switches and removes them, trees.c makes several trees one job,
 * move.c moves a job to another tree, reconcile.c follows the switches, host.c serves hosts,
 * commands.c and waits.c serve people.
 */
#ifndef FANIN_MANAGER_MANAGER_H
#define FANIN_MANAGER_MANAGER_H

#include "manager/config.h"
#include "manager/group.h"
#include "manager/peer.h"
#include "manager/store.h"

/* Counters of events. */
#define MANAGER_COUNTERS(X)                                                                        \
	X(joins, "joins that were accepted")                                                       \
	X(joins_refused, "joins that were refused at once")                                        \
	X(reattached, "hosts that came back after a restart")                                      \
	X(hosts_lost, "hosts whose connection ended while they were members")                      \
	X(jobs_installed, "jobs that run in the network")                                          \
	X(jobs_ring, "jobs that run as a ring, without the network")                               \
	X(jobs_moved, "times that a job went on over another tree")                                \
	X(moves_failed, "times that a job had no other tree")                                      \
	X(jobs_failed, "jobs that could not be made")                                              \
	X(jobs_ended, "jobs whose last host has gone")                                             \
	X(jobs_destroyed, "jobs destroyed by command, or as a host was lost")                      \
	X(installs_undone, "installations that were undone")                                       \
	X(removals, "jobs removed from a switch")                                                  \
	X(strays_removed, "jobs of this manager on a switch, but not in the database")             \
	X(missing, "jobs that a switch has lost")                                                  \
	X(switches_lost, "times that a switch died or closed the connection")                      \
	X(servers_lost, "times that a parameter server died or closed the connection")             \
	X(jobs_lost,                                                                               \
	  "jobs ended because their server or its switch was lost, with no other, or as no other tree keeps their order")

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
	bool asked; /* the switch has been asked and has not answered */
};

struct metrics_server;
struct waits;  /* waits.c: a running `waits` command */
struct search; /* discover.c: a search for the hosts of a job */

#define OWNER_SEPARATOR '#' /* no character of a name */
#define OWNER_LEN (MANAGER_NAME_LEN + STORE_ID_LEN)

struct manager {
	const struct manager_config *config;
	char owner[OWNER_LEN]; /* mark of its jobs on switches: its name and its database's id */
	struct store *store;
	struct control *control;
	struct metrics_server *metrics; /* NULL: none */
	struct peer *peers; /* one for each switch of the topology, then for each server */
	struct peer_events events;
	int epoll_fd; /* of the peers' connections and the metrics server */
	struct groups groups;
	uint16_t n_jobs;
	TAILQ_HEAD(removals, removal) removals;
	uint32_t last_id;               /* number that a job was given */
	uint8_t foreign_ids[65536 / 8]; /* bitmap: numbers of other managers' jobs on any switch */
	uint64_t start_ms;
	uint64_t moves_from_ms; /* no job moves before this time */
	uint64_t trim_ms;       /* when to return the memory of jobs that have gone; 0: none have */
	bool moves_begun;
	struct manager_counters counters;
	TAILQ_HEAD(all_waits, waits) waits; /* not answered yet */
	TAILQ_HEAD(searches, search) searches;
	uint32_t last_search; /* number */
	bool silent_changed;  /* host.c: a host fell silent or came back, and its job has not been
				 notified */
	char **told_faults;   /* faults.c: the fault that the log has of each link of the topology;
				 hosts' links last */
};

/*
 * Opens the database, resumes its jobs, and listens. config: borrowed until manager_close. error:
 * CONTROL_MESSAGE_LEN bytes. Returns 0 and sets *manager, or -errno.
 */
int manager_open(const struct manager_config *config, struct manager **manager, char *error);

/*
 * Serves until wake_fd becomes readable. Returns 0 then, or -errno.
 */
int manager_serve(struct manager *manager, int wake_fd);

/* Closes connections and database; the jobs stay where they are. manager may be NULL. */
void manager_close(struct manager *manager);

/*
 * Removes a group, with the further trees of a job, and frees it. reason: for its members; NULL:
 * they are not notified.
 */
void manager_forget_group(struct manager *manager, struct group *group, const char *reason);

#endif
