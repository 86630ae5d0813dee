/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes of this rank: their log, how many packets may be in flight, and which ranks have them
 * (protocols/region/README.md). Packets are sent and repeated from the region's memory.
 */
#include <stdlib.h>
#include <string.h>

#include "region_internal.h"

/* Packets that one poll sends; received packets are read between polls. */
#define SEND_BURST 32u
/* No more packets are made while this many frames wait in this host. */
#define WAITING_MAX 64u
/*
 * Nothing signals that the transport has room again. The engine sends few frames and waits longer.
 */
#define NO_ROOM_NS (50 * UINT64_C(1000))
#define ASK_MAX_NS UINT64_C(100000000)
/* Packets since a fence are compared by serial arithmetic, which needs half of the number space. */
#define WRITE_PACKETS_MAX (UINT32_MAX / 2)

/* ------------------------------------------------------------------ log */

/* Makes room for one more entry. Returns false if there is no memory. */
static bool
log_reserve(struct fanin_region_log *log)
{
	size_t room;
	void *grown;

	if (log->n < log->room)
		return true;
	if (log->head > log->room / 2) {
		log->n -= log->head;
		memmove(log->entries, log->entries + log->head, log->n * sizeof(*log->entries));
		log->head = 0;
		return true;
	}
	room = log->room == 0 ? 64 : 2 * log->room;
	grown = realloc(log->entries, room * sizeof(*log->entries));
	if (grown == NULL)
		return false;
	log->entries = grown;
	log->room = room;
	return true;
}

/* Drops entries whose packets are all before this one. */
static void
log_trim(struct fanin_region_log *log, uint32_t packet)
{
	while (log->head < log->n &&
	       log->entries[log->head].first + log->entries[log->head].n <= packet)
		log->head++;
	if (log->head == log->n) {
		log->head = 0;
		log->n = 0;
	}
}

/* Returns the entry of a packet that is still in the log. */
static const struct fanin_region_entry *
log_find(const struct fanin_region_log *log, uint32_t packet)
{
	size_t low = log->head;
	size_t high = log->n - 1;

	while (low < high) {
		const size_t middle = (low + high + 1) / 2;

		if (log->entries[middle].first <= packet)
			low = middle;
		else
			high = middle - 1;
	}
	return &log->entries[low];
}

/* ------------------------------------------------------------------ packets */

/* Fills in the headers of a data packet and finds its bytes. Returns the number of bytes. */
static uint32_t
data_make(const struct fanin_region_engine *region, enum fanin_type type, uint32_t packet,
	  struct fanin_headers *headers, const uint8_t **data)
{
	const struct fanin_protocol_config *config = &region->engine.config;
	const struct fanin_region_entry *entry = log_find(&region->log, packet);
	const uint64_t begin = (uint64_t)(packet - entry->first) * config->payload_bytes;
	const uint64_t left = entry->bytes - begin;
	const uint32_t len = left < config->payload_bytes ? (uint32_t)left : config->payload_bytes;

	fanin_engine_begin(&region->engine, type, packet, len, headers);
	headers->fanin.progress = region->number;
	headers->fanin.count = config->rank;
	headers->fanin.members = region->first + entry->offset + begin;
	*data = region->memory + entry->offset + begin;
	return len;
}

bool
fanin_region_tell(struct fanin_region_engine *region, uint16_t rank, enum fanin_region_kind kind,
		  uint32_t packet, const void *payload, uint32_t payload_len)
{
	const struct fanin_protocol_config *config = &region->engine.config;
	struct fanin_headers headers;

	fanin_engine_begin(&region->engine, FANIN_TYPE_UNICAST, packet, payload_len, &headers);
	headers.fanin.progress = region->number;
	headers.fanin.members = config->rank;
	headers.fanin.count = rank;
	headers.fanin.number = kind;
	if (!fanin_engine_transmit(&region->engine, &headers, payload, payload_len))
		return false;
	region->engine.stats.frames_sent++;
	return true;
}

