// One sender and one receiver of a pipe or of a socket with a CPU each: in which order their calls end. Before each run a cache line goes back and forth
// between the two CPUs, which tells how far apart they are: a virtual CPU does not stay on one core. Each call is between two readings of the time
// stamp counter; a call of more than 3 microseconds (a sleep, a wakeup of a sleeper, an interrupt) and the one after it do not count for the order, nor do those
// with fewer than 4 messages on their way.
//   cc -O2 -pthread order.c -o order && chrt -f 50 ./order pipe|socket MESSAGES BYTES RUNS
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { HOPS = 40000, LONG_NS = 3000 };
static int ends[2], bytes;
static long messages, slept[2];
static uint64_t *stamps[2];
static _Alignas(128) atomic_int turn, ready;

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
static void *side(void *second) {
    int me = second != 0;
    char data[65536] = {0};
    bind_to(me);
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < 2) _mm_pause();
    long before = sleeps();
    for (long i = 0; i < messages; i++) {
        stamps[me][2 * i] = __rdtsc();
        if ((me ? read(ends[0], data, bytes) : write(ends[1], data, bytes)) != bytes) abort();
        stamps[me][2 * i + 1] = __rdtsc();
    }
    slept[me] = sleeps() - before;
    return 0;
}
static void *hop(void *second) {
    int first = second != 0;
    bind_to(first);
    for (int i = first; i < HOPS; i += 2) {
        int expected = i;
        while (!atomic_compare_exchange_weak(&turn, &expected, i + 1)) expected = i;
    }
    return 0;
}
static double both(void *(*work)(void *)) {
    pthread_t a, b;
    double start = now();
    pthread_create(&a, 0, work, 0);
    pthread_create(&b, 0, work, &turn);
    pthread_join(a, 0);
    pthread_join(b, 0);
    return now() - start;
}
int main(int count, char **words) {
    if (count != 5) return 2;
    messages = atol(words[2]);
    bytes = atoi(words[3]);
    for (int me = 0; me < 2; me++) {
        stamps[me] = malloc(16 * messages);
        for (long i = 0; i < 2 * messages; i++) stamps[me][i] = 1;
    }
    for (int run = 0; run < atoi(words[4]); run++) {
        if (words[1][0] == 's' ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) abort();
        atomic_store(&turn, 0);
        atomic_store(&ready, 0);
        double line = both(hop) / HOPS, start = now();
        uint64_t tick = __rdtsc();
        double took = both(side);
        double per_ns = (__rdtsc() - tick) / (now() - start);
        long at[2] = {0, 0}, last = -1, again[2] = {0, 0}, calls[2] = {0, 0};
        double time[2] = {0, 0};
        while (at[0] < messages || at[1] < messages) {
            int me = at[0] == messages || (at[1] < messages && stamps[1][2 * at[1] + 1] < stamps[0][2 * at[0] + 1]);
            double ns = (stamps[me][2 * at[me] + 1] - stamps[me][2 * at[me]]) / per_ns;
            long way = at[0] - at[1];
            int is_long = ns > LONG_NS;
            if (!is_long && last >= 0 && way >= 4 && at[0] < messages) {
                calls[last]++;
                again[last] += me == last;
                time[me] += ns;
            }
            last = is_long ? -1 : me;
            at[me]++;
        }
        printf("%s %d bytes, a line takes %.0f ns: %.0f ns a message, calls %.0f and %.0f, again %.4f and %.4f, slept %.2f and %.2f per 1000\n", words[1],
               bytes, line, took / messages, time[0] / calls[1], time[1] / calls[0], (double)again[0] / calls[0],
               (double)again[1] / calls[1], 1000.0 * slept[0] / messages, 1000.0 * slept[1] / messages);
        close(ends[0]);
        close(ends[1]);
    }
}
