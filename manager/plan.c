/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans where a group's job runs: a tree, from the current state of the switches, and the
 * parameters that must be the same on all of its switches (Flare section 4; Canary section 2). Main
 * thread only.
 */
#include "manager/plan.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manager/faults.h"
#include "manager/handlers.h"
#include "manager/leaders.h"
#include "manager/manager.h"
#include "manager/order.h"
#include "manager/reconcile.h"
#include "manager/slots.h"
#include "wire/order.h"
#include "wire/wire.h"

/* The network's graph at one moment. It is large and therefore allocated on the heap. */
struct plan {
	struct tree_switch switches[TREE_MAX_NODES];
	struct tree_link links[TREE_MAX_BRANCHES];
	struct tree_graph graph;
	struct tree_place places[GROUP_MAX_RANKS];
	const struct topology_host *hosts[GROUP_MAX_RANKS];    /* by rank: the link with which it
								  joined */
	uint32_t addresses[GROUP_MAX_RANKS][TREE_MAX_CHOICES]; /* of the ranks' hosts, one per
								  usable link */
	struct tree tree;
};

static_assert(TREE_MAX_CHOICES == TOPOLOGY_MAX_LINKS_OF_HOST, "a choice of all links");

static void
count_jobs(const struct manager *manager, const struct group *planned, struct plan *plan)
{
	const struct group *group;

	TAILQ_FOREACH(group, &manager->groups, entry) {
		const bool own = group_job(group) == group_job(planned);

		if (group == planned)
			continue;
		for (uint16_t i = 0; i < group->n_nodes; i++) {
			const struct group_node *node = &group->nodes[i];

			if (node->switch_index != TOPOLOGY_NO_SWITCH) {
				plan->switches[node->switch_index].jobs++;
				plan->switches[node->switch_index].own += own;
			}
			if (node->link != TOPOLOGY_NO_LINK) {
				plan->links[node->link].jobs++;
				plan->links[node->link].own += own;
			}
		}
	}
}

static void
draw_graph(const struct manager *manager, struct group *group, struct plan *plan)
{
	const struct topology *topology = &manager->config->topology;
	/* Only jobs whose shape has a server can use servers. */
	const uint16_t n_servers = group_shape_of(group)->has_server ? topology->n_servers : 0;
	const uint16_t n_switches = (uint16_t)(topology->n_switches + n_servers);
	const uint16_t n_links = (uint16_t)(topology->n_links + n_servers);

	for (uint16_t i = 0; i < n_switches; i++) {
		const struct peer *peer = &manager->peers[i];
		bool full = !group_has_room(manager, group, peer);

		plan->switches[i].usable = peer->state == PEER_UP && !full && !group->excluded[i];
		group->out_of_room = group->out_of_room || (peer->state == PEER_UP && full);
	}
	for (uint16_t i = 0; i < n_links; i++) {
		const struct topology_end *ends = topology->links[i].ends;
		char fault[CONTROL_MESSAGE_LEN];

		plan->links[i].a = ends[0].switch_index;
		plan->links[i].b = ends[1].switch_index;
		plan->links[i].usable = !peer_end_is_down(manager, &ends[0]) &&
					!peer_end_is_down(manager, &ends[1]) &&
					!fault_of_link(manager, &topology->links[i], fault);
	}
	count_jobs(manager, group, plan);
	plan->graph = (struct tree_graph){ .switches = plan->switches,
					   .links = plan->links,
					   .n_switches = n_switches,
					   .n_servers = n_servers,
					   .n_links = n_links };
}

/*
 * Ranks on one host must have the same address; otherwise they would sooner or later use the same
 * link under two addresses.
 */
static int
check_hosts_differ(const struct group *group, const struct plan *plan, uint16_t rank,
		   struct control_error *error)
{
	const struct topology_host *host = plan->hosts[rank];
	char ip[INET_ADDRSTRLEN], other[INET_ADDRSTRLEN];