/* Returns the first packet that may not be sent yet. */
static uint32_t
limit_of(const struct fanin_region_engine *region)
{
	const uint32_t limit = region->base + region->window;

	return limit < region->n_written ? limit : region->n_written;
}

/* Sends the next packet to all other ranks. Returns false if the transport has no room. */
static bool
next_send(struct fanin_region_engine *region)
{
	const uint32_t step = region->window / 4;
	const uint32_t packet = region->next;
	struct fanin_headers headers;
	const uint8_t *data;
	const uint32_t len = data_make(region, FANIN_TYPE_WRITE, packet, &headers, &data);

	if ((packet + 1) % step == 0 || packet + 1 == region->base + region->window)
		headers.fanin.number = FANIN_REGION_WANTS_HAVE;
	if (!fanin_engine_transmit(&region->engine, &headers, data, len))
		return false;
	region->engine.stats.frames_sent++;
	region->stats.packets_sent++;
	region->next++;
	return true;
}

/* ------------------------------------------------------------------ sending */

/* True if so many frames wait in this host that more would only wait. */
static bool
waits_here(const struct fanin_region_engine *region)
{
	struct fanin_transport *transport = region->engine.loop.transport;

	return transport->ops->tx_waiting != NULL &&
	       transport->ops->tx_waiting(transport) >= WAITING_MAX;
}

/*
 * Sends ASK to the ranks that have not confirmed all sent packets, once nothing new was heard for
 * long enough.
 */
static void
ask(struct fanin_region_engine *region)
{
	const uint64_t now_ns = region->engine.loop.now_ns;

	if (region->base == region->next)
		return;
	if (now_ns < region->ask_ns) {
		fanin_region_wake_by(region, region->ask_ns);
		return;
	}
	for (uint16_t rank = 0; rank < region->engine.config.size; rank++) {
		if (rank == region->engine.config.rank || region->confirmed[rank] == region->next ||
		    !fanin_region_tell(region, rank, FANIN_REGION_ASK, region->next, NULL, 0))
			continue;
		region->stats.asks++;
	}
	region->ask_wait_ns = 2 * region->ask_wait_ns < ASK_MAX_NS ? 2 * region->ask_wait_ns
								   : ASK_MAX_NS;
	region->ask_ns = now_ns + region->ask_wait_ns;
	fanin_region_wake_by(region, region->ask_ns);
}

/* A packet was sent, or something was heard: postpones the next ASK. */
static void
ask_later(struct fanin_region_engine *region)
{
	region->ask_wait_ns = fanin_region_answer_ns(region);
	region->ask_ns = region->engine.loop.now_ns + region->ask_wait_ns;
}

void
fanin_region_send(struct fanin_region_engine *region)
{
	const uint32_t limit = limit_of(region);

	region->has_more = false;
	region->is_full = false;
	if (region->next < limit && waits_here(region)) {
		region->is_full = true;
	} else if (region->next < limit) {
		for (uint32_t i = 0; i < SEND_BURST && region->next < limit; i++) {
			if (!next_send(region)) {
				region->is_full = true;
				break;
			}
		}
		ask_later(region);
	}
	region->has_more = region->next < limit;
	ask(region);
}

uint64_t
fanin_region_idle_max_ns(struct fanin_engine *engine)
{
	const struct fanin_region_engine *region = fanin_region_of(engine);
	const uint64_t now_ns = fanin_loop_clock_ns(&engine->loop);

	if (region->has_more || region->next < limit_of(region))
		return region->is_full ? NO_ROOM_NS : 0;
	if (region->wake_ns == UINT64_MAX)
		return UINT64_MAX;
	return region->wake_ns > now_ns ? region->wake_ns - now_ns : 0;
}

/* ------------------------------------------------------------------ what others have */

/* This many more packets are confirmed by all ranks. */
static void
window_grow(struct fanin_region_engine *region, uint32_t confirmed)
{
	region->n_good += confirmed;
	if (region->n_good < region->window)
		return;
	region->n_good = 0;
	region->window += region->window / 8;
	if (region->window > region->window_max)
		region->window = region->window_max;
}

