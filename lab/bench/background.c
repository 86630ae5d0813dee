/* SPDX-License-Identifier: BSD-3-Clause */
/* See background.h. */
#include "lab/bench/background.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lab/bench/datagram.h"
#include "lab/bench/dctcp.h"

#define PORT 9
/* Interval of checks for flows' timeouts. */
#define TICK_NS UINT64_C(2000000)

enum packet_kind {
	PACKET_UDP,
	PACKET_DATA,
	PACKET_ACK,
};

/* FLOW_OVERHEAD bytes in all. */
struct packet_headers {
	struct datagram_headers datagram;
	uint32_t flow; /* its number in the schedule */
	uint32_t segment;
	uint16_t path;
	uint8_t kind; /* enum packet_kind */
	uint8_t ce;   /* of an acknowledgment */
	uint32_t reserved;
} __attribute__((packed));
static_assert(sizeof(struct packet_headers) == FLOW_OVERHEAD,
	      "what a packet takes besides its data");

struct flow {
	struct flow *next; /* next of the path's active flows */
	struct dctcp sender;
	uint64_t begin_ns;
	uint32_t number;
	uint32_t bytes;
};

struct path {
	struct background *background;
	struct background_path ends;
	struct flow *active;
	uint64_t delivered;
	uint64_t tick_ns;
	uint64_t udp_interval_ns; /* 0: there is none */
	uint64_t udp_left;        /* datagrams of flows that have begun and are not sent */
	uint64_t udp_next_ns;
	uint64_t udp_end_ns;
	size_t next; /* index of the schedule's next arrival, of any path */
	uint16_t number;
};

struct background {
	struct rig *rig;
	const struct flow_schedule *schedule; /* NULL: none */
	uint64_t begin_ns;
	struct flow **flows; /* active flows by their number */
	uint32_t rate_mbit;  /* of flows by UDP; 0: flows are by DCTCP */
	struct path paths[BACKGROUND_MAX_PATHS];
	uint16_t n_paths;
	struct background_stats stats;
};

/* ------------------------------------------------------------------ packets */

static void
packet_send(const struct path *path, bool to_sink, struct packet_headers headers, uint32_t data_len)
{
	struct {
		struct packet_headers headers;
		uint8_t data[FLOW_SEGMENT];
	} __attribute__((packed)) frame = { 0 };
	const struct background_path *ends = &path->ends;
	struct rig_host *from = to_sink ? ends->source : ends->sink;
	const struct rig_host *to = to_sink ? ends->sink : ends->source;
	const struct datagram_way way = {
		.src_mac = rig_host_mac(from),
		.dst_mac = rig_host_mac(to),
		.src_ip_be = to_sink ? ends->source_ip_be : ends->sink_ip_be,
		.dst_ip_be = to_sink ? ends->sink_ip_be : ends->source_ip_be,
		.src_port = PORT,
		.dst_port = PORT,
	};
	uint32_t len = (uint32_t)sizeof(headers) + data_len;

	datagram_fill(&headers.datagram, &way, headers.kind == PACKET_DATA ? DATAGRAM_ECT_0 : 0,
		      len);
	headers.path = path->number;
	frame.headers = headers;
	if (len < DATAGRAM_SHORTEST_FRAME)
		len = DATAGRAM_SHORTEST_FRAME;
	/* If there is no packet for it the frame is lost, as it may be on any link. */
	rig_host_send(from, &frame, len);
}

/* ------------------------------------------------------------------ flows */

static uint32_t
segment_len(const struct flow *flow, uint32_t segment)
{
	const uint32_t before = segment * FLOW_SEGMENT;

	return flow->bytes - before < FLOW_SEGMENT ? flow->bytes - before : FLOW_SEGMENT;
}

static void
flow_send(const struct path *path, struct flow *flow)
{
	const uint64_t now_ns = rig_now_ns(path->background->rig);
	uint32_t segment;

	while (dctcp_send(&flow->sender, now_ns, &segment))
		packet_send(path, true,
			    (struct packet_headers){
				    .kind = PACKET_DATA, .flow = flow->number, .segment = segment },
			    segment_len(flow, segment));
}

