/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job as the manager knows it, called a group here: its ranks, its tree, and how far it has come.
 * It can be written down as a JSON document, and made again from that. Main thread only.
 *
 * A job of several trees is several groups, each with a number and a key of its own on the
 * switches. The first one leads: only its members have connections, and its state is the job's; the
 * others have copies of what trees are planned by.
 */
#ifndef FANIN_MANAGER_GROUP_H
#define FANIN_MANAGER_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <jansson.h>

#include "control/control.h"
#include "manager/topology.h"
#include "manager/shape.h"
#include "manager/tree.h"

#define GROUP_NAME_LEN 64
#define GROUP_KEY_LEN (GROUP_NAME_LEN + 8)
#define GROUP_MAX_TREES 8
#define GROUP_MAX_RANKS TREE_MAX_RANKS
#define GROUP_RING_RANKS 64 /* of a ring at most */
#define GROUP_ENDPOINT_LEN 64
#define GROUP_HANDLER_LEN 32
#define GROUP_NO_RANK (-1)

enum group_state {
	GROUP_GATHERING,  /* not all ranks have come */
	GROUP_INSTALLING, /* switches are being asked */
	GROUP_NETWORK,    /* runs in the network */
	GROUP_RING,       /* its hosts do it among themselves */
};

enum member_state {
	MEMBER_WAITING, /* for the answer to its join */
	MEMBER_LIVE,
	MEMBER_ABSENT, /* the manager has restarted, or nothing is heard of it: it may come back */
	MEMBER_GONE,
};

struct group_member {
	enum member_state state;
	int rank; /* asked for; GROUP_NO_RANK: any. From INSTALLING on its place in the array */
	uint32_t ip_be;                    /* that it joined with: one of its host's */
	char endpoint[GROUP_ENDPOINT_LEN]; /* of the ring */
	uint32_t mtu;                      /* 0: as its switch's port */
	bool fallback;                     /* a ring is right, too */
	bool any_rank; /* it has asked for none: its rank is the manager's choice until the switches
			  are asked */
	/*
	 * Its link, of a host that the topology does not list but a switch has found; ip_be 0:
	 * there is none.
	 */
	struct topology_host found;
	char found_at[TOPOLOGY_NAME_LEN]; /* that switch's name: another topology may number it
					     otherwise */
	struct control_client *client;    /* NULL: none */
	json_t *request_id;               /* of the join; owned; NULL: none */
	bool unheard; /* ABSENT: nothing is heard of its host, while the manager runs */
};

enum node_state {
	NODE_PLANNED,
	NODE_ASKED, /* whether the job is there is not known */
	NODE_INSTALLED,
	NODE_REFUSED,
	NODE_MISSING, /* was installed, but the switch does not have it any more */
};

/*
 * One switch of the tree, or the server at its root; of a job without a tree, one of its switches.
 */
struct group_node {
	enum node_state state;
	char switch_name[TOPOLOGY_NAME_LEN];
	uint16_t switch_index; /* or the server's; TOPOLOGY_NO_SWITCH: not in this topology */
	uint16_t parent;       /* index of its node; TREE_NO_PARENT: the root */
	uint16_t link;         /* to the parent, in the topology; TOPOLOGY_NO_LINK: none */
	char port[TOPOLOGY_NAME_LEN];        /* to the parent */
	char parent_port[TOPOLOGY_NAME_LEN]; /* the parent's, to this one */
	char ip[16];                         /* of the switch, where its hosts send */
	uint16_t udp_port;
	struct fanin_ranks local;
	struct fanin_ranks ranks;
};

struct group {
	TAILQ_ENTRY(group) entry;
	char name[GROUP_NAME_LEN];
	struct group *leader; /* of a further tree; NULL: this is the first one */
	uint16_t tree;        /* which one it is, from 0 */
	uint16_t trees_asked;
	uint16_t n_trees; /* of the first one: how many the job has */
	enum group_state state;
	uint32_t id; /* on the switches; 0: none */
	uint64_t key;
	uint16_t size;
	uint16_t n_members; /* that have come */
	uint32_t generation;
	uint64_t grace_ends_ms;    /* of ABSENT members */
	struct fanin_ranks silent; /* of the first one: ranks that the others have been told are
				      silent */
	/* As asked for by the first member; the others must ask for the same. */
	char handler[GROUP_HANDLER_LEN];
	enum group_shape shape; /* of the handler; GROUP_TREE as long as no switch has told */
	bool reproducible;
	bool wide;              /* accumulate in f32 */
	bool authenticate;      /* packets have tags: it is never a ring, whose packets have none */
	uint32_t payload_asked; /* bytes; 0: what fits */
	json_t *parameters_asked; /* the handler's, numbers by name, which the switches check;
				     owned; NULL: none */
	/* As installed. */
	uint32_t payload_bytes;
	uint32_t slots; /* 0: its shape has none */
	uint32_t window;
	/*
	 * Of a job without a tree, as its hosts' switches say; not kept in the database, since they
	 * are for the answers to joins alone.
	 */
	uint32_t pool_slots;              /* the least of these switches' pools; 0: not told */
	uint32_t sharing;                 /* most jobs in one of them */
	json_t *parameters;               /* values in the handler's order; NULL: not told */
	char reason[CONTROL_MESSAGE_LEN]; /* why it is a RING, or stranded */
	bool stranded; /* its tree has lost something, and there is no other one */
	char ending[CONTROL_MESSAGE_LEN]; /* why its job ends at the end of the turn; "": it does
					     not for this one's sake */
	char trees_reason[CONTROL_MESSAGE_LEN]; /* of the first one: why there are fewer trees; "":
						   there are not */
	struct group_node *nodes;
	uint16_t n_nodes;
	json_t *peers; /* host.c: all ranks as each one is told of them; NULL: not listed since the
			  tree was planned */
	uint32_t *addresses; /* by rank: its host's, at the link that the tree uses; 0: not planned
			      */
	struct group_member *members; /* size of them, as of addresses: most jobs have few ranks */

