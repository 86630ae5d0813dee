/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of packet types, and the registration of types from outside of this tree. See
 * packets.h.
 */
#include "wire/packets.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/wire.h"

#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

#define PAYLOAD_NOTHING .payload = FANIN_PAYLOAD_NOTHING
#define PAYLOAD_ELEMENTS .payload = FANIN_PAYLOAD_ELEMENTS
#define PAYLOAD_DATA .payload = FANIN_PAYLOAD_DATA
#define PAYLOAD_SHARD .payload = FANIN_PAYLOAD_SHARD
#define PAYLOAD_BODY(struct_name)                                                                  \
	.payload = FANIN_PAYLOAD_BODY, .body_len = sizeof(struct fanin_##struct_name##_body)

/* clang-format off */
struct fanin_packet_type fanin_packet_types[FANIN_TYPE_FREE_LAST + 1] = {
#define PACKET_TYPE(enumerator, number_of_type, way, taker, carries, count_use, number_use, line)  \
	[number_of_type] = {                                                                       \
		.name = #enumerator,                                                               \
		.text = (line),                                                                    \
		.code = (number_of_type),                                                          \
		.direction = FANIN_##way,                                                          \
		.class = FANIN_CLASS_##taker,                                                      \
		PAYLOAD_##carries,                                                                 \
		.count = FANIN_FIELD_##count_use,                                                  \
		.number = FANIN_FIELD_##number_use,                                                \
	},
	FANIN_WIRE_PACKETS(PACKET_TYPE)
#undef PACKET_TYPE
};
/* clang-format on */

#define PACKET_IS_BELOW_FREE(enumerator, ...)                                                      \
	static_assert(FANIN_TYPE_##enumerator > 0 &&                                               \
			      FANIN_TYPE_##enumerator < FANIN_TYPE_FREE_FIRST,                     \
		      "the codes from FANIN_TYPE_FREE_FIRST on are for others");
FANIN_WIRE_PACKETS(PACKET_IS_BELOW_FREE)
#undef PACKET_IS_BELOW_FREE

static bool
name_is_valid(const char *name)
{
	const size_t len = name != NULL ? strlen(name) : 0;

	return len != 0 && len <= FANIN_TYPE_NAME_MAX && strspn(name, NAME_CHARACTERS) == len;
}

/* Returns true if the declared fields are consistent, so that a packet can meet them. */
static bool
payload_is_valid(const struct fanin_packet_type *type)
{
	const bool has_elements = type->payload == FANIN_PAYLOAD_ELEMENTS ||
				  type->payload == FANIN_PAYLOAD_SHARD;
	const bool has_body = type->payload == FANIN_PAYLOAD_BODY;

	return type->payload <= FANIN_PAYLOAD_SHARD && type->count <= FANIN_FIELD_ELEMENTS &&
	       (type->count == FANIN_FIELD_ELEMENTS) == has_elements &&
	       type->number <= FANIN_FIELD_NONZERO && (type->body_len != 0) == has_body &&
	       type->body_len <= UINT16_MAX - FANIN_MTU_OVERHEAD;
}

int
fanin_wire_register_type(const struct fanin_packet_type *type)
{
	if (type->code < FANIN_TYPE_FREE_FIRST || type->class != FANIN_CLASS_BLOCK ||
	    type->direction > FANIN_DOWN || !name_is_valid(type->name) || type->text == NULL ||
	    type->text[0] == '\0' || !payload_is_valid(type))
		return -EINVAL;
	if (fanin_type_is_known(type->code))
		return -EEXIST;
	for (size_t i = 0; i <= FANIN_TYPE_FREE_LAST; i++) {
		if (fanin_packet_types[i].name != NULL &&
		    strcmp(fanin_packet_types[i].name, type->name) == 0)
			return -EEXIST;
	}
	fanin_packet_types[type->code] = *type;
	return 0;
}

static bool
is_known_as_declared(const struct fanin_packet_type *type)
{
	const struct fanin_packet_type *known = &fanin_packet_types[type->code];

	return known->name != NULL && strcmp(known->name, type->name) == 0 &&
	       known->direction == type->direction && known->class == type->class &&
	       known->payload == type->payload && known->count == type->count &&
	       known->number == type->number && known->body_len == type->body_len;
}

void
fanin_wire_require_types(const char *owner, const struct fanin_packet_type *types)
{
	for (; types != NULL && types->name != NULL; types++) {
		int ret = is_known_as_declared(types) ? 0 : fanin_wire_register_type(types);

		if (ret == 0)
			continue;
		if (ret == -EEXIST)
			fprintf(stderr,
				"%s: packet type %s, code %u: the name or the code is another's\n",
				owner, types->name, types->code);
		else
			fprintf(stderr,
				"%s: packet type %s, code %u: expected a code from %u to %u, the class BLOCK, a "
				"name in capital letters, a text, and fields that go together\n",
				owner, types->name, types->code, FANIN_TYPE_FREE_FIRST,
				FANIN_TYPE_FREE_LAST);
		abort();
	}
}
