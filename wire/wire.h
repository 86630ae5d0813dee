/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Fanin packet: Ethernet, IPv4, UDP, one fixed header of 54 bytes and a payload of whole
 * elements. Shared by the switch and the host library; no allocation, no DPDK. docs/protocol.md
 * describes every field.
 *
 * The headers before the payload are 96 bytes. Receivers place a frame at an address that is 32
 * modulo 64, so that the payload is 64-byte aligned. All Fanin fields are little-endian, as both
 * ends are; IPv4 and UDP are in network order.
 */
#ifndef FANIN_WIRE_WIRE_H
#define FANIN_WIRE_WIRE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire/packets.h"
#include "wire/ranks.h"
#include "wire/reasons.h"
#include "wire/types.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Fanin's payload and header are little-endian and are never swapped: this host is big-endian"
#endif

#define FANIN_WIRE_VERSION 3
/* Of earlier releases. JOIN and REFUSED are as today's but for the version, and a shorter body. */
#define FANIN_WIRE_VERSION_BEFORE 2
#define FANIN_JOIN_BODY_BEFORE 24
#define FANIN_WIRE_DEFAULT_UDP_PORT 21930
#define FANIN_WIRE_MAX_CHILDREN 64
#define FANIN_WIRE_MAX_JOB 65535
/*
 * Results of job j go to this IPv4 multicast address plus j: 239.192.0.0/14, RFC 2365,
 * organisation-local.
 */
#define FANIN_WIRE_GROUPS 0xefc00000u
#define FANIN_WIRE_MAX_WINDOW 4096
#define FANIN_WIRE_PARAMETERS 8 /* that a job's handler may have */

/* Packets about blocks come from these UDP ports, some blocks in a row from the same one. */
#define FANIN_SOURCE_PORT_FIRST 49152
#define FANIN_SOURCE_PORTS 1024

/* A super-frame: packets of one flow that a kernel takes or gives together. */
#define FANIN_SUPER_FRAME_PACKETS 64
#define FANIN_SUPER_FRAME_BYTES 65507 /* of them, behind the headers of UDP */

#define FANIN_ETH_LEN 14
#define FANIN_IP_LEN 20
#define FANIN_UDP_LEN 8
#define FANIN_L4_LEN (FANIN_ETH_LEN + FANIN_IP_LEN + FANIN_UDP_LEN)
#define FANIN_HDR_LEN 54
#define FANIN_PAYLOAD_OFFSET (FANIN_L4_LEN + FANIN_HDR_LEN)
/* What a link's MTU has to hold besides the payload. */
#define FANIN_MTU_OVERHEAD (FANIN_IP_LEN + FANIN_UDP_LEN + FANIN_HDR_LEN)
#define FANIN_TAG_LEN 32       /* of a tagged packet, behind its payload */
#define FANIN_PAYLOAD_ALIGN 64 /* and what every job's packets hold at least: any element */
static_assert(FANIN_WIRE_OPAQUE_MAX <= FANIN_PAYLOAD_ALIGN, "an element fits into every packet");

enum fanin_flag {
	FANIN_FLAG_RETRANSMIT = 1 << 0, /* this contribution was sent before; of a QUERY: the block
					   is overdue */
	FANIN_FLAG_DIRECT = 1 << 1, /* of a PARTIAL: a server has asked for it, no switch keeps it;
				       of a QUERY: for the root */
	FANIN_FLAG_EMPTY = 1 << 2,  /* takes part without data: `count` is the block's, the payload
				       is left out */
	FANIN_FLAG_CE = 1 << 4,     /* a contribution came with the mark of congestion (RFC 3168) */
	FANIN_FLAG_AECN = 1 << 5,   /* of a RESULT and a REPEAT: aggregators run short */
	FANIN_FLAGS_ALL = FANIN_FLAG_RETRANSMIT | FANIN_FLAG_DIRECT | FANIN_FLAG_EMPTY |
			  FANIN_FLAG_CE | FANIN_FLAG_AECN,
	/*
	 * There is a tag behind the payload (wire/tag.h). It is checked and taken off before
	 * anything else looks at a packet.
	 */
	FANIN_FLAG_TAGGED = 1 << 3,
};

struct fanin_eth {
	uint8_t dst[6];
	uint8_t src[6];
	uint16_t type_be;
} __attribute__((packed));