static void
flow_begin(struct path *path, uint32_t number)
{
	struct background *background = path->background;
	const struct flow_arrival *arrival = &background->schedule->flows[number];
	struct flow *flow;

	background->stats.offered += flow_link_bytes(arrival->bytes);
	background->stats.flows++;
	if (background->rate_mbit != 0) {
		path->udp_left += (arrival->bytes + FLOW_SEGMENT - 1) / FLOW_SEGMENT;
		return;
	}
	flow = malloc(sizeof(*flow));
	if (flow == NULL)
		return;
	flow->number = number;
	flow->bytes = arrival->bytes;
	flow->begin_ns = rig_now_ns(background->rig);
	dctcp_init(&flow->sender, (arrival->bytes + FLOW_SEGMENT - 1) / FLOW_SEGMENT);
	flow->next = path->active;
	path->active = flow;
	background->flows[number] = flow;
	flow_send(path, flow);
}

static void
flow_end(struct path *path, struct flow *flow)
{
	struct background *background = path->background;
	struct flow **link = &path->active;

	while (*link != flow)
		link = &(*link)->next;
	*link = flow->next;
	background->flows[flow->number] = NULL;
	background->stats.done++;
	background->stats.done_ns += (double)(rig_now_ns(background->rig) - flow->begin_ns);
	free(flow);
}

static void
flows_on_time(struct path *path)
{
	const uint64_t now_ns = rig_now_ns(path->background->rig);

	if (now_ns < path->tick_ns)
		return;
	path->tick_ns = now_ns + TICK_NS;
	for (struct flow *flow = path->active; flow != NULL; flow = flow->next) {
		const uint64_t before = flow->sender.timeouts;

		dctcp_on_time(&flow->sender, now_ns);
		path->background->stats.timeouts += flow->sender.timeouts - before;
		flow_send(path, flow);
	}
}

/* Begins the path's flows that are due. Returns when the next flow begins. */
static uint64_t
flows_begin(struct path *path)
{
	const struct background *background = path->background;
	const struct flow_schedule *schedule = background->schedule;

	for (; schedule != NULL && path->next < schedule->n; path->next++) {
		const struct flow_arrival *arrival = &schedule->flows[path->next];

		if (arrival->path != path->number)
			continue;
		if (background->begin_ns + arrival->at_ns > rig_now_ns(background->rig))
			return background->begin_ns + arrival->at_ns;
		flow_begin(path, (uint32_t)path->next);
	}
	return UINT64_MAX;
}

/* ------------------------------------------------------------------ hosts */

static uint64_t
udp_interval_ns(uint32_t rate_mbit)
{
	return (uint64_t)(FLOW_SEGMENT + FLOW_OVERHEAD) * 8000 / rate_mbit;
}

/* Sends UDP datagrams that are due. Returns when the next one is due. */
static uint64_t
udp_send(struct path *path)
{
	const uint64_t now_ns = rig_now_ns(path->background->rig);

	if (path->udp_interval_ns == 0)
		return UINT64_MAX;
	while (path->udp_next_ns <= now_ns && path->udp_next_ns < path->udp_end_ns) {
		packet_send(path, true, (struct packet_headers){ .kind = PACKET_UDP },
			    FLOW_SEGMENT);
		path->background->stats.offered += FLOW_SEGMENT + FLOW_OVERHEAD;
		path->udp_next_ns += path->udp_interval_ns;
	}
	return path->udp_next_ns < path->udp_end_ns ? path->udp_next_ns : UINT64_MAX;
}

/*
 * Sends the datagrams of UDP flows that are due. Returns when the next one is due. A flow's last
 * datagram is as long as the others: sizes are exact within half a datagram.
 */
static uint64_t
udp_flows_send(struct path *path)
{
	const uint64_t now_ns = rig_now_ns(path->background->rig);

	if (path->udp_left == 0)
		return UINT64_MAX;
	if (path->udp_next_ns > now_ns)
		return path->udp_next_ns;
	packet_send(path, true, (struct packet_headers){ .kind = PACKET_UDP }, FLOW_SEGMENT);
	path->udp_left--;
	path->udp_next_ns = now_ns + udp_interval_ns(path->background->rate_mbit);
	return path->udp_left == 0 ? UINT64_MAX : path->udp_next_ns;
}

static void
source_poll(struct rig_host *host, void *user)
{
	struct path *path = user;
	uint64_t due_ns = flows_begin(path);

	due_ns = RTE_MIN(due_ns, udp_send(path));
	due_ns = RTE_MIN(due_ns, udp_flows_send(path));
	flows_on_time(path);
	if (path->active != NULL)
		due_ns = RTE_MIN(due_ns, path->tick_ns);
	if (due_ns != UINT64_MAX)
		rig_host_wake(host, due_ns);
}

