/* Calls MPI in a random order that a seed fixes, sleeps before its calls, and writes its own record of every call.
 *
 * calls SEED EACH SLEEP_US RECORD FEATURES: every collective EACH times on each communicator, after a sleep of up to SLEEP_US in half
 * of the cases; the record of rank r is written to RECORD.r.json. FEATURES is a text that holds some of
 *   halves      a second communicator: the ranks of equal parity, numbered downwards, with another order of operations in each half
 *   copy        a third one: a duplicate of the world
 *   nonblocking collectives that only begin, some of them two at a time
 *   messages    sends, receives and exchanges with both neighbours
 *   persistent  messages that are set up once and started again
 *   variants    vector forms, reduce-scatters, scans, data in place, types made of others
 *   mixed       messages and collectives at once, which a rank completes by one of the calls that wait or test
 *   halo        exchanges with both neighbours, some of a line and some of a ring, of the same tags, and an all-reduce
 *   prepared    persistent collectives, where the library has them
 * All ranks draw the same operations from SEED; each draws its own sleeps.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_RANKS = 64, MOST_COUNT = 65536, MOST_CALLS = 65536, MOST_REQUESTS = 4 };

/* One call. Numbers that a call does not have are -1, texts NULL. */
struct call {
  const char *name, *communicator, *type;
  int root, count, receive_count, peer, receive_peer, tag, in_place;
  int requests[MOST_REQUESTS], request_count, sleep_us;
  double begun, ended; /* of MPI_Wtime */
  long long start_ns, end_ns;
};

struct group {
  const char *name;
  MPI_Comm handle;
  int rank, size, members[MOST_RANKS]; /* ranks of the world, by rank of the group */
};

static struct call calls[MOST_CALLS];
static struct call *now;
static int call_count, next_request, world_rank, world_size, slept_us;
static struct group groups[3];
static int group_count;
static double *sent, *received, *also_sent, *also_received, *third;
static int counts[MOST_RANKS], places[MOST_RANKS], bytes_counts[MOST_RANKS], bytes_places[MOST_RANKS];
static MPI_Datatype blocks[MOST_RANKS], pair_type;

