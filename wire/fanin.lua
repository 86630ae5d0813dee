-- SPDX-License-Identifier: BSD-3-Clause
-- Wireshark dissector for Fanin packets: every field of the header, the join bodies and the
-- elements. Load it with `tshark -X lua_script:wire/fanin.lua`. The tables below follow
-- wire/types.h and wire/reasons.h; the table of packet types is made from wire/packets.h.

local HEADER_LEN = 54
local DEFAULT_PORT = 21930
local VERSION, VERSION_BEFORE = 3, 2
local MAX_ELEMENTS_SHOWN = 16
local MAX_JOB = 65535
local MAX_RANKS = 4096
local F16, BF16 = 9, 10
local JOB_FLAGS_ALL = 0x000f
-- A nonce and a code follow the payload of a packet with the flag TAGGED.
local TAGGED = 0x0008
local TAG_NONCE_LEN = 16
local TAG_LEN = 32

-- begin packet types: written by wire/packets.py from wire/packets.h
local types = {
	[1] = { name = "CONTRIBUTION", direction = "up", has_elements = true },
	[2] = { name = "RESULT", direction = "down", has_elements = true },
	[3] = { name = "ANSWER", direction = "down", body_len = 72, has_number = true },
	[4] = { name = "REFUSED", direction = "down" },
	[5] = { name = "JOIN", direction = "up", body_len = 32 },
	[6] = { name = "JOIN_ACK", direction = "down", body_len = 136 },
	[7] = { name = "LEAVE", direction = "up" },
	[8] = { name = "LEAVE_ACK", direction = "down" },
	[9] = { name = "KNOWN", direction = "up", has_elements = true },
	[10] = { name = "QUERY", direction = "up", has_data = true, has_number = true },
	[11] = { name = "PROBE", direction = "down" },
	[12] = { name = "PROBE_ACK", direction = "up", body_len = 16 },
	[13] = { name = "MULTICAST", direction = "up", has_data = true, has_number = true },
	[14] = { name = "DELIVERY", direction = "down", has_data = true, has_number = true },
	[15] = { name = "SPARSE", direction = "up", has_shard = true },
	[16] = { name = "SPARSE_RESULT", direction = "down", has_shard = true },
	[17] = { name = "SPARSE_KNOWN", direction = "up", has_shard = true },
	[18] = { name = "PARTIAL", direction = "up", has_elements = true },
	[19] = { name = "GACK", direction = "down" },
	[20] = { name = "REPEAT", direction = "down", has_elements = true },
	[21] = { name = "FLUSH", direction = "down" },
	[22] = { name = "ASK", direction = "down" },
	[23] = { name = "REDUCE", direction = "up", has_elements = true, has_number = true },
	[24] = { name = "RESTORE", direction = "down", has_elements = true },
	[25] = { name = "HERE", direction = "up" },
	[26] = { name = "CALL", direction = "up", body_len = 16 },
	[27] = { name = "ROLL", direction = "down", body_len = 32 },
	[28] = { name = "BYE", direction = "up" },
	[29] = { name = "UNICAST", direction = "up", has_data = true, has_number = true },
	[30] = { name = "UNICAST_DELIVERY", direction = "down", has_data = true, has_number = true },
	[31] = { name = "EVICTED", direction = "down", has_elements = true, has_number = true },
	[35] = { name = "PULL", direction = "up", has_number = true },
	[36] = { name = "PULL_DELIVERY", direction = "down", has_number = true },
	[37] = { name = "RESPONSE", direction = "up", has_elements = true },
	[38] = { name = "RESPONSE_DELIVERY", direction = "down", has_elements = true },
	[39] = { name = "WRITE", direction = "up", has_data = true, has_number = true },
	[40] = { name = "WRITE_DELIVERY", direction = "down", has_data = true, has_number = true },
	[41] = { name = "REWRITE", direction = "up", has_data = true, has_number = true },
	[42] = { name = "REWRITE_DELIVERY", direction = "down", has_data = true, has_number = true },
}
-- end packet types: written by wire/packets.py from wire/packets.h
-- The names shown for each code, and codes that the code below uses.
local type_names = {}
local function name_type(code)
	type_names[code] = types[code] ~= nil and types[code].name or string.format("type %d (not of this version)", code)
end
for code = 0, 255 do
	name_type(code)
end
local function code_of(name)
	for code, declared in pairs(types) do
		if declared.name == name then
			return code
		end
	end
	error("no packet type " .. name)
end
local WRITE, REWRITE_DELIVERY = code_of("WRITE"), code_of("REWRITE_DELIVERY")
local CONTRIBUTION, ANSWER, REFUSED = code_of("CONTRIBUTION"), code_of("ANSWER"), code_of("REFUSED")
local JOIN, JOIN_ACK, QUERY, PROBE_ACK =
	code_of("JOIN"), code_of("JOIN_ACK"), code_of("QUERY"), code_of("PROBE_ACK")
local REPEAT = code_of("REPEAT")

local dtype_names = {
	[0] = "none", [1] = "i8", [2] = "i16", [3] = "i32", [4] = "i64", [5] = "u8",
	[6] = "u16", [7] = "u32", [8] = "u64", [9] = "f16", [10] = "bf16", [11] = "f32", [12] = "f64",
}
local dtype_sizes = {
	[1] = 1, [2] = 2, [3] = 4, [4] = 8, [5] = 1, [6] = 2, [7] = 4, [8] = 8,
	[9] = 2, [10] = 2, [11] = 4, [12] = 8,
}
local op_names = {
	[0] = "none", [1] = "sum", [2] = "prod", [3] = "min", [4] = "max", [5] = "land",
	[6] = "lor", [7] = "lxor", [8] = "band", [9] = "bor", [10] = "bxor", [11] = "avg",
}
-- Custom operators and their data types, whose codes contain the size.
for size = 1, 64 do
	dtype_names[128 + size] = string.format("opaque (%d bytes)", size)
	dtype_sizes[128 + size] = size
