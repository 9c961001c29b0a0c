// What a channel's write costs when another core wrote to the channel last: as ../../2026-11-22-zen4-2vcpu/message-lines/transfers.c, but
// with a third argument the second thread writes too (column "write"), and the first, whose write is the column "read", reads both messages.
//   cc -O2 -pthread writers.c -o writers && ./writers pipe|socket [w]
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { ROUNDS = 400000, BYTES = 100, HOPS = 4, TURNS = 2 * HOPS + 2 };
static int ends[2];
static _Alignas(128) atomic_int turn;
static unsigned writes[ROUNDS], reads[ROUNDS], hops[ROUNDS];
static double ghz;
static int shared;

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) { perror("sched_setaffinity"); exit(1); }
}
static inline unsigned long now(void) { unsigned aux; return __rdtscp(&aux); }
static void give(int number) { atomic_store_explicit(&turn, number, memory_order_release); }
static void wait_for(int number) { while (atomic_load_explicit(&turn, memory_order_acquire) != number) ; }
// One hop of the line as core-to-core tables have it: each side tries to exchange the value until it is its turn.
static void swap_when(int number) {
    int expected = number;
    while (!atomic_compare_exchange_weak_explicit(&turn, &expected, number + 1, memory_order_acq_rel, memory_order_relaxed)) expected = number;
}
static void put(int i) {
    char data[BYTES] = {0};
    unsigned long start = now();
    if (write(ends[1], data, BYTES) != BYTES) { perror("write"); exit(1); }
    writes[i] = now() - start;
}
static void get(int i) {
    char data[BYTES];
    unsigned long start = now();
    if (read(ends[0], data, BYTES) != BYTES) { perror("read"); exit(1); }
    reads[i] = now() - start;
}
static void *reader(void *unused) {
    pin(1);
    for (int i = 0; i < ROUNDS; i++) {
        for (int hop = 0; hop < HOPS; hop++) {
            swap_when(i * TURNS + 2 * hop + 1);
        }
        wait_for(i * TURNS + 2 * HOPS + 1);
        if (shared) { put(i); } else { get(i); }
        give(i * TURNS + 2 * HOPS + 2);
    }
    return unused;
}
static int by_size(const void *a, const void *b) { return *(const unsigned *)a < *(const unsigned *)b ? -1 : 1; }
static double median(unsigned *times, int count) {
    qsort(times, count, sizeof *times, by_size);
    return times[count / 2] / ghz;
}
static unsigned some_writes[ROUNDS], some_reads[ROUNDS], some_hops[ROUNDS];
int main(int count, char **words) {
    shared = count > 2;
    int socket = count > 1 && !strcmp(words[1], "socket");
    if (socket) { int pair[2]; if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1; ends[0] = pair[0]; ends[1] = pair[1]; }
    else if (pipe(ends)) return 1;
    pin(0);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    unsigned long first = now();
    do clock_gettime(CLOCK_MONOTONIC, &b); while ((b.tv_sec - a.tv_sec) * 1e9 + b.tv_nsec - a.tv_nsec < 2e8);
    ghz = (now() - first) / ((b.tv_sec - a.tv_sec) * 1e9 + b.tv_nsec - a.tv_nsec);
    for (int i = 0; i < ROUNDS; i++) { put(i); get(i); }
    double write_alone = median(writes, ROUNDS), read_alone = median(reads, ROUNDS);
    printf("%s, time stamp counter %.3f GHz; in one thread: write %.0f ns, read %.0f ns\n", socket ? "socket" : "pipe", ghz, write_alone, read_alone);
    pthread_t other;
    pin(1);
    pthread_create(&other, 0, reader, 0);
    pin(0);
    for (int i = 0; i < ROUNDS; i++) {
        unsigned long start = now();
        for (int hop = 0; hop < HOPS; hop++) {
            swap_when(i * TURNS + 2 * hop);
        }
        wait_for(i * TURNS + 2 * HOPS);
        hops[i] = (now() - start) / (2 * HOPS);
        put(i);
        unsigned own = writes[i];
        give(i * TURNS + 2 * HOPS + 1);
        wait_for(i * TURNS + 2 * HOPS + 2);
        if (shared) { get(i); get(i); reads[i] = own; }
    }
    pthread_join(other, 0);
    printf("  %8s %8s %8s %8s %8s %8s %8s\n", "rounds", "a line", "write", "read", "longer", "lines", "");
    static const int edges[] = {0, 15, 35, 60, 80, 100, 120, 140, 170, 200, 250, 300, 100000};
    for (unsigned k = 0; k + 1 < sizeof edges / sizeof *edges; k++) {
        int n = 0;
        for (int i = 0; i < ROUNDS; i++)
            if (hops[i] / ghz >= edges[k] && hops[i] / ghz < edges[k + 1]) {
                some_writes[n] = writes[i]; some_reads[n] = reads[i]; some_hops[n] = hops[i]; n++;
            }
        if (n < ROUNDS / 200) continue;
        double line = median(some_hops, n), w = median(some_writes, n), r = median(some_reads, n);
        printf("  %8d %8.0f %8.0f %8.0f %8.0f %8.1f\n", n, line, w, r, w + r - write_alone - read_alone, (w + r - write_alone - read_alone) / line);
    }
    return 0;
}
