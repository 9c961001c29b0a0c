// One sender and one receiver of a pipe or of a socket with a CPU each: how long a message takes, and how often each of them sleeps. Before
// each run a cache line goes back and forth between the two CPUs, which tells how far apart they are: a virtual CPU does not stay on one core.
//   cc -O2 -pthread pair.c -o pair && chrt -f 50 ./pair pipe|socket MESSAGES BYTES RUNS
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HOPS = 40000 };
static int ends[2], cpus[2], bytes;
static long messages, slept[2];
static _Alignas(128) atomic_int turn;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}
static void bind_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) abort();
}
static long sleeps(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}
static void *writer(void *unused) {
    char data[65536] = {0};
    bind_to(cpus[0]);
    long before = sleeps();
    for (long i = 0; i < messages; i++)
        if (write(ends[1], data, bytes) != bytes) abort();
    slept[0] = sleeps() - before;
    return unused;
}
static void *reader(void *unused) {
    char data[65536];
    bind_to(cpus[1]);
    long before = sleeps();
    for (long i = 0; i < messages; i++)
        for (int got = 0; got < bytes;) {
            int more = read(ends[0], data + got, bytes - got);
            if (more <= 0) abort();
            got += more;
        }
    slept[1] = sleeps() - before;
    return unused;
}
static void *hop(void *second) {
    int first = second != 0;
    bind_to(cpus[first]);
    for (int i = first; i < HOPS; i += 2) {
        int expected = i;
        while (!atomic_compare_exchange_weak(&turn, &expected, i + 1)) expected = i;
    }
    return 0;
}
static double both(void *(*one)(void *), void *(*other)(void *)) {
    pthread_t a, b;
    double start = now();
    pthread_create(&a, 0, one, 0);
    pthread_create(&b, 0, other, &turn);
    pthread_join(a, 0);
    pthread_join(b, 0);
    return now() - start;
}
int main(int count, char **words) {
    if (count != 5) return 2;
    messages = atol(words[2]);
    bytes = atoi(words[3]);
    for (int run = 0; run < atoi(words[4]); run++) {
        if (words[1][0] == 's' ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) abort();
        cpus[0] = run & 1;
        cpus[1] = !cpus[0];
        atomic_store(&turn, 0);
        double line = both(hop, hop) / HOPS;
        double took = both(reader, writer) / messages;
        printf("%s %d bytes, a line takes %.0f ns: %.0f ns a message, writer slept %.2f, reader %.2f times per 1000 messages\n",
               words[1], bytes, line, took, 1000.0 * slept[0] / messages, 1000.0 * slept[1] / messages);
        close(ends[0]);
        close(ends[1]);
    }
}