	/* The installation that runs. */
	uint16_t n_unanswered;
	unsigned int attempts;
	struct control_error failure; /* the first; code NULL: none */
	bool doomed;      /* of the first one: to be removed as soon as all is answered */
	const char *doom; /* why, for its members; NULL: there were none */
	bool moving;      /* its members run already: number and key stay */
	bool excluded[TREE_MAX_NODES];
	bool out_of_room; /* one of the excluded switches was */
};

TAILQ_HEAD(groups, group);

/* Makes an empty group. Returns NULL without memory. */
struct group *group_create(const char *name, uint16_t size);

/* Makes a further tree of a job, which has n_trees already. Returns NULL without memory. */
struct group *group_create_tree(struct group *leader);

static inline struct group *
group_leader(struct group *group)
{
	return group->leader == NULL ? group : group->leader;
}

/* True if the members of a job have begun: it runs, or moves while they wait. */
static inline bool
group_has_begun(const struct group *group)
{
	return group->state >= GROUP_NETWORK || group->moving;
}

/* As group_leader, of one that is only looked at. */
static inline const struct group *
group_job(const struct group *group)
{
	return group->leader == NULL ? group : group->leader;
}

/* The first tree of the next job; NULL at the end. None of this job's trees comes between. */
struct group *group_next_job(const struct group *group);

/* Drops the list of peers. To be called when nodes or addresses change. */
void group_forget_peers(struct group *group);

/* Frees it and what it has; its members' clients must not be used as members any more. */
void group_free(struct group *group);

/* The first tree of the job of a name; NULL if there is none. */
struct group *group_find(const struct groups *groups, const char *name);

/* The member that is at a connection; NULL if none is. */
struct group_member *group_member_of(struct group *group, const struct control_client *client);

/* True if a member is there or may come back. */
bool group_has_members(const struct group *group);

/* The node that a rank is at, of a group that has a tree. */
const struct group_node *group_node_of(const struct group *group, uint16_t rank);

/*
 * Of a job without a tree: another link of a rank's host, to another one of the job's switches;
 * NULL: it has none. Packets take both, so both are known to all from the start.
 */
const struct topology_host *group_second_link_of(const struct group *group,
						 const struct topology *topology, uint16_t rank);

/*
 * The link at which a rank's host has the address that it joined with: listed in the topology, or
 * found at a switch. NULL: neither. Valid as long as the group's members stay where they are.
 */
const struct topology_host *group_host_of(const struct group *group,
					  const struct topology *topology, uint16_t rank);

/*
 * The link that the tree uses of a rank's host. NULL if there is no tree, or the topology has the
 * link no more.
 */
const struct topology_host *group_link_of(const struct group *group,
					  const struct topology *topology, uint16_t rank);

/* What depends on the shape of its handler. */
static inline const struct shape *
group_shape_of(const struct group *group)
{
	return shape_of(group->shape);
}

/* True if all of its trees have to combine the ranks in their order. */
static inline bool
group_keeps_order(const struct group *group)
{
	return group->reproducible && group_shape_of(group)->has_order;
}

const char *group_state_name(enum group_state state);
const char *member_state_name(enum member_state state);

/*
 * Writes a group down, all that is needed to go on after a restart. secret: with its key.
 * Returns a new reference, NULL without memory.
 */
json_t *group_document(const struct group *group, bool secret);

/*
 * Makes a group from what group_document wrote; its members are ABSENT, or GONE if they were then.
 * Returns NULL if it is not such a document.
 */
struct group *group_from_document(const json_t *document, const struct topology *topology);

/*
 * What a document that makes no group still tells of a job's switches: a group with its number and
 * nodes that have nothing but their switches' names, and may have none. document: may be NULL.
 * Returns NULL without memory.
 */
struct group *group_salvage(const json_t *document);

/*
 * What a group is kept under: the job's name, of further trees with "#" and their number. text:
 * GROUP_KEY_LEN bytes; returned.
 */
const char *group_key_text(const struct group *group, char *text);

/* "0x" and 16 digits. text: 19 bytes; returned. */
const char *group_hex(uint64_t value, char *text);

#endif
