-- SPDX-License-Identifier: BSD-3-Clause
-- Wireshark dissector for Fanin packets: every field of the header, the join bodies and the elements. Load it with
-- `tshark -X lua_script:wire/fanin.lua`. The tables below follow wire/wire.h, wire/types.h and wire/reasons.h.

local HEADER_LEN = 54
local DEFAULT_PORT = 21930
local VERSION = 2
local MOST_ELEMENTS_SHOWN = 16
-- Behind the payload of a packet with the flag TAGGED: a nonce and a code.
local TAGGED = 0x0008
local TAG_NONCE_LEN = 16
local TAG_LEN = 32

local type_names = {
	[1] = "CONTRIBUTION", [2] = "RESULT", [3] = "ANSWER", [4] = "REFUSED",
	[5] = "JOIN", [6] = "JOIN_ACK", [7] = "LEAVE", [8] = "LEAVE_ACK", [9] = "KNOWN",
	[10] = "QUERY", [11] = "PROBE", [12] = "PROBE_ACK",
}
local CONTRIBUTION, RESULT, ANSWER, REFUSED, JOIN, JOIN_ACK, KNOWN = 1, 2, 3, 4, 5, 6, 9
local QUERY, PROBE_ACK = 10, 12

local dtype_names = {
	[0] = "none", [1] = "i8", [2] = "i16", [3] = "i32", [4] = "i64", [5] = "u8", [6] = "u16", [7] = "u32",
	[8] = "u64", [9] = "f16", [10] = "bf16", [11] = "f32", [12] = "f64",
}
local dtype_sizes = {
	[1] = 1, [2] = 2, [3] = 4, [4] = 8, [5] = 1, [6] = 2, [7] = 4, [8] = 8, [9] = 2, [10] = 2, [11] = 4, [12] = 8,
}
local op_names = {
	[0] = "none", [1] = "sum", [2] = "prod", [3] = "min", [4] = "max", [5] = "land", [6] = "lor", [7] = "lxor",
	[8] = "band", [9] = "bor", [10] = "bxor", [11] = "avg",
}
-- Custom operators and their data types, whose codes tell the size.
for size = 1, 64 do
	dtype_names[128 + size] = string.format("opaque (%d bytes)", size)
	dtype_sizes[128 + size] = size
end
for code = 128, 255 do
	op_names[code] = string.format("custom %d", code)
end
-- Blocks with the data of one rank.
for rank = 0, 63 do
	op_names[64 + rank] = string.format("copy of rank %d", rank)
end
local reason_names = {
	[0] = "none", "frame_truncated", "ip_header_invalid", "ip_options", "ip_checksum", "ip_fragment", "udp_length",
	"header_truncated", "version_unsupported", "type_unknown", "flags_unknown", "reserved_nonzero",
	"extension_unknown", "dtype_unknown", "op_unknown", "count_invalid", "body_invalid", "direction_wrong",
	"job_unknown", "rank_unknown", "port_wrong", "source_wrong", "key_wrong", "epoch_stale", "size_mismatch",
	"member_busy", "job_not_active", "operation_unsupported", "payload_too_long", "collective_mismatch",
	"block_stale", "block_out_of_window", "source_mac_invalid", "reserved_mac", "same_port", "frame_short",
	"local_unhandled", "mtu_exceeded", "tx_full", "worker_ring_full", "fault_drop", "port_down",
	"parent_mismatch",
	"ttl_exceeded", "no_route", "neighbor_unresolved", "routed_port_foreign", "ip_address_invalid", "source_own",
	"source_path", "tag_wrong",
}
local state_names = { [0] = "waiting", [1] = "active", [2] = "challenge" }
local block_state_names = { [0] = "absent", [1] = "open", [2] = "sent", [3] = "done" }
-- The states of an answer, two bits each, for four blocks in a byte.
local STATES_LEN = 64

local fanin = Proto("fanin", "Fanin in-network aggregation")
fanin.prefs.port = Pref.uint("UDP port", DEFAULT_PORT, "UDP port that Fanin's switches and hosts use")

