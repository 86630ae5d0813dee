/* SPDX-License-Identifier: BSD-3-Clause */
/* The taggers of a job that has tags (tags.h). Main thread. */
#include <errno.h>
#include <stdlib.h>

#include "pipeline/tags.h"

int
tags_create(struct job *job, uint16_t n_workers)
{
	int ret = 0;

	job->taggers = calloc(n_workers, sizeof(job->taggers[0]));
	if (job->taggers == NULL)
		return -ENOMEM;
	for (uint16_t i = 0; i < n_workers && ret == 0; i++)
		ret = fanin_tagger_create(job->secret, &job->taggers[i]);
	if (ret != 0)
		tags_free(job);
	return ret;
}

void
tags_free(struct job *job)
{
	for (uint16_t i = 0; job->taggers != NULL && i < job->n_workers; i++)
		fanin_tagger_destroy(job->taggers[i]);
	free(job->taggers);
	job->taggers = NULL;
}
