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
/*
 * Version of earlier releases. Its JOIN and REFUSED differ only in the version, and in a shorter
 * body.
 */
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
#define FANIN_WIRE_PARAMETERS 8 /* maximum parameters of a job's handler */

/* UDP source ports of packets about blocks; some consecutive blocks share a port. */
#define FANIN_SOURCE_PORT_FIRST 49152
#define FANIN_SOURCE_PORTS 1024

/* Maximum of a super-frame: packets of one flow that a kernel takes or delivers together. */
#define FANIN_SUPER_FRAME_PACKETS 64
#define FANIN_SUPER_FRAME_BYTES 65507 /* bytes of its packets, after the UDP headers */

#define FANIN_ETH_LEN 14
#define FANIN_IP_LEN 20
#define FANIN_UDP_LEN 8
#define FANIN_L4_LEN (FANIN_ETH_LEN + FANIN_IP_LEN + FANIN_UDP_LEN)
#define FANIN_HDR_LEN 54
#define FANIN_PAYLOAD_OFFSET (FANIN_L4_LEN + FANIN_HDR_LEN)
/* Bytes of a link's MTU besides the payload. */
#define FANIN_MTU_OVERHEAD (FANIN_IP_LEN + FANIN_UDP_LEN + FANIN_HDR_LEN)
#define FANIN_TAG_LEN 32       /* bytes of the tag behind a tagged packet's payload */
#define FANIN_PAYLOAD_ALIGN 64 /* also the minimum payload of every job, which fits any element */
static_assert(FANIN_WIRE_OPAQUE_MAX <= FANIN_PAYLOAD_ALIGN, "an element fits into every packet");

enum fanin_flag {
	FANIN_FLAG_RETRANSMIT = 1 << 0, /* this contribution was sent before; in QUERY: the block is
					   overdue */
	FANIN_FLAG_DIRECT = 1 << 1, /* in PARTIAL: a server has asked for it, no switch keeps it; in
				       QUERY: for the root; in REDUCE: no switch combines it */
	FANIN_FLAG_EMPTY = 1 << 2,  /* the sender takes part without data: `count` is the block's,
				       the payload is left out */
	FANIN_FLAG_CE = 1 << 4,     /* a contribution arrived with the congestion mark (RFC 3168) */
	FANIN_FLAG_AECN = 1 << 5,   /* in RESULT and REPEAT: aggregators run short */
	FANIN_FLAGS_ALL = FANIN_FLAG_RETRANSMIT | FANIN_FLAG_DIRECT | FANIN_FLAG_EMPTY |
			  FANIN_FLAG_CE | FANIN_FLAG_AECN,
	/*
	 * A tag follows the payload (wire/tag.h). It is checked and removed before the packet is
	 * processed.
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
	uint16_t checksum_be; /* zero, or correct: the links' CRCs cover the payload */
} __attribute__((packed));

struct fanin_hdr {
	uint8_t version; /* FANIN_WIRE_VERSION */
	uint8_t type;    /* enum fanin_type, or a registered one */
	uint16_t flags;  /* enum fanin_flag */
	uint32_t job;    /* 1 to FANIN_WIRE_MAX_JOB */
	uint32_t epoch;  /* run of the job, from JOIN_ACK; 0 in JOIN */
	uint16_t rank;   /* the sender's rank in the job, for a switch the lowest rank behind it; in
			    RESULT 0 */
	uint16_t contributions; /* number of hosts whose data the packet holds */
	uint32_t block;         /* serial number, continues across a job's collectives */
	uint8_t dtype;          /* enum fanin_wire_dtype, or opaque; NONE without elements */
	uint8_t op;             /* enum fanin_wire_op, a copy, or custom; likewise */
	uint16_t count; /* elements in the payload, or of the block if EMPTY; in REFUSED the reason;
			   in ANSWER enum fanin_block_state; in QUERY the number of blocks that it
			   asks about; other types: see docs/protocol.md */
	uint16_t root;  /* of a copy: the rank whose data the block has; of a block with an owner:
			   FANIN_ROOT_OWNER and the rank that gets its result; else 0 */
	uint8_t extension;       /* extension header type, 0: none */
	uint8_t extension_len32; /* its length in units of 32 bytes */
	uint32_t progress;       /* sender's oldest unfinished block; some types use it otherwise */
	uint64_t key;            /* the direction's key in struct fanin_keys */
	/*
	 * Meaning by type, see docs/protocol.md. QUERY, ANSWER, REPEAT: the path back; PARTIAL,
	 * ASK: a bitmap of ranks; GACK: the sum of the job's sequence numbers; REFUSED: the JOIN's
	 * nonce; MULTICAST, DELIVERY: the rank of the sender; SPARSE...: struct fanin_shard. 0 in
	 * types that do not use it.
	 */
	uint64_t members;
	uint32_t number; /* in QUERY, not 0, repeated by its ANSWER; other types: see
			    docs/protocol.md */
	uint16_t port; /* in packets that go up: UDP port at which the sender takes answers, 0: the
			  default; else 0 */
} __attribute__((packed));

