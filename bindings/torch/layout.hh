/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ranks of a group are on which host, and what hosts tell each other by torch's store. */
#ifndef FANIN_TORCH_LAYOUT_HH
#define FANIN_TORCH_LAYOUT_HH

#include <chrono>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace fanin_torch {

struct Layout {
	std::vector<std::vector<int>> hosts; /* their ranks, ascending; the first one leads; the
						rank of the host in the job is its place here */
	std::vector<int> host_of, place_of;  /* of each rank; place: among those of its host */
	size_t most = 0;                     /* ranks on a host */
	int rank = 0;                        /* this one */

	Layout() = default;
	/* Throws what torch does if these are not the ranks of a group. */
	Layout(std::vector<std::vector<int>> hosts, int rank, int size);

	int
	host() const
	{
		return host_of[rank];
	}
	const std::vector<int> &
	neighbors() const
	{
		return hosts[host()];
	}
	bool
	leads() const
	{
		return place_of[rank] == 0;
	}
	/* Each host has one rank only. */
	bool
	is_flat() const
	{
		return most == 1;
	}
	/*
	 * Where a rank's part of a vector is in the network, where each host has as many parts as
	 * the one with most ranks.
	 */
	int64_t
	slot(int of) const
	{
		return host_of[of] * static_cast<int64_t>(most) + place_of[of];
	}
	int64_t
	slots() const
	{
		return static_cast<int64_t>(hosts.size() * most);
	}
	/* "2" of a host with one rank; with several the first one, which leads it, and that. */
	std::string name_of_host(size_t host) const;
};

/* Why a collective fails whose ranks are not there any more. ranks: as "1, 3". */
std::string left_in_words(const std::string &ranks);

/*
 * A host whose ranks can't go on says so before it leaves the job: only it knows which one is
 * missing.
 */
class Notes {
      public:
	explicit Notes(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store))
	{
	}
	void write(int host, const std::string &text);
	/* "" if there is none within a second. */
	std::string read(int host);
	/* A host that leaves with all its collectives done says so, too: others may have more. */
	void write_left(int host);
	bool has_left(int host);

      private:
	c10::intrusive_ptr<c10d::Store> store_;
};

} // namespace fanin_torch

#endif
