! SPDX-License-Identifier: BSD-3-Clause
! An MPI program in Fortran 90 whose collectives have arguments that MPI refuses: rank 0 prints the error class of each, and "cases" if
! the sum after them is right. The net tests compare what is printed with the library and without.
program fortran_arguments
   use mpi
   implicit none
   integer, parameter :: n = 3000
   integer :: rank, nranks, error, request
   integer :: numbers(n), sums(n)

   call MPI_Init(error)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
   call MPI_Comm_size(MPI_COMM_WORLD, nranks, error)
   call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, error)
   call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN, error)
   numbers = 1
   call MPI_Allreduce(numbers, sums, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
   call MPI_Allreduce(numbers, sums, n, MPI_INTEGER, MPI_SUM, MPI_COMM_NULL, error)
   call show('no communicator')
   call MPI_Bcast(numbers, n, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD, error)
   call show('no type')
   call MPI_Bcast(numbers, n, MPI_INTEGER, nranks, MPI_COMM_WORLD, error)
   call show('a root beyond the last rank')
   call MPI_Ibcast(numbers, n, MPI_INTEGER, -1, MPI_COMM_WORLD, request, error)
   call show('a negative root')
   call MPI_Iallreduce(numbers, numbers, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, error)
   call show('one buffer')
   call MPI_Allreduce(numbers, sums, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
   if (rank == 0 .and. all(sums == nranks)) print '(a)', 'cases 5'
   call MPI_Finalize(error)

contains

   subroutine show(what)
      character(*), intent(in) :: what
      integer :: class, ignored

      call MPI_Error_class(error, class, ignored)
      if (rank == 0) print '(a, a, i0)', what, ': ', class
   end subroutine show
end program fortran_arguments
