/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a multicast job, by a host protocol of its own that takes the handler `multicast`: an
 * allgather, in which each rank sends its part, of one packet at most, to all others. Who waits
 * sends its last two parts again, since a rank may not listen yet when others begin; the tests'
 * network loses nothing else. The job comes from the network manager. Prints one JSON object: what
 * the allgathers brought, and where the manager says that the ranks are.
 *
 * usage: multicast-rank MANAGER JOB-NAME ADDRESS RANK SIZE ROUNDS
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/base/clock.h"
#include "hostlib/src/protocol/protocol.h"

#define RANKS 64
#define PART 1024 /* bytes, most */
#define ELEMENTS 100
#define AGAIN_NS (10 * 1000000ull)

/*
 * A rank that is a round ahead has had this rank's parts of all other rounds, so no rank is two
 * rounds ahead.
 */
struct round {
	uint64_t heard; /* ranks whose parts are here */
	uint8_t parts[RANKS][PART];
};

struct gather {
	struct fanin_endpoint endpoint; /* first, so that a pointer to it is one to this */
	struct fanin_protocol_config config;
	struct fanin_request_list requests;
	struct fanin_error error;
	struct round rounds[2];
	uint32_t number;  /* of the round of the first request */
	uint64_t sent_ns; /* when this rank has sent its part of that; 0: it has not */
};

/* The configuration that the protocol got; there is one endpoint. */
static struct fanin_peer hosts[RANKS];
static bool knows_hosts;

static int
gather_open(const struct fanin_protocol *protocol, const struct fanin_protocol_config *config,
	    struct fanin_endpoint **endpoint, struct fanin_error *error)
{
	struct gather *gather = calloc(1, sizeof(*gather));