end
for code = 128, 255 do
	op_names[code] = string.format("custom %d", code)
end
-- The operator of blocks with the data of one rank, their root.
local COPY = 64
op_names[COPY] = "copy"
-- A root with this bit is the only rank that gets the result, see wire/wire.h.
local OWNER = 0x8000
local may_have_owner = {
	[CONTRIBUTION] = true, [code_of("RESULT")] = true, [code_of("KNOWN")] = true,
}
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
	"source_path", "tag_wrong", "tx_refused", "rate_exceeded", "vlan_tagged", "region_range",
	"retries_full",
}
local form_names = { [0] = "list", [1] = "bitmap" }
-- Sparse blocks with more indices have indices of 4 bytes.
local SHORT_SPAN = 65536
local state_names = { [0] = "waiting", [1] = "active", [2] = "challenge" }
local block_state_names = { [0] = "absent", [1] = "open", [2] = "sent", [3] = "done" }
-- Bytes of the states in an answer: two bits each, four blocks in a byte.
local STATES_LEN = 64

local fanin = Proto("fanin", "Fanin in-network aggregation")
fanin.prefs.port = Pref.uint("UDP port", DEFAULT_PORT, "UDP port that Fanin's switches and hosts use")

fanin.prefs.types = Pref.string("Packet types of other handlers", "",
	"Those that are not of this version: CODE NAME up or down, and \"elements\" if that is the payload; then a comma and the next one")

local f = {
	version = ProtoField.uint8("fanin.version", "Version"),
	type = ProtoField.uint8("fanin.type", "Type", base.DEC, type_names),
	direction = ProtoField.string("fanin.direction", "Direction"),
	flags = ProtoField.uint16("fanin.flags", "Flags", base.HEX),
	retransmit = ProtoField.bool("fanin.flags.retransmit", "Retransmit", 16, nil, 0x0001,
		"This contribution was sent before; of a query: the block is overdue"),
	direct = ProtoField.bool("fanin.flags.direct", "Direct", 16, nil, 0x0002, "A server has asked for it: no switch keeps it"),
	empty = ProtoField.bool("fanin.flags.empty", "Empty", 16, nil, 0x0004, "Takes part in the block without data"),
	tagged = ProtoField.bool("fanin.flags.tagged", "Tagged", 16, nil, 0x0008, "A nonce and a code are behind the payload"),
	ce = ProtoField.bool("fanin.flags.ce", "Congestion experienced", 16, nil, 0x0010, "By a contribution on its way"),
	aecn = ProtoField.bool("fanin.flags.aecn", "Aggregators run short", 16, nil, 0x0020),
	unknown_flags = ProtoField.uint16("fanin.flags.unknown", "Undefined", base.HEX, nil, 0xffc0),
	job = ProtoField.uint32("fanin.job", "Job"),
	epoch = ProtoField.uint32("fanin.epoch", "Epoch"),
	rank = ProtoField.uint16("fanin.rank", "Rank"),
	contributions = ProtoField.uint16("fanin.contributions", "Contributions"),
	block = ProtoField.uint32("fanin.block", "Block"),
	dtype = ProtoField.uint8("fanin.dtype", "Data type", base.DEC, dtype_names),
	op = ProtoField.uint8("fanin.op", "Operator", base.DEC, op_names),
	count = ProtoField.uint16("fanin.count", "Elements"),
	block_state = ProtoField.uint16("fanin.block_state", "Block's state", base.DEC,
		block_state_names),
	blocks_asked = ProtoField.uint16("fanin.blocks_asked", "Blocks asked about"),
	reason = ProtoField.uint16("fanin.reason", "Reason", base.DEC, reason_names),
	root = ProtoField.uint16("fanin.root", "Root"),
	extension = ProtoField.uint8("fanin.extension", "Extension"),
	extension_len = ProtoField.uint8("fanin.extension_len32", "Extension length (32 bytes)"),
	progress = ProtoField.uint32("fanin.progress", "Progress"),
	key = ProtoField.uint64("fanin.key", "Key", base.HEX),
	members = ProtoField.uint64("fanin.members", "Members", base.HEX),
	way = ProtoField.uint64("fanin.way", "Way back", base.HEX),
	address = ProtoField.uint64("fanin.address", "Address in the region", base.HEX),
	number = ProtoField.uint32("fanin.number", "Number"),
	port = ProtoField.uint16("fanin.port", "Port for answers"),
	payload = ProtoField.bytes("fanin.payload", "Payload"),
	int = ProtoField.int64("fanin.element.int", "Element"),
	uint = ProtoField.uint64("fanin.element.uint", "Element"),
	float = ProtoField.double("fanin.element.float", "Element"),
	opaque = ProtoField.bytes("fanin.element.opaque", "Element"),
	nonce = ProtoField.uint64("fanin.join.nonce", "Nonce", base.HEX),
	cookie = ProtoField.uint64("fanin.join.cookie", "Cookie", base.HEX),
	size = ProtoField.uint16("fanin.join.size", "Ranks in the job"),
	udp_port = ProtoField.uint16("fanin.join.udp_port", "Host's UDP port"),
	mtu = ProtoField.uint32("fanin.join.mtu", "Host's MTU"),
	join_address = ProtoField.ipv4("fanin.join.address", "Sender's address"),
	path = ProtoField.uint8("fanin.join.path", "Path", base.DEC, { [0] = "single", [1] = "super-frame" }),
	port_blocks = ProtoField.uint16("fanin.join.port_blocks", "Blocks in a row with one source port"),
	body_reserved = ProtoField.bytes("fanin.join.reserved", "Reserved"),
	told_version = ProtoField.uint16("fanin.told_version", "Version of the one that refuses, or of its parent"),
	seen_address = ProtoField.ipv4("fanin.seen_address", "Address that the JOIN came from"),
	state = ProtoField.uint16("fanin.join.state", "State", base.DEC, state_names),
	window = ProtoField.uint16("fanin.join.window", "Window (blocks)"),
	payload_bytes = ProtoField.uint16("fanin.join.payload_bytes", "Most payload per packet"),
	group = ProtoField.ipv4("fanin.join.group", "Result group"),
	handler = ProtoField.string("fanin.join.handler", "Handler"),
	job_flags = ProtoField.uint32("fanin.join.flags", "Flags", base.HEX),
	spread = ProtoField.bool("fanin.join.flags.spread",
		"Blocks are spread over several workers", 32, nil, 0x00000002),
	wide = ProtoField.bool("fanin.join.flags.wide", "f16 and bf16 are accumulated in f32",
		32, nil, 0x00000001),
	unknown_job_flags = ProtoField.uint32("fanin.join.flags.unknown", "Undefined flags",
		base.HEX, nil, 0xfffffff0),
	job_tagged = ProtoField.bool("fanin.join.flags.tagged", "Packets are tagged",
		32, nil, 0x00000004),
	job_multicast = ProtoField.bool("fanin.join.flags.multicast",
		"Packets of each member go to all others", 32, nil, 0x00000008),
	instance = ProtoField.uint64("fanin.join.instance", "Switch's instance", base.HEX),
	slots = ProtoField.uint32("fanin.join.slots", "Slots for the job and those that share them"),
	sharing = ProtoField.uint32("fanin.join.sharing", "Jobs that share the slots"),
	parameters = ProtoField.bytes("fanin.join.parameters", "Parameters of the job's handler"),
	tag = ProtoField.bytes("fanin.tag", "Tag"),
	tag_nonce = ProtoField.bytes("fanin.tag.nonce", "Nonce"),
	tag_code = ProtoField.bytes("fanin.tag.code", "Code"),
	joined = ProtoField.bytes("fanin.join.joined", "Ranks that have joined"),
	missing = ProtoField.bytes("fanin.answer.missing", "Ranks that are late, or have ended"),
	gone = ProtoField.bytes("fanin.answer.gone", "Ranks that have ended, or don't answer probes"),
	ended = ProtoField.bytes("fanin.probe_ack.ended", "Ranks whose processes have ended"),
	silent = ProtoField.bytes("fanin.probe_ack.silent", "Ranks that don't answer probes"),
	states = ProtoField.bytes("fanin.answer.states", "States"),
	n_blocks = ProtoField.uint16("fanin.answer.n_blocks", "Blocks"),
	level = ProtoField.uint8("fanin.answer.level", "Switches that have passed it on"),
	later = ProtoField.bytes("fanin.later", "Fields of a later version"),
	span = ProtoField.uint32("fanin.shard.span", "Indices of the block"),
	shard = ProtoField.uint8("fanin.shard.number", "Shard"),
	shards_total = ProtoField.uint8("fanin.shard.total", "Shards in all"),
	form = ProtoField.uint8("fanin.shard.form", "Form", base.DEC, form_names),
	whole = ProtoField.bool("fanin.shard.whole", "Whole: no switch spills the block",
		8, nil, 0x01),
	index = ProtoField.uint32("fanin.shard.index", "Index"),
	first = ProtoField.uint32("fanin.shard.first", "Index of the first bit"),
	bitmap = ProtoField.bytes("fanin.shard.bitmap", "Bitmap"),
	shards_in = ProtoField.uint64("fanin.shards", "Shards that are there", base.HEX),
}
fanin.fields = f

