/* An MPI program of four processes; run by `benchmarks.processes_truth` under mpirun.
 *
 * A step computes for about 10 ms and waits for 70 ms, which stands for a device, in ranges of NVTX. Without a profiler, blocks of
 * steps with and without the cause alternate in random order until the gain is known well enough.
 *
 * Arguments: cause, culprit, output, seed, steps, unmeasured, least, most, record, warm-up; with `record` above 0 the blocks are left
 * out, and the steps after the warm-up are those of the recording.
 */
#include <fcntl.h>
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nvtx3/nvToolsExt.h"

enum { VALUES = 1 << 18, CHECKPOINT_BYTES = 4 << 20, MOST_STEPS = 1000, MOST_PAIRS = 100 };
static const double ERROR_SHARE = 0.1;
static const double WORK_S = 0.004, FORWARD_S = 0.03, BACKWARD_S = 0.04, CAUSE_S = 0.025;

static const char *cause;
static int rank, mine, on;
static float gradient[VALUES], sums[VALUES];
static volatile double sink;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, asking = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER;
static int wanted;

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

static void wait_for(double duration) {
    struct timespec time = {(time_t)duration, (long)(1e9 * (duration - (time_t)duration))};
    nanosleep(&time, NULL);
}

/* Open MPI calls it again and again while it waits (`mpi_yield_when_idle`). Ranks that wait would otherwise take all CPU from the one
 * that they wait for, and a step would take twice as long without any cause. */
int sched_yield(void) {
    wait_for(5e-5);
    return 0;
}

/* A fixed amount of arithmetic, of about `WORK_S` on one core. */
static long turns_of_work;

static void turns(long count) {
    double sum = sink;
    for (long at = 0; at < count; at++) sum = 0.5 * sum + at;
    sink = sum;
}

static int is(const char *name) { return strcmp(cause, name) == 0; }
static int hit(const char *name) { return on && mine && is(name); }

static void *hold(void *unused) {
    for (;;) {
        pthread_mutex_lock(&asking);
        while (!wanted) pthread_cond_wait(&asked, &asking);
        wanted = 0;
        pthread_mutex_unlock(&asking);
        pthread_mutex_lock(&held);
        wait_for(CAUSE_S);
        pthread_mutex_unlock(&held);
    }
    return unused;
}