struct fanin_ip {
	uint8_t version_ihl;
	uint8_t tos;
	uint16_t total_len_be;
	uint16_t id_be;
	uint16_t fragment_be;
	uint8_t ttl;
	uint8_t protocol;
	uint16_t checksum_be;
	uint32_t src_be;
	uint32_t dst_be;
} __attribute__((packed));

struct fanin_udp {
	uint16_t src_be;
	uint16_t dst_be;
	uint16_t len_be;
	uint16_t checksum_be; /* zero, or right: the links' CRCs cover the payload */
} __attribute__((packed));

struct fanin_hdr {
	uint8_t version; /* FANIN_WIRE_VERSION */
	uint8_t type;    /* enum fanin_type, or a registered one */
	uint16_t flags;  /* enum fanin_flag */
	uint32_t job;    /* 1 to FANIN_WIRE_MAX_JOB */
	uint32_t epoch;  /* run of the job, from JOIN_ACK; 0 in JOIN */
	uint16_t rank; /* the sender's in the job, of a switch the lowest behind it; in RESULT 0 */
	uint16_t contributions; /* how many hosts' data this packet holds */
	uint32_t block;         /* serial number, runs on across a job's collectives */
	uint8_t dtype;  /* enum fanin_wire_dtype, or opaque; NONE where there are no elements */
	uint8_t op;     /* enum fanin_wire_op, a copy, or custom; likewise */
	uint16_t count; /* elements in the payload, or of the block if EMPTY; in REFUSED the reason;
			 * in ANSWER enum fanin_block_state; in QUERY blocks that it asks about */
	uint16_t root;  /* of a copy the rank whose data the block has; of a block with an owner
			   FANIN_ROOT_OWNER and the rank that gets its result; else 0 */
	uint8_t extension;       /* extension header type, 0: none */
	uint8_t extension_len32; /* its length in units of 32 bytes */
	uint32_t progress;       /* sender's oldest unfinished block */
	uint64_t key;            /* the direction's, of struct fanin_keys */
	/*
	 * QUERY, ANSWER, REPEAT: the way back; PARTIAL, ASK: a bitmap of ranks; GACK: the sum of
	 * the job's sequence numbers; REFUSED: the JOIN's nonce; MULTICAST, DELIVERY: the rank that
	 * it is from; SPARSE...: which shard it is; else 0.
	 */
	uint64_t members;
	uint32_t number; /* of a QUERY, not 0, repeated by its ANSWER; else 0 */
	uint16_t port;   /* of packets that go up, where the sender takes answers, 0: the default;
			    else 0 */
} __attribute__((packed));

struct fanin_headers {
	struct fanin_eth eth;
	struct fanin_ip ip;
	struct fanin_udp udp;
	struct fanin_hdr fanin;
} __attribute__((packed));

/* JOIN's payload. */
struct fanin_join_body {
	uint64_t nonce;      /* tells a repeated JOIN from that of a restarted process */
	uint16_t size;       /* ranks that the host believes the job has */
	uint16_t udp_port;   /* 0; in the version before: where results go */
	uint32_t mtu;        /* of the host's link, bytes */
	uint64_t cookie;     /* from the last JOIN_ACK; 0 in the first JOIN */
	uint32_t address_be; /* the sender's own; 0: it has none on this link */
	uint8_t path;        /* enum fanin_path */
	uint8_t reserved[3]; /* 0 */
} __attribute__((packed));

/* How a JOIN was sent, which its answer repeats. */
enum fanin_path {
	FANIN_PATH_SINGLE = 0, /* by itself */
	FANIN_PATH_SECOND = 1, /* as the second packet of a super-frame */
	FANIN_PATH_FIRST = 2,  /* as its first one: it is passed over */
};

enum fanin_join_state {
	FANIN_JOIN_WAITING = 0,   /* joined; the set behind the body tells who else is */
	FANIN_JOIN_ACTIVE = 1,    /* all are there: contributions may be sent */
	FANIN_JOIN_CHALLENGE = 2, /* not joined: say it again with this answer's cookie */
};

