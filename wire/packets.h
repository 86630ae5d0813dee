/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The packet types. The row of a type gives its enumerator, the rules for validation, its direction
 * and the part of the switch that takes it. wire/packets.py makes the dissector's table and the one
 * in docs/protocol.md from the rows (./dev fmt). The codes are wire format: they never change. 192
 * to 255 are for handlers outside of this tree, which register their own types.
 */
#ifndef FANIN_WIRE_PACKETS_H
#define FANIN_WIRE_PACKETS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * X(ENUMERATOR, code, direction, class, payload, count, number, text)
 *
 * The enumerator is also the name. Direction is UP or DOWN; class is one of enum
 * fanin_packet_class. The payload is ELEMENTS, SHARD (wire/shard.h), DATA for any bytes, NOTHING,
 * or BODY(join) for struct fanin_join_body or more bytes. The header's fields `count` and `number`
 * are ZERO, ANY or NONZERO; `count` is ELEMENTS if the payload has elements.
 */
#define FANIN_WIRE_PACKETS(X)                                                                              \
	X(CONTRIBUTION, 1, UP, BLOCK, ELEMENTS, ELEMENTS, ZERO,                                            \
	  "elements to be reduced: of a host, or of all hosts behind a switch")                            \
	X(RESULT, 2, DOWN, BLOCK, ELEMENTS, ELEMENTS, ZERO,                                                \
	  "the reduced elements, to all children")                                                         \
	X(ANSWER, 3, DOWN, BLOCK, BODY(answer), ANY, ANY,                                                  \
	  "the state of a block, to the child that asked")                                                 \
	X(REFUSED, 4, DOWN, PARENT, NOTHING, ANY, ZERO,                                                    \
	  "the reason why a packet was not processed")                                                     \
	X(JOIN, 5, UP, MEMBERSHIP, BODY(join), ZERO, ZERO, "a host or switch joins the job")               \
	X(JOIN_ACK, 6, DOWN, PARENT, BODY(join_ack), ZERO, ZERO, "the answer to a JOIN")                   \
	X(LEAVE, 7, UP, MEMBERSHIP, NOTHING, ZERO, ZERO, "a host or switch leaves the job")                \
	X(LEAVE_ACK, 8, DOWN, PARENT, NOTHING, ZERO, ZERO, "the answer to a LEAVE")                        \
	X(KNOWN, 9, UP, BLOCK, ELEMENTS, ELEMENTS, ZERO,                                                   \
	  "the result of a block, from a child that has it from a tree that was replaced")                 \
	X(QUERY, 10, UP, BLOCK, DATA, ANY, NONZERO, "asks for the state of a block")                       \
	X(PROBE, 11, DOWN, PROBE, NOTHING, ZERO, ZERO,                                                     \
	  "asks a child that others wait for whether it is there")                                         \
	X(PROBE_ACK, 12, UP, PROBE, BODY(probe_ack), ZERO, ZERO,                                           \
	  "the answer of a switch to a PROBE")                                                             \
	X(MULTICAST, 13, UP, BLOCK, DATA, ANY, ANY, "data of a member, for all others")                    \
	X(DELIVERY, 14, DOWN, BLOCK, DATA, ANY, ANY,                                                       \
	  "data of a MULTICAST, on its way down to the others")                                            \
	X(SPARSE, 15, UP, BLOCK, SHARD, ELEMENTS, ZERO,                                                    \
	  "a shard of a sparse block: elements at some of its indices")                                    \
	X(SPARSE_RESULT, 16, DOWN, BLOCK, SHARD, ELEMENTS, ZERO,                                           \
	  "a shard of the result of a sparse block, to all children")                                      \
	X(SPARSE_KNOWN, 17, UP, BLOCK, SHARD, ELEMENTS, ZERO,                                              \
	  "a shard of the result of a sparse block, as KNOWN")                                             \
	X(PARTIAL, 18, UP, BLOCK, ELEMENTS, ELEMENTS, ZERO,                                                \
	  "combined elements of the ranks in `members`")                                                   \
	X(GACK, 19, DOWN, BLOCK, NOTHING, ANY, ZERO,                                                       \
	  "acknowledges a contribution to the host that sent it")                                          \
	X(REPEAT, 20, DOWN, BLOCK, ELEMENTS, ELEMENTS, ZERO,                                               \
	  "the reduced elements once more, to the host that asked")                                        \
	X(FLUSH, 21, DOWN, BLOCK, NOTHING, ZERO, ZERO,                                                     \
	  "a server asks for what the switch has of the block")                                            \
	X(ASK, 22, DOWN, BLOCK, NOTHING, ZERO, ZERO,                                                       \
	  "a server or a leader asks the ranks in `members` for their contributions")                      \
	X(REDUCE, 23, UP, BLOCK, ELEMENTS, ELEMENTS, ANY,                                                  \
	  "elements of the ranks in `members`, on their way to the block's leader")                        \
	X(RESTORE, 24, DOWN, BLOCK, ELEMENTS, ELEMENTS, ZERO,                                              \
	  "the reduced elements, for the ports in `members` of the switch that it goes to")                \
	X(HERE, 25, UP, BLOCK, NOTHING, ZERO, ZERO,                                                        \
	  "tells a leader that asked: the rank is there, and has not sent the block")                      \
	X(CALL, 26, UP, BLOCK, BODY(call), ZERO, ZERO,                                                     \
	  "tells rank 0 that the rank is there for a run")                                                 \
	X(ROLL, 27, DOWN, BLOCK, BODY(roll), ZERO, ZERO,                                                   \
	  "names the ranks that have called; once all have, also the number of the run")                   \
	X(BYE, 28, UP, BLOCK, NOTHING, ZERO, ZERO,                                                         \
	  "tells the leader of a run's last block that the rank has its result, and leaves")               \
	X(UNICAST, 29, UP, BLOCK, DATA, ANY, ANY, "data of a member, for the rank in `count`")             \
	X(UNICAST_DELIVERY, 30, DOWN, BLOCK, DATA, ANY, ANY,                                               \
	  "data of a UNICAST, on its way down to that rank")                                               \
	X(EVICTED, 31, DOWN, BLOCK, ELEMENTS, ELEMENTS, ANY,                                               \
	  "elements of the ranks in `members`, combined, for the block's home host, the rank in `number`") \
	X(PULL, 35, UP, BLOCK, NOTHING, ZERO, ANY,                                                         \
	  "the owner of a packet asks all others for their data of it")                                    \
	X(PULL_DELIVERY, 36, DOWN, BLOCK, NOTHING, ANY, ANY,                                               \
	  "a PULL on its way down to the others, or back if the switch is busy")                           \
	X(RESPONSE, 37, UP, BLOCK, ELEMENTS, ELEMENTS, ZERO,                                               \
	  "elements of the ranks in `members`, on their way to the packet's owner")                        \
	X(RESPONSE_DELIVERY, 38, DOWN, BLOCK, ELEMENTS, ELEMENTS, ZERO,                                    \
	  "elements of a RESPONSE, on their way down to the owner")                                        \
	X(WRITE, 39, UP, BLOCK, DATA, ANY, ANY,                                                            \
	  "bytes for a place of a multicast region, from the rank in `count` for all others")              \
	X(WRITE_DELIVERY, 40, DOWN, BLOCK, DATA, ANY, ANY,                                                 \
	  "bytes of a WRITE, on their way down to the others")                                             \
	X(REWRITE, 41, UP, BLOCK, DATA, ANY, ANY,                                                          \
	  "bytes of a WRITE once more, for the rank in `number`, which asked for them")                    \
	X(REWRITE_DELIVERY, 42, DOWN, BLOCK, DATA, ANY, ANY,                                               \
	  "bytes of a REWRITE, on their way down to that rank")

