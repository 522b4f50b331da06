/* A ring of messages and an all-reduce in each step, in ranges; the last rank works three times as long. */
#include <mpi.h>
#include <nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double work(int milliseconds) {
  struct timespec begin, now;
  double sum = 0;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    for (int i = 0; i < 1000; i++) sum += i * 0.5;
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - begin.tv_sec) * 1e3 + (now.tv_nsec - begin.tv_nsec) / 1e6 < milliseconds);
  return sum;
}

int main(int argc, char **argv) {
  enum { COUNT = 4096 };
  static double sent[COUNT], received[COUNT];
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int step = 0; step < 12; step++) {
    char name[32];
    MPI_Request requests[2];
    snprintf(name, sizeof name, "step %d", step);
    nvtxRangePushA(name);
    nvtxRangePushA("work");
    sent[0] = work(rank == size - 1 ? 6 : 2);
    nvtxRangePop();
    nvtxRangePushA("exchange");
    MPI_Irecv(received, COUNT, MPI_DOUBLE, (rank + size - 1) % size, step, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(sent, COUNT, MPI_DOUBLE, (rank + 1) % size, step, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Allreduce(sent, received, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (step % 4 == 0) MPI_Bcast(sent, 100, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    nvtxRangePop();
    usleep(200);
    nvtxRangePop();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  printf("%g\n", received[0]);
  return 0;
}
