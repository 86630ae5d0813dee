/* SPDX-License-Identifier: BSD-3-Clause */
/* The hosts of a group's ranks, and what hosts tell each other by torch's store. */
#ifndef FANIN_TORCH_LAYOUT_HH
#define FANIN_TORCH_LAYOUT_HH

#include <chrono>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace fanin_torch {

struct Layout {
	std::vector<std::vector<int>> hosts; /* ranks of each host, ascending. The first one leads;
						a host's index is its rank in the job */
	std::vector<int> host_of, place_of; /* of each rank; place: the index among its host's ranks
					     */
	size_t most = 0;                    /* largest number of ranks on a host */
	int rank = 0;                       /* this rank */

	Layout() = default;
	/* Throws torch's error if these are not the ranks of a group. */
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
	/* True if each host has one rank only. */
	bool
	is_flat() const
	{
		return most == 1;
	}
	/*
	 * Returns the place of a rank's part in a vector of the network, in which each host has as
	 * many parts as the host with most ranks.
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
	/*
	 * Returns "2" for a host with one rank; for one with several, its first rank, and that this
	 * rank leads the host.
	 */
	std::string name_of_host(size_t host) const;
};

/* Returns why a collective fails whose ranks have left. ranks: such as "1, 3". */
std::string left_in_words(const std::string &ranks);

/*
 * Notes of hosts that can't go on, written before they leave the job: only the host itself knows
 * which of its ranks is missing.
 */
class Notes {
      public:
	explicit Notes(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store))
	{
	}
	void write(int host, const std::string &text);
	/* Returns a host's note; "" if there is none within a second. */
	std::string read(int host);
	/* Records that a host leaves with all its collectives done: others may have more. */
	void write_left(int host);
	bool has_left(int host);

      private:
	c10::intrusive_ptr<c10d::Store> store_;
};

} // namespace fanin_torch

#endif
