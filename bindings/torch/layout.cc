/* SPDX-License-Identifier: BSD-3-Clause */
/* See layout.hh. */
#include "bindings/torch/layout.hh"

#include <thread>

#include <c10/util/Exception.h>

namespace fanin_torch {

#define LOOKS 20
#define PAUSE std::chrono::milliseconds(50)

Layout::Layout(std::vector<std::vector<int>> given, int rank, int size)
    : hosts(std::move(given)), host_of(size, -1), place_of(size, -1), rank(rank)
{
	for (size_t host = 0; host < hosts.size(); host++) {
		for (size_t place = 0; place < hosts[host].size(); place++) {
			int of = hosts[host][place];
			TORCH_CHECK(of >= 0 && of < size && host_of[of] < 0, "hosts: found rank ",
				    of, " twice, or in a group of ", size);
			host_of[of] = static_cast<int>(host);
			place_of[of] = static_cast<int>(place);
		}
		most = std::max(most, hosts[host].size());
	}
	for (int of = 0; of < size; of++)
		TORCH_CHECK(host_of[of] >= 0, "hosts: found no rank ", of, " in a group of ", size);
}

std::string
Layout::name_of_host(size_t host) const
{
	const std::vector<int> &ranks = hosts[host];
	std::string text = std::to_string(ranks[0]);

	if (ranks.size() == 1)
		return text;
	text += " (leads the host of ranks";
	for (size_t i = 0; i < ranks.size(); i++)
		text += (i == 0 ? " " : ", ") + std::to_string(ranks[i]);
	return text + ")";
}

std::string
left_in_words(const std::string &ranks)
{
	return "rank " + ranks +
	       " has left the process group (destroy_process_group, or the end of its program), and this rank "
	       "has more collectives; missing ranks of the group: " +
	       ranks;
}

static std::string
key_of(int host)
{
	return "failed/" + std::to_string(host);
}

static std::string
left_key_of(int host)
{
	return "left/" + std::to_string(host);
}

static void
store_set(c10d::Store &store, const std::string &key, const std::string &text)
{
	try {
		store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
	} catch (const std::exception &) {
		/*
		 * The process with the store may be the one that is gone: other hosts then name the
		 * host.
		 */
	}
}

void
Notes::write(int host, const std::string &text)
{
	store_set(*store_, key_of(host), text);
}

void
Notes::write_left(int host)
{
	store_set(*store_, left_key_of(host), "1");
}

bool
Notes::has_left(int host)
{
	try {
		return store_->check({ left_key_of(host) });
	} catch (const std::exception &) {
		return false; /* the store's process may be gone */
	}
}

std::string
Notes::read(int host)
{
	try {
		for (int i = 0; i < LOOKS; i++) {
			if (store_->check({ key_of(host) })) {
				std::vector<uint8_t> text = store_->get(key_of(host));
				return std::string(text.begin(), text.end());
			}
			std::this_thread::sleep_for(PAUSE);
		}
	} catch (const std::exception &) {
		/* The store's process may be gone. */
	}
	return "";
}

} // namespace fanin_torch