static void
source_take(struct rig_host *host, const void *frame, uint32_t len, void *user)
{
	struct path *path = user;
	struct background *background = path->background;
	const struct packet_headers *headers = frame;
	struct flow *flow;

	(void)host;
	if (len < sizeof(*headers) || headers->datagram.udp.dst_be != htons(PORT) ||
	    headers->kind != PACKET_ACK)
		return;
	flow = background->flows[headers->flow];
	if (flow == NULL)
		return;
	dctcp_on_ack(&flow->sender, headers->segment, headers->ce != 0,
		     rig_now_ns(background->rig));
	if (dctcp_is_done(&flow->sender))
		flow_end(path, flow);
	else
		flow_send(path, flow);
}

static void
sink_take(struct rig_host *host, const void *frame, uint32_t len, void *user)
{
	struct path *path = user;
	struct background_stats *stats = &path->background->stats;
	const struct packet_headers *headers = frame;
	const uint32_t true_len = ntohs(headers->datagram.ip.total_len_be) + FANIN_ETH_LEN;
	bool ce;

	(void)host;
	if (len < sizeof(*headers) || headers->datagram.udp.dst_be != htons(PORT) ||
	    headers->kind == PACKET_ACK)
		return;
	ce = (headers->datagram.ip.tos & DATAGRAM_CE) == DATAGRAM_CE;
	path->delivered += true_len;
	stats->delivered += true_len;
	stats->received++;
	stats->received_flows += headers->kind == PACKET_DATA;
	stats->marked += ce;
	if (headers->kind == PACKET_DATA)
		packet_send(path, false,
			    (struct packet_headers){ .kind = PACKET_ACK,
						     .flow = headers->flow,
						     .segment = headers->segment,
						     .ce = ce },
			    0);
}

struct background *
background_create(struct rig *rig, const struct background_path *paths, uint16_t n_paths)
{
	struct background *background = calloc(1, sizeof(*background));

	if (background == NULL)
		return NULL;
	background->rig = rig;
	background->n_paths = n_paths;
	for (uint16_t p = 0; p < n_paths; p++) {
		struct path *path = &background->paths[p];

		*path = (struct path){ .background = background, .ends = paths[p], .number = p };
		rig_host_set_poll(paths[p].source, source_poll, path);
		rig_host_set_take(paths[p].source, source_take, path);
		rig_host_set_take(paths[p].sink, sink_take, path);
	}
	return background;
}

void
background_destroy(struct background *background)
{
	if (background == NULL)
		return;
	for (uint16_t p = 0; p < background->n_paths; p++) {
		struct path *path = &background->paths[p];

		rig_host_set_poll(path->ends.source, NULL, NULL);
		rig_host_set_take(path->ends.source, NULL, NULL);
		rig_host_set_take(path->ends.sink, NULL, NULL);
		while (path->active != NULL) {
			struct flow *flow = path->active;

			path->active = flow->next;
			free(flow);
		}
	}
	free(background->flows);
	free(background);
}

int
background_flows(struct background *background, const struct flow_schedule *schedule,
		 uint64_t begin_ns, uint32_t rate_mbit)
{
	background->rate_mbit = rate_mbit;
	background->flows = calloc(schedule->n + 1, sizeof(background->flows[0]));
	if (background->flows == NULL)
		return -ENOMEM;
	background->schedule = schedule;
	background->begin_ns = begin_ns;
	for (uint16_t p = 0; p < background->n_paths; p++)
		rig_host_wake(background->paths[p].ends.source, begin_ns);
	return 0;
}

void
background_udp(struct background *background, uint16_t path, uint32_t rate_mbit, uint64_t begin_ns,
	       uint64_t end_ns)
{
	struct path *on = &background->paths[path];

	on->udp_interval_ns = udp_interval_ns(rate_mbit);
	on->udp_next_ns = begin_ns;
	on->udp_end_ns = end_ns;
	rig_host_wake(on->ends.source, begin_ns);
}

const struct background_stats *
background_stats(const struct background *background)
{
	return &background->stats;
}

uint64_t
background_delivered(const struct background *background, uint16_t path)
{
	return background->paths[path].delivered;
}
