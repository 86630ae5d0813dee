/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds differences between the topology and the network. Main thread. */
#ifndef FANIN_MANAGER_FAULTS_H
#define FANIN_MANAGER_FAULTS_H

#include <stdbool.h>
#include <stddef.h>

struct manager;
struct topology_link;
struct topology_end;

/* Allocates the list of faults that the log has. Returns 0, or -ENOMEM. */
int faults_begin(struct manager *manager);

/* Frees the list. */
void faults_end(struct manager *manager);

/*
 * Returns true if a link of the topology, or one end of such a link or of a host's, differs from
 * what the switches have last reported. text: CONTROL_MESSAGE_LEN bytes; filled then.
 */
bool fault_of_link(const struct manager *manager, const struct topology_link *link, char *text);
bool fault_of_end(const struct manager *manager, const struct topology_end *end, char *text);

/*
 * Logs what has changed after a switch has reported its ports or next hops, each fault once.
 * Returns true if something has changed.
 */
bool faults_note(struct manager *manager);

/*
 * Writes ": FAULT; FAULT": links that differ from the topology, and switches that are not reached.
 * Writes "" if there are none.
 */
void faults_describe(const struct manager *manager, char *text, size_t size);

#endif