local f = {
	version = ProtoField.uint8("fanin.version", "Version"),
	type = ProtoField.uint8("fanin.type", "Type", base.DEC, type_names),
	flags = ProtoField.uint16("fanin.flags", "Flags", base.HEX),
	retransmit = ProtoField.bool("fanin.flags.retransmit", "Retransmit", 16, nil, 0x0001,
		"This contribution was sent before; of a query: the block is overdue"),
	repeated = ProtoField.bool("fanin.flags.repeat", "Repeat", 16, nil, 0x0002, "This result was sent before"),
	empty = ProtoField.bool("fanin.flags.empty", "Empty", 16, nil, 0x0004, "Takes part in the block without data"),
	tagged = ProtoField.bool("fanin.flags.tagged", "Tagged", 16, nil, 0x0008, "A nonce and a code are behind the payload"),
	unknown_flags = ProtoField.uint16("fanin.flags.unknown", "Undefined", base.HEX, nil, 0xfff0),
	job = ProtoField.uint32("fanin.job", "Job"),
	epoch = ProtoField.uint32("fanin.epoch", "Epoch"),
	rank = ProtoField.uint16("fanin.rank", "Rank"),
	contributions = ProtoField.uint16("fanin.contributions", "Contributions"),
	block = ProtoField.uint32("fanin.block", "Block"),
	dtype = ProtoField.uint8("fanin.dtype", "Data type", base.DEC, dtype_names),
	op = ProtoField.uint8("fanin.op", "Operator", base.DEC, op_names),
	count = ProtoField.uint16("fanin.count", "Elements"),
	block_state = ProtoField.uint16("fanin.block_state", "Block's state", base.DEC, block_state_names),
	blocks_asked = ProtoField.uint16("fanin.blocks_asked", "Blocks asked about"),
	reason = ProtoField.uint16("fanin.reason", "Reason", base.DEC, reason_names),
	progress = ProtoField.uint32("fanin.progress", "Progress"),
	extension = ProtoField.uint8("fanin.extension", "Extension"),
	extension_len = ProtoField.uint8("fanin.extension_len32", "Extension length (32 bytes)"),
	reserved0 = ProtoField.uint16("fanin.reserved0", "Reserved", base.HEX),
	key = ProtoField.uint64("fanin.key", "Key", base.HEX),
	members = ProtoField.uint64("fanin.members", "Members", base.HEX),
	way = ProtoField.uint64("fanin.way", "Way back", base.HEX),
	number = ProtoField.uint32("fanin.number", "Number"),
	reserved1 = ProtoField.uint16("fanin.reserved1", "Reserved", base.HEX),
	payload = ProtoField.bytes("fanin.payload", "Payload"),
	int = ProtoField.int64("fanin.element.int", "Element"),
	uint = ProtoField.uint64("fanin.element.uint", "Element"),
	float = ProtoField.double("fanin.element.float", "Element"),
	raw = ProtoField.uint16("fanin.element.raw", "Element", base.HEX),
	opaque = ProtoField.bytes("fanin.element.opaque", "Element"),
	nonce = ProtoField.uint64("fanin.join.nonce", "Nonce", base.HEX),
	cookie = ProtoField.uint64("fanin.join.cookie", "Cookie", base.HEX),
	size = ProtoField.uint16("fanin.join.size", "Ranks in the job"),
	udp_port = ProtoField.uint16("fanin.join.udp_port", "Host's UDP port"),
	mtu = ProtoField.uint32("fanin.join.mtu", "Host's MTU"),
	state = ProtoField.uint16("fanin.join.state", "State", base.DEC, state_names),
	window = ProtoField.uint16("fanin.join.window", "Window (blocks)"),
	payload_bytes = ProtoField.uint16("fanin.join.payload_bytes", "Most payload per packet"),
	group = ProtoField.ipv4("fanin.join.group", "Result group"),
	handler = ProtoField.string("fanin.join.handler", "Handler"),
	job_flags = ProtoField.uint32("fanin.join.flags", "Flags", base.HEX),
	spread = ProtoField.bool("fanin.join.flags.spread", "Blocks are spread over several workers", 32, nil, 0x00000002),
	wide = ProtoField.bool("fanin.join.flags.wide", "f16 and bf16 are accumulated in f32", 32, nil, 0x00000001),
	job_tagged = ProtoField.bool("fanin.join.flags.tagged", "Packets are tagged", 32, nil, 0x00000004),
	instance = ProtoField.uint64("fanin.join.instance", "Switch's instance", base.HEX),
	tag = ProtoField.bytes("fanin.tag", "Tag"),
	tag_nonce = ProtoField.bytes("fanin.tag.nonce", "Nonce"),
	tag_code = ProtoField.bytes("fanin.tag.code", "Code"),
	present = ProtoField.uint64("fanin.answer.members", "Ranks that are not missing", base.HEX),
	ended = ProtoField.uint64("fanin.answer.ended", "Ranks whose processes have ended", base.HEX),
	silent = ProtoField.uint64("fanin.answer.silent", "Ranks that don't answer probes", base.HEX),
	states = ProtoField.bytes("fanin.answer.states", "States"),
	n_blocks = ProtoField.uint16("fanin.answer.n_blocks", "Blocks"),
	level = ProtoField.uint8("fanin.answer.level", "Switches that have passed it on"),
}
fanin.fields = f

