/* SPDX-License-Identifier: BSD-3-Clause */
/* Posts collectives of the library. See part.hh. */
#include "bindings/torch/part.hh"

namespace fanin_torch {

static void *
data_of(const at::Tensor &tensor)
{
	return tensor.defined() ? tensor.data_ptr() : nullptr;
}

/*
 * Posts a sparse allreduce. No rank has more than part->most values, and all ranks know that
 * number. The density made of it saves the library the small allreduce by which ranks would find
 * one.
 */
static int
sparse_post(Part *part, fanin_comm *comm)
{
	const auto n = static_cast<uint64_t>(part->recv.numel());
	struct fanin_sparse_opts opts = {};

	opts.sz = sizeof(opts);
	opts.density = n == 0 ? 0 : static_cast<double>(part->most) / static_cast<double>(n);
	opts.index_bytes = sizeof(int64_t);
	part->result = std::make_unique<fanin_sparse_result>();
	part->result->sz = sizeof(*part->result);
	part->result->dense = data_of(part->recv);
	return fanin_iallreduce_sparse(n, static_cast<uint64_t>(part->send.numel()),
				       data_of(part->indices), data_of(part->send),
				       part->result.get(), part->dtype, part->op, &opts, comm,
				       &part->request);
}

static int
post(Part *part, fanin_comm *comm)
{
	void *send = data_of(part->send), *recv = data_of(part->recv);
	const auto root = static_cast<uint16_t>(part->root);
	fanin_request **request = &part->request;

	switch (part->call) {
	case Call::ALLREDUCE:
		return fanin_iallreduce(send, recv, part->send.numel(), part->dtype, part->op, comm,
					request);
	case Call::REDUCE:
		return fanin_ireduce(send, recv, part->send.numel(), part->dtype, part->op, root,
				     comm, request);
	case Call::BROADCAST:
		/* The root has only the tensor to send, the others only the one to receive. */
		return fanin_ibroadcast(send != nullptr ? send : recv,
					part->send.defined() ? part->send.nbytes()
							     : part->recv.nbytes(),
					FANIN_U8, root, comm, request);
	case Call::ALLGATHER:
		return fanin_iallgather(send, recv, part->send.nbytes(), FANIN_U8, comm, request);
	case Call::REDUCE_SCATTER:
		return fanin_ireduce_scatter(send, recv, part->recv.numel(), part->dtype, part->op,
					     comm, request);
	case Call::SPARSE:
		return sparse_post(part, comm);
	case Call::BARRIER:
		return fanin_ibarrier(comm, request);
	}
	return FANIN_ERR_INVALID;
}

int
part_post(Part *part, fanin_comm *comm)
{
	part->status = post(part, comm);
	return part->status;
}

} // namespace fanin_torch
