/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All reasons for which a packet is not processed: one table gives the enumerator, the counter's
 * name and the text shown to users. REFUSED packets and the control protocol carry the codes, so
 * entries are only ever appended.
 */
#ifndef FANIN_WIRE_REASONS_H
#define FANIN_WIRE_REASONS_H

#include <stdbool.h>

/* X(ENUMERATOR, counter name, text) */
#define FANIN_REASONS(X)                                                                           \
	X(NONE, "none", "no reason")                                                               \
	X(FRAME_TRUNCATED, "frame_truncated", "the frame is shorter than its headers say")         \
	X(IP_HEADER, "ip_header_invalid", "the IPv4 version or header length is invalid")          \
	X(IP_OPTIONS, "ip_options", "IPv4 options are not allowed in Fanin packets")               \
	X(IP_CHECKSUM, "ip_checksum", "the IPv4 header checksum is wrong")                         \
	X(IP_FRAGMENT, "ip_fragment", "IPv4 fragments are not accepted: lower the payload size")   \
	X(UDP_LENGTH, "udp_length", "the UDP length differs from the IPv4 payload length")         \
	X(HEADER_TRUNCATED, "header_truncated", "the UDP payload is shorter than a Fanin header")  \
	X(VERSION, "version_unsupported", "the protocol version is not supported")                 \
	X(TYPE, "type_unknown", "the packet type is unknown")                                      \
	X(FLAGS, "flags_unknown", "an undefined flag is set")                                      \
	X(RESERVED, "reserved_nonzero", "a reserved field is not zero")                            \
	X(EXTENSION, "extension_unknown", "the extension header is unknown")                       \
	X(DTYPE, "dtype_unknown", "the data type code is unknown")                                 \
	X(OP, "op_unknown", "the operator code is unknown")                                        \
	X(ELEMENTS, "count_invalid", "the element count does not fit the payload length")          \
	X(BODY, "body_invalid", "the control message body has the wrong length")                   \
	X(DIRECTION, "direction_wrong", "only the job's parent switch may send this")              \
	X(JOB, "job_unknown", "the job does not exist on this switch")                             \
	X(RANK, "rank_unknown", "the rank is not a member of the job")                             \
	X(PORT, "port_wrong", "the packet came in on another port than the member's")              \
	X(SOURCE, "source_wrong", "the source address is not the member's")                        \
	X(KEY, "key_wrong", "the job key is wrong")                                                \
	X(EPOCH, "epoch_stale", "the packet belongs to an earlier run of the job")                 \
	X(SIZE, "size_mismatch", "the number of ranks differs from the job's")                     \
	X(MEMBER_BUSY, "member_busy", "members of an earlier run have not left the job yet")       \
	X(NOT_ACTIVE, "job_not_active", "not every member has joined yet")                         \
	X(OPERATION, "operation_unsupported",                                                      \
	  "this job has no kernel for this operator on this data type")                            \
	X(PAYLOAD, "payload_too_long", "more elements than the job's packets may carry")           \
	X(MISMATCH, "collective_mismatch", "type, operator or count differ from the block's")      \
	X(BLOCK_STALE, "block_stale", "the block was finished and its slot reused")                \
	X(BLOCK_WINDOW, "block_out_of_window", "the block is outside of the job's window")         \
	X(SOURCE_MAC, "source_mac_invalid", "the source MAC address is a group address or zero")   \
	X(RESERVED_MAC, "reserved_mac", "link-local group addresses are not forwarded")            \
	X(SAME_PORT, "same_port", "the destination is on the port the frame came from")            \
	X(FRAME_SHORT, "frame_short", "the frame is shorter than an Ethernet header")              \
	X(LOCAL, "local_unhandled", "sent to the switch itself with a protocol it does not speak") \
	X(MTU, "mtu_exceeded", "the frame is longer than the egress port's MTU")                   \
	X(TX_FULL, "tx_full", "the egress port had no more room for frames that wait")             \
	X(WORKER_RING_FULL, "worker_ring_full", "the ring to the block's worker was full")         \
	X(FAULT_DROP, "fault_drop", "dropped by the configured fault injection")                   \
	X(PORT_DOWN, "port_down", "nobody is connected to the egress port")                        \
	X(PARENT_MISMATCH, "parent_mismatch",                                                      \
	  "the parent switch has another size or a smaller window or payload for the job")         \
	X(TTL, "ttl_exceeded", "the packet's time to live ended at this switch")                   \
	X(NO_ROUTE, "no_route", "no route leads to the destination address")                       \
	X(NEIGHBOR, "neighbor_unresolved", "no next hop's MAC address is known")                   \
	X(ROUTED_PORT, "routed_port_foreign", "not for this switch, on a port that only routes")   \
	X(IP_ADDRESS, "ip_address_invalid", "the source or destination address is never routed")   \
	X(SOURCE_OWN, "source_own", "the source address is this switch's own")                     \
	X(SOURCE_PATH, "source_path", "the source address belongs to another port")                \
	X(TAG, "tag_wrong", "the authentication tag is missing, wrong or not expected")            \
	X(TX_REFUSED, "tx_refused",                                                                \
	  "the egress interface refuses the frame but takes others: "                              \
	  "the MTU of its other end may be smaller")                                               \
	X(RATE, "rate_exceeded", "more packets than a port may bring to jobs that admit by key")   \
	X(VLAN, "vlan_tagged", "packets of jobs that admit by key have no VLAN tag")               \
	X(REGION, "region_range", "the bytes to be written don't all lie within the region")       \
	X(RETRIES_FULL, "retries_full",                                                            \
	  "too many packets waited for slots that other workers were in")

enum fanin_reason {
#define FANIN_REASON_ENUM(name, counter, text) FANIN_REASON_##name,
	FANIN_REASONS(FANIN_REASON_ENUM)
#undef FANIN_REASON_ENUM
	FANIN_REASON_COUNT
};

/*
 * Returns true for the reasons for which a packet does not count as a member's: its REFUSED then
 * carries the packet's own key, otherwise the job's key.
 */
static inline bool
fanin_reason_is_of_sender(unsigned int reason)
{
	return reason == FANIN_REASON_JOB || reason == FANIN_REASON_RANK ||
	       reason == FANIN_REASON_PORT || reason == FANIN_REASON_SOURCE ||
	       reason == FANIN_REASON_KEY || reason == FANIN_REASON_TAG;
}

/*
 * Returns the counter name of a reason, as shown by faninctl and the documentation.
 *
 * reason: any value; a value outside of the table gives "unknown".
 * Returns a static string. Thread-safe.
 */
const char *fanin_reason_name(unsigned int reason);

/*
 * Returns one sentence about a reason, for users. Arguments and result are as for
 * fanin_reason_name.
 */
const char *fanin_reason_text(unsigned int reason);

#endif
