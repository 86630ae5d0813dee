/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job as the manager knows it, called a group here: its ranks, its tree and its state. A group
 * can be saved as a JSON document and restored from it. Main thread only.
 *
 * A job of several trees is several groups, each with a number and a key of its own on the
 * switches. The first one is the leader: only its members have connections, and its state is the
 * job's. The others have copies of what planning needs.
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
#define GROUP_RING_RANKS 64 /* at most, in a ring */
#define GROUP_ENDPOINT_LEN 64
#define GROUP_HANDLER_LEN 32
#define GROUP_NO_RANK (-1)

enum group_state {
	GROUP_GATHERING,  /* not all ranks have joined */
	GROUP_INSTALLING, /* switches are being asked */
	GROUP_NETWORK,    /* runs in the network */
	GROUP_RING,       /* runs among its hosts, without the network */
};

enum member_state {
	MEMBER_WAITING, /* for the answer to its join */
	MEMBER_LIVE,
	MEMBER_ABSENT, /* silent, or not yet back after the manager's restart: it may come back */
	MEMBER_GONE,
};

struct group_member {
	enum member_state state;
	int rank; /* as asked for, GROUP_NO_RANK: any; from INSTALLING on, its index in the array */
	uint32_t ip_be;                    /* the address that it joined with, one of its host's */
	char endpoint[GROUP_ENDPOINT_LEN]; /* for the ring */
	uint32_t mtu;                      /* 0: as its switch's port */
	bool fallback;                     /* it accepts a ring, too */
	bool any_rank; /* it asked for no rank: the manager may change its rank until the switches
			  are asked */
	/*
	 * The link at which a switch has found its host, which the topology does not list; ip_be 0:
	 * there is none.
	 */
	struct topology_host found;
	char found_at[TOPOLOGY_NAME_LEN]; /* that switch's name, since its index changes with the
					     topology */
	struct control_client *client;    /* NULL: none */
	json_t *request_id;               /* of the join; owned; NULL: none */
	bool unheard; /* ABSENT because its host is silent, not because the manager has restarted */
};

enum node_state {
	NODE_PLANNED,
	NODE_ASKED, /* the switch may or may not have the job */
	NODE_INSTALLED,
	NODE_REFUSED,
	NODE_MISSING, /* the switch has lost the job, or was lost before it answered */
};

/* A switch of the tree, or the server at its root; in a job without a tree, one of its switches. */
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
	struct group *leader; /* of a further tree; NULL: this group is the leader */
	uint16_t tree;        /* number of this tree, from 0 */
	uint16_t trees_asked;
	uint16_t n_trees; /* leader only: number of trees that the job has */
	enum group_state state;
	uint32_t id; /* on the switches; 0: none */
	uint64_t key;
	uint16_t size;
	uint16_t n_members; /* that have joined */
	uint32_t generation;
	uint64_t grace_ends_ms;    /* when ABSENT members are given up; 0: none are waited for */
	struct fanin_ranks silent; /* leader only: the ranks last reported as silent */
	/* As requested by the first member; the others must request the same. */
	char handler[GROUP_HANDLER_LEN];
	enum group_shape shape; /* of the handler; GROUP_TREE until a switch has reported it */
	bool reproducible;
	bool wide;                /* accumulate in f32 */
	bool authenticate;        /* packets have tags; never a ring, whose packets have none */
	uint32_t payload_asked;   /* bytes; 0: as many as fit */
	json_t *parameters_asked; /* the handler's parameters, numbers by name, which switches
				     check; owned; NULL: none */
	/* As installed. */
	uint32_t payload_bytes;
	uint32_t slots; /* 0: its shape has none */
	uint32_t window;
	/*
	 * Reported by the hosts' switches for a job without a tree. Not kept in the database: only
	 * answers to joins need them.
	 */
	uint32_t pool_slots;              /* of the smallest pool; 0: not reported */
	uint32_t sharing;                 /* most jobs that share a pool */
	json_t *parameters;               /* values in the handler's order; NULL: not reported */
	char reason[CONTROL_MESSAGE_LEN]; /* why it is a RING, or stranded */
	bool stranded;                    /* its tree is broken, and there is no other tree */
	char ending[CONTROL_MESSAGE_LEN]; /* why this tree ends the job at the end of the turn; "":
					     it does not */
	char trees_reason[CONTROL_MESSAGE_LEN]; /* leader only: why the job has fewer trees than it
						   asked for; "": it has not */
	struct group_node *nodes;
	uint16_t n_nodes;
	json_t *peers; /* host.c: the list of ranks for the members; NULL: not made since the tree
			  was planned */
	uint32_t *addresses; /* by rank: the host's address at the link that the tree uses; 0: not
				planned */
	struct group_member *members; /* `size` of them, like addresses: most jobs have few ranks */

	/* The running installation. */
	uint16_t n_unanswered;
	unsigned int attempts;
	struct control_error failure; /* the one to report; code NULL: none */
	bool doomed;      /* leader only: the job is removed once all switches have answered */
	const char *doom; /* why, for its members; NULL: it has none */
	bool moving;      /* the job runs already and keeps its number and key */
	bool excluded[TREE_MAX_NODES];
	bool out_of_room; /* an excluded switch had no room */
};

