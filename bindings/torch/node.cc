/* SPDX-License-Identifier: BSD-3-Clause */
/* See node.hh. */
#include "bindings/torch/node.hh"

#include "bindings/torch/steps.hh"

#include <algorithm>
#include <system_error>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace fanin_torch {

/*
 * Extra time beyond torch's timeout that others wait for their leader, which knows which rank is
 * late.
 */
#define LEADERS_DUE std::chrono::seconds(5)
#define TICK_MS 500

Node::Node(const Layout &layout, std::shared_ptr<Stats> stats, std::shared_ptr<Notes> notes,
	   std::shared_ptr<Network> network)
    : layout_(layout), stats_(std::move(stats)), notes_(std::move(notes)),
      network_(std::move(network)), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
{
	if (wake_fd_ < 0)
		throw std::system_error(errno, std::generic_category(), "eventfd");
}

Node::~Node()
{
	::close(wake_fd_);
}

std::string
Node::meet(const std::string &job_name, std::chrono::milliseconds patience)
{
	const std::string name = "fanin_torch/" + job_name + "/" + std::to_string(layout_.host());
	const std::vector<int> &ranks = layout_.neighbors();
	const auto until = Clock::now() + patience;

	try {
		if (!layout_.leads()) {
			auto leader = connect_peer(name, layout_.rank, ranks[0], until);
			if (leader == nullptr)
				return "rank " + std::to_string(ranks[0]) +
				       ", which leads this host, has not come";
			peers_.push_back(std::move(leader));
			return "";
		}
		if (ranks.size() == 1)
			return "";
		std::vector<bool> here(ranks.size());
		const int fd = listen_at(name);
		while (peers_.size() + 1 < ranks.size()) {
			auto peer = accept_peer(fd, until);
			if (peer == nullptr)
				break;
			auto place = std::find(ranks.begin() + 1, ranks.end(), peer->rank) -
				     ranks.begin();
			if (place == static_cast<ptrdiff_t>(ranks.size()) || here[place])
				continue;
			here[place] = true;
			peers_.push_back(std::move(peer));
		}
		::close(fd);
		for (size_t place = 1; place < ranks.size(); place++)
			if (!here[place])
				return "rank " + std::to_string(ranks[place]) +
				       " of this host has not come";
		return "";
	} catch (const std::system_error &error) {
		return error.what();
	}
}

void
Node::begin(std::chrono::milliseconds timeout, bool accumulate_f32)
{
	timeout_ = timeout;
	accumulate_f32_ = accumulate_f32;
	last_done_ = Clock::now();
	if (network_ != nullptr)
		network_->begin();
	thread_ = std::thread([self = shared_from_this()] { self->run(); });
}

void
Node::later(std::function<void()> what)
{
	const uint64_t one = 1;

	std::lock_guard<std::mutex> lock(mutex_);
	todo_.push_back(std::move(what));
	if (write(wake_fd_, &one, sizeof(one)) < 0) {
		/* The counter is at its maximum, so the descriptor is readable already. */
	}
}

void
Node::submit(Task task)
{
	auto kept = std::make_shared<Task>(std::move(task));

	later([this, kept] { add(std::move(*kept)); });
}

void
Node::close_begin()
{
	later([this] { closing_ = true; });
}

void
Node::close()
{
	close_begin();
	if (!thread_.joinable()) {
		if (network_ != nullptr)
			network_->close();
	} else if (thread_.get_id() == std::this_thread::get_id()) {
		thread_.detach();
	} else {
		thread_.join();
	}
}

void
Node::run()
{
	c10::InferenceMode inference; /* tensors of results may be of inference mode */

	while (!closing_ || has_work()) {
		try {
			look();
		} catch (const std::exception &error) {
			const std::string rank = std::to_string(layout_.rank);
			fail("rank " + rank + ": " + error.what(), rank);
		}
	}
	for (const std::unique_ptr<Peer> &peer : peers_) {
		peer->send({ MessageKind::BYE });
		for (int i = 0; i < 10 && !peer->flush(); i++) {
			struct pollfd room = { peer->fd, POLLOUT, 0 };
			poll(&room, 1, TICK_MS);
		}
	}
	peers_.clear();
	if (network_ != nullptr)
		network_->close();
}

/* True if a collective of this rank is not done. */
bool
Node::has_work() const
{
	return std::any_of(entries_.begin(), entries_.end(), [](const auto &each) {
		return each.second.has_own && !each.second.done;
	});
}

void
Node::look()
{
	std::deque<std::function<void()>> todo;

	{
		std::lock_guard<std::mutex> lock(mutex_);
		todo.swap(todo_);
	}
	for (const std::function<void()> &what : todo)
		what();
	todo.clear();
	for (const std::unique_ptr<Peer> &peer : peers_) {
		Message message;
		while (peer->receive(&message))
			handle(*peer, message);
		if (peer->gone)
			lost(*peer);
	}
	peers_.erase(std::remove_if(peers_.begin(), peers_.end(),
				    [](const std::unique_ptr<Peer> &peer) { return peer->gone; }),
		     peers_.end());
	if (network_ != nullptr)
		advance();
	check_timeout();
	forget();
	if (!closing_ || has_work())
		wait_for_events();
}

