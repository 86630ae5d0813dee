/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packages of Open MPI's headers lack this one, which ompi/op/op.h includes. Fortran's integers and
 * C's have the same width in these packages; nothing of the component passes any.
 */
#ifndef FANIN_BINDINGS_MPI_FINT_2_INT_H
#define FANIN_BINDINGS_MPI_FINT_2_INT_H

#define OMPI_INT_2_FINT(value) (value)
#define OMPI_FINT_2_INT(value) (value)

#endif