struct fanin_headers {
	struct fanin_eth eth;
	struct fanin_ip ip;
	struct fanin_udp udp;
	struct fanin_hdr fanin;
} __attribute__((packed));

/* JOIN's payload. */
struct fanin_join_body {
	uint64_t nonce;    /* distinguishes a repeated JOIN from the JOIN of a restarted process */
	uint16_t size;     /* ranks that the host believes the job has */
	uint16_t udp_port; /* 0; in the previous version: UDP port for results */
	uint32_t mtu;      /* of the host's link, bytes */
	uint64_t cookie;   /* from the last JOIN_ACK; 0 in the first JOIN */
	uint32_t address_be; /* the sender's own address; 0: it has none on this link */
	uint8_t path;        /* enum fanin_path */
	uint8_t reserved[3]; /* 0 */
} __attribute__((packed));

/* Way in which a JOIN was sent; its answer repeats the value. */
enum fanin_path {
	FANIN_PATH_SINGLE = 0, /* as a single packet */
	FANIN_PATH_SECOND = 1, /* as the second packet of a super-frame */
	FANIN_PATH_FIRST = 2,  /* as its first packet, which is ignored */
};

enum fanin_join_state {
	FANIN_JOIN_WAITING = 0, /* joined; the set behind the body has all ranks that have joined */
	FANIN_JOIN_ACTIVE = 1,  /* all ranks have joined: contributions may be sent */
	FANIN_JOIN_CHALLENGE = 2, /* not joined: repeat the JOIN with this answer's cookie */
};

enum fanin_job_flag {
	FANIN_JOB_WIDE = 1 << 0,   /* sums and averages of f16 and bf16 are accumulated in f32 */
	FANIN_JOB_SPREAD = 1 << 1, /* blocks are spread over several workers, one of which may lag
				      behind */
	FANIN_JOB_TAGGED = 1 << 2, /* the job's packets have tags */
	FANIN_JOB_MULTICAST = 1 << 3, /* packets of any member go to all others, and nothing is
					 reduced */
	FANIN_JOB_LEADERS = 1 << 4,   /* each block has a rank that makes its result */
	FANIN_JOB_FLAGS_ALL = FANIN_JOB_WIDE | FANIN_JOB_SPREAD | FANIN_JOB_TAGGED |
			      FANIN_JOB_MULTICAST | FANIN_JOB_LEADERS,
};

/*
 * JOIN_ACK's payload. The epoch in its header is final once the state is ACTIVE. The set of the
 * ranks that have joined follows the body.
 */
struct fanin_join_ack_body {
	uint64_t nonce;         /* of the JOIN that it answers */
	uint16_t state;         /* enum fanin_join_state */
	uint16_t size;          /* ranks in the job */
	uint16_t window;        /* blocks that a host may have in flight: W; slots are 2W */
	uint16_t payload_bytes; /* maximum payload per packet */
	uint32_t group_be;      /* IPv4 multicast group that results are sent to */
	char handler[16];       /* zero-padded name of the handler */
	uint64_t cookie;        /* in the next JOIN it proves that the JOIN answers this packet */
	uint32_t flags;    /* enum fanin_job_flag; a host does not join a job with unknown flags */
	uint64_t instance; /* of the switch: a random number, new at each start; tags are bound to
			      it */
	uint32_t slots;    /* slots for the job and the jobs that share them with it; 0: none */
	uint32_t sharing;  /* current number of these jobs; 0 without slots */
	uint64_t parameters[FANIN_WIRE_PARAMETERS]; /* of the job, in the order in which its handler
						       declares them; else 0 */
	uint16_t port_blocks; /* number of consecutive blocks with one source port: a power of two
			       */
	uint8_t path;         /* of the JOIN that it answers */
	uint8_t reserved[5];  /* 0 */
} __attribute__((packed));

/* State of a block at a switch, for the child that asks. Two bits each in ANSWER's states. */
enum fanin_block_state {
	FANIN_BLOCK_ABSENT = 0, /* the child's contribution has not arrived */
	FANIN_BLOCK_OPEN = 1,   /* it has arrived, and others are missing */
	FANIN_BLOCK_SENT = 2,   /* all have arrived, and their combination went to the parent */
	FANIN_BLOCK_DONE = 3,   /* the result has been sent to all children */
};

