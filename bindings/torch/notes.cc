/* SPDX-License-Identifier: BSD-3-Clause */
/* See notes.hh. */
#include "bindings/torch/notes.hh"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

namespace fanin_torch {

#define PATIENCE std::chrono::milliseconds(1500) /* maximum wait for the store */
#define LOOKS 20                                 /* for the notes of hosts that fail */
#define PAUSE std::chrono::milliseconds(50)

static const char some_have_left[] = "left";

Hosts::Hosts(std::vector<uint16_t> given) : of(std::move(given))
{
	for (size_t rank = 0; rank < of.size(); rank++) {
		ranks.resize(std::max<size_t>(ranks.size(), of[rank] + 1));
		ranks[of[rank]].push_back(static_cast<int>(rank));
	}
}

std::string
left_in_words(const std::string &ranks)
{
	return "rank " + ranks +
	       " has left the process group (destroy_process_group, or the end of its program), and this rank "
	       "has more collectives; missing ranks of the group: " +
	       ranks;
}

void
list_add(std::string *list, const std::string &what)
{
	*list += (list->empty() ? "" : ", ") + what;
}

/*
 * Returns what a function returns that asks the store, or `otherwise` if that takes too long or
 * fails: the process with the store may be gone. It runs on a thread of its own, which may outlive
 * the call, or on this one if none can be made.
 */
template <typename T>
static T
ask(std::function<T()> what, T otherwise)
{
	auto asked = std::make_shared<std::packaged_task<T()>>(std::move(what));
	std::future<T> answer = asked->get_future();

	try {
		std::thread([asked] { (*asked)(); }).detach();
	} catch (const std::system_error &) {
		(*asked)();
	}
	try {
		if (answer.wait_for(PATIENCE) == std::future_status::ready)
			return answer.get();
	} catch (const std::exception &) {
	}
	return otherwise;
}

static std::string
failed_key(int host)
{
	return "failed/" + std::to_string(host);
}

static std::string
left_key(int rank)
{
	return "left/" + std::to_string(rank);
}

/* Sets keys in this order. */
static void
write(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<std::string> &keys,
      const std::string &text)
{
	ask<bool>(
		[store, keys, text] {
			for (const std::string &key : keys)
				store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
			/* Only an answer of the store tells that the text is there. */
			return store->check(keys);
		},
		false);
}

void
Notes::write_failed(int host, const std::string &text)
{
	write(store_, { failed_key(host) }, text);
}

void
Notes::write_left(int rank)
{
	write(store_, { left_key(rank), some_have_left }, "1");
}

std::vector<std::string>
Notes::read_failed(const std::vector<int> &hosts, bool waits)
{
	auto look = [store = store_, hosts, n_looks = waits ? LOOKS : 1] {
		std::vector<std::string> texts(hosts.size());
		size_t n_found = 0;
		for (int i = 0; i < n_looks && n_found < hosts.size(); i++) {
			if (i > 0)
				std::this_thread::sleep_for(PAUSE);
			for (size_t k = 0; k < hosts.size(); k++) {
				const std::string key = failed_key(hosts[k]);
				if (!texts[k].empty() || !store->check({ key }))
					continue;
				const std::vector<uint8_t> text = store->get(key);
				texts[k] = std::string(text.begin(), text.end());
				n_found++;
			}
		}
		return texts;
	};

	if (hosts.empty())
		return {};
	return ask<std::vector<std::string>>(look, std::vector<std::string>(hosts.size()));
}

std::vector<int>
Notes::left_among(const std::vector<int> &ranks)
{
	auto look = [store = store_, ranks] {
		std::vector<int> left;
		if (store->check({ some_have_left }))
			std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(left),
				     [&](int rank) { return store->check({ left_key(rank) }); });
		return left;
	};

	return ask<std::vector<int>>(look, {});
}

} // namespace fanin_torch
