/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The membership's state, shared by manager.c (the connection's life) and manager_message.c
 * (messages). No other file includes this.
 */
#ifndef FANIN_HOSTLIB_MANAGER_INTERNAL_H
#define FANIN_HOSTLIB_MANAGER_INTERNAL_H

#include <jansson.h>

#include "manager.h"
#include "manager_link.h"

#define FANIN_MANAGER_PROTOCOL 1

enum fanin_manager_state {
	FANIN_MANAGER_DOWN,     /* to be retried at retry_ns */
	FANIN_MANAGER_GREETING, /* hello is sent */
	FANIN_MANAGER_GREETED,  /* hello is answered */
	FANIN_MANAGER_ASKING,   /* join or reattach is sent */
	FANIN_MANAGER_MEMBER,
	FANIN_MANAGER_LEAVING,
};

struct fanin_manager {
	struct fanin_manager_options options;
	struct fanin_manager_settings settings;
	struct fanin_link *link; /* NULL when down */
	enum fanin_manager_state state;
	bool gave_up;       /* the communicator has failed: only a leave may still be sent */
	json_int_t last_id; /* of requests */
	char job[FANIN_JOB_NAME_MAX + 1];
	uint16_t rank;
	uint64_t key;
	uint64_t next_poll_ns;
	uint64_t polled_ns;
	uint64_t heartbeat_ns; /* when the last heartbeat was sent */
	bool heartbeat_open;   /* the last heartbeat has not been answered yet */
	uint64_t retry_ns;
	uint64_t retry_after_ns; /* pause before the next try, doubled each time */
	uint64_t opened_ns;      /* when connecting began */
	uint32_t reconnects;
	char problem[FANIN_TEXT_LEN];
	struct fanin_manager_home homes[FANIN_MAX_TREES]; /* by tree; as told after the join */
	uint32_t news;
	struct fanin_ranks left;   /* ranks that have left, as told by the manager */
	struct fanin_ranks lost;   /* ranks whose connection to the manager has ended */
	struct fanin_ranks silent; /* ranks that the manager does not hear, or that no switch
				      reaches */
	uint64_t away_ns;          /* when the last of these ranks was added */
	/*
	 * Why each of the job's trees is not available now, as the manager last said; empty: the
	 * tree is available.
	 */
	char stranded[FANIN_MAX_TREES][FANIN_TEXT_LEN];
	char ended[FANIN_TEXT_LEN]; /* why the manager has ended the job; empty: it has not */
};

/* The meaning of a line from the manager. */
enum fanin_manager_line {
	FANIN_MANAGER_LINE_NONE,   /* not waited for: an event, or a late answer */
	FANIN_MANAGER_LINE_HELLO,  /* the handshake is done */
	FANIN_MANAGER_LINE_RESULT, /* the last request is answered */
	FANIN_MANAGER_LINE_FAILED, /* error has the text, *status the status */
};

/* Functions that send one message each. They return FANIN_OK or FANIN_ERR_NO_MEMORY. */
int fanin_manager_say_hello(struct fanin_manager *manager);
int fanin_manager_say_join(struct fanin_manager *manager, const struct fanin_manager_join *join);
int fanin_manager_say_reattach(struct fanin_manager *manager);
int fanin_manager_say(struct fanin_manager *manager, const char *command);

/*
 * Reads a line.
 *
 * result: a new reference with FANIN_MANAGER_LINE_RESULT, else NULL.
 */
enum fanin_manager_line fanin_manager_read(struct fanin_manager *manager, const char *line,
					   json_t **result, int *status, struct fanin_error *error);

/*
 * Applies the answer to a reattach: the switch where each of the job's trees continues, if
 * complete, or why the tree can't continue; and the state of the ranks.
 */
void fanin_manager_note_job(struct fanin_manager *manager, const json_t *result);

/*
 * Reads the result of a join. answer: set on success only, to be freed by the caller. Returns
 * FANIN_OK, FANIN_ERR_MANAGER or FANIN_ERR_NO_MEMORY.
 */
int fanin_manager_read_answer(const struct fanin_manager *manager, const json_t *result,
			      uint16_t size, struct fanin_manager_answer *answer,
			      struct fanin_error *error);

#endif
