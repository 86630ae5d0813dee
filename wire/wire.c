/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Validation and encoding of Fanin packets, for the switch and the host library. The functions keep
 * no state: any thread may call them, on frames of any content.
 */
#include "wire/shard.h"
#include "wire/wire.h"

#include <string.h>

#define IP_VERSION_4 4
#define IP_IHL_NO_OPTIONS 5
#define IP_PROTOCOL_UDP 17
#define IP_DONT_FRAGMENT 0x4000
#define IP_FRAGMENT_MASK 0x3fff /* more fragments, and the offset */
#define IP_TTL 64
#define ETHERTYPE_IPV4 0x0800

static uint16_t
swap16(uint16_t value)
{
	return __builtin_bswap16(value);
}

enum fanin_reason
fanin_wire_validate_l4(const void *frame, size_t frame_len)
{
	const struct fanin_headers *headers = frame;
	const struct fanin_ip *ip = &headers->ip;
	unsigned int version, ihl;
	uint32_t total_len;

	if (frame_len < FANIN_ETH_LEN + FANIN_IP_LEN)
		return FANIN_REASON_FRAME_TRUNCATED;
	version = ip->version_ihl >> 4;
	ihl = ip->version_ihl & 0xf;
	total_len = swap16(ip->total_len_be);
	if (total_len > frame_len - FANIN_ETH_LEN)
		return FANIN_REASON_FRAME_TRUNCATED;
	if (version != IP_VERSION_4 || ihl < IP_IHL_NO_OPTIONS || total_len < ihl * 4)
		return FANIN_REASON_IP_HEADER;
	if (ihl != IP_IHL_NO_OPTIONS)
		return FANIN_REASON_IP_OPTIONS;
	if (fanin_ip_checksum(ip) != 0)
		return FANIN_REASON_IP_CHECKSUM;
	if ((swap16(ip->fragment_be) & IP_FRAGMENT_MASK) != 0)
		return FANIN_REASON_IP_FRAGMENT;
	if (ip->protocol != IP_PROTOCOL_UDP)
		return FANIN_REASON_LOCAL;
	if (total_len < FANIN_IP_LEN + FANIN_UDP_LEN ||
	    swap16(headers->udp.len_be) != total_len - FANIN_IP_LEN)
		return FANIN_REASON_UDP_LENGTH;
	if (total_len < FANIN_MTU_OVERHEAD)
		return FANIN_REASON_HEADER_TRUNCATED;
	return FANIN_REASON_NONE;
}

/* Returns true if a field of the header may have this value. */
static bool
field_fits(unsigned int use, uint32_t value)
{
	return use == FANIN_FIELD_ANY || (value != 0) == (use == FANIN_FIELD_NONZERO);
}

bool
fanin_wire_some_root_fits(const struct fanin_hdr *hdr)
{
	const bool is_owner = fanin_root_is_owner(hdr->root);

	return is_owner != fanin_op_is_copy(hdr->op) && (!is_owner || hdr->count != 0) &&
	       fanin_root_rank(hdr->root) < FANIN_WIRE_MAX_RANKS;
}

/*
 * Validates a packet with elements. Only the switch knows if a custom operator exists for this data
 * type.
 */
static enum fanin_reason
validate_elements(const struct fanin_packet_type *type, const struct fanin_hdr *hdr,
		  uint32_t payload_len)
{
	unsigned int size = fanin_dtype_size(hdr->dtype);

	if (size == 0)
		return FANIN_REASON_DTYPE;
	if (!fanin_op_is_known(hdr->op))
		return FANIN_REASON_OP;
	if (!fanin_wire_root_fits(hdr))
		return fanin_root_is_owner(hdr->root) && hdr->count == 0 ? FANIN_REASON_ELEMENTS
									 : FANIN_REASON_RANK;
	if (!fanin_wire_count_fits(hdr, size, payload_len) ||
	    !field_fits(type->number, hdr->number))
		return FANIN_REASON_ELEMENTS;
	return FANIN_REASON_NONE;
}

