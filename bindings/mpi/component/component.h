/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * coll/fanin: a component of Open MPI's framework for collectives. Open MPI asks it for a module
 * for each communicator; the module takes over some collectives and keeps the functions that were
 * there for all other calls. Requires Open MPI's own headers, of 4.1 or 5.0.
 *
 * The component has no thread that calls MPI. Calls in the network go on in Open MPI's progress
 * engine, as those of its own components do.
 */
#ifndef FANIN_BINDINGS_MPI_COMPONENT_H
#define FANIN_BINDINGS_MPI_COMPONENT_H

/* Open MPI's configuration comes before all other headers. */
#include <ompi_config.h>

#include "bindings/mpi/core.h"

#include <ompi/communicator/communicator.h>
#include <ompi/mca/coll/base/base.h>
#include <ompi/mca/coll/base/coll_base_util.h>
#include <ompi/mca/coll/coll.h>

#if OMPI_MAJOR_VERSION >= 5
#define COLL_VERSION MCA_COLL_BASE_VERSION_2_4_0
#else
#define COLL_VERSION MCA_COLL_BASE_VERSION_2_0_0
#endif

/*
 * What Open MPI loads, mca_coll_fanin.so, is in component.c and has nothing but the parameters:
 * most programs of a host with Fanin have no manager, and must start as fast as without it. It
 * loads this, libfanin-coll.so, for the others.
 */
struct coll_body {
	/*
	 * Reads the settings, and publishes them. parameter: returns a parameter of the component
	 * by the name of its setting, such as FANIN_MPI_MIN_BYTES; NULL: it is not set. Called
	 * before the processes exchange what they have published. Returns false if the program
	 * does without the component.
	 */
	bool (*begin)(const char *(*parameter)(const char *name));
	/*
	 * True if all processes of the communicator have published what this one has. Uses no
	 * network. Says once which process has not.
	 */
	bool (*peers_agree)(ompi_communicator_t *comm);
	/* Returns a module, before it is enabled; NULL: there is no memory. */
	mca_coll_base_module_t *(*module_make)(void);
};
#define BODY_FILE "libfanin-coll.so"
#define BODY_SYMBOL "fanin_coll_body"

/* body.c: a text that is the same on processes whose settings are the same. Static string. */
const char *settings_described(void);

/* peers.c: the processes of the program that have the component with the same settings. */
/* Publishes this process's version and settings. Called before Open MPI exchanges such data. */
void peers_publish(void);
bool peers_agree(ompi_communicator_t *comm);
/* Makes library_comm of those of MPI_COMM_WORLD. Collective on them. */
int peers_gather(void);

/* module.c */
mca_coll_base_module_t *module_make(void);
/* Between MPI_Init and MPI_Finalize; modules hand on all calls at other times. */
void modules_enable(bool enable);
/* Returns the module of MPI_COMM_WORLD; NULL: it has none. */
void *module_of_world(void);
/*
 * Between these calls a thread is in code of the library, whose own calls of MPI are not the
 * program's. library_enter returns what library_leave needs.
 */
bool library_enter(void);
void library_leave(bool was_inside);

/* fiber.c: lets workers go on that can, unless another thread does. Returns their number. */
int workers_look(void);
/*
 * Waits for a request, in Open MPI's progress engine, until it is complete. Unlike Open MPI's own
 * waits it leaves the core to others if there are more processes than cores: the switch may need
 * it.
 */
void request_wait(ompi_request_t *req);

#endif