local e = {
	truncated = ProtoExpert.new("fanin.truncated", "Fewer bytes than a Fanin header",
		expert.group.MALFORMED, expert.severity.ERROR),
	version = ProtoExpert.new("fanin.bad_version", "Unknown protocol version",
		expert.group.PROTOCOL, expert.severity.WARN),
	type = ProtoExpert.new("fanin.bad_type", "Unknown packet type",
		expert.group.PROTOCOL, expert.severity.WARN),
	flags = ProtoExpert.new("fanin.bad_flags", "Undefined flag",
		expert.group.PROTOCOL, expert.severity.WARN),
	reserved = ProtoExpert.new("fanin.bad_reserved", "Reserved field is not zero",
		expert.group.PROTOCOL, expert.severity.WARN),
	length = ProtoExpert.new("fanin.bad_length", "Payload length does not match the header",
		expert.group.MALFORMED, expert.severity.ERROR),
	refused = ProtoExpert.new("fanin.refused", "The switch refused a packet",
		expert.group.RESPONSE_CODE, expert.severity.NOTE),
	no_tag = ProtoExpert.new("fanin.bad_tag", "Too short for the tag that its flags tell of",
		expert.group.MALFORMED, expert.severity.ERROR),
	snapped = ProtoExpert.new("fanin.snapped", "The capture has only a part of the packet",
		expert.group.UNDECODED, expert.severity.NOTE),
	job = ProtoExpert.new("fanin.bad_job", "Job number is not 1 to 65535",
		expert.group.PROTOCOL, expert.severity.WARN),
	rank = ProtoExpert.new("fanin.bad_rank", "Rank is beyond the size of the job",
		expert.group.PROTOCOL, expert.severity.WARN),
	dtype = ProtoExpert.new("fanin.bad_dtype", "Unknown data type",
		expert.group.PROTOCOL, expert.severity.WARN),
	op = ProtoExpert.new("fanin.bad_op", "Unknown operator",
		expert.group.PROTOCOL, expert.severity.WARN),
	extension = ProtoExpert.new("fanin.bad_extension", "Unknown extension",
		expert.group.PROTOCOL, expert.severity.WARN),
	state = ProtoExpert.new("fanin.bad_state", "Unknown state",
		expert.group.PROTOCOL, expert.severity.WARN),
	job_flags = ProtoExpert.new("fanin.bad_job_flags", "Undefined flag of the job",
		expert.group.PROTOCOL, expert.severity.WARN),
	handler = ProtoExpert.new("fanin.bad_handler", "The handler's name does not end",
		expert.group.PROTOCOL, expert.severity.WARN),
	again = ProtoExpert.new("fanin.again", "Sent before",
		expert.group.SEQUENCE, expert.severity.NOTE),
}
fanin.experts = {
	e.truncated, e.version, e.type, e.flags, e.reserved, e.length, e.refused, e.no_tag, e.again,
	e.snapped, e.job, e.rank, e.dtype, e.op, e.extension, e.state, e.job_flags, e.handler,
}