local e = {
	truncated = ProtoExpert.new("fanin.truncated", "Fewer bytes than a Fanin header", expert.group.MALFORMED,
		expert.severity.ERROR),
	version = ProtoExpert.new("fanin.bad_version", "Unknown protocol version", expert.group.PROTOCOL,
		expert.severity.WARN),
	type = ProtoExpert.new("fanin.bad_type", "Unknown packet type", expert.group.PROTOCOL, expert.severity.WARN),
	flags = ProtoExpert.new("fanin.bad_flags", "Undefined flag", expert.group.PROTOCOL, expert.severity.WARN),
	reserved = ProtoExpert.new("fanin.bad_reserved", "Reserved field is not zero", expert.group.PROTOCOL,
		expert.severity.WARN),
	length = ProtoExpert.new("fanin.bad_length", "Payload length does not match the header", expert.group.MALFORMED,
		expert.severity.ERROR),
	refused = ProtoExpert.new("fanin.refused", "The switch refused a packet", expert.group.RESPONSE_CODE,
		expert.severity.NOTE),
	no_tag = ProtoExpert.new("fanin.bad_tag", "Too short for the tag that its flags tell of", expert.group.MALFORMED,
		expert.severity.ERROR),
	again = ProtoExpert.new("fanin.again", "Sent before", expert.group.SEQUENCE, expert.severity.NOTE),
}
fanin.experts = { e.truncated, e.version, e.type, e.flags, e.reserved, e.length, e.refused, e.no_tag, e.again }

local function has_elements(packet_type)
	return packet_type == CONTRIBUTION or packet_type == RESULT or packet_type == KNOWN
end