	for (uint16_t k = 0; k < rank; k++) {
		const struct topology_host *link = plan->hosts[k];

		if (group->members[rank].ip_be == group->members[k].ip_be ||
		    (topology_host_first(link) != topology_host_first(host) &&
		     link->ip_be != host->ip_be))
			continue;
		inet_ntop(AF_INET, &group->members[rank].ip_be, ip, sizeof(ip));
		inet_ntop(AF_INET, &group->members[k].ip_be, other, sizeof(other));
		control_fail(
			error, "no_path",
			"ranks %u and %u are on the same host, at %s and %s, expected one address",
			k, rank, other, ip);
		return -EHOSTUNREACH;
	}
	return 0;
}

/*
 * True if a link of a host can be used. A host's only link is used even if it is down: there is no
 * alternative, and a memif link comes up only with the process that joins the job.
 */
static bool
link_is_usable(const struct manager *manager, const struct plan *plan,
	       const struct topology_host *link)
{
	const bool only = link->next == NULL && topology_host_first(link) == link;
	char fault[CONTROL_MESSAGE_LEN];

	if (fault_of_end(manager, &link->at, fault))
		return false;
	return plan->switches[link->at.switch_index].usable &&
	       (only || !peer_port_is_down(&manager->peers[link->at.switch_index], link->at.port));
}

/* Writes why a link can't be used. Returns the error's code. */
static const char *
describe_link(const struct manager *manager, const struct group *group, const struct plan *plan,
	      const struct topology_host *link, uint16_t rank, char *text, size_t text_len)
{
	const struct peer *peer = &manager->peers[link->at.switch_index];
	const char *name = peer->about->name;
	char fault[CONTROL_MESSAGE_LEN];

	if (fault_of_end(manager, &link->at, fault)) {
		snprintf(text, text_len, "a link of rank %u: %.400s", rank, fault);
	} else if (peer->state != PEER_UP) {
		snprintf(text, text_len, "switch %s of rank %u is not reached: %.300s", name, rank,
			 peer->error);
	} else if (plan->switches[link->at.switch_index].usable) {
		snprintf(text, text_len, "port %s of switch %s, a link of rank %u, is down",
			 link->at.port, name, rank);
	} else if (group->failure.code != NULL) {
		snprintf(text, text_len, "rank %u: %.400s", rank, group->failure.message);
		return group->out_of_room ? "no_room" : "no_path";
	} else {
		snprintf(text, text_len,
			 "switch %s of rank %u has %u jobs, its limits.max_jobs is %u", name, rank,
			 peer->jobs, peer->max_jobs);
		return "no_room";
	}
	return "no_path";
}

/* Fails because none of a rank's links can be used. first: the first link of its host. */
static int
fail_links(const struct manager *manager, const struct group *group, const struct plan *plan,
	   uint16_t rank, const struct topology_host *first, struct control_error *error)
{
	const bool several = first->next != NULL;
	const char *code = "no_room";
	char text[CONTROL_MESSAGE_LEN] = "";
	size_t used = 0;

	for (const struct topology_host *link = first; link != NULL && used < sizeof(text);
	     link = link->next) {
		char why[CONTROL_MESSAGE_LEN];
		const char *found = describe_link(manager, group, plan, link, rank, why,
						  several ? sizeof(why) / 4 : sizeof(why));

		if (strcmp(found, "no_path") == 0)
			code = found;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
					 link == first ? "" : "; ", why);
	}
	control_fail(error, code, "%s", text);
	return -ENOENT;
}

/*
 * Lists the usable links of a rank's host as the rank's choices. first: the host's first link in
 * the topology.
 */
static int
list_places(const struct manager *manager, const struct group *group, uint16_t rank,
	    const struct topology_host *first, struct plan *plan, struct control_error *error)
{
	struct tree_place *place = &plan->places[rank];

	for (const struct topology_host *link = first; link != NULL; link = link->next) {
		if (!link_is_usable(manager, plan, link))
			continue;
		plan->addresses[rank][place->n_switches] = link->ip_be;
		place->switches[place->n_switches++] = link->at.switch_index;
	}
	return place->n_switches > 0 ? 0 : fail_links(manager, group, plan, rank, first, error);
}

