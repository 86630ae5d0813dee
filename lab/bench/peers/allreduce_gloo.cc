/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures Gloo's allreduce of floats over TCP. One process for each rank; arguments: BYTES ITERS
 * WARMUP RANK SIZE INTERFACE DIRECTORY. The ranks find each other by files in the directory.
 */
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>

#include "lab/bench/peers/loop.h"

using Context = std::shared_ptr<gloo::rendezvous::Context>;

static Context &
context_of(struct peer *peer)
{
	return *static_cast<Context *>(peer->state);
}

static void
gloo_barrier(struct peer *peer)
{
	gloo::BarrierOptions options(context_of(peer));

	gloo::barrier(options);
}

static void
gloo_allreduce(struct peer *peer, const float *send, float *recv, size_t count)
{
	gloo::AllreduceOptions options(context_of(peer));

	options.setInput(const_cast<float *>(send), count);
	options.setOutput(recv, count);
	options.setReduceFunction(static_cast<void (*)(void *, const void *, const void *, size_t)>(
		&gloo::sum<float>));
	gloo::allreduce(options);
}

static void
gloo_maximum(struct peer *peer, double *values, size_t count)
{
	gloo::AllreduceOptions options(context_of(peer));

	options.setOutput(values, count);
	options.setReduceFunction(static_cast<void (*)(void *, const void *, const void *, size_t)>(
		&gloo::max<double>));
	gloo::allreduce(options);
}

static int
run(const char *const *arguments)
{
	gloo::transport::tcp::attr attributes;
	struct peer_task task = {};
	struct peer peer = {};

	peer_task_parse(&task, arguments);
	peer_task_more(&task, arguments + 7);
	peer.rank = std::atoi(arguments[3]);
	peer.size = std::atoi(arguments[4]);
	peer.barrier = gloo_barrier;
	peer.collective = gloo_allreduce;
	peer.maximum = gloo_maximum;
	attributes.iface = arguments[5];
	attributes.ai_family = AF_INET;

	auto device = gloo::transport::tcp::CreateDevice(attributes);
	gloo::rendezvous::FileStore store(arguments[6]);
	auto context = std::make_shared<gloo::rendezvous::Context>(peer.rank, peer.size);
	context->connectFullMesh(store, device);
	peer.state = &context;
	int status = peer_run(&peer, &task);
	/* A rank that leaves first would disconnect those that still wait. */
	gloo_barrier(&peer);
	return status;
}

int
main(int argc, char **argv)
{
	if (argc < 8) {
		std::cerr
			<< "usage: allreduce-gloo BYTES ITERS WARMUP RANK SIZE INTERFACE DIRECTORY [mark=SOCKET]\n";
		return 2;
	}
	try {
		return run(argv + 1);
	} catch (const std::exception &error) {
		std::cerr << "gloo: " << error.what() << '\n';
		return 1;
	}
}