/* Validates a packet with a shard. Values of custom operators' types are never sparse. */
static enum fanin_reason
validate_shard(const struct fanin_hdr *hdr, uint32_t payload_len)
{
	if (hdr->dtype == FANIN_WIRE_DTYPE_NONE || hdr->dtype >= FANIN_WIRE_DTYPE_COUNT)
		return FANIN_REASON_DTYPE;
	if (hdr->op == FANIN_WIRE_OP_NONE || hdr->op >= FANIN_WIRE_OP_COUNT)
		return FANIN_REASON_OP;
	return fanin_shard_fits(hdr, payload_len) ? FANIN_REASON_NONE : FANIN_REASON_ELEMENTS;
}

/*
 * Validates a packet without elements. A payload may be longer than its body, so that later
 * versions can append fields. A REFUSED may have a reason that this version does not know.
 */
static enum fanin_reason
validate_control(const struct fanin_packet_type *type, const struct fanin_hdr *hdr,
		 uint32_t payload_len)
{
	const bool has_body = type->payload == FANIN_PAYLOAD_BODY;
	const bool has_data = type->payload == FANIN_PAYLOAD_DATA;

	if (hdr->dtype != FANIN_WIRE_DTYPE_NONE)
		return FANIN_REASON_DTYPE;
	if (hdr->op != FANIN_WIRE_OP_NONE)
		return FANIN_REASON_OP;
	if (!field_fits(type->count, hdr->count) || !field_fits(type->number, hdr->number))
		return FANIN_REASON_ELEMENTS;
	if (has_body ? payload_len < type->body_len : payload_len != 0 && !has_data)
		return FANIN_REASON_BODY;
	return FANIN_REASON_NONE;
}

/* Returns true if a block of this packet may have a root, of a copy or an owner. */
static bool
may_have_root(const struct fanin_hdr *hdr)
{
	if (fanin_op_is_copy(hdr->op))
		return true;
	return fanin_root_is_owner(hdr->root) &&
	       (hdr->type == FANIN_TYPE_CONTRIBUTION || hdr->type == FANIN_TYPE_RESULT ||
		hdr->type == FANIN_TYPE_KNOWN);
}

static enum fanin_reason
validate_header(const struct fanin_hdr *hdr, uint32_t payload_len)
{
	const struct fanin_packet_type *type = &fanin_packet_types[hdr->type];
	const bool has_elements = type->payload == FANIN_PAYLOAD_ELEMENTS;

	if (hdr->version != FANIN_WIRE_VERSION)
		return FANIN_REASON_VERSION;
	if (type->class == FANIN_CLASS_NONE)
		return FANIN_REASON_TYPE;
	if ((hdr->flags & ~FANIN_FLAGS_ALL) != 0 || (fanin_wire_is_empty(hdr) && !has_elements))
		return FANIN_REASON_FLAGS;
	if ((hdr->port != 0 && type->direction == FANIN_DOWN) ||
	    (hdr->root != 0 && !may_have_root(hdr)) ||
	    (hdr->number != 0 && type->number == FANIN_FIELD_ZERO))
		return FANIN_REASON_RESERVED;
	if (hdr->extension != 0 || hdr->extension_len32 != 0)
		return FANIN_REASON_EXTENSION;
	if (has_elements)
		return validate_elements(type, hdr, payload_len);
	if (type->payload == FANIN_PAYLOAD_SHARD)
		return validate_shard(hdr, payload_len);
	return validate_control(type, hdr, payload_len);
}

enum fanin_reason
fanin_wire_validate(const void *frame, size_t frame_len)
{
	const struct fanin_headers *headers = frame;
	enum fanin_reason reason = fanin_wire_validate_l4(frame, frame_len);

	if (reason != FANIN_REASON_NONE)
		return reason;
	return validate_header(&headers->fanin, fanin_wire_payload_len(headers));
}