enum fanin_job_flag {
	FANIN_JOB_WIDE = 1 << 0,   /* sums and averages of f16 and bf16 are accumulated in f32 */
	FANIN_JOB_SPREAD = 1 << 1, /* blocks are spread over several workers: one may be behind the
				      others */
	FANIN_JOB_TAGGED = 1 << 2, /* its packets have tags */
	FANIN_JOB_MULTICAST = 1 << 3, /* packets of any member go to all others, and nothing is
					 reduced */
	FANIN_JOB_LEADERS = 1 << 4,   /* each block has a rank that makes its result */
	FANIN_JOB_FLAGS_ALL = FANIN_JOB_WIDE | FANIN_JOB_SPREAD | FANIN_JOB_TAGGED |
			      FANIN_JOB_MULTICAST | FANIN_JOB_LEADERS,
};

/*
 * JOIN_ACK's payload. The epoch in its header is final once the state is ACTIVE. Behind it is the
 * set of the ranks that have joined.
 */
struct fanin_join_ack_body {
	uint64_t nonce;         /* of the JOIN that it answers */
	uint16_t state;         /* enum fanin_join_state */
	uint16_t size;          /* ranks in the job */
	uint16_t window;        /* blocks a host may have in flight: W, slots are 2W */
	uint16_t payload_bytes; /* most payload per packet */
	uint32_t group_be;      /* IPv4 multicast group that results are sent to */
	char handler[16];       /* zero-padded name of the handler */
	uint64_t cookie;        /* proves that a JOIN is not an old one: it answers this packet */
	uint32_t flags;    /* enum fanin_job_flag; a host doesn't join a job with unknown ones */
	uint64_t instance; /* of the switch: random, another one after each start; tags are bound to
			      it */
	uint32_t slots;    /* there, for the job and those that share them with it; 0: none */
	uint32_t sharing;  /* how many jobs these are, at this time; 0 where there are no slots */
	uint64_t parameters[FANIN_WIRE_PARAMETERS]; /* of the job, as its handler declares them;
						       else 0 */
	uint16_t port_blocks; /* so many blocks in a row have one source port: a power of two */
	uint8_t path;         /* of the JOIN that it answers */
	uint8_t reserved[5];  /* 0 */
} __attribute__((packed));

/* How far a block is at a switch, for the child that asks. Two bits each in ANSWER's states. */
enum fanin_block_state {
	FANIN_BLOCK_ABSENT = 0, /* the child's contribution is not there */
	FANIN_BLOCK_OPEN = 1,   /* it is there, and others are missing */
	FANIN_BLOCK_SENT = 2,   /* all are there, and their combination went to the parent */
	FANIN_BLOCK_DONE = 3,   /* the result has been sent to all children */
};

/* Blocks that one answer tells about: the one that was asked for and those after it. */
#define FANIN_ANSWER_BLOCKS 256

/* ANSWER's payload. Behind it are two sets of ranks: see struct fanin_answer_ranks. */
struct fanin_answer_body {
	uint8_t states[FANIN_ANSWER_BLOCKS / 4]; /* from the block on, four to a byte, the lowest
						    bits first */
	uint16_t n_blocks;   /* of `states`; 0: the answer comes from a switch further up */
	uint8_t level;       /* how many switches have passed it on */
	uint8_t reserved[5]; /* 0 */
};

/* What an ANSWER says of ranks. */
struct fanin_answer_ranks {
	struct fanin_ranks missing; /* behind children whose contribution to the block is missing */
	struct fanin_ranks ended;   /* of these: their processes have ended */
	struct fanin_ranks silent;  /* of the others: hosts and switches that don't answer probes */
};

/*
 * One word of the two sets, `missing` and `gone`, behind an ANSWER's body: a rank in the first one
 * alone is late, in both it has ended, in the second one alone it is silent. So 4096 ranks fit into
 * a packet of 1,500 bytes.
 */
static inline void
fanin_answer_encode_word(uint64_t missing, uint64_t ended, uint64_t silent, uint64_t *first,
			 uint64_t *second)
{
	*first = missing & (ended | ~silent);
	*second = missing & (ended | silent);
}

static inline void
fanin_answer_decode_word(uint64_t first, uint64_t second, uint64_t *missing, uint64_t *ended,
			 uint64_t *silent)
{
	*missing = first | second;
	*ended = first & second;
	*silent = second & ~first;
}

/*
 * PROBE_ACK's payload: two sets of ranks behind the switch that answers, as long as the job needs.
 */