TAILQ_HEAD(groups, group);

/* Creates an empty group. Returns NULL without memory. */
struct group *group_create(const char *name, uint16_t size);

/* Creates the next tree of a job, which has n_trees already. Returns NULL without memory. */
struct group *group_create_tree(struct group *leader);

static inline struct group *
group_leader(struct group *group)
{
	return group->leader == NULL ? group : group->leader;
}

/* True if a job's members have been answered: it runs, or moves while they wait. */
static inline bool
group_has_begun(const struct group *group)
{
	return group->state >= GROUP_NETWORK || group->moving;
}

/* Like group_leader, for a const group. */
static inline const struct group *
group_job(const struct group *group)
{
	return group->leader == NULL ? group : group->leader;
}

/* The first tree of the next job, skipping this job's further trees; NULL at the end. */
struct group *group_next_job(const struct group *group);

/* Drops the list of peers. Call it when nodes or addresses change. */
void group_forget_peers(struct group *group);

/*
 * Frees a group with all that it owns; its members' clients must not be used as members any more.
 */
void group_free(struct group *group);

/* The first tree of the job with a name; NULL if there is none. */
struct group *group_find(const struct groups *groups, const char *name);

/* The member with a connection; NULL if there is none. */
struct group_member *group_member_of(struct group *group, const struct control_client *client);

/* True if a member is connected or may come back. */
bool group_has_members(const struct group *group);

/* The node that a rank's host is at, in a group that has a tree. */
const struct group_node *group_node_of(const struct group *group, uint16_t rank);

/*
 * In a job without a tree: a second link of a rank's host, to another of the job's switches; NULL:
 * none. Packets take both links, so all members know both from the start.
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
 * The link of a rank's host that the tree uses. NULL if there is no tree, or the topology no longer
 * has the link.
 */
const struct topology_host *group_link_of(const struct group *group,
					  const struct topology *topology, uint16_t rank);

/* The table of the group's shape. */
static inline const struct shape *
group_shape_of(const struct group *group)
{
	return shape_of(group->shape);
}

/* True if all trees of the group have to combine the ranks in their order. */
static inline bool
group_keeps_order(const struct group *group)
{
	return group->reproducible && group_shape_of(group)->has_order;
}

const char *group_state_name(enum group_state state);
const char *member_state_name(enum member_state state);

/*
 * Returns a document with all that a restart needs of a group: a new reference, or NULL without
 * memory. secret: with its key.
 */
json_t *group_document(const struct group *group, bool secret);

/*
 * Restores a group from what group_document returned; its members are ABSENT, or GONE if they were
 * then. Returns NULL if the document is not of this kind.
 */
struct group *group_from_document(const json_t *document, const struct topology *topology);

/*
 * Reads what a document that group_from_document refuses still says about a job's switches. The
 * group has its number, and nodes with nothing but their switches' names; it may have no nodes.
 * document: may be NULL. Returns NULL without memory.
 */
struct group *group_salvage(const json_t *document);

/*
 * The key of a group in the database: the job's name, followed by "#" and the tree's number for
 * further trees. text: GROUP_KEY_LEN bytes; returned.
 */
const char *group_key_text(const struct group *group, char *text);

/* Writes "0x" and 16 digits. text: 19 bytes; returned. */
const char *group_hex(uint64_t value, char *text);

#endif
