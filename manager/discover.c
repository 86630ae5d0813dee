/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where hosts are that the topology does not list: the switches are asked (hosts.find) before a job is planned. A switch that
 * does not know an address of its subnet asks its hosts by ARP, and is asked again a little later. What is found belongs to the
 * job's member, in the database, too: each job finds its hosts anew, as they may have moved to another port. Main thread.
 */
#include "manager/discover.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/clock.h"
#include "control/log.h"
#include "manager/install.h"
#include "manager/manager.h"

#define SEARCH_MS                                                                                  \
	2500 /* twice as long as a host has to answer ARP, which is asked for once a second */
#define AGAIN_MS 50
#define MOST_NAMES 6 /* of switches, in an error */

/* What a switch has said last. */
struct view {
	bool unanswered; /* it has been asked and has not answered */
	bool answered;
	bool refused;    /* it cannot find hosts */
	uint64_t looks;  /* bitmap of the ranks whose addresses its hosts are asked for */
	uint64_t behind; /* of those that it sees behind a link to another switch */
};

/* For the hosts of one group, which is GATHERING and has all its members. */
struct search {
	TAILQ_ENTRY(search) entry;
	struct group *group;
	uint32_t number;  /* by which late answers are told from those of this search */
	uint64_t missing; /* bitmap of the ranks that are not found yet */
	uint64_t again_ms;
	uint64_t end_ms;
	struct view views[TREE_MAX_SWITCHES];
};

static void
forget(struct manager *manager, struct search *search)
{
	TAILQ_REMOVE(&manager->searches, search, entry);
	free(search);
}

void
discover_end(struct manager *manager, const struct group *group)
{
	struct search *search, *next;

	for (search = TAILQ_FIRST(&manager->searches); search != NULL; search = next) {
		next = TAILQ_NEXT(search, entry);
		if (search->group == group)
			forget(manager, search);
	}
}

/* What a switch is asked. A new reference. */
static json_t *
list_addresses(const struct group *group, uint64_t ranks)
{
	json_t *list = json_array();

	for (uint16_t i = 0; i < group->size; i++) {
		char ip[INET_ADDRSTRLEN];

		if ((ranks >> i & 1) == 0)
			continue;
		inet_ntop(AF_INET, &group->members[i].ip_be, ip, sizeof(ip));
		json_array_append_new(list, json_pack("{s:s}", "ip", ip));
	}
	return json_pack("{s:o}", "hosts", list);
}

/* Takes over what a switch says of one address. */
static void
take_place(const struct manager *manager, struct search *search, const struct peer *peer,
	   const json_t *entry)
{
	const char *ip = json_string_value(json_object_get(entry, "ip"));
	const char *port = json_string_value(json_object_get(entry, "port"));
	struct view *view = &search->views[peer->index];
	uint32_t ip_be;

	if (ip == NULL || inet_pton(AF_INET, ip, &ip_be) != 1 ||
	    (port != NULL && strlen(port) >= TOPOLOGY_NAME_LEN))
		return;
	for (uint16_t i = 0; i < search->group->size; i++) {
		struct group_member *member = &search->group->members[i];
		const uint64_t rank = UINT64_C(1) << i;

		if ((search->missing & rank) == 0 || member->ip_be != ip_be)
			continue;
		if (port == NULL) {
			view->looks |= json_is_true(json_object_get(entry, "asked")) ? rank : 0;
		} else if (topology_link_find(&manager->config->topology, peer->index, port) !=
			   TOPOLOGY_NO_LINK) {
			view->behind |= rank; /* a frame of it has come from another switch */
		} else {
			member->found = (struct topology_host){ .ip_be = ip_be,
								.at.switch_index = peer->index };
			memcpy(member->found.at.port, port, strlen(port) + 1);
			snprintf(member->found_at, sizeof(member->found_at), "%s", peer->about->name);
			search->missing &= ~rank;
			log_debug("host %s is at port %s of switch %s", ip, port, peer->about->name);
		}
	}
}

enum opinion {
	OPINION_LOOKS,
	OPINION_BEHIND,
	OPINION_REFUSES,
	OPINION_ELSEWHERE,
	OPINION_NONE,
	N_OPINIONS,
};

static const char *const opinion_words[N_OPINIONS] = {
	"no answer to ARP at", "behind another switch at", "cannot be looked for at",
	"not in the hosts' subnet of", "not reached:"
};

static enum opinion
opinion_of(const struct view *view, uint64_t rank)
{
	if (!view->answered)
		return OPINION_NONE;
	if (view->refused)
		return OPINION_REFUSES;
	return (view->looks & rank) != 0    ? OPINION_LOOKS
	       : (view->behind & rank) != 0 ? OPINION_BEHIND
					    : OPINION_ELSEWHERE;
}

/* "; WORDS leaf0, leaf1 and 7 others", or nothing if no switch has this to say of a rank. Returns how much was written. */
static size_t
write_opinion(const struct manager *manager, const struct search *search, uint64_t rank,
	      enum opinion opinion, char *text, size_t size)
{
	const struct topology *topology = &manager->config->topology;
	unsigned int n = 0;
	size_t used = 0;

	for (uint16_t i = 0; i < topology->n_switches; i++) {
		if (opinion_of(&search->views[i], rank) != opinion || n++ >= MOST_NAMES ||
		    used >= size)
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%s %s", n == 1 ? "; " : ",",
					 n == 1 ? opinion_words[opinion] : "",
					 topology->switches[i].name);
	}
	if (n > MOST_NAMES && used < size)
		used += (size_t)snprintf(text + used, size - used, " and %u others", n - MOST_NAMES);
	return used < size ? used : size - 1;
}