struct fanin_probe_ack_body {
	uint64_t ended;  /* the first one begins: their processes have ended */
	uint64_t silent; /* in a job of up to 64 ranks this is the other one: hosts and switches
			    that don't answer probes */
};

/*
 * A packet that did not fit its block, because ranks disagree about the collective. REFUSED has it
 * in its header (FANIN_REASON_MISMATCH), PROBE_ACK behind its sets.
 */
struct fanin_mismatch {
	uint64_t found;    /* the packet's shape: fanin_wire_shape, or fanin_shard_shape */
	uint64_t expected; /* the block's; 0: unknown */
	uint32_t block;
	uint16_t rank;     /* the packet's: the sender, or the lowest one behind it */
	uint16_t reserved; /* 0 */
};

/* CALL's payload. */
struct fanin_call_body {
	uint64_t nonce; /* of this start of the rank's process */
	uint64_t roll; /* from the last ROLL, 0: there was none. A call without it is not counted */
} __attribute__((packed));

/* ROLL's payload. */
struct fanin_roll_body {
	uint64_t nonce;    /* of the CALL that it answers */
	uint64_t roll;     /* random, for the one roll */
	uint64_t called;   /* ranks that have */
	uint32_t run;      /* its number, once all have */
	uint16_t is_begun; /* all have called: `run` counts */
	uint16_t reserved; /* 0 */
} __attribute__((packed));

/* Bytes of bodies with their sets. n_ranks: of the job. */
static inline uint32_t
fanin_join_ack_len(unsigned int n_ranks)
{
	return (uint32_t)sizeof(struct fanin_join_ack_body) + fanin_ranks_bytes(n_ranks);
}

static inline uint32_t
fanin_answer_len(unsigned int n_ranks)
{
	return (uint32_t)sizeof(struct fanin_answer_body) + 2 * fanin_ranks_bytes(n_ranks);
}

/* The longest: in jobs whose handler takes sparse blocks a bitmap of shards follows the sets. */
static inline uint32_t
fanin_answer_len_max(unsigned int n_ranks)
{
	return fanin_answer_len(n_ranks) + (uint32_t)sizeof(uint64_t);
}

static inline uint32_t
fanin_probe_ack_len(unsigned int n_ranks)
{
	return 2 * fanin_ranks_bytes(n_ranks);
}

/*
 * Reads what is behind an ANSWER's body. sets: the rest of fanin_answer_len(n_ranks) bytes, any
 * alignment.
 */
static inline void
fanin_answer_read_ranks(const void *sets, unsigned int n_ranks, struct fanin_answer_ranks *ranks)
{
	const uint8_t *second = (const uint8_t *)sets + fanin_ranks_bytes(n_ranks);
	struct fanin_ranks missing, gone;

	fanin_ranks_read(&missing, sets, n_ranks);
	fanin_ranks_read(&gone, second, n_ranks);
	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		fanin_answer_decode_word(missing.words[i], gone.words[i], &ranks->missing.words[i],
					 &ranks->ended.words[i], &ranks->silent.words[i]);
}

/* Writes it likewise. */
static inline void
fanin_answer_write_ranks(void *sets, unsigned int n_ranks, const struct fanin_answer_ranks *ranks)
{
	uint8_t *second = (uint8_t *)sets + fanin_ranks_bytes(n_ranks);
	struct fanin_ranks missing, gone;

	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		fanin_answer_encode_word(ranks->missing.words[i], ranks->ended.words[i],
					 ranks->silent.words[i], &missing.words[i], &gone.words[i]);
	fanin_ranks_write(sets, &missing, n_ranks);
	fanin_ranks_write(second, &gone, n_ranks);
}

static inline enum fanin_block_state
fanin_answer_state(const struct fanin_answer_body *body, unsigned int i)
{
	return (enum fanin_block_state)(body->states[i / 4] >> i % 4 * 2 & 3);
}

/* Of a body whose states are zeros so far. */
static inline void
fanin_answer_set_state(struct fanin_answer_body *body, unsigned int i, enum fanin_block_state state)
{
	body->states[i / 4] |= (uint8_t)(state << i % 4 * 2);
}

/*
 * A query that is passed on to a parent remembers which child asked, at each switch on its way: six
 * bits for each level, the last one lowest, under a 1 that marks the end. The answer goes back the
 * same way. 0: a host's own query.
 */