/* Maximum number of blocks in one answer: the block that was asked for and those after it. */
#define FANIN_ANSWER_BLOCKS 256

/* ANSWER's payload. Two sets of ranks follow it: see struct fanin_answer_ranks. */
struct fanin_answer_body {
	uint8_t states[FANIN_ANSWER_BLOCKS / 4]; /* of the block and those after it, four in a byte,
						    the lowest bits first */
	uint16_t n_blocks;   /* blocks in `states`; 0: the answer comes from a switch further up */
	uint8_t level;       /* number of switches that have passed it on */
	uint8_t reserved[5]; /* 0 */
};

/* Sets of ranks in an ANSWER. */
struct fanin_answer_ranks {
	struct fanin_ranks missing; /* ranks behind children whose contribution to the block is
				       missing */
	struct fanin_ranks ended;   /* missing ranks whose processes have ended */
	struct fanin_ranks silent;  /* missing ranks whose hosts or switches do not answer probes */
};

/*
 * Encodes one word of the two sets, `missing` and `gone`, behind an ANSWER's body: a rank in the
 * first set alone is late, in both it has ended, in the second set alone it is silent. So 4096
 * ranks fit into a packet of 1,500 bytes.
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
 * Start of PROBE_ACK's payload: two sets of ranks behind the answering switch, each as long as the
 * job needs.
 */
struct fanin_probe_ack_body {
	uint64_t ended;  /* first word of the first set: ranks whose processes have ended */
	uint64_t silent; /* in a job of up to 64 ranks the second set: ranks whose hosts or switches
			    do not answer probes */
};

/*
 * Description of a packet that did not fit its block, because ranks disagree about the collective.
 * REFUSED has it in its header (FANIN_REASON_MISMATCH), PROBE_ACK after its sets.
 */
struct fanin_mismatch {
	uint64_t found;    /* the packet's shape: fanin_wire_shape, or fanin_shard_shape */
	uint64_t expected; /* the block's shape; 0: unknown */
	uint32_t block;
	uint16_t rank;     /* the packet's rank: the sender, or the lowest rank behind it */
	uint16_t reserved; /* 0 */
};

/* CALL's payload. */
struct fanin_call_body {
	uint64_t nonce; /* random number of this start of the rank's process */
	uint64_t roll;  /* from the last ROLL; 0: there was none, and the CALL is not counted */
} __attribute__((packed));

/* ROLL's payload. */
struct fanin_roll_body {
	uint64_t nonce;    /* of the CALL that it answers */
	uint64_t roll;     /* random number of this roll */
	uint64_t called;   /* ranks that have called */
	uint32_t run;      /* number of the run, once all ranks have called */
	uint16_t is_begun; /* 1: all ranks have called, `run` is valid */
	uint16_t reserved; /* 0 */
} __attribute__((packed));

/* Return the bytes of a body with its sets. n_ranks: of the job. */
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

/*
 * Returns the maximum: in jobs whose handler takes sparse blocks a bitmap of shards follows the
 * sets.
 */
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
 * Reads the sets behind an ANSWER's body. sets: the bytes after the body, fanin_answer_len(n_ranks)
 * with it; any alignment.
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

/* Writes the sets likewise. */
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

/* Sets a state that is still 0 in the body. */
static inline void
fanin_answer_set_state(struct fanin_answer_body *body, unsigned int i, enum fanin_block_state state)
{
	body->states[i / 4] |= (uint8_t)(state << i % 4 * 2);
}

/*
 * Adds a child to a query's path, `way`. A query that is passed on to a parent records the child
 * that asked, at each switch on its path: six bits for each level, the last one lowest, under a 1
 * that marks the end. The answer takes the same path back. 0: a host's own query.
 */
static inline uint64_t
fanin_way_push(uint64_t way, unsigned int child)
{
	return (way == 0 ? UINT64_C(1) : way) << 6 | child;
}

/*
 * Removes the child that asked at this switch from the path. Returns false if the path ends here.
 */
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

/* Returns true if serial number a is before b (RFC 1982 arithmetic on 32 bits). */
static inline bool
fanin_block_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/*
 * Returns the bytes of payload that a link with this MTU carries per packet, with or without a tag:
 * whole 64-byte units, 0 if none fits.
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
 * Returns the UDP source port of a packet about a block. It depends on the block, so that RSS
 * spreads blocks but never the packets of one block.
 *
 * shift: 2^shift consecutive blocks have the same port and may share super-frames.
 */