bool
fanin_wire_empty_fits(const struct fanin_headers *headers, size_t frame_len,
		      struct fanin_sizes *sizes)
{
	if (fanin_wire_validate(headers, frame_len) != FANIN_REASON_NONE)
		return false;
	/*
	 * The next frame that is not EMPTY has these sizes only if it is a valid frame without
	 * elements.
	 */
	*sizes = (struct fanin_sizes){
		.shape = fanin_wire_shape(&headers->fanin) & UINT16_MAX,
		.lengths = (uint32_t)headers->udp.len_be << 16 | headers->ip.total_len_be,
	};
	return true;
}

/* clang-format off */
const struct fanin_template fanin_template_mask = { {
	/* Ethernet: destination and EtherType */
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff,
	/* IPv4: version and header length, more fragments and fragment offset, protocol,
	 * addresses */
	0xff, 0, 0, 0, 0, 0, 0x3f, 0xff, 0, 0xff, 0, 0,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	/* UDP: destination port */
	0, 0, 0xff, 0xff, 0, 0, 0, 0,
	/* version, type, flags that don't exist, job, rank */
	0xff, 0xff, (uint8_t)~FANIN_FLAGS_ALL, 0xff, 0xff, 0xff, 0xff, 0xff,
	0, 0, 0, 0, 0xff, 0xff, 0, 0,
	/* extension, key, number */
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0,
	0xff, 0xff, 0xff, 0xff, 0, 0,
} };
/* clang-format on */

void
fanin_wire_make_template(const struct fanin_headers *headers, struct fanin_template *template)
{
	const uint8_t *bytes = (const uint8_t *)headers;

	for (size_t i = 0; i < sizeof(template->bytes); i++)
		template->bytes[i] = bytes[i] & fanin_template_mask.bytes[i];
}

void
fanin_wire_encode_l4(struct fanin_headers *headers, const struct fanin_flow *flow,
		     uint32_t payload_len)
{
	uint32_t udp_len = FANIN_UDP_LEN + FANIN_HDR_LEN + payload_len;

	assert(udp_len <= UINT16_MAX - FANIN_IP_LEN);

	memcpy(headers->eth.dst, flow->dst_mac, sizeof(headers->eth.dst));
	memcpy(headers->eth.src, flow->src_mac, sizeof(headers->eth.src));
	headers->eth.type_be = swap16(ETHERTYPE_IPV4);

	headers->ip.version_ihl = IP_VERSION_4 << 4 | IP_IHL_NO_OPTIONS;
	headers->ip.tos = 0;
	headers->ip.total_len_be = swap16((uint16_t)(FANIN_IP_LEN + udp_len));
	headers->ip.id_be = 0;
	headers->ip.fragment_be = swap16(IP_DONT_FRAGMENT);
	headers->ip.ttl = IP_TTL;
	headers->ip.protocol = IP_PROTOCOL_UDP;
	headers->ip.checksum_be = 0;
	headers->ip.src_be = flow->src_ip_be;
	headers->ip.dst_be = flow->dst_ip_be;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);

	headers->udp.src_be = swap16(flow->src_port);
	headers->udp.dst_be = swap16(flow->dst_port);
	headers->udp.len_be = swap16((uint16_t)udp_len);
	headers->udp.checksum_be = 0;
}

void
fanin_wire_set_payload_len(struct fanin_headers *headers, uint32_t payload_len)
{
	uint32_t udp_len = FANIN_UDP_LEN + FANIN_HDR_LEN + payload_len;

	headers->ip.total_len_be = swap16((uint16_t)(FANIN_IP_LEN + udp_len));
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	headers->udp.len_be = swap16((uint16_t)udp_len);
}

void
fanin_wire_encode_header(struct fanin_hdr *hdr, enum fanin_type type, uint32_t job, uint32_t epoch,
			 uint64_t key)
{
	memset(hdr, 0, sizeof(*hdr));
	hdr->version = FANIN_WIRE_VERSION;
	hdr->type = (uint8_t)type;
	hdr->job = job;
	hdr->epoch = epoch;
	hdr->key = key;
}