static inline uint64_t
fanin_way_push(uint64_t way, unsigned int child)
{
	return (way == 0 ? UINT64_C(1) : way) << 6 | child;
}

/* Takes off the child that asked at this switch. Returns false if the way ends here. */
static inline bool
fanin_way_pop(uint64_t *way, unsigned int *child)
{
	if (*way < UINT64_C(1) << 6)
		return false;
	*child = *way & 63;
	*way >>= 6;
	if (*way == 1)
		*way = 0;
	return true;
}

static_assert(sizeof(struct fanin_eth) == FANIN_ETH_LEN, "Ethernet header");
static_assert(sizeof(struct fanin_ip) == FANIN_IP_LEN, "IPv4 header");
static_assert(sizeof(struct fanin_udp) == FANIN_UDP_LEN, "UDP header");
static_assert(sizeof(struct fanin_hdr) == FANIN_HDR_LEN, "Fanin header");
static_assert(sizeof(struct fanin_headers) == FANIN_PAYLOAD_OFFSET, "all headers");
static_assert(FANIN_PAYLOAD_OFFSET % 32 == 0, "payload alignment");
static_assert(offsetof(struct fanin_hdr, block) == 16, "block");
static_assert(offsetof(struct fanin_hdr, dtype) == 20 && offsetof(struct fanin_hdr, op) == 21 &&
		      offsetof(struct fanin_hdr, count) == 22 &&
		      offsetof(struct fanin_hdr, root) == 24 &&
		      offsetof(struct fanin_hdr, extension) == 26,
	      "the shape is one word");
static_assert(offsetof(struct fanin_hdr, progress) == 28, "progress");
static_assert(offsetof(struct fanin_hdr, key) == 32, "key");
static_assert(offsetof(struct fanin_hdr, members) == 40, "members");
static_assert(offsetof(struct fanin_hdr, number) == 48, "number");
static_assert(sizeof(struct fanin_answer_body) == 72, "ANSWER body");
static_assert(sizeof(struct fanin_probe_ack_body) == 16, "PROBE_ACK body");
static_assert(sizeof(struct fanin_join_body) == 32, "JOIN body");
static_assert(offsetof(struct fanin_join_body, address_be) == FANIN_JOIN_BODY_BEFORE,
	      "what was added is behind what there was");
static_assert(sizeof(struct fanin_call_body) == 16, "CALL body");
static_assert(sizeof(struct fanin_roll_body) == 32, "ROLL body");
static_assert(sizeof(struct fanin_join_ack_body) == 136, "JOIN_ACK body");
static_assert(sizeof(struct fanin_answer_body) + 2 * sizeof(struct fanin_ranks) + FANIN_TAG_LEN +
			      FANIN_MTU_OVERHEAD <=
		      1500,
	      "every body fits into an ordinary frame");

/* True if serial number a is before b (RFC 1982 arithmetic on 32 bits). */
static inline bool
fanin_block_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/*
 * Bytes of payload that a link with this MTU carries per packet, with a tag or without: whole
 * 64-byte units, 0 if none fits.
 */
static inline uint32_t
fanin_payload_for_mtu(uint32_t mtu, bool tagged)
{
	const uint32_t overhead = FANIN_MTU_OVERHEAD + (tagged ? FANIN_TAG_LEN : 0);

	if (mtu < overhead)
		return 0;
	return (mtu - overhead) / FANIN_PAYLOAD_ALIGN * FANIN_PAYLOAD_ALIGN;
}

/*
 * The UDP source port of a packet about a block, so that RSS spreads blocks but never one block's
 * packets.
 *
 * shift: 2^shift blocks in a row have the same one, which may share super-frames.
 */
static inline uint16_t
fanin_wire_source_port_be(uint32_t block, unsigned int shift)
{
	return __builtin_bswap16(
		(uint16_t)(FANIN_SOURCE_PORT_FIRST + (block >> shift) % FANIN_SOURCE_PORTS));
}

/* The shift of so many blocks in a row, as JOIN_ACK tells them: 0 to 15. */
static inline unsigned int
fanin_wire_port_shift(uint16_t port_blocks)
{
	return port_blocks == 0 ? 0 : 31u - (unsigned int)__builtin_clz(port_blocks);
}

