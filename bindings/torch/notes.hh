/* SPDX-License-Identifier: BSD-3-Clause */
/* The hosts of a group's ranks, and what ranks tell each other by torch's store. */
#ifndef FANIN_TORCH_NOTES_HH
#define FANIN_TORCH_NOTES_HH

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace fanin_torch {

struct Hosts {
	std::vector<uint16_t> of;            /* of each rank */
	std::vector<std::vector<int>> ranks; /* of each host, ascending; the first one leads */

	/* of: hosts have numbers from 0 on. */
	explicit Hosts(std::vector<uint16_t> of);
};

/* Returns why a collective fails whose ranks have left. ranks: such as "1, 3". */
std::string left_in_words(const std::string &ranks);

/* Adds a rank, or what names several, to a list such as "1, 3". */
void list_add(std::string *list, const std::string &what);

/*
 * Notes that ranks write before they leave the job: others find there what the job can't tell. No
 * call takes much longer than a second or two, whatever the store does: the program may wait in it
 * for other ranks, or it may be out of reach. What is not known by then is as if it were not there.
 */
class Notes {
      public:
	explicit Notes(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store))
	{
	}
	/* Records which ranks of a host of several have failed: other hosts know only the host. */
	void write_failed(int host, const std::string &text);
	/*
	 * Returns what each of these hosts has recorded; "" for those that have nothing. waits: for
	 * a second, if a host has nothing yet.
	 */
	std::vector<std::string> read_failed(const std::vector<int> &hosts, bool waits);
	/* Records that a rank leaves with all its collectives done: others may have more. */
	void write_left(int rank);
	/* Returns those of these ranks that have left. */
	std::vector<int> left_among(const std::vector<int> &ranks);

      private:
	c10::intrusive_ptr<c10d::Store> store_;
};

} // namespace fanin_torch

#endif