static inline uint16_t
fanin_wire_source_port_be(uint32_t block, unsigned int shift)
{
	return __builtin_bswap16(
		(uint16_t)(FANIN_SOURCE_PORT_FIRST + (block >> shift) % FANIN_SOURCE_PORTS));
}

/* Returns the shift for JOIN_ACK's port_blocks: 0 to 15. */
static inline unsigned int
fanin_wire_port_shift(uint16_t port_blocks)
{
	return port_blocks == 0 ? 0 : 31u - (unsigned int)__builtin_clz(port_blocks);
}

/* Returns the number of packets with payload_bytes that a super-frame holds: 1 at least. */
static inline uint32_t
fanin_super_frame_packets(uint32_t payload_bytes)
{
	const uint32_t fit = FANIN_SUPER_FRAME_BYTES / (FANIN_HDR_LEN + payload_bytes);

	if (fit == 0)
		return 1;
	return fit < FANIN_SUPER_FRAME_PACKETS ? fit : FANIN_SUPER_FRAME_PACKETS;
}

/*
 * Returns the number of consecutive blocks with one source port: a power of two, as many as a
 * super-frame holds, but no more than `most`, which is 1 at least.
 */
static inline uint16_t
fanin_wire_port_blocks(uint32_t payload_bytes, uint32_t most)
{
	const uint32_t fit = fanin_super_frame_packets(payload_bytes);

	return (uint16_t)(1u << (31 - __builtin_clz(fit < most ? fit : most)));
}

/*
 * Returns data type, operator, count and root in one word, for comparing and storing. The word
 * includes the bytes of extensions, which are always 0.
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
 * Writes a mismatch into a REFUSED, which has room for type, operator, count and root of the
 * expected shape.
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

/* Reads a mismatch from a REFUSED. Returns false if it has none. */
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
 * With this bit a root is the owner of a block that is combined: the only rank that gets its
 * result.
 */
#define FANIN_ROOT_OWNER 0x8000u

static inline bool
fanin_root_is_owner(unsigned int root)
{
	return (root & FANIN_ROOT_OWNER) != 0;
}

/* Returns the rank of a root that is an owner. */
static inline uint16_t
fanin_root_rank(unsigned int root)
{
	return (uint16_t)(root & ~FANIN_ROOT_OWNER);
}

/* Returns the root of a block that this rank owns. */
static inline uint16_t
fanin_root_of_owner(unsigned int rank)
{
	return (uint16_t)(FANIN_ROOT_OWNER | rank);
}

/* As fanin_wire_root_fits, for a root that is not 0. */
bool fanin_wire_some_root_fits(const struct fanin_hdr *hdr);

/*
 * Returns true if the header's root is valid: the rank of a copy, the owner of a block with
 * elements, or 0.
 */
static inline bool
fanin_wire_root_fits(const struct fanin_hdr *hdr)
{
	return hdr->root == 0 || fanin_wire_some_root_fits(hdr);
}

/* Returns the bytes of elements, or of a control body, behind the headers of a valid frame. */
static inline uint32_t
fanin_wire_payload_len(const struct fanin_headers *headers)
{
	return (uint32_t)__builtin_bswap16(headers->udp.len_be) - FANIN_UDP_LEN - FANIN_HDR_LEN;
}

/*
 * Returns the IPv4 header checksum (RFC 1071) of a header without options, ready to be stored; 0
 * for a header with a correct checksum.
 */
static inline uint16_t
fanin_ip_checksum(const struct fanin_ip *ip)
{
	uint64_t first, second, sum;
	uint32_t last;

	/* One's complement sums depend neither on the byte order nor on the width of the words. */
	memcpy(&first, ip, sizeof(first));
	memcpy(&second, (const uint8_t *)ip + 8, sizeof(second));
	memcpy(&last, (const uint8_t *)ip + 16, sizeof(last));
	sum = (first & UINT32_MAX) + (first >> 32) + (second & UINT32_MAX) + (second >> 32) + last;
	sum = (sum & UINT32_MAX) + (sum >> 32);
	sum = (sum & UINT16_MAX) + (sum >> 16);
	sum = (sum & UINT16_MAX) + (sum >> 16);
	return (uint16_t) ~(sum + (sum >> 16));
}

/*
 * Returns true if a frame names this station as its sender. Its headers must be those of a valid
 * packet.
 */
static inline bool
fanin_wire_comes_from(const struct fanin_headers *headers, const uint8_t mac[6], uint32_t ip_be)
{
	return headers->ip.src_be == ip_be && memcmp(headers->eth.src, mac, 6) == 0;
}