/* How many packets of so much payload a super-frame holds: 1 at least. */
static inline uint32_t
fanin_super_frame_packets(uint32_t payload_bytes)
{
	const uint32_t fit = FANIN_SUPER_FRAME_BYTES / (FANIN_HDR_LEN + payload_bytes);

	if (fit == 0)
		return 1;
	return fit < FANIN_SUPER_FRAME_PACKETS ? fit : FANIN_SUPER_FRAME_PACKETS;
}

/*
 * How many blocks in a row have one source port: a power of two, as many as a super-frame holds,
 * but no more than `most`, 1 at least.
 */
static inline uint16_t
fanin_wire_port_blocks(uint32_t payload_bytes, uint32_t most)
{
	const uint32_t fit = fanin_super_frame_packets(payload_bytes);

	return (uint16_t)(1u << (31 - __builtin_clz(fit < most ? fit : most)));
}

/*
 * Data type, operator, count and root in one word, to compare and to store. There are no
 * extensions, whose bytes are in it, too.
 */
static inline uint64_t
fanin_wire_shape(const struct fanin_hdr *hdr)
{
	uint64_t shape;

	memcpy(&shape, (const uint8_t *)hdr + offsetof(struct fanin_hdr, dtype), sizeof(shape));
	return shape;
}

static inline void
fanin_wire_set_shape(struct fanin_hdr *hdr, uint64_t shape)
{
	memcpy((uint8_t *)hdr + offsetof(struct fanin_hdr, dtype), &shape, sizeof(shape));
}

/*
 * Puts a mismatch into a REFUSED. Of the expected shape there is room for type, operator, count and
 * root.
 */
static inline void
fanin_mismatch_encode(struct fanin_hdr *refused, const struct fanin_mismatch *mismatch)
{
	refused->block = mismatch->block;
	refused->rank = mismatch->rank;
	refused->members = mismatch->found;
	refused->progress = (uint32_t)mismatch->expected;
	refused->contributions = (uint16_t)(mismatch->expected >> 32);
}

/* Returns false if a REFUSED has none. */
static inline bool
fanin_mismatch_decode(const struct fanin_hdr *refused, struct fanin_mismatch *mismatch)
{
	*mismatch = (struct fanin_mismatch){
		.found = refused->members,
		.expected = (uint64_t)refused->contributions << 32 | refused->progress,
		.block = refused->block,
		.rank = refused->rank,
	};
	return refused->type == FANIN_TYPE_REFUSED && refused->members != 0;
}

/*
 * With this bit a root is the owner of a block that is combined: the rank that alone gets its
 * result.
 */
#define FANIN_ROOT_OWNER 0x8000u

static inline bool
fanin_root_is_owner(unsigned int root)
{
	return (root & FANIN_ROOT_OWNER) != 0;
}

/* The rank of a root that is an owner. */
static inline uint16_t
fanin_root_rank(unsigned int root)
{
	return (uint16_t)(root & ~FANIN_ROOT_OWNER);
}

/* The root of a block that this rank owns. */
static inline uint16_t
fanin_root_of_owner(unsigned int rank)
{
	return (uint16_t)(FANIN_ROOT_OWNER | rank);
}

/* See fanin_wire_root_fits: of a root that is not 0. */
bool fanin_wire_some_root_fits(const struct fanin_hdr *hdr);

/* Copies have a root, and of other blocks that have elements some have an owner: a rank. */
static inline bool
fanin_wire_root_fits(const struct fanin_hdr *hdr)
{
	return hdr->root == 0 || fanin_wire_some_root_fits(hdr);
}

/* Elements' bytes (or control body's) behind the headers of a valid frame. */
static inline uint32_t
fanin_wire_payload_len(const struct fanin_headers *headers)
{
	return (uint32_t)__builtin_bswap16(headers->udp.len_be) - FANIN_UDP_LEN - FANIN_HDR_LEN;
}

/*
 * The IPv4 header checksum (RFC 1071) of a header without options, ready to be stored; 0 over a
 * header with a right one.
 */
