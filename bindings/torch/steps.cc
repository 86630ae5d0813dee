/* SPDX-License-Identifier: BSD-3-Clause */
/* See steps.hh. */
#include "bindings/torch/steps.hh"

#include <algorithm>
#include <cstring>

namespace fanin_torch {

#define ALIGNMENT 64u
#define COUNTS_OF_PART 2 /* bytes of a part's indices, and of its data */

static size_t
aligned(size_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t
nbytes(const at::Tensor &tensor)
{
	return tensor.defined() ? tensor.nbytes() : 0;
}

/* Copies bytes. With 0 bytes the pointers may be NULL. */
static void
bytes_copy(void *to, const void *from, size_t bytes)
{
	if (bytes != 0)
		std::memcpy(to, from, bytes);
}

static at::ScalarType
scalar_of(enum fanin_dtype dtype)
{
	switch (dtype) {
	case FANIN_I8:
		return at::kChar;
	case FANIN_I16:
		return at::kShort;
	case FANIN_I32:
		return at::kInt;
	case FANIN_I64:
		return at::kLong;
	case FANIN_F16:
		return at::kHalf;
	case FANIN_BF16:
		return at::kBFloat16;
	case FANIN_F32:
		return at::kFloat;
	case FANIN_F64:
		return at::kDouble;
	default:
		return at::kByte;
	}
}

/* Makes a tensor of elements in memory that another object owns. */
static at::Tensor
view_of(const void *data, size_t bytes, enum fanin_dtype dtype)
{
	return at::from_blob(const_cast<void *>(data),
			     { static_cast<int64_t>(bytes / fanin_dtype_size_of(dtype)) },
			     at::TensorOptions(scalar_of(dtype)));
}

/*
 * Returns the bytes that a part moves, the same at all ranks: of its vector; in allgather and
 * reduce_scatter, of one rank's part of the vector.
 */
static size_t
unit_bytes(const Part &part)
{
	switch (part.call) {
	case Call::BROADCAST:
		return part.send.defined() ? part.send.nbytes() : part.recv.nbytes();
	case Call::REDUCE_SCATTER:
	case Call::SPARSE:
		return nbytes(part.recv);
	default:
		return nbytes(part.send);
	}
}

/*
 * True if a part sums half or bfloat16 that are rounded once: the sums are float in the result, and
 * in the network.
 */
static bool
is_wide(const Part &part, bool accumulate_f32)
{
	return accumulate_f32 &&
	       (part.call == Call::ALLREDUCE || part.call == Call::REDUCE ||
		part.call == Call::REDUCE_SCATTER) &&
	       (part.op == FANIN_SUM || part.op == FANIN_AVG) &&
	       (part.dtype == FANIN_F16 || part.dtype == FANIN_BF16);
}

static enum fanin_dtype
result_dtype(const Part &part, bool accumulate_f32)
{
	return is_wide(part, accumulate_f32) ? FANIN_F32 : part.dtype;
}

/* Returns the bytes in the result that correspond to unit_bytes() of the data. */
static size_t
result_unit(const Part &part, bool accumulate_f32)
{
	return unit_bytes(part) * (is_wide(part, accumulate_f32) ? 2 : 1);
}

static bool
has_slots(const Part &part)
{
	return part.call == Call::ALLGATHER || part.call == Call::REDUCE_SCATTER;
}

static size_t
part_bytes(const Layout &layout, const Part &part, bool accumulate_f32)
{
	return result_unit(part, accumulate_f32) *
	       (has_slots(part) ? static_cast<size_t>(layout.slots()) : 1);
}

/* unit: bytes of a slot. */
static const char *
slot_of(const Layout &layout, size_t rank, const char *result, size_t unit)
{
	return result + static_cast<size_t>(layout.slot(static_cast<int>(rank))) * unit;
}

std::string
signature_of(const std::vector<Part> &parts)
{
	static const char *const names[] = { "allreduce", "reduce",         "broadcast",
					     "allgather", "reduce_scatter", "a sparse sum",
					     "barrier" };
	std::string text;

	for (const Part &part : parts) {
		text += (text.empty() ? "" : ", ") +
			std::string(names[static_cast<int>(part.call)]);
		if (part.call == Call::BARRIER)
			continue;
		text += " of " + std::to_string(unit_bytes(part)) + " bytes";
		if (part.call == Call::SPARSE)
			text += ", at most " + std::to_string(part.most) + " values";
		if (part.call == Call::REDUCE || part.call == Call::BROADCAST)
			text += ", root " + std::to_string(part.root);
		if (part.call != Call::BROADCAST && part.call != Call::ALLGATHER)
			text += std::string(", ") + fanin_op_name_of(part.op) + " of " +
				fanin_dtype_name_of(part.dtype);
	}
	return text;
}

size_t
given_bytes(const std::vector<Part> &parts)
{
	size_t bytes = aligned(parts.size() * COUNTS_OF_PART * sizeof(uint64_t));

	for (const Part &part : parts)
		bytes += aligned(nbytes(part.indices)) + aligned(nbytes(part.send));
	return bytes;
}

void
give(const std::vector<Part> &parts, char *to)
{
	auto *counts = reinterpret_cast<uint64_t *>(to);

	to += aligned(parts.size() * COUNTS_OF_PART * sizeof(uint64_t));
	for (const Part &part : parts) {
		for (const at::Tensor &tensor : { part.indices, part.send }) {
			*counts++ = nbytes(tensor);
			if (tensor.defined())
				bytes_copy(to, tensor.data_ptr(), tensor.nbytes());
			to += aligned(nbytes(tensor));
		}
	}
}

size_t
result_bytes(const Layout &layout, const std::vector<Part> &parts, bool accumulate_f32)
{
	size_t bytes = 0;

	for (const Part &part : parts)
		bytes += aligned(part_bytes(layout, part, accumulate_f32));
	return bytes;
}

/* Data that a rank gives to a part. */
struct Given {
	const char *indices;
	size_t index_bytes;
	const char *data;
	size_t bytes;
};

/* Returns the data of each place for part number i of `own`. */
static std::vector<Given>
given_to(const std::vector<Part> &own, const std::vector<const char *> &given, size_t i)
{
	std::vector<Given> all;

	for (const char *from : given) {
		if (from == nullptr) {
			const Part &part = own[i];
			all.push_back({ part.indices.defined()
						? static_cast<const char *>(part.indices.data_ptr())
						: nullptr,
					nbytes(part.indices),
					part.send.defined()
						? static_cast<const char *>(part.send.data_ptr())
						: nullptr,
					nbytes(part.send) });
			continue;
		}
		const auto *counts = reinterpret_cast<const uint64_t *>(from);
		const char *data = from + aligned(own.size() * COUNTS_OF_PART * sizeof(uint64_t));
		for (size_t k = 0; k < i * COUNTS_OF_PART; k++)
			data += aligned(counts[k]);
		counts += i * COUNTS_OF_PART;
		all.push_back({ data, counts[0], data + aligned(counts[0]), counts[1] });
	}
	return all;
}

static void
operate(enum fanin_op op, at::Tensor result, const at::Tensor &a, const at::Tensor &b)
{
	switch (op) {
	case FANIN_PROD:
		at::mul_out(result, a, b);
		break;
	case FANIN_MIN:
		at::minimum_out(result, a, b);
		break;
	case FANIN_MAX:
		at::maximum_out(result, a, b);
		break;
	case FANIN_BAND:
		at::bitwise_and_out(result, a, b);
		break;
	case FANIN_BOR:
		at::bitwise_or_out(result, a, b);
		break;
	case FANIN_BXOR:
		at::bitwise_xor_out(result, a, b);
		break;
	default: /* sums, and averages, which are divided at the end */
		at::add_out(result, a, b);
	}
}

/* Combines vectors of `bytes` bytes in the order of ranks. */
static void
reduce_into(char *result, const std::vector<const char *> &vectors, size_t bytes, const Part &part,
	    bool accumulate_f32)
{
	const bool wide = is_wide(part, accumulate_f32);
	at::Tensor to = view_of(result, bytes * (wide ? 2 : 1), result_dtype(part, accumulate_f32));
	auto vector = [&](size_t i) { return view_of(vectors[i], bytes, part.dtype); };

	if (vectors.size() == 1 || wide)
		to.copy_(vector(0));
	else
		operate(part.op, to, vector(0), vector(1));
	for (size_t i = wide ? 1 : 2; i < vectors.size(); i++)
		operate(part.op, to, to, vector(i));
}

static void
reduce_all(const Layout &layout, const Part &part, const std::vector<Given> &given, char *result,
	   bool accumulate_f32)
{
	const size_t bytes = unit_bytes(part);
	std::vector<const char *> vectors;

	for (const Given &of : given)
		vectors.push_back(of.data);
	if (part.call != Call::REDUCE_SCATTER) {
		reduce_into(result, vectors, bytes, part, accumulate_f32);
		return;
	}
	/*
	 * Vectors are in the order of ranks, the result in that of slots; slots without a rank are
	 * zeros.
	 */
	std::memset(result, 0, part_bytes(layout, part, accumulate_f32));
	for (size_t rank = 0; rank < layout.host_of.size(); rank++) {
		std::vector<const char *> blocks;
		for (const char *vector : vectors)
			blocks.push_back(vector + rank * bytes);
		char *slot = const_cast<char *>(
			slot_of(layout, rank, result, result_unit(part, accumulate_f32)));
		reduce_into(slot, blocks, bytes, part, accumulate_f32);
	}
}

/*
 * Joins all values of the host, with those of the same index side by side in the order of ranks:
 * the library combines them.
 */
static void
sparse_join(const Layout &layout, Part *part, const std::vector<Given> &given)
{
	std::vector<at::Tensor> indices, values;

	for (const Given &of : given) {
		indices.push_back(view_of(of.indices, of.index_bytes, FANIN_I64));
		values.push_back(view_of(of.data, of.bytes, part->dtype));
	}
	at::Tensor order;
	std::tie(part->indices, order) = at::cat(indices).sort(/*stable=*/true, 0, false);
	part->send = at::cat(values).index_select(0, order);
	part->coalesce = true;
	part->most = std::min(part->recv.numel(), part->most * static_cast<int64_t>(layout.most));
}

std::vector<Part>
combine(const Layout &layout, const std::vector<Part> &own, const std::vector<const char *> &given,
	char *result, bool accumulate_f32)
{
	std::vector<Part> parts;

	for (size_t i = 0; i < own.size(); i++) {
		const std::vector<Given> all = given_to(own, given, i);
		const size_t unit = result_unit(own[i], accumulate_f32),
			     whole = part_bytes(layout, own[i], accumulate_f32);
		Part part;
		part.call = own[i].call;
		part.dtype = result_dtype(own[i], accumulate_f32);
		part.op = own[i].op == FANIN_AVG ? FANIN_SUM : own[i].op;
		part.root = layout.host_of[own[i].root];
		part.most = own[i].most;
		const size_t slots = unit * layout.most; /* bytes of a host's slots */
		char *hosts_slots = result + static_cast<size_t>(layout.host()) * slots;
		switch (own[i].call) {
		case Call::ALLREDUCE:
		case Call::REDUCE:
			reduce_all(layout, own[i], all, result, accumulate_f32);
			part.send = part.recv = view_of(result, whole, part.dtype);
			break;
		case Call::REDUCE_SCATTER:
			reduce_all(layout, own[i], all, result, accumulate_f32);
			part.send = view_of(result, whole, part.dtype);
			part.recv = view_of(hosts_slots, slots, part.dtype);
			break;
		case Call::BROADCAST:
			if (part.root == layout.host()) {
				const Given &root = all[layout.place_of[own[i].root]];
				bytes_copy(result, root.data, root.bytes);
				part.send = view_of(result, whole, FANIN_U8);
			} else {
				part.recv = view_of(result, whole, FANIN_U8);
			}
			break;
		case Call::ALLGATHER:
			for (size_t place = 0; place < all.size(); place++)
				bytes_copy(hosts_slots + place * unit, all[place].data, unit);
			part.send = view_of(hosts_slots, slots, FANIN_U8);
			part.recv = view_of(result, whole, FANIN_U8);
			break;
		case Call::SPARSE:
			part.recv = view_of(result, whole, part.dtype);
			sparse_join(layout, &part, all);
			break;
		case Call::BARRIER:
			break;
		}
		result += aligned(whole);
		parts.push_back(std::move(part));
	}
	return parts;
}

void
conclude(const Layout &layout, const std::vector<Part> &own, char *result, bool accumulate_f32)
{
	const auto size = static_cast<int64_t>(layout.host_of.size());

	for (const Part &part : own) {
		const size_t bytes = part_bytes(layout, part, accumulate_f32);
		if (part.op == FANIN_AVG) {
			at::Tensor sum = view_of(result, bytes, result_dtype(part, accumulate_f32));
			if (sum.is_floating_point())
				sum.div_(size);
			else
				sum.div_(size, "trunc");
		}
		result += aligned(bytes);
	}
}

size_t
take(const Layout &layout, const std::vector<Part> &parts, const char *result, bool accumulate_f32)
{
	size_t taken = 0;

	for (const Part &part : parts) {
		const size_t unit = result_unit(part, accumulate_f32);
		const char *from = result;
		if (part.call == Call::REDUCE_SCATTER)
			from = slot_of(layout, static_cast<size_t>(layout.rank), result, unit);
		if (part.call == Call::ALLGATHER) {
			char *to = static_cast<char *>(part.recv.data_ptr());
			for (size_t rank = 0; rank < layout.host_of.size(); rank++)
				bytes_copy(to + rank * unit, slot_of(layout, rank, result, unit),
					   unit);
		} else if (part.recv.defined() && is_wide(part, accumulate_f32)) {
			at::Tensor there = part.recv;
			there.copy_(view_of(from, unit, FANIN_F32).view(there.sizes()));
		} else if (part.recv.defined()) {
			bytes_copy(part.recv.data_ptr(), from, part.recv.nbytes());
		}
		taken += nbytes(part.recv);
		result += aligned(part_bytes(layout, part, accumulate_f32));
	}
	return taken;
}

} // namespace fanin_torch