local function ranks_of(members)
	local ranks = {}
	for rank = 0, 63 do
		local word = rank < 32 and members:lower() or members:higher()
		if bit.band(word, bit.lshift(1, rank % 32)) ~= 0 then
			ranks[#ranks + 1] = rank
		end
	end
	return #ranks == 0 and "none" or table.concat(ranks, " ")
end

local function add_ranks(tree, field, range)
	tree:add_le(field, range):append_text(" (ranks " .. ranks_of(range:le_uint64()) .. ")")
end

local function add_header(tree, buffer)
	local packet_type = buffer(1, 1):uint()

	local version = tree:add_le(f.version, buffer(0, 1))
	if buffer(0, 1):uint() ~= VERSION then
		version:add_proto_expert_info(e.version)
	end
	local kind = tree:add_le(f.type, buffer(1, 1))
	if type_names[packet_type] == nil then
		kind:add_proto_expert_info(e.type)
	end
	local flags = tree:add_le(f.flags, buffer(2, 2))
	flags:add_le(f.retransmit, buffer(2, 2))
	flags:add_le(f.repeated, buffer(2, 2))
	flags:add_le(f.empty, buffer(2, 2))
	flags:add_le(f.tagged, buffer(2, 2))
	flags:add_le(f.unknown_flags, buffer(2, 2))
	if bit.band(buffer(2, 2):le_uint(), 0xfff0) ~= 0 then
		flags:add_proto_expert_info(e.flags)
	elseif bit.band(buffer(2, 2):le_uint(), 0x0003) ~= 0 and packet_type ~= QUERY then
		flags:add_proto_expert_info(e.again)
	end
	tree:add_le(f.job, buffer(4, 4))
	tree:add_le(f.epoch, buffer(8, 4))
	tree:add_le(f.rank, buffer(12, 2))
	tree:add_le(f.contributions, buffer(14, 2))
	tree:add_le(f.block, buffer(16, 4))
	tree:add_le(f.dtype, buffer(20, 1))
	tree:add_le(f.op, buffer(21, 1))
	if packet_type == REFUSED then
		tree:add_le(f.reason, buffer(22, 2)):add_proto_expert_info(e.refused)
	elseif packet_type == ANSWER then
		tree:add_le(f.block_state, buffer(22, 2))
	elseif packet_type == QUERY then
		tree:add_le(f.blocks_asked, buffer(22, 2))
	else
		tree:add_le(f.count, buffer(22, 2))
	end
	tree:add_le(f.progress, buffer(24, 4))
	tree:add_le(f.extension, buffer(28, 1))
	tree:add_le(f.extension_len, buffer(29, 1))
	local reserved = tree:add_le(f.reserved0, buffer(30, 2))
	if buffer(30, 2):le_uint() ~= 0 then
		reserved:add_proto_expert_info(e.reserved)
	end
	tree:add_le(f.key, buffer(32, 8))
	if packet_type == ANSWER or packet_type == QUERY then
		tree:add_le(f.way, buffer(40, 8))
	else
		add_ranks(tree, f.members, buffer(40, 8))
	end
	local number = tree:add_le(f.number, buffer(48, 4))
	if buffer(48, 4):le_uint() ~= 0 and packet_type ~= ANSWER and packet_type ~= QUERY then
		number:add_proto_expert_info(e.reserved)
	end
	reserved = tree:add_le(f.reserved1, buffer(52, 2))
	if buffer(52, 2):le_uint() ~= 0 then
		reserved:add_proto_expert_info(e.reserved)
	end
end

local function add_element(tree, dtype, range)
	if dtype == 9 or dtype == 10 then
		tree:add_le(f.raw, range)
	elseif dtype == 11 or dtype == 12 then
		tree:add(f.float, range, range:le_float())
	elseif dtype > 128 then
		tree:add(f.opaque, range)
	elseif dtype <= 4 then
		tree:add(f.int, range, range:len() == 8 and range:le_int64() or Int64(range:le_int()))
	else
		tree:add(f.uint, range, range:len() == 8 and range:le_uint64() or UInt64(range:le_uint()))
	end
end

local function is_empty(buffer)
	return bit.band(buffer(2, 2):le_uint(), 0x0004) ~= 0
end

local function add_elements(tree, buffer, dtype, count)
	local size = dtype_sizes[dtype]
	local payload_len = buffer:len() - HEADER_LEN

	if payload_len == 0 then
		if (count ~= 0) ~= is_empty(buffer) then
			tree:add_proto_expert_info(e.length)
		end
		return
	end
	local payload = tree:add(f.payload, buffer(HEADER_LEN))
	payload:set_text(string.format("Payload: %d bytes", payload_len))
	if size == nil or payload_len ~= count * size or is_empty(buffer) then
		payload:add_proto_expert_info(e.length)
		return
	end
	for i = 0, math.min(count, MOST_ELEMENTS_SHOWN) - 1 do
		add_element(payload, dtype, buffer(HEADER_LEN + i * size, size))
	end
	if count > MOST_ELEMENTS_SHOWN then
		payload:append_text(string.format(", the first %d of %d elements shown", MOST_ELEMENTS_SHOWN, count))
	end
end

local function add_join(tree, body)
	tree:add_le(f.nonce, body(0, 8))
	tree:add_le(f.size, body(8, 2))
	tree:add_le(f.udp_port, body(10, 2))
	tree:add_le(f.mtu, body(12, 4))
	tree:add_le(f.cookie, body(16, 8))
	return string.format(" size %d port %d mtu %d", body(8, 2):le_uint(), body(10, 2):le_uint(),
		body(12, 4):le_uint())
end

local function add_join_ack(tree, body)
	tree:add_le(f.nonce, body(0, 8))
	tree:add_le(f.state, body(8, 2))
	tree:add_le(f.size, body(10, 2))
	tree:add_le(f.window, body(12, 2))
	tree:add_le(f.payload_bytes, body(14, 2))
	tree:add(f.group, body(16, 4))
	tree:add(f.handler, body(20, 16), body(20, 16):stringz())
	tree:add_le(f.cookie, body(36, 8))
	local flags = tree:add_le(f.job_flags, body(44, 4))
	flags:add_le(f.wide, body(44, 4))
	flags:add_le(f.spread, body(44, 4))
	flags:add_le(f.job_tagged, body(44, 4))
	tree:add_le(f.instance, body(48, 8))
	return string.format(" %s size %d window %d payload %d %s%s%s", state_names[body(8, 2):le_uint()] or "state?",
		body(10, 2):le_uint(), body(12, 2):le_uint(), body(14, 2):le_uint(), body(20, 16):stringz(),
		bit.band(body(44, 4):le_uint(), 1) ~= 0 and " f32" or "",
		bit.band(body(44, 4):le_uint(), 4) ~= 0 and " tagged" or "")
end

-- How many blocks of an answer are in each state: "3 done 1 absent".
local function states_text(body, n)
	local counts = { [0] = 0, 0, 0, 0 }
	local parts = {}
	for i = 0, math.min(n, 4 * STATES_LEN) - 1 do
		local state = bit.band(bit.rshift(body(24 + math.floor(i / 4), 1):uint(), i % 4 * 2), 3)
		counts[state] = counts[state] + 1
	end
	for state = 3, 0, -1 do
		if counts[state] ~= 0 then
			parts[#parts + 1] = string.format("%d %s", counts[state], block_state_names[state])
		end
	end
	return table.concat(parts, " ")
end

local function add_answer(tree, body)
	local n = body(24 + STATES_LEN, 2):le_uint()

	add_ranks(tree, f.present, body(0, 8))
	add_ranks(tree, f.ended, body(8, 8))
	add_ranks(tree, f.silent, body(16, 8))
	tree:add(f.states, body(24, STATES_LEN)):append_text(" (" .. states_text(body, n) .. ")")
	tree:add_le(f.n_blocks, body(24 + STATES_LEN, 2))
	tree:add_le(f.level, body(26 + STATES_LEN, 1))
	return string.format(" has ranks %s%s", ranks_of(body(0, 8):le_uint64()),
		n > 1 and string.format(", %d blocks: %s", n, states_text(body, n)) or "")
end

local function add_probe_ack(tree, body)
	add_ranks(tree, f.ended, body(0, 8))
	add_ranks(tree, f.silent, body(8, 8))
	return string.format(" ended %s, silent %s", ranks_of(body(0, 8):le_uint64()), ranks_of(body(8, 8):le_uint64()))
end

local bodies = {
	[JOIN] = { len = 24, add = add_join, title = "Join" },
	[JOIN_ACK] = { len = 56, add = add_join_ack, title = "Join answer" },
	[ANSWER] = { len = 32 + STATES_LEN, add = add_answer, title = "Answer" },
	[PROBE_ACK] = { len = 16, add = add_probe_ack, title = "Probe answer" },
}

local function add_body(tree, buffer, packet_type)
	local expected = bodies[packet_type]
	local len = buffer:len() - HEADER_LEN

	if expected == nil then
		if len > 0 and type_names[packet_type] ~= nil then
			tree:add(f.payload, buffer(HEADER_LEN)):add_proto_expert_info(e.length)
		end
		return ""
	end
	if len ~= expected.len then
		tree:add_proto_expert_info(e.length)
		return ""
	end
	local body = buffer(HEADER_LEN, len)
	return expected.add(tree:add(body, expected.title), body)
end

local function summary(buffer)
	local packet_type = buffer(1, 1):uint()
	local text = string.format("%s job %d", type_names[packet_type] or string.format("type %d", packet_type),
		buffer(4, 4):le_uint())

	if has_elements(packet_type) then
		text = text .. string.format(" block %d", buffer(16, 4):le_uint())
		if packet_type == CONTRIBUTION then
			text = text .. string.format(" rank %d", buffer(12, 2):le_uint())
		end
		text = text .. string.format(" %s %s x%d", dtype_names[buffer(20, 1):uint()] or "dtype?",
			op_names[buffer(21, 1):uint()] or "op?", buffer(22, 2):le_uint())
		if is_empty(buffer) then
			text = text .. " (empty)"
		end
	elseif packet_type == ANSWER then
		text = text .. string.format(" number %d block %d %s", buffer(48, 4):le_uint(), buffer(16, 4):le_uint(),
			block_state_names[buffer(22, 2):le_uint()] or "state?")
	elseif packet_type == QUERY then
		text = text .. string.format(" number %d block %d rank %d", buffer(48, 4):le_uint(), buffer(16, 4):le_uint(),
			buffer(12, 2):le_uint())
		if bit.band(buffer(2, 2):le_uint(), 0x0001) ~= 0 then
			return text .. " (overdue)"
		end
	elseif packet_type == REFUSED then
		text = text .. string.format(" block %d: %s", buffer(16, 4):le_uint(),
			reason_names[buffer(22, 2):le_uint()] or "reason?")
	else
		text = text .. string.format(" rank %d", buffer(12, 2):le_uint())
	end
	if bit.band(buffer(2, 2):le_uint(), 0x0003) ~= 0 then
		text = text .. " (again)"
	end
	return text
end

-- Adds the tag and returns what is before it, which is as a packet without one.
local function add_tag(tree, buffer)
	if bit.band(buffer(2, 2):le_uint(), TAGGED) == 0 then
		return buffer
	end
	local len = buffer:len() - TAG_LEN
	if len < HEADER_LEN then
		tree:add_proto_expert_info(e.no_tag)
		return buffer
	end
	local tag = tree:add(f.tag, buffer(len, TAG_LEN))
	tag:set_text("Tag")
	tag:add(f.tag_nonce, buffer(len, TAG_NONCE_LEN))
	tag:add(f.tag_code, buffer(len + TAG_NONCE_LEN, TAG_LEN - TAG_NONCE_LEN))
	return buffer(0, len)
end

function fanin.dissector(tvb, pinfo, root)
	local buffer = tvb:range()

	pinfo.cols.protocol = "Fanin"
	if buffer:len() < HEADER_LEN then
		root:add(fanin, buffer):add_proto_expert_info(e.truncated)
		pinfo.cols.info = string.format("truncated, %d bytes", buffer:len())
		return buffer:len()
	end

	local packet_type = buffer(1, 1):uint()
	local text = summary(buffer)
	local tree = root:add(fanin, buffer, "Fanin, " .. text)
	add_header(tree, buffer)
	local untagged = add_tag(tree, buffer)
	if has_elements(packet_type) then
		add_elements(tree, untagged, buffer(20, 1):uint(), buffer(22, 2):le_uint())
	else
		text = text .. add_body(tree, untagged, packet_type)
	end
	pinfo.cols.info = text
	return buffer:len()
end

local udp_ports = DissectorTable.get("udp.port")
local registered_port = fanin.prefs.port
udp_ports:add(registered_port, fanin)

function fanin.prefs_changed()
	if fanin.prefs.port ~= registered_port then
		udp_ports:remove(registered_port, fanin)
		registered_port = fanin.prefs.port
		udp_ports:add(registered_port, fanin)
	end
end