/* Finds the switches of the ranks' hosts. */
static int
find_places(const struct manager *manager, const struct group *group, struct plan *plan,
	    struct control_error *error)
{
	char ip[INET_ADDRSTRLEN];

	for (uint16_t i = 0; i < group->size; i++) {
		const struct topology_host *host = group_host_of(group, &manager->config->topology,
								 i);

		inet_ntop(AF_INET, &group->members[i].ip_be, ip, sizeof(ip));
		if (host == NULL) {
			control_fail(error, "no_path",
				     "rank %u: no host of the topology has the address %s", i, ip);
			return -EHOSTUNREACH;
		}
		plan->hosts[i] = host;
		if (check_hosts_differ(group, plan, i, error) != 0)
			return -EHOSTUNREACH;
		if (list_places(manager, group, i, topology_host_first(host), plan, error) != 0)
			return -ENOENT;
	}
	return 0;
}

/*
 * Writes why a server can't be used. Returns the error's code, or NULL if neither the server nor
 * its link prevents it.
 */
static const char *
describe_server(const struct manager *manager, const struct group *group, const struct plan *plan,
		uint16_t index, char *text, size_t text_len)
{
	const struct topology *topology = &manager->config->topology;
	const uint16_t link = topology_server_link(topology, index);
	const struct topology_end *at = &topology->links[link].ends[0];
	const struct topology_end *own = &topology->links[link].ends[1];
	const struct peer *peer = &manager->peers[index];
	const char *name = peer->about->name;
	char fault[CONTROL_MESSAGE_LEN];

	if (peer->state != PEER_UP) {
		snprintf(text, text_len, "server %s is not reached: %.200s", name, peer->error);
	} else if (group->excluded[index]) {
		snprintf(text, text_len, "%.200s",
			 group->failure.code == NULL ? "" : group->failure.message);
		return group->out_of_room ? "no_room" : "no_path";
	} else if (!plan->switches[index].usable) {
		snprintf(text, text_len, "server %s has %u jobs, its limits.max_jobs is %u", name,
			 peer->jobs, peer->max_jobs);
		return "no_room";
	} else if (fault_of_end(manager, at, fault)) {
		snprintf(text, text_len, "the link of server %s: %.200s", name, fault);
	} else if (peer_end_is_down(manager, own)) {
		snprintf(text, text_len, "port %s of server %s is down", peer_port_of(manager, own),
			 name);
	} else if (!plan->links[link].usable) {
		snprintf(text, text_len, "port %s of switch %s, the link of server %s, is down",
			 at->port, manager->peers[at->switch_index].about->name, name);
	} else if (manager->peers[at->switch_index].state != PEER_UP) {
		snprintf(text, text_len, "switch %s of server %s is not reached: %.200s",
			 manager->peers[at->switch_index].about->name, name,
			 manager->peers[at->switch_index].error);
	} else {
		return NULL;
	}
	return "no_path";
}

/*
 * Writes why servers can't be used, ": " before the first, "; " between them. Returns the code for
 * such an error.
 */
static const char *
describe_servers(const struct manager *manager, const struct group *group, const struct plan *plan,
		 char *text, size_t text_len)
{
	const struct topology *topology = &manager->config->topology;
	const char *code = "no_room";
	size_t used = 0;

	text[0] = '\0';
	for (uint16_t i = topology->n_switches; i < topology_n_peers(topology); i++) {
		char why[CONTROL_MESSAGE_LEN];
		const char *found = describe_server(manager, group, plan, i, why, sizeof(why));

		if (found == NULL || strcmp(found, "no_path") == 0)
			code = "no_path";
		if (found != NULL && used < text_len)
			used += (size_t)snprintf(text + used, text_len - used, "%s%s",
						 used == 0 ? ": " : "; ", why);
	}
	return code;
}

/* Fails because no usable server reaches all ranks, although their switches can be used. */
static int
fail_server(const struct manager *manager, const struct group *group, const struct plan *plan,
	    int ret, struct control_error *error)
{
	char why[CONTROL_MESSAGE_LEN];
	const char *code;

	if (manager->config->topology.n_servers == 0) {
		control_fail(
			error, "no_path",
			"the handler \"%s\" needs a parameter server, and the topology has none",
			group->handler);
		return ret;
	}
	code = describe_servers(manager, group, plan, why, sizeof(why));
	control_fail(error, code,
		     "no server that can be used reaches the hosts of all %u ranks%.430s",
		     group->size, why);
	return ret;
}