/* A rank's host is on no switch: the group does without the network, or its members are told. */
static void
fail(struct manager *manager, struct search *search, uint16_t rank)
{
	struct group *group = search->group;
	struct control_error error;
	char views[CONTROL_MESSAGE_LEN] = "";
	char ip[INET_ADDRSTRLEN];
	size_t used = 0;

	inet_ntop(AF_INET, &group->members[rank].ip_be, ip, sizeof(ip));
	for (enum opinion opinion = 0; opinion < N_OPINIONS; opinion++)
		used += write_opinion(manager, search, UINT64_C(1) << rank, opinion, views + used,
				      sizeof(views) - used);
	control_fail(&error, "no_path",
		     "rank %u: no host of the topology has the address %s, and no switch has found it%.380s",
		     rank, ip, views);
	forget(manager, search);
	install_failed(manager, group, &error);
}

/* The ranks that may still be found: a switch looks for them, or has not been heard. */
static uint64_t
ranks_with_hope(const struct manager *manager, const struct search *search)
{
	uint64_t ranks = 0;

	for (uint16_t i = 0; i < manager->config->topology.n_switches; i++)
		ranks |= search->views[i].answered ? search->views[i].looks : UINT64_MAX;
	return ranks;
}

/* Ends the search if there is a reason to. */
static void
settle(struct manager *manager, struct search *search, uint64_t now_ms)
{
	const uint64_t lost = now_ms >= search->end_ms
				      ? search->missing
				      : search->missing & ~ranks_with_hope(manager, search);
	struct group *group = search->group;

	if (lost != 0) {
		fail(manager, search, (uint16_t)__builtin_ctzll(lost));
	} else if (search->missing == 0) {
		forget(manager, search);
		install_group(manager, group);
	}
}

static void
switch_answered(void *user, uint32_t number, struct peer *peer, const json_t *result,
		const char *code, const char *message)
{
	struct manager *manager = user;
	struct search *search;
	const json_t *entry;
	struct view *view;
	size_t i;

	TAILQ_FOREACH(search, &manager->searches, entry) {
		if (search->number == number)
			break;
	}
	if (search == NULL)
		return;
	view = &search->views[peer->index];
	*view = (struct view){ .answered = result != NULL || strcmp(code, "lost") != 0,
			       .refused = result == NULL };
	if (view->answered && view->refused)
		log_warning("switch %s cannot look for hosts: %s", peer->about->name, message);
	json_array_foreach(json_object_get(result, "hosts"), i, entry)
		take_place(manager, search, peer, entry);
	settle(manager, search, clock_ms());
}

/* Asks all switches that have not said where else to look. */
static void
ask_switches(struct manager *manager, struct search *search)
{
	for (uint16_t i = 0; i < manager->config->topology.n_switches; i++) {
		struct view *view = &search->views[i];
		const uint64_t ranks = view->answered ? search->missing & view->looks
						      : search->missing;

		if (manager->peers[i].state != PEER_UP || view->unanswered || ranks == 0)
			continue;
		view->unanswered = peer_ask(&manager->peers[i], "hosts.find",
					    list_addresses(search->group, ranks), switch_answered,
					    manager, search->number) == 0;
	}
}

uint64_t
discover_tick(struct manager *manager, uint64_t now_ms)
{
	uint64_t wake_ms = UINT64_MAX;
	struct search *search, *next;

	for (search = TAILQ_FIRST(&manager->searches); search != NULL; search = next) {
		next = TAILQ_NEXT(search, entry);
		if (now_ms >= search->end_ms) {
			settle(manager, search, now_ms);
			continue;
		}
		if (now_ms >= search->again_ms) {
			search->again_ms = now_ms + AGAIN_MS;
			ask_switches(manager, search);
		}
		if (search->again_ms < wake_ms)
			wake_ms = search->again_ms;
	}
	return wake_ms;
}

/* The ranks whose addresses the topology does not list. */
static uint64_t
find_unlisted(const struct manager *manager, struct group *group)
{
	uint64_t ranks = 0;

	for (uint16_t i = 0; i < group->size; i++) {
		struct group_member *member = &group->members[i];

		member->found.ip_be = 0; /* of a search that somebody's leaving has ended */
		if (topology_host_find(&manager->config->topology, member->ip_be) == NULL)
			ranks |= UINT64_C(1) << i;
	}
	return ranks;
}

void
discover_and_install(struct manager *manager, struct group *group)
{
	const uint64_t now = clock_ms();
	const uint64_t unlisted = find_unlisted(manager, group);
	struct search *search;

	/* What is neither listed nor looked for has no place: the plan says so. */
	if (unlisted == 0 || !manager->config->topology.discover_hosts) {
		install_group(manager, group);
		return;
	}
	search = calloc(1, sizeof(*search));
	if (search == NULL) {
		struct control_error error;

		control_fail(&error, "internal", "out of memory");
		install_failed(manager, group, &error);
		return;
	}
	search->group = group;
	search->number = ++manager->last_search;
	search->missing = unlisted;
	search->again_ms = now + AGAIN_MS;
	search->end_ms = now + SEARCH_MS;
	TAILQ_INSERT_TAIL(&manager->searches, search, entry);
	/* They answer later, never from within peer_ask. */
	ask_switches(manager, search);
}
