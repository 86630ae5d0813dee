/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the topology says what the network does not. Main thread. */
#ifndef FANIN_MANAGER_FAULTS_H
#define FANIN_MANAGER_FAULTS_H

#include <stdbool.h>
#include <stddef.h>

struct manager;
struct topology_link;
struct topology_end;

/* Allocates the memory of faults that are in the log already. Returns 0, or -ENOMEM. */
int faults_begin(struct manager *manager);

/* Frees it. */
void faults_end(struct manager *manager);

/*
 * Is a link of the topology, or one end of it or of a host's link, not as the switches say, as far
 * as these have been heard? text: CONTROL_MESSAGE_LEN bytes; filled if so.
 */
bool fault_of_link(const struct manager *manager, const struct topology_link *link, char *text);
bool fault_of_end(const struct manager *manager, const struct topology_end *end, char *text);

/*
 * A switch has told its ports or next hops: logs what has changed, each fault once. Returns true if
 * something has.
 */
bool faults_note(struct manager *manager);

/*
 * ": FAULT; FAULT": links that are not as the topology says, and switches that are not reached; or
 * nothing.
 */
void faults_describe(const struct manager *manager, char *text, size_t size);

#endif
