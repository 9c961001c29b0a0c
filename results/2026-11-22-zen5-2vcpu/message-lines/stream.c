// What a stream of messages costs with the two ends on two CPUs: one thread writes 100 bytes 100,000 times, another reads them. Before each
// stream a line goes back and forth between the two, which tells how far apart their cores are. Prints that, the time per message, and how
// often each side slept.
//   cc -O2 -pthread stream.c -o stream && ./stream pipe|socket
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGES = 100000, BYTES = 100, STREAMS = 40, HOPS = 20000 };
static int ends[2];
static _Alignas(128) atomic_int turn;
static _Alignas(128) atomic_int gate;
static long receiver_waits[STREAMS];

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) { perror("sched_setaffinity"); exit(1); }
}
static double now_ns(void) { struct timespec now; clock_gettime(CLOCK_MONOTONIC, &now); return now.tv_sec * 1e9 + now.tv_nsec; }
static long waits(void) { struct rusage usage; getrusage(RUSAGE_THREAD, &usage); return usage.ru_nvcsw; }
static void meet(int count) { atomic_fetch_add(&gate, 1); while (atomic_load(&gate) < count) ; }
static double hop_ns(int side) {
    double start = now_ns();
    for (int i = 0; i < HOPS; i++) {
        int expected;
        do expected = 2 * i + side; while (!atomic_compare_exchange_weak(&turn, &expected, 2 * i + side + 1));
    }
    while (atomic_load(&turn) < 2 * HOPS) ;
    return (now_ns() - start) / (2 * HOPS);
}
static void *receiver(void *unused) {
    char data[BYTES];
    pin(1);
    for (int k = 0; k < STREAMS; k++) {
        meet(4 * k + 2);
        hop_ns(1);
        meet(4 * k + 4);
        long before = waits();
        for (long left = (long)MESSAGES * BYTES; left > 0; ) {
            long got = read(ends[0], data, BYTES);
            if (got <= 0) { perror("read"); exit(1); }
            left -= got;
        }
        receiver_waits[k] = waits() - before;
    }
    meet(4 * STREAMS + 2);
    return unused;
}
int main(int count, char **words) {
    char data[BYTES] = {0};
    double hops[STREAMS], starts[STREAMS], times[STREAMS];
    long sender_waits[STREAMS];
    int socket = count > 1 && !strcmp(words[1], "socket");
    if (socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) { perror("channel"); return 1; }
    pthread_t other;
    pthread_create(&other, 0, receiver, 0);
    pin(0);
    for (int k = 0; k < STREAMS; k++) {
        meet(4 * k + 2);
        if (k > 0) times[k - 1] = (now_ns() - starts[k - 1]) / MESSAGES;
        atomic_store(&turn, 0);
        hops[k] = hop_ns(0);
        meet(4 * k + 4);
        long before = waits();
        starts[k] = now_ns();
        for (long i = 0; i < MESSAGES; i++)
            if (write(ends[1], data, BYTES) != BYTES) { perror("write"); return 1; }
        sender_waits[k] = waits() - before;
    }
    meet(4 * STREAMS + 2);
    times[STREAMS - 1] = (now_ns() - starts[STREAMS - 1]) / MESSAGES;
    pthread_join(other, 0);
    for (int k = 0; k < STREAMS; k++)
        printf("%s: a line %.0f ns, a message %.0f ns, the sender slept %ld times, the receiver %ld\n",
               socket ? "socket" : "pipe", hops[k], times[k], sender_waits[k], receiver_waits[k]);
    return 0;
}