void
Node::wait_for_events()
{
	std::vector<struct pollfd> fds = { { wake_fd_, POLLIN, 0 } };
	std::vector<Peer *> watched;
	uint64_t count;

	for (const std::unique_ptr<Peer> &peer : peers_) {
		if (peer->gone)
			continue;
		const bool has_more = !peer->flush();
		fds.push_back(
			{ peer->fd, static_cast<short>(POLLIN | (has_more ? POLLOUT : 0)), 0 });
		fds.push_back({ peer->pidfd, POLLIN, 0 });
		watched.push_back(peer.get());
	}
	poll(fds.data(), fds.size(), TICK_MS);
	if (read(wake_fd_, &count, sizeof(count)) < 0) {
		/* The counter is 0. */
	}
	for (size_t i = 0; i < watched.size(); i++) {
		Message message;
		if (fds[2 * i + 2].fd < 0 || (fds[2 * i + 2].revents & POLLIN) == 0)
			continue;
		while (watched[i]->receive(&message))
			handle(*watched[i], message);
		watched[i]->gone = true;
	}
}

/* Adds a collective that this rank's program has reached. */
void
Node::add(Task task)
{
	if (!left_.empty())
		fail(left_in_words(left_), left_ + " (has left the process group)");
	if (!broken_.empty()) {
		task.done(broken_);
		return;
	}
	const uint64_t number = next_own_++;
	Entry &entry = entries_[number];
	entry.own = std::move(task);
	entry.has_own = true;
	entry.signature = signature_of(entry.own.parts);
	entry.began = Clock::now();
	if (layout_.leads())
		return;
	const size_t bytes = given_bytes(entry.own.parts);
	entry.buffer = pool_.take(bytes);
	give(entry.own.parts, entry.buffer->data);
	{
		std::lock_guard<std::mutex> lock(stats_->mutex);
		stats_->shared_bytes += bytes;
	}
	Message message = { MessageKind::DATA };
	message.number = number;
	message.text = entry.signature;
	peers_[0]->send(std::move(message), entry.buffer);
}

void
Node::handle(Peer &peer, const Message &message)
{
	const SharedBuffer *buffer = peer.buffer_of(message);

	switch (message.kind) {
	case MessageKind::DATA: {
		if (!broken_.empty() || buffer == nullptr)
			break;
		Entry &entry = entries_[message.number];
		const auto place = static_cast<size_t>(layout_.place_of[peer.rank]);
		entry.given.resize(layout_.neighbors().size());
		entry.signatures.resize(layout_.neighbors().size());
		entry.given[place] = buffer;
		entry.signatures[place] = message.text;
		entry.n_given++;
		break;
	}
	case MessageKind::DONE: {
		auto found = entries_.find(message.number);
		if (found == entries_.end() || buffer == nullptr)
			break;
		finish(found->second, buffer->data);
		found->second.buffer->in_use = false;
		Message read = { MessageKind::READ };
		read.number = message.number;
		peer.send(std::move(read));
		break;
	}
	case MessageKind::READ: {
		auto found = entries_.find(message.number);
		if (found != entries_.end())
			found->second.n_readers--;
		break;
	}
	case MessageKind::FAIL:
		/* The leader tells all ranks. */
		fail(message.text, layout_.leads() ? std::to_string(peer.rank) : "");
		break;
	case MessageKind::BYE:
		peer.said_bye = true;
		break;
	case MessageKind::HELLO:
		break;
	}
}

/*
 * At the leader: posts collectives that all ranks of the host have reached, in the order of the
 * program.
 */
void
Node::advance()
{
	while (broken_.empty()) {
		auto found = entries_.find(next_post_);
		if (found == entries_.end() || !found->second.has_own ||
		    found->second.n_given + 1 < layout_.neighbors().size())
			return;
		post(next_post_, found->second);
		next_post_++;
	}
}