/* Fails because the ranks' switches can be used but are not connected. */
static int
fail_tree(const struct manager *manager, const struct group *group, const struct plan *plan,
	  int ret, struct control_error *error)
{
	char faults[CONTROL_MESSAGE_LEN];

	if (group_shape_of(group)->has_server)
		return fail_server(manager, group, plan, ret, error);

	const char *code = group->out_of_room ? "no_room" : "no_path";

	faults_describe(manager, faults, sizeof(faults));
	if (group->failure.code == NULL)
		control_fail(error, code,
			     "no switch that can be used reaches the hosts of all %u ranks%.430s",
			     group->size, faults);
	else
		control_fail(
			error, code,
			"no switch that can be used reaches the hosts of all %u ranks: %.200s%s%.200s",
			group->size, group->failure.message, faults[0] == '\0' ? "" : ";",
			faults[0] == '\0' ? "" : faults + 1);
	return ret;
}

static const char *
name_of_node(const void *user, unsigned int index)
{
	const struct manager *manager = user;

	return manager->peers[index].about->name;
}

/*
 * Fails because each tree that reaches all ranks has a switch that would have to sum up ranks that
 * the order of ranks never sums up by themselves.
 */
static int
fail_order(const struct manager *manager, const struct group *group, struct plan *plan,
	   struct control_error *error)
{
	/*
	 * The job may find room for another tree later, and a switch that refused the job may
	 * accept it later.
	 */
	const char *code = group->out_of_room            ? "no_room"
			   : group->failure.code != NULL ? "no_path"
							 : PLAN_ORDER;
	char found[CONTROL_MESSAGE_LEN / 2];

	plan->graph.in_order = false;
	if (tree_build(&plan->graph, plan->places, group->size, &plan->tree) != 0) {
		control_fail(error, "internal", "the tree of a moment ago is not there");
		return -EDOM;
	}
	order_describe(&plan->tree, group->size, name_of_node, manager, found, sizeof(found));
	control_fail(error, code,
		     "a reproducible job of %u ranks: found %.200s, which " FANIN_ORDER_PROBLEM,
		     group->size, found);
	return -EDOM;
}

/* True if a group is being made: it has no tree yet. */
static bool
is_new(const struct group *group)
{
	return group->state == GROUP_INSTALLING && !group->moving;
}

/*
 * A further tree must add at least one link that the job's other trees lack, or a server of its
 * own. Once it has been made, it may move anywhere.
 */
static int
check_is_further(const struct manager *manager, const struct group *group, const struct plan *plan,
		 struct control_error *error)
{
	const struct tree *tree = &plan->tree;
	char faults[CONTROL_MESSAGE_LEN];

	if (group->leader == NULL || !is_new(group))
		return 0;
	if (group_shape_of(group)->has_server) {
		if (plan->switches[tree->nodes[0].switch_index].own == 0)
			return 0;
		describe_servers(manager, group, plan, faults, sizeof(faults));
		control_fail(error, "no_path",
			     "all servers that can be used are in its other trees%.400s", faults);
		return -EHOSTUNREACH;
	}
	if (tree->shared + 1 < tree->n_nodes)
		return 0;
	faults_describe(manager, faults, sizeof(faults));
	if (group->failure.code != NULL)
		control_fail(error, group->failure.code, "%s", group->failure.message);
	else
		control_fail(
			error, "no_path",
			"all links between the switches of its hosts are in its other trees%.430s",
			faults);
	return -EHOSTUNREACH;
}