static void write_text(const char *file, const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("TRUTH_GROUP"), file);
    FILE *opened = fopen(path, "w");
    if (opened == NULL || fputs(text, opened) < 0 || fclose(opened) != 0) {
        fprintf(stderr, "%s cannot be written\n", path);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static void plant(int planted) {
    on = planted;
    if (mine && is("slow-rank")) {
        write_text("cpu.cfs_period_us", "10000");
        write_text("cpu.cfs_quota_us", on ? "1000" : "-1");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void compute(double longer) { turns((long)(turns_of_work * longer)); }

static void checkpoint(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/checkpoint", getenv("TRUTH_DISK"));
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (size_t done = 0; done < CHECKPOINT_BYTES; done += sizeof gradient)
        if (write(file, gradient, sizeof gradient) != sizeof gradient) MPI_Abort(MPI_COMM_WORLD, 3);
    fsync(file);
    close(file);
}

static void step(int number) {
    char name[32];
    double longer = hit("uneven-batches") ? 1.5 : 1.0;
    snprintf(name, sizeof name, "step %d", number);
    nvtxRangePushA(name);
    if (hit("lock")) {
        pthread_mutex_lock(&asking);
        wanted = 1;
        pthread_cond_signal(&asked);
        pthread_mutex_unlock(&asking);
        wait_for(0.001);
    }
    nvtxRangePushA("forward");
    pthread_mutex_lock(&held);
    compute(longer);
    wait_for(FORWARD_S * longer);
    pthread_mutex_unlock(&held);
    nvtxRangePop();
    nvtxRangePushA("backward");
    compute(longer);
    wait_for(BACKWARD_S * longer);
    nvtxRangePop();
    MPI_Allreduce(gradient, sums, VALUES, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (hit("checkpoint")) {
        nvtxRangePushA("checkpoint");
        checkpoint();
        nvtxRangePop();
    }
    if (hit("late-barrier")) {
        nvtxRangePushA("prepare");
        wait_for(CAUSE_S);
        nvtxRangePop();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    nvtxRangePop();
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median step of a block, in ns. */
static double block(int planted, int unmeasured, int steps, int *number) {
    static double times[MOST_STEPS];
    plant(planted);
    for (int place = 0; place < unmeasured + steps; place++) {
        double began = seconds(CLOCK_MONOTONIC);
        step((*number)++);
        if (place >= unmeasured) times[place - unmeasured] = 1e9 * (seconds(CLOCK_MONOTONIC) - began);
    }
    qsort(times, steps, sizeof *times, ascending);
    return (times[(steps - 1) / 2] + times[steps / 2]) / 2;
}

static int enough(const double *gains, int count, int least, int most) {
    double mean = 0, squares = 0;
    if (count < least) return 0;
    if (count >= most) return 1;
    for (int at = 0; at < count; at++) mean += gains[at] / count;
    for (int at = 0; at < count; at++) squares += (gains[at] - mean) * (gains[at] - mean);
    return sqrt(squares / (count - 1) / count) <= ERROR_SHARE * fabs(mean);
}

static void list(FILE *file, const char *name, const double *values, int count) {
    fprintf(file, "\"%s\": [", name);
    for (int at = 0; at < count; at++) fprintf(file, "%s%.0f", at ? ", " : "", values[at]);
    fprintf(file, "], ");
}

int main(int count, char **values) {
    static double found[2][MOST_PAIRS], gains[MOST_PAIRS];
    int numbers[7], number = 0, provided;
    MPI_Init_thread(&count, &values, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (count != 11) MPI_Abort(MPI_COMM_WORLD, 2);
    cause = values[1];
    mine = rank == atoi(values[2]);
    for (int at = 0; at < 7; at++) numbers[at] = atoi(values[4 + at]);
    int seed = numbers[0], steps = numbers[1], unmeasured = numbers[2], least = numbers[3], most = numbers[4];
    int record = numbers[5], warmup = numbers[6];
    if (steps > MOST_STEPS || most > MOST_PAIRS) MPI_Abort(MPI_COMM_WORLD, 2);
    /* as much as takes `WORK_S` of CPU time on rank 0 */
    double began = seconds(CLOCK_PROCESS_CPUTIME_ID);
    turns(10000000);
    turns_of_work = (long)(10000000 * WORK_S / (seconds(CLOCK_PROCESS_CPUTIME_ID) - began));
    MPI_Bcast(&turns_of_work, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    if (mine && is("lock")) {
        pthread_t thread;
        pthread_create(&thread, NULL, hold, NULL);
    }
    if (record > 0) {
        plant(1);
        for (number = 0; number < warmup + record; number++) step(number);
        plant(0);
        MPI_Finalize();
        return 0;
    }
    srand(seed);
    int pairs = 0;
    double cpu = 0;
    while (!enough(gains, pairs, least, most)) {
        int first = rand() % 2;
        for (int turn = 0; turn < 2; turn++) {
            int planted = turn == 0 ? first : !first;
            double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
            found[planted][pairs] = block(planted, unmeasured, steps, &number);
            if (!planted) cpu = fmax(cpu, (seconds(CLOCK_PROCESS_CPUTIME_ID) - before) / (unmeasured + steps));
        }
        gains[pairs] = found[1][pairs] - found[0][pairs];
        MPI_Bcast(&gains[pairs], 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        pairs++;
    }
    plant(0);
    if (rank == 0) {
        FILE *file = fopen(values[3], "w");
        fprintf(file, "{");
        list(file, "with_ns", found[1], pairs);
        list(file, "without_ns", found[0], pairs);
        fprintf(file, "\"cpu_ns_per_step\": %.0f}\n", 1e9 * cpu);
        fclose(file);
    }
    MPI_Finalize();
    return 0;
}