static inline uint16_t
fanin_ip_checksum(const struct fanin_ip *ip)
{
	uint64_t first, second, sum;
	uint32_t last;

	/* One's complement sums don't depend on the byte order nor on the width of the words. */
	memcpy(&first, ip, sizeof(first));
	memcpy(&second, (const uint8_t *)ip + 8, sizeof(second));
	memcpy(&last, (const uint8_t *)ip + 16, sizeof(last));
	sum = (first & UINT32_MAX) + (first >> 32) + (second & UINT32_MAX) + (second >> 32) + last;
	sum = (sum & UINT32_MAX) + (sum >> 32);
	sum = (sum & UINT16_MAX) + (sum >> 16);
	sum = (sum & UINT16_MAX) + (sum >> 16);
	return (uint16_t) ~(sum + (sum >> 16));
}

/* Does a frame say that it comes from this station? Its headers are those of a valid packet. */
static inline bool
fanin_wire_comes_from(const struct fanin_headers *headers, const uint8_t mac[6], uint32_t ip_be)
{
	return headers->ip.src_be == ip_be && memcmp(headers->eth.src, mac, 6) == 0;
}

/* Takes part in a block with elements, but brings none. */
static inline bool
fanin_wire_is_empty(const struct fanin_hdr *hdr)
{
	return (hdr->flags & FANIN_FLAG_EMPTY) != 0;
}

/*
 * Is it a REFUSED by a switch that does not take its receiver for a member, or does not have the
 * job? It knows neither a key nor a tag to answer with: such a REFUSED gives back the key that
 * came, and has no tag.
 */
static inline bool
fanin_wire_refuses_sender(const struct fanin_hdr *hdr)
{
	return hdr->type == FANIN_TYPE_REFUSED && fanin_reason_is_of_sender(hdr->count);
}

/*
 * Most bytes of payload of a packet with these elements, in a job with packets of payload_bytes. In
 * a wide job, what is accumulated in f32 fills half a packet, which leaves room for as many f32.
 */
static inline uint32_t
fanin_payload_limit(uint32_t payload_bytes, bool wide, unsigned int dtype, unsigned int op)
{
	return wide && fanin_operation_widens(dtype, op) ? payload_bytes / 2 : payload_bytes;
}

/*
 * Validates everything about a frame that can be told without knowing any job: IPv4, UDP and Fanin
 * headers against the frame's length, version, type, flags, reserved fields, data type, operator,
 * and count against payload length. The caller has already found EtherType IPv4; everything after
 * is checked here. The Ethernet padding of short frames is accepted, as is a UDP checksum of any
 * value.
 *
 * frame: start of the Ethernet header, frame_len bytes readable; any alignment.
 * Returns FANIN_REASON_NONE, or the first reason found. Thread-safe, reads only.
 */
enum fanin_reason fanin_wire_validate(const void *frame, size_t frame_len);

/*
 * Of that the part that comes first, also for packets with a tag: IPv4 and UDP against the frame's
 * length. If it finds nothing, the Fanin header is there, and fanin_wire_payload_len bytes behind
 * it.
 */
enum fanin_reason fanin_wire_validate_l4(const void *frame, size_t frame_len);

/*
 * What all contributions of one host to one job have in common, so that one comparison of the
 * headers tells whether they are such a packet: addresses, UDP port, no fragment, no options,
 * version, type, job, rank, key and reserved fields. Fields that vary are zero.
 */
struct fanin_template {
	uint8_t bytes[FANIN_PAYLOAD_OFFSET];
} __attribute__((aligned(16)));

/* Ones where a template counts. */
extern const struct fanin_template fanin_template_mask;

/* Makes a template of the headers of one of the packets. */
void fanin_wire_make_template(const struct fanin_headers *headers, struct fanin_template *template);

/*
 * True if the headers agree with a template.
 *
 * headers: FANIN_PAYLOAD_OFFSET readable bytes of any content, any alignment.
 */
static inline bool
fanin_wire_fits(const struct fanin_headers *headers, const struct fanin_template *template)
{
	typedef uint64_t pair __attribute__((vector_size(16)));
	const uint8_t *expected = __builtin_assume_aligned(template, 16);
	const uint8_t *mask = __builtin_assume_aligned(&fanin_template_mask, 16);
	pair wrong = { 0, 0 };

	static_assert(FANIN_PAYLOAD_OFFSET % sizeof(pair) == 0, "whole vectors");
	for (size_t i = 0; i < FANIN_PAYLOAD_OFFSET; i += sizeof(pair)) {
		pair part;

		memcpy(&part, (const uint8_t *)headers + i, sizeof(part));
		wrong |= (part & *(const pair *)(mask + i)) ^ *(const pair *)(expected + i);
	}
	return (wrong[0] | wrong[1]) == 0;
}

