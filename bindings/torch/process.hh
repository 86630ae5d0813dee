/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects of a process, with respect to fork(). */
#ifndef FANIN_TORCH_PROCESS_HH
#define FANIN_TORCH_PROCESS_HH

#include <pthread.h>

namespace fanin_torch {

/*
 * One T for each process. A forked process begins with a new T: it has none of its parent's
 * threads, which the old T counts and which may hold its mutexes. Never destroyed: threads may
 * still use it when the process ends. Any thread.
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