/*
 * A packet was lost. Losses of packets sent before the last halving do not halve the window again.
 */
static void
window_halve(struct fanin_region_engine *region, uint32_t packet)
{
	if (packet < region->slowed_at)
		return;
	region->slowed_at = region->next;
	region->n_good = 0;
	region->window = region->window > 2 * FANIN_REGION_WINDOW_MIN ? region->window / 2
								      : FANIN_REGION_WINDOW_MIN;
	region->stats.slowed++;
}

void
fanin_region_note_have(struct fanin_region_engine *region, uint16_t rank, uint32_t packet)
{
	uint32_t base = region->next;

	if (packet > region->next || packet <= region->confirmed[rank])
		return;
	region->confirmed[rank] = packet;
	fanin_region_note_progress(region);
	ask_later(region);
	for (uint16_t other = 0; other < region->engine.config.size; other++) {
		if (other != region->engine.config.rank && region->confirmed[other] < base)
			base = region->confirmed[other];
	}
	window_grow(region, base - region->base);
	region->base = base;
	log_trim(&region->log, base);
}

void
fanin_region_serve(struct fanin_region_engine *region, uint16_t rank, uint32_t first,
		   const uint64_t *words, uint32_t n_words)
{
	fanin_region_note_have(region, rank, first);
	for (uint32_t i = 0; i < n_words * 64; i++) {
		const uint32_t packet = first + i;
		struct fanin_headers headers;
		const uint8_t *data;
		uint32_t len;

		/*
		 * A packet that was not sent yet will be sent anyway. If the rank has confirmed a
		 * packet, its question is old.
		 */
		if ((words[i / 64] >> (i % 64) & 1) == 0 || packet >= region->next ||
		    packet < region->confirmed[rank])
			continue;
		len = data_make(region, FANIN_TYPE_REWRITE, packet, &headers, &data);
		headers.fanin.number = rank;
		if (!fanin_engine_transmit(&region->engine, &headers, data, len))
			break;
		region->engine.stats.frames_sent++;
		region->stats.fetches_served++;
		window_halve(region, packet);
	}
	ask_later(region);
}

void
fanin_region_writes_forget(struct fanin_region_engine *region)
{
	region->log.head = 0;
	region->log.n = 0;
	region->n_written = 0;
	region->next = 0;
	region->base = 0;
	region->n_good = 0;
	region->slowed_at = 0;
	region->has_more = false;
	memset(region->confirmed, 0, sizeof(region->confirmed));
}

/* ------------------------------------------------------------------ writing */

int
fanin_region_store(struct fanin_endpoint *endpoint, uint64_t offset, const void *data,
		   uint64_t bytes)
{
	struct fanin_region_engine *region = fanin_region_of(fanin_engine_of(endpoint));
	const uint32_t payload = region->engine.config.payload_bytes;
	const uint64_t n = bytes / payload + (bytes % payload != 0);

	if (region->engine.loop.status != FANIN_OK)
		return region->engine.loop.status;
	if (region->memory == NULL || region->fence.stage != FANIN_REGION_NO_FENCE ||
	    offset > region->bytes || bytes > region->bytes - offset)
		return FANIN_ERR_INVALID;
	if (bytes == 0)
		return FANIN_OK;
	if (n > WRITE_PACKETS_MAX - region->n_written)
		return FANIN_ERR_INVALID;
	if (!log_reserve(&region->log))
		return FANIN_ERR_NO_MEMORY;
	if (data != region->memory + offset)
		memmove(region->memory + offset, data, bytes);
	if (region->engine.config.size == 1)
		return FANIN_OK;
	region->log.entries[region->log.n++] = (struct fanin_region_entry){
		.first = region->n_written,
		.n = (uint32_t)n,
		.offset = offset,
		.bytes = bytes,
	};
	region->n_written += (uint32_t)n;
	return FANIN_OK;
}