enum fanin_type {
#define FANIN_TYPE_ENUM(name, code, ...) FANIN_TYPE_##name = (code),
	FANIN_WIRE_PACKETS(FANIN_TYPE_ENUM)
#undef FANIN_TYPE_ENUM
};

/* Codes that fanin_wire_register_type accepts. */
#define FANIN_TYPE_FREE_FIRST 192
#define FANIN_TYPE_FREE_LAST 255

#define FANIN_TYPE_NAME_MAX 31

enum fanin_direction {
	FANIN_UP = 0,   /* host or switch to its parent, with the job's up key */
	FANIN_DOWN = 1, /* switch to children, with the down key */
};

/* The part of a switch that takes a packet. */
enum fanin_packet_class {
	FANIN_CLASS_NONE = 0,   /* none: there is no such type */
	FANIN_CLASS_BLOCK,      /* the block's cluster, and there the job's handler */
	FANIN_CLASS_MEMBERSHIP, /* children join and leave */
	FANIN_CLASS_PARENT,     /* a parent's messages about membership and packets */
	FANIN_CLASS_PROBE,      /* presence of children */
};

enum fanin_packet_payload {
	FANIN_PAYLOAD_NOTHING = 0,
	FANIN_PAYLOAD_ELEMENTS, /* `count` elements, of a data type and an operator */
	FANIN_PAYLOAD_BODY,     /* a struct; later versions may append fields */
	FANIN_PAYLOAD_DATA,     /* any number of bytes */
	FANIN_PAYLOAD_SHARD,    /* `count` elements and their indices: wire/shard.h */
};

