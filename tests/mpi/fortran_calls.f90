! SPDX-License-Identifier: BSD-3-Clause
! An MPI program in Fortran 90 that knows nothing of Fanin: the collectives that the library to preload takes over, in place and
! not, with checks of its own. Rank 0 prints "cases N" if all is right.
program fortran_calls
   use mpi
   implicit none
   integer, parameter :: n = 3000
   integer :: rank, nranks, error, i, wrong, all_wrong, request
   integer :: numbers(n), sums(n)
   double precision :: reals(n), all_reals(n)
   logical :: flags(n), all_flags(n)
   complex :: pairs(n), all_pairs(n)
   integer, allocatable :: parts(:), blocks(:)

   call MPI_Init(error)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
   call MPI_Comm_size(MPI_COMM_WORLD, nranks, error)
   allocate (parts(n * nranks), blocks(n * nranks))
   wrong = 0

   numbers = [(i + rank, i=1, n)]
   call MPI_Allreduce(numbers, sums, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
   wrong = wrong + count(sums /= [(nranks * i + nranks * (nranks - 1) / 2, i=1, n)])
   call MPI_Allreduce(MPI_IN_PLACE, numbers, n, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
   wrong = wrong + count(numbers /= [(i + nranks - 1, i=1, n)])

   reals = [(0.5d0 * i * (rank + 1), i=1, n)]
   if (rank == 1) then
      call MPI_Reduce(MPI_IN_PLACE, reals, n, MPI_DOUBLE_PRECISION, MPI_SUM, 1, MPI_COMM_WORLD, error)
      wrong = wrong + count(reals /= [(0.5d0 * i * (nranks * (nranks + 1) / 2), i=1, n)])
   else
      call MPI_Reduce(reals, all_reals, n, MPI_DOUBLE_PRECISION, MPI_SUM, 1, MPI_COMM_WORLD, error)
   end if

   flags = [(mod(i, nranks) == rank, i=1, n)]
   call MPI_Allreduce(flags, all_flags, n, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, error)
   wrong = wrong + count(.not. all_flags)
   call MPI_Allreduce(MPI_IN_PLACE, flags, n, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, error)
   if (nranks > 1) wrong = wrong + count(flags)

   pairs = [(cmplx(i, rank), i=1, n)]
   call MPI_Allreduce(pairs, all_pairs, n, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, error)
   wrong = wrong + count(all_pairs /= [(cmplx(i * nranks, nranks * (nranks - 1) / 2), i=1, n)])

   numbers = -1
   if (rank == 2) numbers = [(3 * i, i=1, n)]
   call MPI_Bcast(numbers, n, MPI_INTEGER, 2, MPI_COMM_WORLD, error)
   wrong = wrong + count(numbers /= [(3 * i, i=1, n)])

   numbers = [(i + 1000 * rank, i=1, n)]
   parts = -1
   call MPI_Allgather(numbers, n, MPI_INTEGER, parts, n, MPI_INTEGER, MPI_COMM_WORLD, error)
   wrong = wrong + count(parts /= [(mod(i, n) + 1 + 1000 * (i / n), i=0, n * nranks - 1)])
   parts = -1
   parts(n * rank + 1:n * (rank + 1)) = numbers
   call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, parts, n, MPI_INTEGER, MPI_COMM_WORLD, error)
   wrong = wrong + count(parts /= [(mod(i, n) + 1 + 1000 * (i / n), i=0, n * nranks - 1)])

   blocks = [(i, i=1, n * nranks)]
   call MPI_Reduce_scatter_block(blocks, sums, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
   wrong = wrong + count(sums /= [(nranks * (i + n * rank), i=1, n)])
   call MPI_Reduce_scatter_block(MPI_IN_PLACE, blocks, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
   wrong = wrong + count(blocks(1:n) /= [(nranks * (i + n * rank), i=1, n)])

   numbers = rank
   call MPI_Iallreduce(MPI_IN_PLACE, numbers, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, error)
   call MPI_Wait(request, MPI_STATUS_IGNORE, error)
   wrong = wrong + count(numbers /= nranks * (nranks - 1) / 2)

   call MPI_Barrier(MPI_COMM_WORLD, error)
   call MPI_Allreduce(wrong, all_wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
   if (rank == 0) then
      if (all_wrong == 0) then
         print '(a)', 'cases 13'
      else
         print '(a, i0)', 'wrong elements: ', all_wrong
      end if
   end if
   call MPI_Finalize(error)
end program fortran_calls