static uint64_t mixed(uint64_t *state) { /* splitmix64 */
  uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

static int below(uint64_t *state, int limit) { return (int)(mixed(state) % (uint64_t)limit); }

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static struct call *begin(const char *name) {
  if (call_count == MOST_CALLS) abort();
  now = &calls[call_count++];
  *now = (struct call){.name = name, .root = -1, .count = -1, .receive_count = -1, .peer = -1, .receive_peer = -1, .tag = -1};
  now->sleep_us = slept_us;
  slept_us = 0;
  return now;
}

/* The call and the times around it; what it is called with is written before. */
#define TIMED(call) \
  do { \
    now->start_ns = now_ns(); \
    now->begun = MPI_Wtime(); \
    call; \
    now->ended = MPI_Wtime(); \
    now->end_ns = now_ns(); \
  } while (0)

static int on(const struct group *g, int root, int count, const char *type) {
  now->communicator = g->name, now->root = root, now->count = count, now->type = type;
  return 0;
}

static int request(void) { return now->requests[now->request_count++] = next_request++; }

static void pause_randomly(uint64_t *own, int most_us) {
  if (most_us == 0 || below(own, 2)) return;
  slept_us = below(own, most_us + 1);
  struct timespec t = {0, slept_us * 1000l};
  nanosleep(&t, NULL);
}

static void wait_for(MPI_Request *requests, const int *numbers, int count) {
  begin(count == 1 ? "MPI_Wait" : "MPI_Waitall");
  memcpy(now->requests, numbers, sizeof(int) * (size_t)count), now->request_count = count;
  MPI_Status status[MOST_REQUESTS];
  if (count == 1)
    TIMED(MPI_Wait(requests, status));
  else
    TIMED(MPI_Waitall(count, requests, status));
}

/* One more call that tests or waits for any: it is in the record only if it completed a request. MPI_Test asks for the `first`. */
static int completes(int way, MPI_Request *requests, int count, int first, int *completed) {
  static const char *const names[] = {"MPI_Test", "MPI_Testall", "MPI_Waitany", "MPI_Waitsome", "MPI_Testany", "MPI_Testsome"};
  MPI_Status statuses[MOST_REQUESTS];
  int flag = 1, number = 0;
  begin(names[way]);
  switch (way) {
    case 0:
      completed[0] = first;
      TIMED(MPI_Test(&requests[first], &flag, statuses));
      number = flag;
      break;
    case 1:
      TIMED(MPI_Testall(count, requests, &flag, statuses));
      for (int i = 0; i < count && flag; i++) completed[number++] = i;
      break;
    case 2:
      TIMED(MPI_Waitany(count, requests, &completed[0], statuses));
      number = 1;
      break;
    case 3: TIMED(MPI_Waitsome(count, requests, &number, completed, statuses)); break;
    case 4:
      TIMED(MPI_Testany(count, requests, &completed[0], &flag, statuses));
      number = flag;
      break;
    case 5: TIMED(MPI_Testsome(count, requests, &number, completed, statuses)); break;
  }
  if (!number) call_count--;
  return number;
}

enum { WAYS = 7 };

static void complete(MPI_Request *requests, const int *numbers, int count, int way, uint64_t *own) {
  if (way == 0) {
    wait_for(requests, numbers, count);
    return;
  }
  for (int left = count, completed[MOST_REQUESTS]; left > 0;) {
    int number = completes(way - 1, requests, count, count - left, completed);
    for (int i = 0; i < number; i++) now->requests[now->request_count++] = numbers[completed[i]];
    left -= number;
    struct timespec t = {0, 1000l * (20 + below(own, 200))};
    if (!number) nanosleep(&t, NULL);
  }
}

struct type {
  const char *name;
  MPI_Datatype handle;
};

enum { ALL_REDUCE, BROADCAST, BARRIER, REDUCE, GATHER, SCATTER, ALL_GATHER, ALL_TO_ALL, KINDS };

#define COLLECTIVE(kind, arguments, root, count, ...) \
  do { \
    begin("MPI_" #kind), on(g, root, count, type.name); \
    TIMED(MPI_##kind arguments); \
  } while (0)

static void collective(int kind, const struct group *g, int root, int n, struct type type) {
  MPI_Comm c = g->handle;
  MPI_Datatype t = type.handle;
  switch (kind) {
    case ALL_REDUCE: COLLECTIVE(Allreduce, (sent, received, n, t, MPI_SUM, c), -1, n); break;
    case BROADCAST: COLLECTIVE(Bcast, (sent, n, t, root, c), root, n); break;
    case BARRIER: begin("MPI_Barrier"), on(g, -1, -1, NULL); TIMED(MPI_Barrier(c)); break;
    case REDUCE: COLLECTIVE(Reduce, (sent, received, n, t, MPI_SUM, root, c), root, n); break;
    case GATHER: COLLECTIVE(Gather, (sent, n, t, received, n, t, root, c), root, n); break;
    case SCATTER: COLLECTIVE(Scatter, (sent, n, t, received, n, t, root, c), root, n); break;
    case ALL_GATHER: COLLECTIVE(Allgather, (sent, n, t, received, n, t, c), -1, n); break;
    case ALL_TO_ALL: COLLECTIVE(Alltoall, (sent, n, t, received, n, t, c), -1, n); break;
  }
}

static void started(int kind, const struct group *g, int root, int n, struct type type, int second, MPI_Request *r, int *number) {
  double *from = second ? also_sent : sent, *to = second ? also_received : received;
  MPI_Comm c = g->handle;
  MPI_Datatype t = type.handle;
#define STARTED(function, arguments, root) \
  begin("MPI_" #function), on(g, root, n, type.name), *number = request(); \
  TIMED(MPI_##function arguments)
  switch (kind) {
    case ALL_REDUCE: STARTED(Iallreduce, (from, to, n, t, MPI_SUM, c, r), -1); break;
    case BROADCAST: STARTED(Ibcast, (from, n, t, root, c, r), root); break;
    case BARRIER: begin("MPI_Ibarrier"), on(g, -1, -1, NULL), *number = request(); TIMED(MPI_Ibarrier(c, r)); break;
    case REDUCE: STARTED(Ireduce, (from, to, n, t, MPI_SUM, root, c, r), root); break;
    case GATHER: STARTED(Igather, (from, n, t, to, n, t, root, c, r), root); break;
    case SCATTER: STARTED(Iscatter, (from, n, t, to, n, t, root, c, r), root); break;
    case ALL_GATHER: STARTED(Iallgather, (from, n, t, to, n, t, c, r), -1); break;
    case ALL_TO_ALL: STARTED(Ialltoall, (from, n, t, to, n, t, c, r), -1); break;
  }
}

enum { VARIANTS = 14 };

/* Counts of vector forms: n + rank of the group elements for each member, written as n; the record's reader knows the rule. */
static void variant(int which, const struct group *g, int root, int n, struct type type) {
  MPI_Comm c = g->handle;
  MPI_Datatype t = type.handle;
  int mine = n + g->rank, of[MOST_RANKS], at_root = g->rank == root;
#ifdef MPICH_VERSION
  if (which == 10) at_root = 0; /* MPICH 4.0.2 copies from the address MPI_IN_PLACE */
#endif
  for (int r = 0; r < g->size; r++) counts[r] = n + r, of[r] = mine, places[r] = r * (n + MOST_RANKS);
  switch (which) {
    case 0: COLLECTIVE(Allgatherv, (sent, mine, t, received, counts, places, t, c), -1, mine); break;
    case 1: COLLECTIVE(Gatherv, (sent, mine, t, received, counts, places, t, root, c), root, mine); break;
    case 2: COLLECTIVE(Scatterv, (sent, counts, places, t, received, mine, t, root, c), root, mine); break;
    case 3: COLLECTIVE(Alltoallv, (sent, counts, places, t, received, of, places, t, c), -1, n); break;
    case 4: COLLECTIVE(Reduce_scatter, (sent, received, counts, t, MPI_SUM, c), -1, mine); break;
    case 5: COLLECTIVE(Reduce_scatter_block, (sent, received, n, t, MPI_SUM, c), -1, n); break;
    case 6: COLLECTIVE(Scan, (sent, received, n, t, MPI_SUM, c), -1, n); break;
    case 7: COLLECTIVE(Exscan, (sent, received, n, t, MPI_SUM, c), -1, n); break;
    case 8:
      begin("MPI_Allreduce"), on(g, -1, n, type.name), now->in_place = 1;
      TIMED(MPI_Allreduce(MPI_IN_PLACE, received, n, t, MPI_SUM, c));
      break;
    case 9:
      begin("MPI_Allgather"), on(g, -1, n, type.name), now->in_place = 1;
      TIMED(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, received, n, t, c));
      break;
    case 10:
      begin("MPI_Reduce"), on(g, root, n, type.name), now->in_place = at_root;
      TIMED(MPI_Reduce(at_root ? MPI_IN_PLACE : sent, received, n, t, MPI_SUM, root, c));
      break;
    case 11:
      begin("MPI_Gather"), on(g, root, n, type.name), now->in_place = at_root;
      TIMED(MPI_Gather(at_root ? MPI_IN_PLACE : sent, n, t, received, n, t, root, c));
      break;
    case 12:
      begin("MPI_Bcast"), on(g, root, n, "pair of MPI_DOUBLE");
      TIMED(MPI_Bcast(sent, n, pair_type, root, c));
      break;
    case 13:
      for (int r = 0; r < g->size; r++)
        bytes_counts[r] = n, bytes_places[r] = r * n * 8, blocks[r] = MPI_DOUBLE;
      begin("MPI_Alltoallw"), on(g, -1, n, "MPI_DOUBLE");
      TIMED(MPI_Alltoallw(sent, bytes_counts, bytes_places, blocks, received, bytes_counts, bytes_places, blocks, c));
      break;
  }
}

enum { PAIR, EXCHANGE, SHIFT, ANY_ORDER, MESSAGES };

static void message(int which, const struct group *g, int n, struct type type, int tag, uint64_t *own, int most_us) {
  MPI_Comm c = g->handle;
  MPI_Datatype t = type.handle;
  int to = (g->rank + 1) % g->size, from = (g->rank + g->size - 1) % g->size, numbers[MOST_REQUESTS];
  MPI_Request requests[MOST_REQUESTS];
#define MESSAGE(function, arguments, other, length) \
  do { \
    begin("MPI_" #function), on(g, -1, length, type.name), now->peer = other, now->tag = tag; \
    TIMED(MPI_##function arguments); \
  } while (0)
#define STARTED_MESSAGE(function, buffer, other, length, at) \
  do { \
    begin("MPI_" #function), on(g, -1, length, type.name), now->peer = other, now->tag = tag, numbers[at] = request(); \
    TIMED(MPI_##function(buffer, length, t, other, tag, c, &requests[at])); \
  } while (0)
  if (g->size < 2) return;
  switch (which) {
    case PAIR: /* even ranks send to the next one */
      if (g->rank % 2 == 0 && g->rank + 1 < g->size) MESSAGE(Send, (sent, n, t, to, tag, c), to, n);
      if (g->rank % 2 == 1) MESSAGE(Recv, (received, n, t, from, tag, c, MPI_STATUS_IGNORE), from, n);
      break;
    case EXCHANGE:
      STARTED_MESSAGE(Irecv, received, from, n, 0);
      pause_randomly(own, most_us);
      STARTED_MESSAGE(Isend, sent, to, n, 1);
      pause_randomly(own, most_us);
      wait_for(requests, numbers, 2);
      break;
    case SHIFT:
      begin("MPI_Sendrecv"), on(g, -1, n, type.name), now->peer = to, now->receive_peer = from, now->receive_count = n, now->tag = tag;
      TIMED(MPI_Sendrecv(sent, n, t, to, tag, received, n, t, from, tag, c, MPI_STATUS_IGNORE));
      break;
    case ANY_ORDER: /* a receive that takes more than is sent, from any rank, with its own wait */
      if (g->rank == 0) {
        begin("MPI_Irecv"), on(g, -1, n + 1, type.name), now->peer = -2, now->tag = tag, numbers[0] = request();
        TIMED(MPI_Irecv(received, n + 1, t, MPI_ANY_SOURCE, tag, c, &requests[0]));
        pause_randomly(own, most_us);
        wait_for(requests, numbers, 1);
      }
      if (g->rank == g->size - 1) MESSAGE(Ssend, (sent, n, t, 0, tag, c), 0, n);
      break;
  }
}

static void mixed_at_once(const struct group *g, int root, int n, struct type type, int tag, int order, int synchronous, uint64_t *own,
                          int most_us) {
  MPI_Comm c = g->handle;
  MPI_Datatype t = type.handle;
  int to = (g->rank + 1) % g->size, from = (g->rank + g->size - 1) % g->size, numbers[MOST_REQUESTS];
  MPI_Request requests[MOST_REQUESTS];
  if (g->size < 2) return;
  for (int i = 0; i < 4; i++) {
    switch ((order + i) % 4) {
      case 0: STARTED_MESSAGE(Irecv, also_received, from, n, i); break;
      case 1:
        if (synchronous)
          STARTED_MESSAGE(Issend, also_sent, to, n, i);
        else
          STARTED_MESSAGE(Isend, also_sent, to, n, i);
        break;
      case 2:
        begin("MPI_Iallreduce"), on(g, -1, n, type.name), numbers[i] = request();
        TIMED(MPI_Iallreduce(sent, received, n, t, MPI_SUM, c, &requests[i]));
        break;
      case 3:
        begin("MPI_Ibcast"), on(g, root, n, type.name), numbers[i] = request();
        TIMED(MPI_Ibcast(third, n, t, root, c, &requests[i]));
        break;
    }
    if (i == 1) pause_randomly(own, most_us);
  }
  pause_randomly(own, most_us);
  complete(requests, numbers, 4, below(own, WAYS), own);
}

static void halo(const struct group *g, int n, struct type type, int ring, uint64_t *own, int most_us) {
  enum { ROUNDS = 3, UP = 55, DOWN = 56, NOBODY = -3 };
  MPI_Comm c = g->handle;
  MPI_Datatype t = type.handle;
  int above = g->rank + 1, below_us = g->rank - 1, numbers[MOST_REQUESTS], tag;
  MPI_Request requests[MOST_REQUESTS];
  if (g->size < 2) return;
  above = above < g->size ? above : ring ? 0 : MPI_PROC_NULL, below_us = below_us >= 0 ? below_us : ring ? g->size - 1 : MPI_PROC_NULL;
  for (int i = 0; i < ROUNDS; i++) {
    tag = UP;
    STARTED_MESSAGE(Irecv, received, below_us, n, 0);
    if (below_us == MPI_PROC_NULL) now->peer = NOBODY;
    tag = DOWN;
    STARTED_MESSAGE(Irecv, also_received, above, n, 1);
    if (above == MPI_PROC_NULL) now->peer = NOBODY;
    pause_randomly(own, most_us);
    tag = UP;
    STARTED_MESSAGE(Isend, sent, above, n, 2);
    if (above == MPI_PROC_NULL) now->peer = NOBODY;
    tag = DOWN;
    STARTED_MESSAGE(Isend, also_sent, below_us, n, 3);
    if (below_us == MPI_PROC_NULL) now->peer = NOBODY;
    pause_randomly(own, most_us);
    complete(requests, numbers, 4, below(own, 2) ? 0 : below(own, WAYS), own);
  }
  begin("MPI_Allreduce"), on(g, -1, 1, "MPI_DOUBLE");
  TIMED(MPI_Allreduce(third, received, 1, MPI_DOUBLE, MPI_SUM, c));
}

static void write_record(const char *prefix) {
  char path[4096];
  snprintf(path, sizeof path, "%s.%d.json", prefix, world_rank);
  FILE *out = fopen(path, "w");
  if (!out) perror(path), exit(1);
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(version, &length);
  version[strcspn(version, "\n\t,")] = 0;
  fprintf(out, "{\"rank\": %d, \"size\": %d, \"library\": \"%.60s\",\n\"communicators\": {", world_rank, world_size, version);
  for (int i = 0; i < group_count; i++) {
    fprintf(out, "%s\"%s\": [", i ? ", " : "", groups[i].name);
    for (int r = 0; r < groups[i].size; r++) fprintf(out, "%s%d", r ? ", " : "", groups[i].members[r]);
    fprintf(out, "]");
  }
  fprintf(out, "},\n\"columns\": [\"call\", \"communicator\", \"root\", \"count\", \"type\", \"in_place\", \"peer\", \"receive_peer\", "
               "\"tag\", \"requests\", \"sleep_us\", \"wtime_begun\", \"wtime_ended\", \"start_ns\", \"end_ns\"],\n\"calls\": [");
  for (int i = 0; i < call_count; i++) {
    struct call *c = &calls[i];
    const char *quote = c->communicator ? "\"" : "", *type_quote = c->type ? "\"" : "";
    fprintf(out, "%s\n[\"%s\", %s%s%s, %d, %d, %s%s%s, %d, %d, %d, %d, [", i ? "," : "", c->name, quote,
            c->communicator ? c->communicator : "null", quote, c->root, c->count, type_quote, c->type ? c->type : "null", type_quote,
            c->in_place, c->peer, c->receive_peer, c->tag);
    for (int r = 0; r < c->request_count; r++) fprintf(out, "%s%d", r ? ", " : "", c->requests[r]);
    fprintf(out, "], %d, %.9f, %.9f, %lld, %lld]", c->sleep_us, c->begun, c->ended, c->start_ns, c->end_ns);
  }
  fprintf(out, "\n]}\n");
  if (fclose(out)) perror(path), exit(1);
}

static struct group *add_group(const char *name, MPI_Comm handle) {
  struct group *g = &groups[group_count++];
  MPI_Group mine, all;
  int own[MOST_RANKS];
  *g = (struct group){.name = name, .handle = handle};
  MPI_Comm_rank(handle, &g->rank), MPI_Comm_size(handle, &g->size);
  MPI_Comm_group(handle, &mine), MPI_Comm_group(MPI_COMM_WORLD, &all);
  for (int r = 0; r < g->size; r++) own[r] = r;
  MPI_Group_translate_ranks(mine, g->size, own, all, g->members);
  MPI_Group_free(&mine), MPI_Group_free(&all);
  return g;
}

/* What the entries of a program are; a number below KINDS * EACH of each communicator is a collective. */
struct entry {
  int what, which, group;
};
enum { BLOCKING, NONBLOCKING, MESSAGE, PERSISTENT, VARIANT, MIXED, HALO, PREPARED };

int main(int argc, char **argv) {
  if (argc != 6) return fprintf(stderr, "usage: calls SEED EACH SLEEP_US RECORD FEATURES\n"), 2;
  uint64_t shared = strtoull(argv[1], NULL, 10), own;
  int each = atoi(argv[2]), most_us = atoi(argv[3]);
  const char *features = argv[5];
  begin("MPI_Init");
  MPI_Init(&argc, &argv); /* the clock of MPI_Wtime does not run before */
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  own = shared * 1000003u + (uint64_t)world_rank + 1;
  size_t most = (size_t)(MOST_COUNT + MOST_RANKS) * sizeof(double) * 2 * (size_t)(world_size > 2 ? world_size : 2);
  sent = calloc(1, most), received = calloc(1, most), also_sent = calloc(1, most), also_received = calloc(1, most), third = calloc(1, most);
  if (!sent || !received || !also_sent || !also_received || !third || world_size > MOST_RANKS) return fprintf(stderr, "too many ranks\n"), 1;
  add_group("world", MPI_COMM_WORLD);
  MPI_Comm handle;
  if (strstr(features, "halves")) {
    begin("MPI_Comm_split");
    TIMED(MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, -world_rank, &handle));
    add_group(world_rank % 2 ? "odd" : "even", handle);
  }
  if (strstr(features, "copy")) {
    begin("MPI_Comm_dup");
    TIMED(MPI_Comm_dup(MPI_COMM_WORLD, &handle));
    add_group("copy", handle);
  }
  MPI_Type_contiguous(2, MPI_DOUBLE, &pair_type), MPI_Type_commit(&pair_type);

  static struct entry entries[MOST_CALLS / 8];
  int count = 0;
  for (int i = 0; i < each; i++)
    for (int g = 0; g < group_count; g++) {
      for (int k = 0; k < KINDS; k++) entries[count++] = (struct entry){BLOCKING, k, g};
      for (int k = 0; k < KINDS && strstr(features, "nonblocking"); k++) entries[count++] = (struct entry){NONBLOCKING, k, g};
      for (int k = 0; k < MESSAGES && strstr(features, "messages"); k++) entries[count++] = (struct entry){MESSAGE, k, g};
      for (int k = 0; k < VARIANTS && strstr(features, "variants"); k++) entries[count++] = (struct entry){VARIANT, k, g};
      for (int k = 0; k < 4 && strstr(features, "mixed"); k++) entries[count++] = (struct entry){MIXED, k, g};
      for (int k = 0; k < 2 && strstr(features, "halo"); k++) entries[count++] = (struct entry){HALO, k, g};
      if (strstr(features, "prepared")) entries[count++] = (struct entry){PREPARED, 0, g};
      if (strstr(features, "persistent")) entries[count++] = (struct entry){PERSISTENT, 0, g};
    }
  for (int i = count - 1; i > 0; i--) {
    int j = below(&shared, i + 1);
    struct entry other = entries[i];
    entries[i] = entries[j], entries[j] = other;
  }

  const struct type types[] = {{"MPI_DOUBLE", MPI_DOUBLE}, {"MPI_FLOAT", MPI_FLOAT}, {"MPI_INT", MPI_INT}, {"MPI_CHAR", MPI_CHAR}};
  enum { ALWAYS_TAG = 77, ALWAYS_COUNT = 500 };
  MPI_Request always[3][2];
  int always_numbers[3][2];
  for (int i = 0; i < group_count && strstr(features, "persistent"); i++) {
    struct group *g = &groups[i];
    int to = (g->rank + 1) % g->size, from = (g->rank + g->size - 1) % g->size;
    begin("MPI_Send_init"), on(g, -1, ALWAYS_COUNT, "MPI_DOUBLE"), now->peer = to, now->tag = ALWAYS_TAG;
    always_numbers[i][0] = request();
    TIMED(MPI_Send_init(sent, ALWAYS_COUNT, MPI_DOUBLE, to, ALWAYS_TAG, g->handle, &always[i][0]));
    begin("MPI_Recv_init"), on(g, -1, ALWAYS_COUNT, "MPI_DOUBLE"), now->peer = from, now->tag = ALWAYS_TAG;
    always_numbers[i][1] = request();
    TIMED(MPI_Recv_init(received, ALWAYS_COUNT, MPI_DOUBLE, from, ALWAYS_TAG, g->handle, &always[i][1]));
  }
#if MPI_VERSION >= 4
  MPI_Request prepared[3];
  int prepared_numbers[3];
  for (int i = 0; i < group_count && strstr(features, "prepared"); i++) {
    begin("MPI_Allreduce_init"), on(&groups[i], -1, ALWAYS_COUNT, "MPI_DOUBLE"), prepared_numbers[i] = request();
    TIMED(MPI_Allreduce_init(sent, received, ALWAYS_COUNT, MPI_DOUBLE, MPI_SUM, groups[i].handle, MPI_INFO_NULL, &prepared[i]));
  }
#endif
  begin("MPI_Barrier"), on(&groups[0], -1, -1, NULL);
  TIMED(MPI_Barrier(MPI_COMM_WORLD));

  for (int i = 0; i < count; i++) {
    struct entry e = entries[i];
    const struct group *g = &groups[e.group];
    int parity = e.group == 1 && !strcmp(g->name, "odd"); /* the halves do different things at the same time */
    uint64_t drawn = mixed(&shared) + (uint64_t)parity;
    int length = 1 << below(&drawn, 17), n = length / 2 + below(&drawn, length - length / 2) + 1;
    struct type type = types[below(&drawn, 4)];
    int root = below(&drawn, g->size), tag = 100 + i;
    int kind = parity ? (e.which + 3) % KINDS : e.which;
    MPI_Request requests[MOST_REQUESTS];
    int numbers[MOST_REQUESTS], pending = 1;
    pause_randomly(&own, most_us);
    switch (e.what) {
      case BLOCKING: collective(kind, g, root, n, type); break;
      case VARIANT: variant(e.which, g, root, n < MOST_COUNT / 2 ? n : MOST_COUNT / 2, type); break;
      case MESSAGE: message(e.which, g, n, type, tag, &own, most_us); break;
      case MIXED: mixed_at_once(g, root, n, type, tag, below(&drawn, 4), e.which % 2, &own, most_us); break;
      case HALO: halo(g, n, type, e.which, &own, most_us); break;
      case PREPARED:
#if MPI_VERSION >= 4
        begin("MPI_Start"), now->request_count = 1, now->requests[0] = prepared_numbers[e.group];
        TIMED(MPI_Start(&prepared[e.group]));
        pause_randomly(&own, most_us);
        wait_for(&prepared[e.group], &prepared_numbers[e.group], 1);
#endif
        break;
      case NONBLOCKING:
        started(kind, g, root, n, type, 0, &requests[0], &numbers[0]);
        if (below(&drawn, 3) == 0) {
          pause_randomly(&own, most_us);
          started((kind + 1) % KINDS, g, root, n, type, 1, &requests[pending], &numbers[pending]);
          pending++;
        }
        pause_randomly(&own, most_us);
        wait_for(requests, numbers, pending);
        break;
      case PERSISTENT:
        if (below(&drawn, 2)) {
          begin("MPI_Startall"), now->request_count = 2;
          memcpy(now->requests, always_numbers[e.group], 2 * sizeof(int));
          TIMED(MPI_Startall(2, always[e.group]));
        } else
          for (int k = 0; k < 2; k++) {
            begin("MPI_Start"), now->request_count = 1, now->requests[0] = always_numbers[e.group][k];
            TIMED(MPI_Start(&always[e.group][k]));
          }
        pause_randomly(&own, most_us);
        complete(always[e.group], always_numbers[e.group], 2, strstr(features, "mixed") ? below(&own, WAYS) : 0, &own);
        break;
    }
  }
  begin("MPI_Barrier"), on(&groups[0], -1, -1, NULL);
  TIMED(MPI_Barrier(MPI_COMM_WORLD));
  write_record(argv[4]);
  MPI_Type_free(&pair_type);
  MPI_Finalize();
  return 0;
}