void
Node::post(uint64_t number, Entry &entry)
{
	const std::vector<int> &ranks = layout_.neighbors();
	std::vector<const char *> given(ranks.size());
	Task task;

	entry.given.resize(ranks.size());
	entry.signatures.resize(ranks.size());
	for (size_t place = 1; place < ranks.size(); place++) {
		if (entry.signatures[place] != entry.signature) {
			const std::string other = std::to_string(ranks[place]);
			fail("collective number " + std::to_string(number) + " is " +
				     entry.signature + " at rank " + std::to_string(ranks[0]) +
				     ", but " + entry.signatures[place] + " at rank " + other,
			     other + " (another collective than rank " + std::to_string(ranks[0]) +
				     ")");
			return;
		}
		given[place] = entry.given[place]->data;
	}
	try {
		entry.buffer = pool_.take(result_bytes(layout_, entry.own.parts, accumulate_f32_));
		task.parts = combine(layout_, entry.own.parts, given, entry.buffer->data,
				     accumulate_f32_);
	} catch (const std::exception &error) {
		fail(std::string("rank ") + std::to_string(ranks[0]) + ": " + error.what(),
		     std::to_string(ranks[0]));
		return;
	}
	entry.posted = true;
	task.done = [self = shared_from_this(), number](const std::string &error) {
		self->later(
			[self = self.get(), number, error] { self->posted_done(number, error); });
	};
	network_->submit(std::move(task));
}

/* At the leader: handles the end of a collective in the network. */
void
Node::posted_done(uint64_t number, const std::string &error)
{
	auto found = entries_.find(number);

	if (found == entries_.end() || !broken_.empty())
		return;
	if (!error.empty()) {
		fail(error, "");
		return;
	}
	Entry &entry = found->second;
	conclude(layout_, entry.own.parts, entry.buffer->data, accumulate_f32_);
	for (const std::unique_ptr<Peer> &peer : peers_) {
		Message message = { MessageKind::DONE };
		message.number = number;
		peer->send(std::move(message), entry.buffer);
		peer->flush();
		entry.n_readers++;
	}
	finish(entry, entry.buffer->data);
}

void
Node::finish(Entry &entry, const char *result)
{
	const size_t taken = take(layout_, entry.own.parts, result, accumulate_f32_);

	{
		std::lock_guard<std::mutex> lock(stats_->mutex);
		stats_->shared_bytes += layout_.neighbors().size() > 1 ? taken : 0;
	}
	last_done_ = Clock::now();
	entry.done = true;
	/* The tensors are no longer needed, and this may be their last reference. */
	Task own = std::move(entry.own);
	own.done("");
}

/* Drops collectives that are done at this rank and, at the leader, taken by all others. */
void
Node::forget()
{
	for (auto it = entries_.begin(); it != entries_.end();) {
		Entry &entry = it->second;
		if (!entry.done || entry.n_readers != 0) {
			++it;
			continue;
		}
		if (entry.buffer != nullptr)
			entry.buffer->in_use = false;
		it = entries_.erase(it);
	}
}

void
Node::lost(const Peer &peer)
{
	const std::string rank = std::to_string(peer.rank);

	left_ += (left_.empty() ? "" : ", ") + rank;
	if (!peer.said_bye)
		fail("the process of a rank on this host has ended; missing ranks of the group: " +
			     rank,
		     rank);
	else if (has_work())
		fail(left_in_words(rank), rank + " (has left the process group)");
}

void
Node::check_timeout()
{
	auto oldest = std::find_if(entries_.begin(), entries_.end(), [](const auto &each) {
		return each.second.has_own && !each.second.done;
	});

	if (oldest == entries_.end() || oldest->second.posted || !broken_.empty())
		return;
	const auto waited = Clock::now() - std::max(oldest->second.began, last_done_);
	const std::string limit = std::to_string(timeout_.count()) + " ms";
	if (!layout_.leads()) {
		const std::string leader = std::to_string(layout_.neighbors()[0]);
		if (waited > timeout_ + LEADERS_DUE)
			fail("the rank that leads this host has not answered within " + limit +
				     "; missing ranks of the group: " + leader,
			     leader);
		return;
	}
	if (waited <= timeout_)
		return;
	std::string late;
	for (size_t place = 1; place < layout_.neighbors().size(); place++)
		if (oldest->second.given.size() <= place || oldest->second.given[place] == nullptr)
			late += (late.empty() ? "" : ", ") +
				std::to_string(layout_.neighbors()[place]);
	fail("ranks on this host are later than " + limit + "; missing ranks of the group: " + late,
	     late);
}

/*
 * Fails all collectives from now on. note: tells other hosts which rank has failed; "" if they
 * know.
 */
void
Node::fail(const std::string &text, const std::string &note)
{
	if (!broken_.empty())
		return;
	broken_ = text;
	{
		std::lock_guard<std::mutex> lock(stats_->mutex);
		stats_->failed = true;
		stats_->reason = text;
	}
	for (const std::unique_ptr<Peer> &peer : peers_) {
		if (note.empty() && !layout_.leads())
			continue;
		Message message = { MessageKind::FAIL };
		message.text = text;
		peer->send(std::move(message));
		peer->flush();
	}
	if (network_ != nullptr && !note.empty()) {
		notes_->write(layout_.host(), note);
		network_->abort(text);
	}
	std::map<uint64_t, Entry> entries = std::move(entries_);
	entries_.clear();
	for (auto &[number, entry] : entries)
		if (entry.has_own && !entry.done)
			entry.own.done(text);
}

} // namespace fanin_torch
