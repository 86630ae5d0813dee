/* SPDX-License-Identifier: BSD-3-Clause */
/* What hosts ask, and what they are told. Main thread. */
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

/* What a member is told of its group: a new reference. */
json_t *host_result(const struct manager *manager, struct group *group, uint16_t rank);

/*
 * A job is made: tells the others of the members that have gone meanwhile, or destroys it if that
 * is configured; the group is no more then.
 */
void host_tell_gone(struct manager *manager, struct group *group);

/* A member's connection has ended. */
void host_closed(void *user, struct control_client *client, void *data);

/*
 * Tells the members of every job which of them are silent, if that has changed: a connection, or a
 * port, went down or came back.
 */
void host_tell_silent(struct manager *manager);

/*
 * Tells what connections that ended or came back have changed of the silent members, in one event
 * for each job. To be called once in a turn of the main loop: when all hosts are lost at once, an
 * event for each would be a list of ranks for each pair.
 */
void host_tell_changes(struct manager *manager);

/* Gives up waiting for the members that did not come back after a restart. */
void host_end_grace(struct manager *manager, uint64_t now_ms);

/* Sends an event to all members that are there but one, which may be NULL. event: taken. */
void host_notify(const struct group *group, const struct group_member *except, json_t *event);

#endif