	if (gather == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	gather->endpoint.protocol = protocol;
	gather->config = *config;
	gather->config.flow.src_port = FANIN_SOURCE_PORT_FIRST;
	fanin_request_list_init(&gather->requests);
	knows_hosts = config->hosts != NULL;
	if (knows_hosts)
		memcpy(hosts, config->hosts, config->size * sizeof(hosts[0]));
	*endpoint = &gather->endpoint;
	return FANIN_OK;
}

static void
gather_close(struct fanin_endpoint *endpoint)
{
	free(endpoint);
}

static int
gather_post(struct fanin_endpoint *endpoint, struct fanin_request *request, uint64_t count)
{
	struct gather *gather = (struct gather *)endpoint;

	fanin_request_layout(request, gather->config.rank, gather->config.size, count);
	if (request->part_bytes > PART)
		return FANIN_ERR_INVALID;
	fanin_request_list_append(&gather->requests, request);
	return FANIN_OK;
}

static void
part_send(struct gather *gather, uint32_t number, const void *part, uint32_t len)
{
	const struct fanin_protocol_config *config = &gather->config;
	struct fanin_headers headers;

	fanin_wire_encode_l4(&headers, &config->flow, len);
	fanin_wire_encode_header(&headers.fanin, FANIN_TYPE_MULTICAST, config->job, config->epoch,
				 config->keys.up);
	headers.fanin.rank = config->rank;
	headers.fanin.contributions = 1;
	headers.fanin.members = config->rank;
	headers.fanin.block = number;
	headers.fanin.count = (uint16_t)len;
	if (fanin_transport_send(config->transport, &headers, part, len))
		config->transport->ops->tx_flush(config->transport);
}

static void
parts_send(struct gather *gather, const struct fanin_request *request)
{
	const uint32_t before = gather->number - 1;
	const uint32_t len = (uint32_t)request->send_bytes;

	part_send(gather, gather->number, request->send, len);
	if (gather->sent_ns != 0 && gather->number != 0)
		part_send(gather, before, gather->rounds[before % 2].parts[gather->config.rank],
			  len);
	gather->sent_ns = fanin_now_ns(NULL);
}

static void
frame_take(struct gather *gather, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	struct round *round = &gather->rounds[hdr->block % 2];

	if (hdr->type != FANIN_TYPE_DELIVERY || hdr->key != gather->config.keys.down ||
	    hdr->epoch != gather->config.epoch || hdr->members >= gather->config.size ||
	    hdr->count > PART || hdr->block - gather->number > 1)
		return;
	if (fanin_frame_copy(gather->config.transport, frame, FANIN_PAYLOAD_OFFSET,
			     round->parts[hdr->members], hdr->count))
		round->heard |= UINT64_C(1) << hdr->members;
}

static void
round_finish(struct gather *gather, struct fanin_request *request)
{
	const struct fanin_protocol_config *config = &gather->config;
	struct round *round = &gather->rounds[gather->number % 2];

	memcpy(round->parts[config->rank], request->send, request->send_bytes);
	for (uint16_t rank = 0; rank < config->size; rank++)
		memcpy(request->recv + rank * request->part_bytes, round->parts[rank],
		       request->part_bytes);
	round->heard = 0;
	gather->number++;
	gather->sent_ns = 0;
	request->done_bytes = request->total_bytes;
	fanin_request_list_finish(&gather->requests, request);
}

static int
gather_poll(struct fanin_endpoint *endpoint)
{
	struct gather *gather = (struct gather *)endpoint;
	const struct fanin_protocol_config *config = &gather->config;
	const uint64_t others = (UINT64_MAX >> (RANKS - config->size)) &
				~(UINT64_C(1) << config->rank);
	struct fanin_request *request = gather->requests.first;
	struct fanin_frame frames[16];
	unsigned int n = config->transport->ops->rx_burst(config->transport, frames, 16);

	for (unsigned int i = 0; i < n; i++)
		frame_take(gather, &frames[i]);
	config->transport->ops->rx_release(config->transport, frames, n);
	if (request == NULL)
		return (int)n;
	if (gather->sent_ns == 0 || fanin_now_ns(NULL) - gather->sent_ns >= AGAIN_NS)
		parts_send(gather, request);
	if (gather->rounds[gather->number % 2].heard == others)
		round_finish(gather, request);
	return (int)n;
}

static uint64_t
gather_idle_ns(struct fanin_endpoint *endpoint)
{
	(void)endpoint;
	return 1000000;
}

static unsigned int
gather_poll_fds(struct fanin_endpoint *endpoint, struct pollfd *fds)
{
	struct gather *gather = (struct gather *)endpoint;

	return gather->config.transport->ops->poll_fds(gather->config.transport, fds);
}

static const struct fanin_error *
gather_error(struct fanin_endpoint *endpoint)
{
	return &((const struct gather *)endpoint)->error;
}

static void
gather_missing(struct fanin_endpoint *endpoint, struct fanin_ranks *ranks)
{
	(void)endpoint;
	*ranks = (struct fanin_ranks){ 0 };
}

static void
gather_report(struct fanin_endpoint *endpoint, struct fanin_report *report)
{
	report->blocks = ((const struct gather *)endpoint)->number;
}

/*
 * ------------------------------------------------------------------- runs are not taken up again
 * here
 */

/* It knows neither several trees nor runs that are taken up again. */
static const struct fanin_switch_ops gather_on_switch = { 0 };

static const char *const gather_handlers[] = { "multicast", NULL };

static struct fanin_protocol gather = {
	.name = "gather",
	.handlers = gather_handlers,
	.collectives = 1 << FANIN_COLLECTIVE_ALLGATHER,
	.on_switch = &gather_on_switch,
	.open = gather_open,
	.close = gather_close,
	.post = gather_post,
	.poll = gather_poll,
	.idle_ns = gather_idle_ns,
	.poll_fds = gather_poll_fds,
	.error = gather_error,
	.missing = gather_missing,
	.report = gather_report,
};

FANIN_PROTOCOL_REGISTER(gather)

/*
 * ------------------------------------------------------------------------------------------ the
 * rank
 */

static fanin_ctx *ctx;

static void
check(const char *what, int status)
{
	if (status == FANIN_OK)
		return;
	printf("{\"ok\": false, \"error\": \"%s: %s: %s\"}\n", what, fanin_strerror(status),
	       ctx == NULL ? "" : fanin_ctx_error(ctx));
	exit(1);
}

static int32_t
element(unsigned int rank, unsigned int round, unsigned int i)
{
	return (int32_t)(rank * 1000000 + round * 1000 + i);
}

/* Returns how many elements are wrong. */
static unsigned int
run(fanin_comm *comm, uint16_t rank, uint16_t size, unsigned int round)
{
	static int32_t send[ELEMENTS], recv[RANKS][ELEMENTS];
	unsigned int wrong = 0;

	memset(recv, 0xff, sizeof(recv));
	for (unsigned int i = 0; i < ELEMENTS; i++)
		send[i] = element(rank, round, i);
	check("allgather", fanin_allgather(send, recv, ELEMENTS, FANIN_I32, comm));
	for (unsigned int from = 0; from < size; from++) {
		for (unsigned int i = 0; i < ELEMENTS; i++)
			wrong += recv[from][i] != element(from, round, i);
	}
	return wrong;
}

static void
print_hosts(uint16_t size)
{
	printf("\"hosts\": [");
	for (uint16_t i = 0; knows_hosts && i < size; i++) {
		char ip[INET_ADDRSTRLEN], switch_ip[INET_ADDRSTRLEN];

		inet_ntop(AF_INET, &hosts[i].ip_be, ip, sizeof(ip));
		inet_ntop(AF_INET, &hosts[i].switch_ip_be, switch_ip, sizeof(switch_ip));
		printf("%s[\"%s\", \"%s\"]", i == 0 ? "" : ", ", ip, switch_ip);
	}
	printf("]");
}

int
main(int argc, char **argv)
{
	const struct fanin_init_opts init = { .sz = sizeof(init), .transport = "af_packet" };
	struct fanin_report report = { .sz = sizeof(report) };
	struct fanin_join_opts options = { .sz = sizeof(options), .handler = "multicast" };
	unsigned int wrong = 0;
	fanin_comm *comm;

	if (argc != 7)
		return 2;
	options.manager = argv[1];
	options.job_name = argv[2];
	options.address = argv[3];
	options.rank = (uint16_t)atoi(argv[4]);
	options.fixed_rank = true;
	options.size = (uint16_t)atoi(argv[5]);
	check("init", fanin_init(&init, &ctx));
	check("join", fanin_join(ctx, &options, &comm));
	for (unsigned int round = 0; round < (unsigned int)atoi(argv[6]); round++)
		wrong += run(comm, options.rank, options.size, round);
	check("report", fanin_comm_report(comm, &report));
	printf("{\"ok\": true, \"wrong\": %u, \"rounds\": %llu, \"protocol\": \"%s\", \"mode\": \"%s\", \"handler\": \"%s\", ",
	       wrong, (unsigned long long)report.blocks, report.protocol, report.mode,
	       report.handler);
	print_hosts(options.size);
	printf("}\n");
	check("leave", fanin_leave(comm));
	fanin_finalize(ctx);
	return 0;
}