/*
 * Is the payload as long as so many elements, or left out where it may be? size: of an element,
 * bytes.
 */
static inline bool
fanin_wire_count_fits(const struct fanin_hdr *hdr, unsigned int size, uint32_t payload_len)
{
	if (fanin_wire_is_empty(hdr))
		return payload_len == 0 && hdr->count != 0;
	return hdr->count * size == payload_len;
}

/*
 * The sizes of the last frame that passed fanin_wire_elements_fit: most of a burst are alike, and
 * few are empty.
 */
struct fanin_sizes {
	uint64_t shape; /* as fanin_wire_shape gives it; after an empty one, without count and root
			 */
	uint32_t lengths;     /* of UDP and IPv4 as they are in the frame */
	uint32_t payload_len; /* bytes */
};

/* Of no frame at all. */
#define FANIN_SIZES_NONE ((struct fanin_sizes){ .payload_len = UINT32_MAX })

/* See fanin_wire_elements_fit: of an empty frame. */
bool fanin_wire_empty_fits(const struct fanin_headers *headers, size_t frame_len,
			   struct fanin_sizes *sizes);

/*
 * What is left to check of a frame that fits a template, so that fanin_wire_validate would find
 * nothing: lengths, elements and the IPv4 checksum.
 *
 * frame_len: FANIN_PAYLOAD_OFFSET at least. sizes: FANIN_SIZES_NONE at first; rw. If the frame
 * passes, they are its.
 */
static inline bool
fanin_wire_elements_fit(const struct fanin_headers *headers, size_t frame_len,
			struct fanin_sizes *sizes)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint64_t shape = fanin_wire_shape(hdr);
	const uint32_t lengths = (uint32_t)headers->udp.len_be << 16 | headers->ip.total_len_be;

	if (__builtin_expect(fanin_wire_is_empty(hdr), 0))
		return fanin_wire_empty_fits(headers, frame_len, sizes);
	if (__builtin_expect(shape != sizes->shape || lengths != sizes->lengths, 0)) {
		/* A UDP length below that of the headers makes a huge payload_len. */
		const uint32_t payload_len = fanin_wire_payload_len(headers);
		const unsigned int size = fanin_dtype_size(hdr->dtype);

		if (__builtin_bswap16(headers->ip.total_len_be) !=
			    FANIN_MTU_OVERHEAD + payload_len ||
		    hdr->count * size != payload_len || size == 0 || !fanin_op_is_known(hdr->op) ||
		    !fanin_wire_root_fits(hdr))
			return false;
		*sizes = (struct fanin_sizes){ shape, lengths, payload_len };
	}
	return sizes->payload_len <= frame_len - FANIN_PAYLOAD_OFFSET &&
	       fanin_ip_checksum(&headers->ip) == 0;
}

/* Where a packet goes and comes from; addresses in network order, ports in host order. */
struct fanin_flow {
	uint8_t dst_mac[6];
	uint8_t src_mac[6];
	uint32_t dst_ip_be;
	uint32_t src_ip_be;
	uint16_t dst_port;
	uint16_t src_port;
};

/*
 * Writes Ethernet, IPv4 and UDP headers (not the Fanin header) for payload_len bytes behind the
 * Fanin header: TTL 64, do not fragment, UDP checksum zero.
 *
 * headers: 42 writable bytes at least; any alignment.
 */
void fanin_wire_encode_l4(struct fanin_headers *headers, const struct fanin_flow *flow,
			  uint32_t payload_len);

/*
 * Sets the lengths of IPv4 and UDP for payload_len bytes behind the Fanin header, and the IPv4
 * checksum.
 */
void fanin_wire_set_payload_len(struct fanin_headers *headers, uint32_t payload_len);

/*
 * Fills a Fanin header with zeros, this version, and the four fields that every packet has.
 */
void fanin_wire_encode_header(struct fanin_hdr *hdr, enum fanin_type type, uint32_t job,
			      uint32_t epoch, uint64_t key);

#endif