static int
write_nodes(const struct manager *manager, const struct plan *plan, struct group *group)
{
	const struct tree *tree = &plan->tree;
	struct group_node *nodes;
	uint16_t n_nodes;

	assert(tree->n_nodes > 0);
	nodes = group_shape_of(group)->make_nodes(manager, group, tree, &n_nodes);
	if (nodes == NULL)
		return -ENOMEM;
	for (uint16_t i = 0; i < group->size; i++)
		group->addresses[i] = plan->addresses[i][tree->chosen[i]];
	group_forget_peers(group);
	free(group->nodes);
	group->nodes = nodes;
	group->n_nodes = n_nodes;
	return 0;
}

/* Lowers *mtu to the port's MTU if that is smaller. */
static int
lower_mtu(const struct manager *manager, uint16_t switch_index, const char *port, uint32_t *mtu,
	  struct control_error *error)
{
	const struct peer *peer = &manager->peers[switch_index];
	const json_t *found = json_object_get(peer->ports, port);

	if (found == NULL) {
		control_fail(error, "no_path", "%s %s has no port \"%s\"",
			     topology_kind(peer->about), peer->about->name, port);
		return -EHOSTUNREACH;
	}
	if (json_integer_value(found) < (json_int_t)*mtu)
		*mtu = (uint32_t)json_integer_value(found);
	return 0;
}

/*
 * Packets must also fit the host's other links, as far as their MTUs are known: the job may move
 * there.
 */
static void
lower_mtu_by_others(const struct manager *manager, const struct topology_host *host, uint32_t *mtu)
{
	const struct topology_host *link;
	struct control_error ignored;

	for (link = topology_host_first(host); link != NULL; link = link->next)
		lower_mtu(manager, link->at.switch_index, link->at.port, mtu, &ignored);
}

/* Packets must fit all links that they may take, as far as the MTUs are known. */
static void
lower_mtu_by_links(const struct manager *manager, const struct group *group, uint32_t *mtu)
{
	struct control_error ignored;

	for (uint16_t i = 0; i < group->n_nodes; i++) {
		for (uint16_t k = 0; k < manager->config->topology.n_links; k++) {
			const char *port = leaders_port(manager, group, &group->nodes[i], k);

			if (port != NULL)
				(void)lower_mtu(manager, group->nodes[i].switch_index, port, mtu,
						&ignored);
		}
	}
}

static int
choose_payload(const struct manager *manager, struct group *group, struct control_error *error)
{
	uint32_t mtu = UINT16_MAX;
	uint32_t most;
	int ret = 0;

	for (uint16_t i = 0; i < group->size && ret == 0; i++) {
		const struct group_member *member = &group->members[i];
		const struct topology_host *host = group_link_of(group, &manager->config->topology,
								 i);

		if (member->mtu != 0 && member->mtu < mtu)
			mtu = member->mtu;
		ret = lower_mtu(manager, host->at.switch_index, host->at.port, &mtu, error);
		if (group->payload_asked == 0)
			lower_mtu_by_others(manager, host, &mtu);
	}
	if (!group_shape_of(group)->has_tree)
		lower_mtu_by_links(manager, group, &mtu);
	for (uint16_t i = 1; i < group->n_nodes && ret == 0; i++) {
		const struct group_node *node = &group->nodes[i];

		if (node->parent == TREE_NO_PARENT)
			continue;
		ret = lower_mtu(manager, node->switch_index, node->port, &mtu, error);
		if (ret == 0)
			ret = lower_mtu(manager, group->nodes[node->parent].switch_index,
					node->parent_port, &mtu, error);
	}
	if (ret != 0)
		return ret;
	most = fanin_payload_for_mtu(mtu, group->authenticate);
	group->payload_bytes = group->payload_asked == 0 ? most : group->payload_asked;
	if (group->payload_bytes != 0 && group->payload_bytes <= most &&
	    group->payload_bytes % FANIN_PAYLOAD_ALIGN == 0)
		return 0;
	control_fail(
		error, "invalid",
		"found payload_bytes %u, expected a multiple of %u up to %u (least MTU of the path is %u)",
		group->payload_bytes, FANIN_PAYLOAD_ALIGN, most, mtu);
	return -EINVAL;
}