/* Values that a field of the header may have. */
enum fanin_field_use {
	FANIN_FIELD_ZERO = 0,
	FANIN_FIELD_ANY,
	FANIN_FIELD_NONZERO,
	FANIN_FIELD_ELEMENTS, /* of `count`: the number of elements */
};

struct fanin_packet_type {
	const char *name; /* capital letters, digits and underscores; NULL: there is no such type */
	const char *text; /* its purpose, one line, shown to users */
	uint8_t code;     /* enum fanin_type, or a registered one */
	uint8_t direction; /* enum fanin_direction */
	uint8_t class;     /* enum fanin_packet_class */
	uint8_t payload;   /* enum fanin_packet_payload */
	uint8_t count;     /* enum fanin_field_use */
	uint8_t number;    /* enum fanin_field_use */
	uint16_t body_len; /* minimum bytes of a BODY; else 0 */
};

/*
 * All types by their codes: the rows of FANIN_WIRE_PACKETS, which never change, and registered
 * types; zeros for a code without a type. Only fanin_wire_register_type writes it.
 */
extern struct fanin_packet_type fanin_packet_types[FANIN_TYPE_FREE_LAST + 1];

/*
 * Registers a packet type in this process: from then on fanin_wire_validate checks its packets by
 * the declared rules. Call it before main, from a constructor, or while there is only one thread.
 *
 * type: copied, except for its strings, which must stay. Its code is FANIN_TYPE_FREE_FIRST to
 * FANIN_TYPE_FREE_LAST, its class BLOCK: all other classes are the pipeline's own. Its `count` is
 * ELEMENTS exactly if its payload is ELEMENTS or SHARD. Returns 0; -EINVAL if one of these rules is
 * broken, or the name or text is missing or invalid; or -EEXIST if the code or the name is taken.
 * After an error nothing is changed.
 */
int fanin_wire_register_type(const struct fanin_packet_type *type);

/*
 * Registers all types of a list, which ends with a type without a name. A type that is already
 * known with the same declaration stays: a handler and a host protocol in one program declare the
 * same types. If a type can't be registered, prints the reason and ends the process. Call it like
 * fanin_wire_register_type.
 *
 * owner: named in the error message: "handler NAME". types: NULL: none.
 */
void fanin_wire_require_types(const char *owner, const struct fanin_packet_type *types);

static inline bool
fanin_type_is_known(uint8_t type)
{
	return fanin_packet_types[type].class != FANIN_CLASS_NONE;
}

static inline bool
fanin_type_has_elements(uint8_t type)
{
	return fanin_packet_types[type].payload == FANIN_PAYLOAD_ELEMENTS;
}

/* Returns a type's direction; UP for an unknown code. */
static inline enum fanin_direction
fanin_type_direction(uint8_t type)
{
	return (enum fanin_direction)fanin_packet_types[type].direction;
}

static inline enum fanin_packet_class
fanin_type_class(uint8_t type)
{
	return (enum fanin_packet_class)fanin_packet_types[type].class;
}

#endif
