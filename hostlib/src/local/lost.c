/* SPDX-License-Identifier: BSD-3-Clause */
/* Failures, and ranks that are late or lost. See local_internal.h. */
#include <string.h>

#include "hostlib/src/base/absence.h"
#include "local_internal.h"

/* Between two looks at the connections while nothing moves. */
#define LISTEN_NS (100 * 1000000ull)
/* By which the others' limit of a wait is longer than the leader's, which knows of other hosts. */
#define LEADERS_TURN_NS (500 * 1000000ull)

static bool
some_are_gone(const struct fanin_local_meeting *meeting)
{
	for (unsigned int place = 0; place < meeting->n; place++)
		if (meeting->peers[place].gone)
			return true;
	return false;
}

void
fanin_local_tell(struct fanin_local_meeting *meeting, int status, const struct fanin_error *error)
{
	struct fanin_local_head *head = meeting->memory.head;
	uint32_t found = FANIN_LOCAL_RUNS;

	if (head == NULL)
		return;
	/* One that has ended while it wrote is not waited for. */
	if (__atomic_compare_exchange_n(&head->failed, &found, FANIN_LOCAL_FAILING, false,
					__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
	    (found == FANIN_LOCAL_FAILING && some_are_gone(meeting))) {
		head->status = status;
		memcpy(head->text, error->text, sizeof(head->text));
		head->missing = error->missing;
		__atomic_store_n(&head->failed, FANIN_LOCAL_FAILED, __ATOMIC_RELEASE);
	}
	for (unsigned int place = 0; place < meeting->n; place++)
		fanin_local_wake(meeting, place);
}

int
fanin_local_told(const struct fanin_local_meeting *meeting, struct fanin_error *error)
{
	const struct fanin_local_head *head = meeting->memory.head;

	if (__atomic_load_n(&head->failed, __ATOMIC_ACQUIRE) != FANIN_LOCAL_FAILED)
		return FANIN_OK;
	memcpy(error->text, head->text, sizeof(error->text));
	error->text[sizeof(error->text) - 1] = '\0';
	error->missing = head->missing;
	/* Nobody else's interruption ends a wait of this rank as its own would. */
	return head->status < 0 && head->status != FANIN_ERR_INTERRUPTED ? head->status
									 : FANIN_ERR_SYSTEM;
}

/* Ends all requests. is_networks: the job of hosts has failed, and knows. */
static void
end_all(struct fanin_local *local, int status, bool is_networks)
{
	const struct fanin_local_network *network = &local->config.network;

	if (local->status != FANIN_OK)
		return;
	local->status = status;
	fanin_local_tell(&local->config.meeting, status, &local->error);
	if (network->post != NULL && !is_networks)
		network->abort(network->arg, status, &local->error);
	fanin_request_list_fail(&local->requests, status);
	fanin_local_drop(local);
}

void
fanin_local_fail(struct fanin_local *local, int status)
{
	end_all(local, status, false);
}

static void
fail_about(struct fanin_local *local, unsigned int place, const char *what)
{
	const uint16_t rank = local->config.layout.neighbors[place];

	fanin_error_set(&local->error, FANIN_ERR_TIMEOUT, "rank %u of this host %s", rank, what);
	fanin_ranks_add(&local->error.missing, rank);
	fanin_local_fail(local, FANIN_ERR_TIMEOUT);
}

/* Replaces the word rank by host: the ranks of the network's job are hosts. */
static void
text_of_hosts(const char *text, char *to, size_t len)
{
	size_t used = 0;

	while (*text != '\0' && used + 1 < len) {
		if (strncmp(text, "rank", 4) == 0 && used + 5 < len) {
			memcpy(to + used, "host", 4);
			text += 4;
			used += 4;
		} else {
			to[used++] = *text++;
		}
	}
	to[used] = '\0';
}

struct fanin_ranks
fanin_local_ranks_of(const struct fanin_local_layout *layout, const struct fanin_ranks *hosts)
{
	struct fanin_ranks ranks = { 0 };

	for (unsigned int rank = 0; rank < layout->size; rank++)
		if (fanin_ranks_has(hosts, layout->host_of[rank]))
			fanin_ranks_add(&ranks, rank);
	return ranks;
}

int
fanin_local_error_of(const struct fanin_local_layout *layout, int status,
		     const struct fanin_error *hosts, struct fanin_error *error)
{
	const struct fanin_ranks ranks = fanin_local_ranks_of(layout, &hosts->missing);
	char text[FANIN_TEXT_LEN], list[120];

	text_of_hosts(hosts->text[0] != '\0' ? hosts->text : fanin_strerror(status), text,
		      sizeof(text));
	if (fanin_ranks_is_empty(&ranks))
		fanin_error_set(error, status, "%s", text);
	else
		fanin_error_set(error, status, "%.250s; of these hosts: %s", text,
				fanin_format_ranks(&ranks, list, sizeof(list)));
	error->missing = ranks;
	return status;
}

void
fanin_local_fail_by_network(struct fanin_local *local, int status)
{
	const struct fanin_local_network *network = &local->config.network;

	fanin_local_error_of(&local->config.layout, status, network->error(network->arg),
			     &local->error);
	end_all(local, status, true);
}

static uint64_t
filled_of(const struct fanin_local_member *member)
{
	return __atomic_load_n(&member->filled, __ATOMIC_ACQUIRE);
}

void
fanin_local_late(struct fanin_local *local, struct fanin_ranks *ranks)
{
	const struct fanin_local_meeting *meeting = &local->config.meeting;
	const struct fanin_local_network *network = &local->config.network;
	struct fanin_ranks hosts = { 0 };

	*ranks = (struct fanin_ranks){ 0 };
	if (local->take.request == NULL)
		return;
	for (unsigned int place = 0; place < meeting->n; place++)
		if (filled_of(&meeting->memory.members[place]) <= local->take.chunk)
			fanin_ranks_add(ranks, meeting->ranks[place]);
	if (!fanin_ranks_is_empty(ranks))
		return;
	if (network->post != NULL) {
		network->missing(network->arg, &hosts);
		*ranks = fanin_local_ranks_of(&local->config.layout, &hosts);
		return;
	}
	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		ranks->words[i] = __atomic_load_n(&meeting->memory.head->late[i], __ATOMIC_RELAXED);
	if (fanin_ranks_is_empty(ranks) && !fanin_local_leads(local))
		fanin_ranks_add(ranks, meeting->ranks[0]);
}

/* Tells the others of the host, at the leader, which ranks of other hosts are waited for. */
static void
late_tell(struct fanin_local *local)
{
	struct fanin_local_head *head = local->config.meeting.memory.head;
	struct fanin_ranks ranks;

	if (local->config.network.post == NULL)
		return;
	fanin_local_late(local, &ranks);
	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		__atomic_store_n(&head->late[i], ranks.words[i], __ATOMIC_RELAXED);
}

/* Fails if a rank has ended without leaving, or has left and is needed. */
static void
lost_check(struct fanin_local *local)
{
	const struct fanin_local_meeting *meeting = &local->config.meeting;

	for (unsigned int place = 0; place < meeting->n && local->status == FANIN_OK; place++) {
		const struct fanin_local_member *member = &meeting->memory.members[place];
		const bool has_left = __atomic_load_n(&member->left, __ATOMIC_ACQUIRE) != 0;
		const uint64_t done = place == 0 ? fanin_local_ready(local) : filled_of(member);

		if (meeting->peers[place].gone && !has_left)
			fail_about(local, place, "has ended");
		else if (has_left && local->take.request != NULL && done <= local->take.chunk)
			fail_about(local, place, "has left the job");
	}
}

static void
limit_check(struct fanin_local *local, uint64_t now_ns)
{
	const uint64_t limit_ns = local->config.wait_limit_ns;
	const uint64_t turn_ns = fanin_local_leads(local) ? 0 : LEADERS_TURN_NS;
	char text[FANIN_ABSENCE_LEN];
	struct fanin_ranks late;

	if (limit_ns == 0 || local->take.request == NULL ||
	    now_ns - local->moved_ns < limit_ns + turn_ns)
		return;
	fanin_local_late(local, &late);
	if (fanin_ranks_is_empty(&late))
		fanin_error_set(&local->error, FANIN_ERR_TIMEOUT, "no result within %llu ms",
				(unsigned long long)(limit_ns / 1000000));
	else
		fanin_error_set(&local->error, FANIN_ERR_TIMEOUT,
				"no result within %llu ms: waiting for %s",
				(unsigned long long)(limit_ns / 1000000),
				fanin_format_absence(&late, local->config.layout.size, &late,
						     FANIN_RANKS_LATE, text));
	local->error.missing = late;
	fanin_local_fail(local, FANIN_ERR_TIMEOUT);
}

void
fanin_local_look_around(struct fanin_local *local, uint64_t now_ns)
{
	if (local->has_slept || now_ns - local->listened_ns >= LISTEN_NS) {
		local->has_slept = false;
		local->listened_ns = now_ns;
		(void)fanin_local_listen(&local->config.meeting);
		late_tell(local);
		lost_check(local);
	}
	if (local->status == FANIN_OK)
		limit_check(local, now_ns);
}