int
plan_check_shape(const struct manager *manager, struct group *group, struct control_error *error)
{
	struct control_error ignored;

	/* An unknown shape is refused later, once the job has a tree or finding one has failed. */
	if (is_new(group) || group->state == GROUP_GATHERING)
		(void)handlers_find_shape(manager, group, &ignored);
	return group_shape_of(group)->check(manager, group, error);
}

/*
 * Checks that the switches report the kind of shape that was planned: a tree with a server as its
 * root, a tree without a server, or no tree.
 */
static int
check_settled(const struct group *group, enum group_shape planned, struct control_error *error)
{
	if (group_shape_of(group)->has_server == shape_of(planned)->has_server &&
	    group_shape_of(group)->has_tree == shape_of(planned)->has_tree)
		return 0;
	control_fail(
		error, "invalid",
		"the handler \"%s\" has the shape %s on switch %s, but another one on other switches or servers: expected one",
		group->handler, group_shape_of(group)->name, group->nodes[0].switch_name);
	return -EINVAL;
}

/* Finds the places of all ranks and a tree over them. */
static int
find_tree(const struct manager *manager, struct group *group, struct plan *plan,
	  struct control_error *error)
{
	int ret = find_places(manager, group, plan, error);

	if (ret != 0)
		return ret;
	/* If the graph had no servers, tree_build would make a switch the root. */
	if (group_shape_of(group)->has_server && plan->graph.n_servers == 0)
		ret = -EHOSTUNREACH;
	else
		ret = tree_build(&plan->graph, plan->places, group->size, &plan->tree);
	if (ret == -EDOM)
		return fail_order(manager, group, plan, error);
	if (ret == -ENOMEM) {
		control_fail(error, "internal", "out of memory");
		return ret;
	}
	return ret == 0 ? 0 : fail_tree(manager, group, plan, ret, error);
}

/*
 * Assigns the ranks that nobody has asked for, following the first tree that is found, and clears
 * the places for the next search.
 */
static int
deal_ranks(const struct manager *manager, struct group *group, struct plan *plan,
	   struct control_error *error)
{
	int ret;

	if (group->leader != NULL || !is_new(group) || !order_has_choice(group))
		return 0;
	ret = find_tree(manager, group, plan, error);
	if (ret != 0)
		return ret;
	order_deal(group, &plan->tree);
	memset(plan->places, 0, sizeof(plan->places));
	return 0;
}

/*
 * Partial sums cross a link in the type of their elements. So only jobs on one switch can round
 * just once.
 */
static int
check_wide(const struct manager *manager, const struct group *group, const struct tree *tree,
	   struct control_error *error)
{
	const char *names[2] = { "", "" };
	unsigned int n = 0;

	if (!group->wide || tree->n_nodes == 1)
		return 0;
	for (uint16_t i = 0; i < tree->n_nodes && n < 2; i++) {
		if (!fanin_ranks_is_empty(&tree->nodes[i].local))
			names[n++] = manager->peers[tree->nodes[i].switch_index].about->name;
	}
	control_fail(
		error, "invalid",
		"found accumulate \"f32\" for hosts at several switches, as %s and %s: expected all hosts at one switch, or \"native\"",
		names[0], names[1]);
	return -EINVAL;
}

int
plan_group(struct manager *manager, struct group *group, struct control_error *error)
{
	enum group_shape planned;
	struct plan *plan;
	int ret;

	if (strcmp(group->handler, HANDLERS_RING) == 0) {
		control_fail(error, "no_path",
			     "its hosts ask for the handler \"" HANDLERS_RING
			     "\", which no switch has");
		return -EHOSTUNREACH;
	}
	ret = plan_check_shape(manager, group, error);
	if (ret != 0)
		return ret;
	planned = group->shape;
	plan = calloc(1, sizeof(*plan));
	if (plan == NULL) {
		control_fail(error, "internal", "out of memory");
		return -ENOMEM;
	}
	draw_graph(manager, group, plan);
	ret = deal_ranks(manager, group, plan, error);
	plan->graph.in_order = group_keeps_order(group);
	if (ret == 0)
		ret = find_tree(manager, group, plan, error);
	if (ret == 0)
		ret = check_is_further(manager, group, plan, error);
	if (ret == 0)
		ret = check_wide(manager, group, &plan->tree, error);
	if (ret == 0 && write_nodes(manager, plan, group) != 0) {
		control_fail(error, "internal", "out of memory");
		ret = -ENOMEM;
	}
	free(plan);
	/*
	 * Without a tree, too, the shape is needed: it tells whether hosts can replace the
	 * switches.
	 */
	if (ret != 0)
		return handlers_find_shape(manager, group, error) == 0 ? ret : -EINVAL;
	ret = handlers_settle(manager, group, error);
	if (ret == 0)
		ret = check_settled(group, planned, error);
	if (ret == 0)
		ret = choose_payload(manager, group, error);
	return ret == 0 ? slots_choose(manager, group, error) : ret;
}

