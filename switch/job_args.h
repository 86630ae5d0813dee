/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arguments of `jobs create`: a job with its members and its place in the tree of switches.
 */
#ifndef FANIN_SWITCH_JOB_ARGS_H
#define FANIN_SWITCH_JOB_ARGS_H

#include <jansson.h>

#include "control/control.h"
#include "pipeline/job.h"

/*
 * The names of the types in which sums and averages of f16 and bf16 are accumulated, indexed by
 * struct fanin_job_params' wide.
 */
extern const char *const job_accumulate_names[];

/*
 * Reads the requested job. spec: zeroed; filled on success, except a key that is not given. Strings
 * are borrowed from args. Returns 0, or a negative errno with *error filled. Main thread.
 */
int job_args_read(const struct pipeline *pipeline, const json_t *args, struct job_spec *spec,
		  struct control_error *error);

#endif
