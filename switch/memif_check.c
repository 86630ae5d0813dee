/* SPDX-License-Identifier: BSD-3-Clause */
/* See memif_check.h. */
#include "switch/memif_check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

static int __attribute__((format(printf, 2, 3))) refuse(char *reason, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reason, MEMIF_CHECK_REASON_LEN, format, args);
	va_end(args);
	return -EPROTO;
}

static int
check_init(struct memif_layout *layout, const struct memif_init *init, char *reason)
{
	if (layout->named)
		return refuse(reason, "a second INIT");
	if (init->version != MEMIF_VERSION)
		return refuse(reason, "found version 0x%04x, expected 0x%04x", init->version,
			      MEMIF_VERSION);
	if (init->mode != MEMIF_MODE_ETHERNET)
		return refuse(reason, "found mode %u, expected Ethernet, %u", init->mode,
			      MEMIF_MODE_ETHERNET);
	layout->named = true;
	return 0;
}

/*
 * Checks that the memory exists and can't shrink: accessing memory that was cut off would kill the
 * switch.
 */
static int
check_region(struct memif_layout *layout, const struct memif_add_region *region, int fd,
	     char *reason)
{
	struct stat status;
	int seals;

	if (region->index != layout->n_regions || region->index == MEMIF_CHECK_REGIONS)
		return refuse(reason, "found region %u, expected %u, and at most %u", region->index,
			      layout->n_regions, MEMIF_CHECK_REGIONS);
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return refuse(reason, "the memory is not sealed against shrinking");
	if (fstat(fd, &status) != 0 || region->size == 0 || (uint64_t)status.st_size < region->size)
		return refuse(reason, "found %" PRId64 " bytes of memory, expected %" PRIu64,
			      (int64_t)status.st_size, region->size);
	layout->region_bytes[layout->n_regions++] = region->size;
	return 0;
}

static int
check_ring(struct memif_layout *layout, const struct memif_add_ring *ring, char *reason)
{
	bool to_server = (ring->flags & MEMIF_RING_TO_SERVER) != 0;
	uint64_t bytes;

	if (ring->index != 0 || (to_server ? layout->to_server : layout->to_client))
		return refuse(reason, "expected one ring in each direction");
	if (ring->log2_slots == 0 || ring->log2_slots > MEMIF_MAX_LOG2_RING)
		return refuse(reason, "found 2^%u slots, expected 2^1 to 2^%u", ring->log2_slots,
			      MEMIF_MAX_LOG2_RING);
	if (ring->private_header != 0)
		return refuse(reason, "found private headers of %u bytes, expected none",
			      ring->private_header);
	bytes = memif_ring_bytes(ring->log2_slots);
	if (ring->region >= layout->n_regions || ring->offset % 8 != 0 ||
	    layout->region_bytes[ring->region] < bytes ||
	    ring->offset > layout->region_bytes[ring->region] - bytes)
		return refuse(reason, "the ring does not lie in its region");
	if (to_server)
		layout->to_server = true;
	else
		layout->to_client = true;
	return 0;
}

int
memif_check(struct memif_layout *layout, const struct memif_message *message, int fd, char *reason)
{
	bool wants_fd = message->type == MEMIF_TYPE_ADD_REGION ||
			message->type == MEMIF_TYPE_ADD_RING;

	if (!layout->named && message->type != MEMIF_TYPE_INIT)
		return refuse(reason, "found message type %u, expected INIT", message->type);
	if (wants_fd != (fd >= 0))
		return refuse(reason, "found %s file descriptor with message type %u",
			      fd >= 0 ? "a" : "no", message->type);
	switch (message->type) {
	case MEMIF_TYPE_INIT:
		return check_init(layout, &message->init, reason);
	case MEMIF_TYPE_ADD_REGION:
		return check_region(layout, &message->add_region, fd, reason);
	case MEMIF_TYPE_ADD_RING:
		return check_ring(layout, &message->add_ring, reason);
	case MEMIF_TYPE_CONNECT:
		if (!layout->to_server || !layout->to_client)
			return refuse(reason, "CONNECT without a ring in each direction");
		return 0;
	case MEMIF_TYPE_ACK:
	case MEMIF_TYPE_DISCONNECT:
		return 0;
	default:
		return refuse(reason, "found message type %u, which no client sends",
			      message->type);
	}
}