static json_t *
list_ranks(const struct fanin_ranks *ranks)
{
	json_t *list = json_array();
	unsigned int rank;

	FANIN_RANKS_EACH(rank, ranks)
	json_array_append_new(list, json_integer(rank));
	return list;
}

void
plan_add_host(json_t *list, const struct topology_host *link, unsigned int rank)
{
	char ip[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &link->ip_be, ip, sizeof(ip));
	json_array_append_new(list, json_pack("{s:s, s:s, s:i}", "port", link->at.port, "ip", ip,
					      "rank", (int)rank));
}

static json_t *
list_children(const struct manager *manager, const struct group *group, uint16_t index)
{
	const struct group_node *node = &group->nodes[index];
	json_t *list = json_array();
	unsigned int rank;

	FANIN_RANKS_EACH(rank, &node->local)
	{
		plan_add_host(list,
			      group_link_of(group, &manager->config->topology, (uint16_t)rank),
			      rank);
	}
	for (uint16_t i = 1; i < group->n_nodes; i++) {
		const struct group_node *child = &group->nodes[i];

		if (child->parent == index)
			json_array_append_new(list,
					      json_pack("{s:s, s:s, s:o}", "port",
							child->parent_port, "ip",
							manager->peers[child->switch_index].ip,
							"ranks", list_ranks(&child->ranks)));
	}
	return list;
}

json_t *
plan_create_args(const struct manager *manager, const struct group *group, uint16_t index)
{
	const struct group_node *node = &group->nodes[index];
	const struct peer *parent;
	char key[20];
	json_t *args = json_pack("{s:I, s:s, s:s, s:s, s:I, s:b, s:s, s:o}", "id",
				 (json_int_t)group->id, "key", group_hex(group->key, key), "owner",
				 manager->owner, "handler", group->handler, "payload_bytes",
				 (json_int_t)group->payload_bytes, "reproducible",
				 group->reproducible, "accumulate", group->wide ? "f32" : "native",
				 "members", list_children(manager, group, index));

	/*
	 * A switch that does not support tags refuses this argument, so jobs without tags omit it.
	 */
	if (group->authenticate)
		json_object_set_new(args, "authenticate", json_true());
	/*
	 * Omitted if empty, for the same reason. The handler defines the names, and the switch
	 * knows them.
	 */
	if (group->parameters_asked != NULL)
		json_object_set(args, "parameters", group->parameters_asked);
	if (group_shape_of(group)->add_args != NULL)
		group_shape_of(group)->add_args(manager, group, node, args);
	if (group->n_nodes > 1)
		json_object_set_new(args, "size", json_integer(group->size));
	/*
	 * A single switch chooses the number of slots for its ports by itself. Several switches
	 * must agree on one, and a job that moves keeps its number.
	 */
	if (group_shape_of(group)->has_slots &&
	    (group->n_nodes > 1 || group->moving || !group_shape_of(group)->has_tree))
		json_object_set_new(args, "slots", json_integer((json_int_t)group->slots));
	if (node->parent != TREE_NO_PARENT) {
		parent = &manager->peers[group->nodes[node->parent].switch_index];
		json_object_set_new(args, "parent",
				    json_pack("{s:s, s:s, s:s, s:o*}", "port", node->port, "ip",
					      parent->ip, "mac", parent->mac, "server",
					      parent->about->is_server ? json_true() : NULL));
	}
	return args;
}
