// How long a worker of a Verilator model polls before it sleeps: 50,000 looks at a flag, with the processor's pause between them.
//   cc -O2 spins.c -o spins && chrt -f 50 taskset -c 0 ./spins
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { LOOKS = 50000 };
static atomic_long flag;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}
int main(void) {
    for (int run = 0; run < 10; run++) {
        double start = now();
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&flag, memory_order_relaxed)) break;
            __builtin_ia32_pause();
        }
        printf("%d looks in %.0f us\n", LOOKS, (now() - start) / 1000);
    }
}
