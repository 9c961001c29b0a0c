// What a pipe's write and read of one message take apart, in one thread: so many messages are written, then as many are read, in turn. Medians
// of 4000 rounds, with the tenth and the ninetieth percentile.
//   cc -O2 batch.c -o batch && chrt -f 50 taskset -c 0 ./batch 100
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 4000 };
static const int sizes[] = {1, 2, 4, 10, 40, 100, 400, 640};
static double writes[ROUNDS], reads[ROUNDS];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}
static int order(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}
int main(int count, char **words) {
    int bytes = count > 1 ? atoi(words[1]) : 100, ends[2];
    char data[65536] = {0};
    double clock = 0;
    for (int i = 0; i < 1000; i++) {
        double start = now();
        clock += (now() - start) / 1000;
    }
    for (unsigned which = 0; which < sizeof sizes / sizeof *sizes; which++) {
        int batch = sizes[which];
        if (pipe(ends)) abort();
        for (int round = 0; round < ROUNDS; round++) {
            double start = now();
            for (int i = 0; i < batch; i++)
                if (write(ends[1], data, bytes) != bytes) abort();
            double middle = now();
            for (int i = 0; i < batch; i++)
                if (read(ends[0], data, bytes) != bytes) abort();
            reads[round] = (now() - middle - clock) / batch;
            writes[round] = (middle - start - clock) / batch;
        }
        qsort(writes, ROUNDS, sizeof *writes, order);
        qsort(reads, ROUNDS, sizeof *reads, order);
        printf("batch %d: write %.0f [%.0f, %.0f], read %.0f [%.0f, %.0f] ns, ratio %.3f\n", batch, writes[ROUNDS / 2],
               writes[ROUNDS / 10], writes[ROUNDS * 9 / 10], reads[ROUNDS / 2], reads[ROUNDS / 10], reads[ROUNDS * 9 / 10],
               writes[ROUNDS / 2] / reads[ROUNDS / 2]);
        close(ends[0]);
        close(ends[1]);
    }
}
