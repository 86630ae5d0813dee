/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds hosts that the topology does not list: asks the switches (hosts.find) before a job is
 * planned. A switch that does not know an address of its subnet sends ARP requests to its hosts,
 * and is asked again a little later. The place that is found belongs to the job's member, also in
 * the database. Each job looks for its hosts anew, since they may have moved to another port. Main
 * thread.
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

/* Twice as long as a host has to answer ARP, which is asked for once a second. */
#define SEARCH_MS 2500
#define AGAIN_MS 50
#define MAX_NAMES 6 /* switches, in an error */

/* A switch's last answer. */
struct view {
	bool unanswered; /* it has not answered the last request */
	bool answered;
	bool refused;              /* it cannot find hosts */
	struct fanin_ranks looks;  /* the ranks whose addresses it asks its hosts for */
	struct fanin_ranks behind; /* the ranks that it sees behind a link to another switch */
};

/* A search for the hosts of one group, which is GATHERING and has all its members. */
struct search {
	TAILQ_ENTRY(search) entry;
	struct group *group;
	uint32_t number;            /* distinguishes this search's answers from late ones */
	struct fanin_ranks missing; /* the ranks that are not found yet */
	uint64_t again_ms;
	uint64_t end_ms;
	struct view views[]; /* one for each switch of the topology */
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

/* Returns the arguments of hosts.find, a new reference. */
static json_t *
list_addresses(const struct group *group, const struct fanin_ranks *ranks)
{
	json_t *list = json_array();
	unsigned int rank;

	FANIN_RANKS_EACH(rank, ranks)
	{
		char ip[INET_ADDRSTRLEN];

		inet_ntop(AF_INET, &group->members[rank].ip_be, ip, sizeof(ip));
		json_array_append_new(list, json_pack("{s:s}", "ip", ip));
	}
	return json_pack("{s:o}", "hosts", list);
}

/* Handles a switch's answer about one address. */
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

		if (member->ip_be != ip_be || !fanin_ranks_has(&search->missing, i))
			continue;
		if (port == NULL) {
			if (json_is_true(json_object_get(entry, "asked")))
				fanin_ranks_add(&view->looks, i);
		} else if (topology_link_find(&manager->config->topology, peer->index, port) !=
			   TOPOLOGY_NO_LINK) {
			fanin_ranks_add(&view->behind, i); /* its frames come from another switch */
		} else {
			member->found = (struct topology_host){ .ip_be = ip_be,
								.at.switch_index = peer->index };
			memcpy(member->found.at.port, port, strlen(port) + 1);
			snprintf(member->found_at, sizeof(member->found_at), "%s",
				 peer->about->name);
			fanin_ranks_remove(&search->missing, i);
			log_debug("host %s is at port %s of switch %s", ip, port,
				  peer->about->name);
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
opinion_of(const struct view *view, uint16_t rank)
{
	if (!view->answered)
		return OPINION_NONE;
	if (view->refused)
		return OPINION_REFUSES;
	return fanin_ranks_has(&view->looks, rank)    ? OPINION_LOOKS
	       : fanin_ranks_has(&view->behind, rank) ? OPINION_BEHIND
						      : OPINION_ELSEWHERE;
}

/*
 * Writes "; WORDS leaf0, leaf1 and 7 others", or nothing if no switch has this opinion about the
 * rank. Returns the number of characters written.
 */
static size_t
write_opinion(const struct manager *manager, const struct search *search, uint16_t rank,
	      enum opinion opinion, char *text, size_t size)
{
	const struct topology *topology = &manager->config->topology;
	unsigned int n = 0;
	size_t used = 0;

	for (uint16_t i = 0; i < topology->n_switches; i++) {
		if (opinion_of(&search->views[i], rank) != opinion || n++ >= MAX_NAMES ||
		    used >= size)
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%s %s", n == 1 ? "; " : ",",
					 n == 1 ? opinion_words[opinion] : "",
					 topology->switches[i].name);
	}
	if (n > MAX_NAMES && used < size)
		used += (size_t)snprintf(text + used, size - used, " and %u others", n - MAX_NAMES);
	return used < size ? used : size - 1;
}

/*
 * Ends a search that has not found a rank's host: the group runs as a ring, or its joins are
 * refused.
 */
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
		used += write_opinion(manager, search, rank, opinion, views + used,
				      sizeof(views) - used);
	control_fail(
		&error, "no_path",
		"rank %u: no host of the topology has the address %s, and no switch has found it%.380s",
		rank, ip, views);
	forget(manager, search);
	install_failed(manager, group, &error);
}

/*
 * Returns the missing ranks that will not be found: all switches have answered, and none looks for
 * them.
 */
static struct fanin_ranks
ranks_without_hope(const struct manager *manager, const struct search *search)
{
	struct fanin_ranks ranks = search->missing;

	for (uint16_t i = 0; i < manager->config->topology.n_switches; i++) {
		if (search->views[i].answered)
			fanin_ranks_subtract(&ranks, &search->views[i].looks);
		else
			ranks = (struct fanin_ranks){ 0 };
	}
	return ranks;
}

/* Ends the search if all hosts are found, or if one will not be found. */
static void
settle(struct manager *manager, struct search *search, uint64_t now_ms)
{
	const struct fanin_ranks lost = now_ms >= search->end_ms
						? search->missing
						: ranks_without_hope(manager, search);
	struct group *group = search->group;

	if (!fanin_ranks_is_empty(&lost)) {
		fail(manager, search, (uint16_t)fanin_ranks_lowest(&lost));
	} else if (fanin_ranks_is_empty(&search->missing)) {
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

/*
 * Asks the switches for the missing ranks; one that has answered, only for those that it looks for.
 */
static void
ask_switches(struct manager *manager, struct search *search)
{
	for (uint16_t i = 0; i < manager->config->topology.n_switches; i++) {
		struct view *view = &search->views[i];
		struct fanin_ranks ranks = search->missing;

		if (view->answered)
			fanin_ranks_keep(&ranks, &view->looks);
		if (manager->peers[i].state != PEER_UP || view->unanswered ||
		    fanin_ranks_is_empty(&ranks))
			continue;
		view->unanswered = peer_ask(&manager->peers[i], "hosts.find",
					    list_addresses(search->group, &ranks), switch_answered,
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

/* Returns the ranks whose addresses the topology does not list. */
static struct fanin_ranks
find_unlisted(const struct manager *manager, struct group *group)
{
	struct fanin_ranks ranks = { 0 };

	for (uint16_t i = 0; i < group->size; i++) {
		struct group_member *member = &group->members[i];

		member->found.ip_be = 0; /* from a search that ended when a member left */
		if (topology_host_find(&manager->config->topology, member->ip_be) == NULL)
			fanin_ranks_add(&ranks, i);
	}
	return ranks;
}

void
discover_and_install(struct manager *manager, struct group *group)
{
	const uint64_t now = clock_ms();
	const struct fanin_ranks unlisted = find_unlisted(manager, group);
	struct search *search;

	/* Without discovery, the plan reports hosts that are not listed. */
	if (fanin_ranks_is_empty(&unlisted) || !manager->config->topology.discover_hosts) {
		install_group(manager, group);
		return;
	}
	search = calloc(1, sizeof(*search) +
				   manager->config->topology.n_switches * sizeof(search->views[0]));
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
	/* The switches answer later, never from within peer_ask. */
	ask_switches(manager, search);
}