-- The number of ranks of each job, from the last JOIN_ACK; and for each frame the number known when
-- the frame was first seen, as frames may be dissected again in any order.
local sizes = {}
local size_at = {}

function fanin.init()
	sizes = {}
	size_at = {}
end

local function has_elements(packet_type)
	return types[packet_type] ~= nil and types[packet_type].has_elements == true
end

local function has_shard(packet_type)
	return types[packet_type] ~= nil and types[packet_type].has_shard == true
end

local function needs_operation(packet_type)
	return has_elements(packet_type) or has_shard(packet_type)
end

-- Returns a set of ranks as a list of booleans by rank. range: the set's bytes in the packet, or
-- nil.
local function set_of(range)
	local set = {}
	for i = 0, range == nil and -1 or range:len() - 1 do
		local byte = range(i, 1):uint()
		for k = 0, 7 do
			set[8 * i + k] = bit.band(byte, bit.lshift(1, k)) ~= 0
		end
	end
	return set
end

-- Returns a text such as "1 2 64-127", or "none". among: returns true for a rank to be listed.
local function ranks_text(among)
	local parts = {}
	local first
	for rank = 0, MAX_RANKS do
		local is_in = rank < MAX_RANKS and among(rank)
		if is_in and first == nil then
			first = rank
		elseif not is_in and first ~= nil then
			local last = rank - 1
			for alone = first, last - first < 2 and last or first - 1 do
				parts[#parts + 1] = alone
			end
			if last - first >= 2 then
				parts[#parts + 1] = string.format("%d-%d", first, last)
			end
			first = nil
		end
	end
	return #parts == 0 and "none" or table.concat(parts, " ")
end

local function add_ranks(tree, field, range)
	local set = set_of(range)
	local text = ranks_text(function(rank) return set[rank] end)
	if range ~= nil then
		tree:add(field, range):append_text(" (ranks " .. text .. ")")
	end
	return text
end

-- Returns the maximum number of ranks of a packet's job.
local function size_of_job(buffer, pinfo)
	local job = buffer(4, 4):le_uint()

	if not pinfo.visited then
		if buffer(1, 1):uint() == JOIN_ACK and buffer:len() >= HEADER_LEN + 12 then
			sizes[job] = buffer(HEADER_LEN + 10, 2):le_uint()
		end
		size_at[pinfo.number] = sizes[job]
	end
	return math.min(size_at[pinfo.number] or MAX_RANKS, MAX_RANKS)
end

-- Adds data type and operator, which only packets with elements have.
local function add_operation(tree, buffer, packet_type)
	local dtype, op = buffer(20, 1):uint(), buffer(21, 1):uint()
	local dtype_item = tree:add_le(f.dtype, buffer(20, 1))
	local op_item = tree:add_le(f.op, buffer(21, 1))

	if dtype_names[dtype] == nil or (needs_operation(packet_type) and dtype == 0) then
		dtype_item:add_proto_expert_info(e.dtype)
	end
	if op_names[op] == nil or (needs_operation(packet_type) and op == 0) then
		op_item:add_proto_expert_info(e.op)
	end
end

-- Returns true for packets of the previous version. Only its packets for joining a run are known.
local function is_of_version_before(buffer)
	local packet_type = buffer(1, 1):uint()

	return buffer(0, 1):uint() == VERSION_BEFORE and
		(packet_type == JOIN or packet_type == JOIN_ACK or packet_type == REFUSED)
end

local function add_header(tree, buffer, pinfo)
	local packet_type = buffer(1, 1):uint()

	local version = tree:add_le(f.version, buffer(0, 1))
	if buffer(0, 1):uint() ~= VERSION and not is_of_version_before(buffer) then
		version:add_proto_expert_info(e.version)
	end
	local kind = tree:add_le(f.type, buffer(1, 1))
	if types[packet_type] == nil then
		kind:add_proto_expert_info(e.type)
	else
		-- The field's own names are those of the start.
		kind:set_text(string.format("Type: %s (%d)", type_names[packet_type], packet_type))
		tree:add(f.direction, buffer(1, 1), types[packet_type].direction):set_generated()
	end
	local flags = tree:add_le(f.flags, buffer(2, 2))
	flags:add_le(f.retransmit, buffer(2, 2))
	flags:add_le(f.direct, buffer(2, 2))
	flags:add_le(f.empty, buffer(2, 2))
	flags:add_le(f.tagged, buffer(2, 2))
	flags:add_le(f.ce, buffer(2, 2))
	flags:add_le(f.aecn, buffer(2, 2))
	flags:add_le(f.unknown_flags, buffer(2, 2))
	if bit.band(buffer(2, 2):le_uint(), 0xffc0) ~= 0 then
		flags:add_proto_expert_info(e.flags)
	elseif bit.band(buffer(2, 2):le_uint(), 0x0001) ~= 0 and packet_type ~= QUERY then
		flags:add_proto_expert_info(e.again)
	end
	local job = tree:add_le(f.job, buffer(4, 4))
	if buffer(4, 4):le_uint() == 0 or buffer(4, 4):le_uint() > MAX_JOB then
		job:add_proto_expert_info(e.job)
	end
	tree:add_le(f.epoch, buffer(8, 4))
	local rank = tree:add_le(f.rank, buffer(12, 2))
	-- A refusal has the rank of what it answers, right or wrong.
	if buffer(12, 2):le_uint() >= size_of_job(buffer, pinfo) and packet_type ~= REFUSED then
		rank:add_proto_expert_info(e.rank)
	end
	local reason = packet_type == REFUSED and reason_names[buffer(22, 2):le_uint()]
	if reason == "version_unsupported" or
		(reason and buffer(0, 1):uint() == VERSION_BEFORE) then
		tree:add_le(f.told_version, buffer(14, 2))
	else
		tree:add_le(f.contributions, buffer(14, 2))
	end
	tree:add_le(f.block, buffer(16, 4))
	add_operation(tree, buffer, packet_type)
	if packet_type == REFUSED then
		tree:add_le(f.reason, buffer(22, 2)):add_proto_expert_info(e.refused)
	elseif packet_type == ANSWER then
		local state = tree:add_le(f.block_state, buffer(22, 2))
		if block_state_names[buffer(22, 2):le_uint()] == nil then
			state:add_proto_expert_info(e.state)
		end
	elseif packet_type == QUERY then
		tree:add_le(f.blocks_asked, buffer(22, 2))
	else
		tree:add_le(f.count, buffer(22, 2))
	end
	local root = tree:add_le(f.root, buffer(24, 2))
	local rank = buffer(24, 2):le_uint()
	local is_copy = buffer(21, 1):uint() == COPY
	local is_owner = rank >= OWNER and not is_copy and may_have_owner[packet_type]
	if is_owner then
		rank = rank - OWNER
		root:append_text(string.format(" (owner: rank %d)", rank))
	end
	if rank ~= 0 and not is_copy and not is_owner then
		root:add_proto_expert_info(e.reserved)
	elseif rank >= size_of_job(buffer, pinfo) then
		root:add_proto_expert_info(e.rank)
	end
	local extension = tree:add_le(f.extension, buffer(26, 1))
	tree:add_le(f.extension_len, buffer(27, 1))
	if buffer(26, 2):le_uint() ~= 0 then
		extension:add_proto_expert_info(e.extension)
	end
	if reason == "source_wrong" then
		tree:add(f.seen_address, buffer(28, 4))
	else
		tree:add_le(f.progress, buffer(28, 4))
	end
	tree:add_le(f.key, buffer(32, 8))
	if packet_type == ANSWER or packet_type == QUERY or packet_type == REPEAT then
		tree:add_le(f.way, buffer(40, 8))
	elseif packet_type >= WRITE and packet_type <= REWRITE_DELIVERY then
		tree:add_le(f.address, buffer(40, 8))
	elseif has_shard(packet_type) then
		tree:add_le(f.span, buffer(40, 4))
		tree:add_le(f.shard, buffer(44, 1))
		tree:add_le(f.shards_total, buffer(45, 1))
		tree:add_le(f.form, buffer(46, 1))
		tree:add_le(f.whole, buffer(47, 1))
		if buffer(47, 1):uint() > 1 then
			tree:add_le(f.members, buffer(40, 8)):add_proto_expert_info(e.reserved)
		end
	else
		tree:add_le(f.members, buffer(40, 8))
	end
	local number = tree:add_le(f.number, buffer(48, 4))
	if buffer(48, 4):le_uint() ~= 0 and types[packet_type] ~= nil and
		not types[packet_type].has_number then
		number:add_proto_expert_info(e.reserved)
	end
	local port = tree:add_le(f.port, buffer(52, 2))
	local declared = types[packet_type]
	if buffer(52, 2):le_uint() ~= 0 and declared ~= nil and declared.direction == "down" then
		port:add_proto_expert_info(e.reserved)
	end
end

-- Returns the number in the bits of an IEEE 754 binary format of at most 16 bits.
local function small_float(bits, mantissa_bits, exponent_bits)
	local one = 2 ^ mantissa_bits
	local most = 2 ^ exponent_bits - 1
	local bias = 2 ^ (exponent_bits - 1) - 1
	local mantissa = bits % one
	local exponent = math.floor(bits / one) % (most + 1)
	local sign = bits >= 0x8000 and -1 or 1

	if exponent == most then
		return mantissa == 0 and sign / 0 or 0 / 0
	elseif exponent == 0 then
		return sign * mantissa / one * 2 ^ (1 - bias)
	end
	return sign * (1 + mantissa / one) * 2 ^ (exponent - bias)
end

local function add_element(tree, dtype, range)
	if dtype == F16 then
		tree:add(f.float, range, small_float(range:le_uint(), 10, 5))
	elseif dtype == BF16 then
		tree:add(f.float, range, small_float(range:le_uint(), 7, 8))
	elseif dtype == 11 or dtype == 12 then
		tree:add(f.float, range, range:le_float())
	elseif dtype > 128 then
		tree:add(f.opaque, range)
	elseif dtype <= 4 then
		tree:add(f.int, range, range:len() == 8 and range:le_int64() or Int64(range:le_int()))
	else
		tree:add(f.uint, range,
			range:len() == 8 and range:le_uint64() or UInt64(range:le_uint()))
	end
end

local function is_empty(buffer)
	return bit.band(buffer(2, 2):le_uint(), 0x0004) ~= 0
end

-- buffer: the captured bytes. len: bytes of the packet, with its header.
local function add_elements(tree, buffer, len, dtype, count)
	local size = dtype_sizes[dtype]
	local payload_len = len - HEADER_LEN
	local captured_len = buffer:len() - HEADER_LEN
	local item = tree

	if captured_len > 0 then
		item = tree:add(f.payload, buffer(HEADER_LEN))
		item:set_text(string.format("Payload: %d bytes", payload_len))
	end
	if payload_len == 0 then
		if (count ~= 0) ~= is_empty(buffer) then
			item:add_proto_expert_info(e.length)
		end
		return
	end
	if size == nil or payload_len ~= count * size or is_empty(buffer) then
		-- Of an unknown data type nothing is known of the length.
		if size ~= nil then
			item:add_proto_expert_info(e.length)
		end
		return
	end
	local n = math.min(count, MAX_ELEMENTS_SHOWN, math.floor(captured_len / size))
	for i = 0, n - 1 do
		add_element(item, dtype, buffer(HEADER_LEN + i * size, size))
	end
	if n < count and captured_len > 0 then
		item:append_text(string.format(", the first %d of %d elements shown", n, count))
	end
end

-- Adds values with their indices. buffer: the captured bytes. len: bytes of the packet, with its
-- header. If the capture is incomplete, only the values are shown.
local function add_shard(tree, buffer, len, dtype, count)
	local size = dtype_sizes[dtype]
	local payload_len = len - HEADER_LEN
	local captured_len = buffer:len() - HEADER_LEN
	local span, form = buffer(40, 4):le_uint(), buffer(46, 1):uint()
	local width = span <= SHORT_SPAN and 2 or 4
	local item = captured_len > 0 and tree:add(f.payload, buffer(HEADER_LEN)) or tree

	if captured_len > 0 then
		item:set_text(string.format("Payload: %d bytes", payload_len))
	end
	if size == nil then
		return
	end
	local bitmap_len = payload_len - count * size - 4
	if (form == 0 and payload_len ~= count * (size + width)) or
		(form == 1 and (bitmap_len < 8 or bitmap_len % 8 ~= 0)) or
		form > 1 then
		item:add_proto_expert_info(e.length)
		return
	end
	local n = math.min(count, MAX_ELEMENTS_SHOWN, math.floor(captured_len / size))
	local whole = captured_len == payload_len
	local bit_at, first = -1, 0
	if form == 1 and whole then
		first = buffer(len - 4, 4):le_uint()
	end
	for i = 0, n - 1 do
		add_element(item, dtype, buffer(HEADER_LEN + i * size, size))
		if form == 0 and whole then
			item:add_le(f.index, buffer(HEADER_LEN + count * size + i * width, width))
		elseif whole then
			local place
			repeat
				bit_at = bit_at + 1
				place = HEADER_LEN + count * size + math.floor(bit_at / 8)
			until bit_at >= 8 * bitmap_len or
				bit.band(buffer(place, 1):uint(), bit.lshift(1, bit_at % 8)) ~= 0
			if bit_at >= 8 * bitmap_len then
				item:add_proto_expert_info(e.length)
				return
			end
			item:add(f.index, buffer(place, 1), first + bit_at):set_generated()
		end
	end
	if form == 1 and whole then
		item:add(f.bitmap, buffer(HEADER_LEN + count * size, bitmap_len))
		item:add_le(f.first, buffer(len - 4, 4))
	end
	if n < count and captured_len > 0 then
		item:append_text(string.format(", the first %d of %d elements shown", n, count))
	end
end

-- Returns the sets of ranks behind a body's fixed part: each as long as the job needs, or as the
-- captured bytes allow.
local function sets_behind(rest, n, n_ranks)
	local len = rest == nil and 0 or math.floor(rest:len() / (8 * n)) * 8
	if n_ranks ~= nil then
		len = math.min(len, math.ceil(n_ranks / 64) * 8)
	end
	local sets = {}
	for i = 1, len == 0 and 0 or n do
		sets[i] = rest((i - 1) * len, len)
	end
	return sets, n * len
end

local function add_join(tree, body)
	tree:add_le(f.nonce, body(0, 8))
	tree:add_le(f.size, body(8, 2))
	tree:add_le(f.udp_port, body(10, 2))
	tree:add_le(f.mtu, body(12, 4))
	tree:add_le(f.cookie, body(16, 8))
	if body:len() >= 32 then
		tree:add(f.join_address, body(24, 4))
		tree:add_le(f.path, body(28, 1))
		tree:add(f.body_reserved, body(29, 3))
	end
	return string.format(" size %d port %d mtu %d%s", body(8, 2):le_uint(), body(10, 2):le_uint(),
		body(12, 4):le_uint(), body:len() >= 32 and body(28, 1):uint() == 1 and " super-frame" or "")
end

local function add_join_ack(tree, body, sets)
	-- Zero-padded: a name without an end must not run on into what follows.
	local handler = body(20, 16):string()
	handler = handler:sub(1, (handler:find("\0", 1, true) or #handler + 1) - 1)
	tree:add_le(f.nonce, body(0, 8))
	local state = tree:add_le(f.state, body(8, 2))
	if state_names[body(8, 2):le_uint()] == nil then
		state:add_proto_expert_info(e.state)
	end
	tree:add_le(f.size, body(10, 2))
	tree:add_le(f.window, body(12, 2))
	tree:add_le(f.payload_bytes, body(14, 2))
	tree:add(f.group, body(16, 4))
	local name = tree:add(f.handler, body(20, 16), handler)
	if body(35, 1):uint() ~= 0 then
		name:add_proto_expert_info(e.handler)
	end
	tree:add_le(f.cookie, body(36, 8))
	local flags = tree:add_le(f.job_flags, body(44, 4))
	flags:add_le(f.wide, body(44, 4))
	flags:add_le(f.spread, body(44, 4))
	flags:add_le(f.job_tagged, body(44, 4))
	flags:add_le(f.job_multicast, body(44, 4))
	flags:add_le(f.unknown_job_flags, body(44, 4))
	if body(44, 4):le_uint() > JOB_FLAGS_ALL then
		flags:add_proto_expert_info(e.job_flags)
	end
	tree:add_le(f.instance, body(48, 8))
	tree:add_le(f.slots, body(56, 4))
	tree:add_le(f.sharing, body(60, 4))
	tree:add(f.parameters, body(64, 64))
	if body:len() >= 136 then
		tree:add_le(f.port_blocks, body(128, 2))
		tree:add_le(f.path, body(130, 1))
		tree:add(f.body_reserved, body(131, 5))
	end
	add_ranks(tree, f.joined, sets[1])
	return string.format(" %s size %d window %d payload %d %s%s%s%s",
		state_names[body(8, 2):le_uint()] or "state?", body(10, 2):le_uint(),
		body(12, 2):le_uint(), body(14, 2):le_uint(), handler,
		bit.band(body(44, 4):le_uint(), 1) ~= 0 and " f32" or "",
		bit.band(body(44, 4):le_uint(), 4) ~= 0 and " tagged" or "",
		bit.band(body(44, 4):le_uint(), 8) ~= 0 and " multicast" or "")
end

-- Returns the number of an answer's blocks in each state: "3 done 1 absent".
local function states_text(body, n)
	local counts = { [0] = 0, 0, 0, 0 }
	local parts = {}
	for i = 0, math.min(n, 4 * STATES_LEN) - 1 do
		local state = bit.band(bit.rshift(body(math.floor(i / 4), 1):uint(), i % 4 * 2), 3)
		counts[state] = counts[state] + 1
	end
	for state = 3, 0, -1 do
		if counts[state] ~= 0 then
			parts[#parts + 1] = string.format("%d %s", counts[state],
				block_state_names[state])
		end
	end
	return table.concat(parts, " ")
end

-- A rank in `missing` alone is late, one in both sets has ended, and one in `gone` alone is silent.
local function add_answer(tree, body, sets)
	local n = body(STATES_LEN, 2):le_uint()
	local missing, gone = set_of(sets[1]), set_of(sets[2])

	tree:add(f.states, body(0, STATES_LEN)):append_text(" (" .. states_text(body, n) .. ")")
	tree:add_le(f.n_blocks, body(STATES_LEN, 2))
	tree:add_le(f.level, body(STATES_LEN + 2, 1))
	add_ranks(tree, f.missing, sets[1])
	add_ranks(tree, f.gone, sets[2])
	return string.format(" late %s, ended %s, silent %s%s",
		ranks_text(function(rank) return missing[rank] and not gone[rank] end),
		ranks_text(function(rank) return missing[rank] and gone[rank] end),
		ranks_text(function(rank) return gone[rank] and not missing[rank] end),
		n > 1 and string.format(", %d blocks: %s", n, states_text(body, n)) or "")
end

local function add_probe_ack(tree, _, sets)
	return string.format(" ended %s, silent %s",
		add_ranks(tree, f.ended, sets[1]),
		add_ranks(tree, f.silent, sets[2]))
end

-- fixed: bytes before the n_sets sets; before: such bytes in the previous version.
local bodies = {
	[JOIN] = { add = add_join, title = "Join", fixed = 32, before = 24, n_sets = 0 },
	[JOIN_ACK] = { add = add_join_ack, title = "Join answer",
		fixed = 136, before = 128, n_sets = 1 },
	[ANSWER] = { add = add_answer, title = "Answer", fixed = 72, n_sets = 2 },
	[PROBE_ACK] = { add = add_probe_ack, title = "Probe answer", fixed = 0, n_sets = 2 },
}

-- As add_elements, for a body. It may be longer than this version knows. The payload of an unknown
-- type is bytes.
local function add_body(tree, buffer, len, packet_type, n_ranks)
	local declared = types[packet_type]
	local least_len = declared ~= nil and declared.body_len or 0
	local expected = bodies[packet_type]
	local fixed = expected ~= nil and expected.fixed or 0
	local body_len = len - HEADER_LEN
	local captured_len = buffer:len() - HEADER_LEN

	if buffer(0, 1):uint() == VERSION_BEFORE and expected ~= nil and expected.before ~= nil then
		fixed, least_len = expected.before, expected.before
	end

	if body_len < least_len then
		tree:add_proto_expert_info(e.length)
		return ""
	end
	if packet_type == QUERY and body_len == 8 and captured_len == 8 then
		tree:add_le(f.shards_in, buffer(HEADER_LEN, 8))
		return ""
	end
	if expected == nil or captured_len < least_len then
		local item = captured_len > 0 and tree:add(f.payload, buffer(HEADER_LEN)) or tree
		if declared ~= nil and least_len == 0 and body_len > 0 and
			not declared.has_data then
			item:add_proto_expert_info(e.length)
		end
		return ""
	end
	local rest = captured_len > fixed and buffer(HEADER_LEN + fixed) or nil
	local sets, sets_len = {}, 0
	if expected.n_sets > 0 then
		sets, sets_len = sets_behind(rest, expected.n_sets, n_ranks)
	end
	local known_len = fixed + sets_len
	local item = tree:add(buffer(HEADER_LEN, known_len), expected.title)
	if packet_type == ANSWER and captured_len == known_len + 8 then
		tree:add_le(f.shards_in, buffer(HEADER_LEN + known_len, 8))
	elseif captured_len > known_len then
		tree:add(f.later, buffer(HEADER_LEN + known_len))
	end
	return expected.add(item, buffer(HEADER_LEN, math.max(fixed, 1)), sets)
end

local function op_text(buffer)
	local op = buffer(21, 1):uint()
	if op == COPY then
		return string.format("copy of rank %d", buffer(24, 2):le_uint())
	end
	return op_names[op] or "op?"
end

local function summary(buffer)
	local packet_type = buffer(1, 1):uint()
	local text = string.format("%s job %d", type_names[packet_type], buffer(4, 4):le_uint())

	if has_elements(packet_type) then
		text = text .. string.format(" block %d", buffer(16, 4):le_uint())
		if packet_type == CONTRIBUTION then
			text = text .. string.format(" rank %d", buffer(12, 2):le_uint())
		end
		text = text .. string.format(" %s %s x%d", dtype_names[buffer(20, 1):uint()] or "dtype?",
			op_text(buffer), buffer(22, 2):le_uint())
		if is_empty(buffer) then
			text = text .. " (empty)"
		end
	elseif has_shard(packet_type) then
		local total = buffer(45, 1):uint()
		text = text .. string.format(" block %d rank %d %s %s x%d of %d, shard %d%s",
			buffer(16, 4):le_uint(), buffer(12, 2):le_uint(),
			dtype_names[buffer(20, 1):uint()] or "dtype?", op_text(buffer),
			buffer(22, 2):le_uint(), buffer(40, 4):le_uint(), buffer(44, 1):uint(),
			total ~= 0 and string.format(" of %d", total) or "")
	elseif packet_type == ANSWER then
		text = text .. string.format(" number %d block %d %s",
			buffer(48, 4):le_uint(), buffer(16, 4):le_uint(),
			block_state_names[buffer(22, 2):le_uint()] or "state?")
	elseif packet_type == QUERY then
		text = text .. string.format(" number %d block %d rank %d",
			buffer(48, 4):le_uint(), buffer(16, 4):le_uint(), buffer(12, 2):le_uint())
		if bit.band(buffer(2, 2):le_uint(), 0x0001) ~= 0 then
			return text .. " (overdue)"
		end
	elseif packet_type == REFUSED then
		local reason = reason_names[buffer(22, 2):le_uint()] or "reason?"
		text = text .. string.format(" block %d: %s", buffer(16, 4):le_uint(), reason)
		if reason == "version_unsupported" then
			text = text .. string.format(" (version %d)", buffer(14, 2):le_uint())
		end
	else
		text = text .. string.format(" rank %d", buffer(12, 2):le_uint())
	end
	if bit.band(buffer(2, 2):le_uint(), 0x0003) ~= 0 then
		text = text .. " (again)"
	end
	return text
end

-- Adds the tag. Returns the captured bytes before it and their length, as for a packet without a
-- tag.
local function add_tag(tree, buffer, len)
	if bit.band(buffer(2, 2):le_uint(), TAGGED) == 0 then
		return buffer, len
	end
	local before = len - TAG_LEN
	if before < HEADER_LEN then
		tree:add_proto_expert_info(e.no_tag)
		return buffer, len
	end
	if buffer:len() == len then
		local tag = tree:add(f.tag, buffer(before, TAG_LEN))
		tag:set_text("Tag")
		tag:add(f.tag_nonce, buffer(before, TAG_NONCE_LEN))
		tag:add(f.tag_code, buffer(before + TAG_NONCE_LEN, TAG_LEN - TAG_NONCE_LEN))
	end
	return buffer(0, math.min(buffer:len(), before)), before
end

-- Adds a packet without a whole header: the packet is too short, or the capture is.
local function add_stump(tree, buffer, len, pinfo)
	if len < HEADER_LEN then
		tree:add_proto_expert_info(e.truncated)
		pinfo.cols.info = string.format("truncated, %d bytes", len)
		return
	end
	tree:add_proto_expert_info(e.snapped)
	if buffer:len() < 8 then
		pinfo.cols.info = string.format("%d bytes, the capture has %d", len, buffer:len())
		return
	end
	local packet_type = buffer(1, 1):uint()
	tree:add_le(f.version, buffer(0, 1))
	tree:add_le(f.type, buffer(1, 1))
	tree:add_le(f.job, buffer(4, 4))
	pinfo.cols.info = string.format("%s job %d (%d bytes, the capture has %d)",
		type_names[packet_type], buffer(4, 4):le_uint(), len, buffer:len())
end

function fanin.dissector(tvb, pinfo, root)
	local len = tvb:reported_len()

	if tvb:len() == 0 then
		return 0
	end
	local buffer = tvb:range()
	pinfo.cols.protocol = "Fanin"
	if buffer:len() < HEADER_LEN then
		add_stump(root:add(fanin, buffer), buffer, len, pinfo)
		return buffer:len()
	end

	local packet_type = buffer(1, 1):uint()
	local text = summary(buffer)
	local tree = root:add(fanin, buffer, "Fanin, " .. text)
	if buffer:len() < len then
		tree:add_proto_expert_info(e.snapped)
	end
	add_header(tree, buffer, pinfo)
	local untagged, untagged_len = add_tag(tree, buffer, len)
	if has_elements(packet_type) then
		add_elements(tree, untagged, untagged_len,
			buffer(20, 1):uint(), buffer(22, 2):le_uint())
	elseif has_shard(packet_type) then
		add_shard(tree, untagged, untagged_len, buffer(20, 1):uint(), buffer(22, 2):le_uint())
	else
		text = text .. add_body(tree, untagged, untagged_len, packet_type,
			size_at[pinfo.number])
	end
	pinfo.cols.info = text
	return buffer:len()
end

-- Types that handlers outside of this tree have registered: only the preference describes them.
local FREE_FIRST, FREE_LAST = 192, 255
local function declare_types(list)
	for code = FREE_FIRST, FREE_LAST do
		types[code] = nil
	end
	for entry in list:gmatch("[^,]+") do
		local digits, name, direction, payload = entry:match("^%s*(%d+)%s+([%u%d_]+)%s+(%l+)%s*(%l*)%s*$")
		local code = tonumber(digits)
		if code ~= nil and code >= FREE_FIRST and code <= FREE_LAST and
			(direction == "up" or direction == "down") then
			types[code] = {
				name = name, direction = direction, has_elements = payload == "elements",
				has_data = true, has_number = true,
			}
		end
	end
	for code = FREE_FIRST, FREE_LAST do
		name_type(code)
	end
end

local udp_ports = DissectorTable.get("udp.port")
local registered_port = fanin.prefs.port
udp_ports:add(registered_port, fanin)

function fanin.prefs_changed()
	declare_types(fanin.prefs.types)
	if fanin.prefs.port ~= registered_port then
		udp_ports:remove(registered_port, fanin)
		registered_port = fanin.prefs.port
		udp_ports:add(registered_port, fanin)
	end
end
