/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process has of its own, with respect to fork(). */
#ifndef FANIN_TORCH_PROCESS_HH
#define FANIN_TORCH_PROCESS_HH

#include <pthread.h>

namespace fanin_torch {

/*
 * One T for each process. A forked one begins with a new one: it has none of its parent's threads,
 * which the old one counts and which may have its mutexes. Never destroyed: threads may still have
 * it when the process ends. Any thread.
 */
template <typename T> class OfProcess {
      public:
	static T &
	get()
	{
		return *the_one;
	}

      private:
	static T *
	first()
	{
		pthread_atfork(nullptr, nullptr, [] { the_one = new T; });
		return new T;
	}
	static inline T *the_one = first();
};

} // namespace fanin_torch

#endif