/* Returns true if the packet takes part in a block with elements, but has none. */
static inline bool
fanin_wire_is_empty(const struct fanin_hdr *hdr)
{
	return (hdr->flags & FANIN_FLAG_EMPTY) != 0;
}

/*
 * Returns true for a REFUSED of a switch that does not accept its receiver as a member, or does not
 * have the job. Such a switch has neither a key nor a tag for the answer: this REFUSED returns the
 * key of the refused packet, and has no tag.
 */
static inline bool
fanin_wire_refuses_sender(const struct fanin_hdr *hdr)
{
	return hdr->type == FANIN_TYPE_REFUSED && fanin_reason_is_of_sender(hdr->count);
}

/*
 * Returns the maximum bytes of payload of a packet with these elements, in a job with packets of
 * payload_bytes. In a wide job, elements that are accumulated in f32 fill half a packet, which
 * leaves room for as many f32.
 */
static inline uint32_t
fanin_payload_limit(uint32_t payload_bytes, bool wide, unsigned int dtype, unsigned int op)
{
	return wide && fanin_operation_widens(dtype, op) ? payload_bytes / 2 : payload_bytes;
}

/*
 * Validates everything in a frame that does not depend on a job: IPv4, UDP and Fanin headers
 * against the frame's length, version, type, flags, reserved fields, data type, operator, and count
 * against payload length. The caller has checked that the EtherType is IPv4; this function checks
 * the rest. The Ethernet padding of short frames is accepted, as is a UDP checksum of any value.
 *
 * frame: start of the Ethernet header, frame_len bytes readable; any alignment.
 * Returns FANIN_REASON_NONE, or the first reason found. Thread-safe, reads only.
 */
enum fanin_reason fanin_wire_validate(const void *frame, size_t frame_len);

/*
 * Validates IPv4 and UDP headers against the frame's length, the first part of the above, also for
 * packets with a tag. If it returns FANIN_REASON_NONE, the frame has the Fanin header, and
 * fanin_wire_payload_len bytes after it.
 */
enum fanin_reason fanin_wire_validate_l4(const void *frame, size_t frame_len);

/*
 * The header fields that all contributions of one host to one job have in common, so that one
 * comparison recognises such a packet: addresses, UDP port, no fragment, no options, version, type,
 * job, rank, key and reserved fields. Fields that vary are zero.
 */
struct fanin_template {
	uint8_t bytes[FANIN_PAYLOAD_OFFSET];
} __attribute__((aligned(16)));

/* Mask of a template: ones in the bits that are compared. */
extern const struct fanin_template fanin_template_mask;

/* Makes a template from the headers of one of these packets. */
void fanin_wire_make_template(const struct fanin_headers *headers, struct fanin_template *template);

/*
 * Returns true if the headers agree with a template.
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
 * Returns true if the payload has the length of `count` elements, or is left out in an EMPTY
 * packet. size: bytes of an element.
 */
static inline bool
fanin_wire_count_fits(const struct fanin_hdr *hdr, unsigned int size, uint32_t payload_len)
{
	if (fanin_wire_is_empty(hdr))
		return payload_len == 0 && hdr->count != 0;
	return hdr->count * size == payload_len;
}

/*
 * The sizes of the last frame that passed fanin_wire_elements_fit: most frames of a burst are
 * alike, and few are EMPTY.
 */
struct fanin_sizes {
	uint64_t shape;   /* from fanin_wire_shape; after an EMPTY frame, without count and root */
	uint32_t lengths; /* of UDP and IPv4, in network order */
	uint32_t payload_len; /* bytes */
};

/* The initial value, which matches no frame. */
#define FANIN_SIZES_NONE ((struct fanin_sizes){ .payload_len = UINT32_MAX })

/* As fanin_wire_elements_fit, for an EMPTY frame. */
bool fanin_wire_empty_fits(const struct fanin_headers *headers, size_t frame_len,
			   struct fanin_sizes *sizes);

/*
 * Returns true if a frame that fits a template also passes all other checks of fanin_wire_validate:
 * lengths, elements and the IPv4 checksum.
 *
 * frame_len: bytes, FANIN_PAYLOAD_OFFSET at least. sizes: FANIN_SIZES_NONE at first; set to the
 * frame's sizes if it passes.
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
		/* A UDP length below the headers' length makes a huge payload_len. */
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

/* Destination and source of a packet; addresses in network order, ports in host order. */
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
 * Fills a Fanin header: this version, the four fields that every packet has, and zeros in all
 * others.
 */
void fanin_wire_encode_header(struct fanin_hdr *hdr, enum fanin_type type, uint32_t job,
			      uint32_t epoch, uint64_t key);

#endif
