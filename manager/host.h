/* SPDX-License-Identifier: BSD-3-Clause */
/* The commands of hosts, and the events for them. Main thread. */
#ifndef FANIN_MANAGER_HOST_H
#define FANIN_MANAGER_HOST_H

#include <stdint.h>

#include <jansson.h>

#include "control/control.h"

struct manager;
struct group;
struct group_member;

json_t *host_join(void *user, struct control_client *client, json_t *id, const json_t *args,
		  struct control_error *error);
json_t *host_reattach(void *user, struct control_client *client, json_t *id, const json_t *args,
		      struct control_error *error);
json_t *host_heartbeat(void *user, struct control_client *client, json_t *id, const json_t *args,
		       struct control_error *error);
json_t *host_leave(void *user, struct control_client *client, json_t *id, const json_t *args,
		   struct control_error *error);

/* Returns what a member has to know about its group, as the answer to its join: a new reference. */
json_t *host_result(const struct manager *manager, struct group *group, uint16_t rank);

/*
 * Reports members that have gone while their job was being installed to the others, or destroys the
 * job if that is configured; the group is freed then.
 */
void host_tell_gone(struct manager *manager, struct group *group);

/* Handles the end of a member's connection. */
void host_closed(void *user, struct control_client *client, void *data);

/*
 * Reports to the members of every job which of them are silent, if that has changed: a connection
 * or a port went down or came back.
 */
void host_tell_silent(struct manager *manager);

/*
 * Reports what connections that ended or came back have changed, in one event per job. Call it once
 * in a turn of the main loop: if all hosts are lost at once, an event for each of them would send a
 * list of ranks for each pair.
 */
void host_tell_changes(struct manager *manager);

/* Gives up members that have not come back in time. */
void host_end_grace(struct manager *manager, uint64_t now_ms);

/* Sends an event to all connected members but one, which may be NULL. event: taken. */
void host_notify(const struct group *group, const struct group_member *except, json_t *event);

#endif
