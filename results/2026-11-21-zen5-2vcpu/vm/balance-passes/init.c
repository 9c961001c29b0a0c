/* The only program of a guest: makes threads, lets them be balanced, and hands out what the kernel recorded.
 *
 * Options on the kernel's command line: bal.n threads; bal.pin: bound to CPU 0 until they are released; bal.cas: cache-aware
 * scheduling; bal.before, bal.after: ms from the start to the release, and from there to the end; bal.probes: record passes and
 * looks at tasks too; bal.idle: eight SCHED_IDLE spinners, the others run 2 ms (bal.run_us) of 10 (bal.period_ms), with bal.place two of
 * them on CPUs 0 and 1, the others on 4 and 5;
 * bal.duty: six spinners, the others run 3 ms of 10, each 0.7 ms after the last; bal.bursts: one thread that makes ten of 6 ms
 * every 30 ms; bal.switches: record switches; bal.cost: first set what new-idle passes are known to take at most, ns.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TRACING "/sys/kernel/tracing/"
#define MOST_THREADS 4096

static int out = 1;
static char options[4096];
static volatile int stop;
static int tids[MOST_THREADS];

static void put(const char *bytes, int length)
{
	while (length > 0) {
		int written = write(out, bytes, length);
		if (written <= 0)
			return;
		bytes += written;
		length -= written;
	}
}

static void say(const char *format, ...)
{
	char text[4096];
	va_list arguments;
	va_start(arguments, format);
	put(text, vsnprintf(text, sizeof text, format, arguments));
	va_end(arguments);
}

static void set(const char *path, const char *value, int flags)
{
	int file = open(path, O_WRONLY | flags);
	if (file < 0 || write(file, value, strlen(value)) < 0)
		say("!cannot write %s to %s: %d\n", value, path, errno);
	close(file);
}

static void probe(const char *definition)
{
	set(TRACING "kprobe_events", definition, O_APPEND);
}

static void dump(const char *path)
{
	static char bytes[1 << 16];
	int file = open(path, O_RDONLY), length;
	say("=== %s\n", path);
	while ((length = read(file, bytes, sizeof bytes)) > 0)
		put(bytes, length);
	close(file);
	say("\n");
}

static int option(const char *name, int otherwise)
{
	char *found = strstr(options, name);
	return found ? atoi(found + strlen(name)) : otherwise;
}

static long clock_ns(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void rest_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000L };
	nanosleep(&time, 0);
}

/* An emulated CPU passes its turn on at a pause. */
static void work(int iterations)
{
	for (int i = 0; i < iterations; i++)
		__asm__ volatile("");
	__asm__ volatile("pause");
}

static void *spin(void *index)
{
	tids[(long)index] = gettid();
	while (!stop)
		work(2000);
	return 0;
}

static void *idle_spin(void *index)
{
	struct sched_param none = { 0 };
	sched_setscheduler(0, SCHED_IDLE, &none);
	return spin(index);
}

static void sleep_until(long ns)
{
	struct timespec time = { ns / 1000000000, ns % 1000000000 };
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, 0);
}

/* Runs for run_ns now, and for as long at every 10 ms (bal.period_ms) after the instant next. */
static void *turns(long next, long run_ns)
{
	while (!stop) {
		long end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + run_ns;
		while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
			work(1500);
		next += option("bal.period_ms=", 10) * 1000000L;
		sleep_until(next);
	}
	return 0;
}

static void *periodic(void *index)
{
	long of = (long)index - 8;
	cpu_set_t two;
	tids[(long)index] = gettid();
	if (option("bal.place=", 0)) {
		CPU_ZERO(&two);
		CPU_SET(of < 2 ? 0 : 4, &two);
		CPU_SET(of < 2 ? 1 : 5, &two);
		sched_setaffinity(0, sizeof two, &two);
	}
	return turns(clock_ns(CLOCK_MONOTONIC), option("bal.run_us=", 2000) * 1000L);
}

static void *duty(void *index)
{
	tids[(long)index] = gettid();
	rest_ms(1);
	long first = clock_ns(CLOCK_MONOTONIC) + ((long)index - 6) * 700000;
	sleep_until(first);
	return turns(first, 3000000);
}

static void *child(void *unused)
{
	long end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + 6000000;
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		work(1500);
	return unused;
}

/* Every 30 ms ten threads of 6 ms. */
static void *bursts(void *index)
{
	pthread_attr_t detached;
	pthread_t thread;
	tids[(long)index] = gettid();
	pthread_attr_init(&detached);
	pthread_attr_setstacksize(&detached, 65536);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	while (!stop) {
		for (int i = 0; i < 10; i++) {
			long end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + 20000;
			pthread_create(&thread, &detached, child, 0);
			while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
				work(1500);
		}
		rest_ms(30);
	}
	return 0;
}

static void open_channel(void)
{
	static const char *const ports[] = { "/dev/vport0p1", "/dev/vport1p1", "/dev/vport2p1" };
	int console = open("/dev/ttyS0", O_WRONLY);
	if (console >= 0)
		out = console;
	for (int i = 0; i < 300; i++) {
		int port = open(ports[i % 3], O_WRONLY);
		if (port >= 0) {
			out = port;
			return;
		}
		rest_ms(20);
	}
}

static void record(void)
{
	set(TRACING "trace_clock", "mono", O_TRUNC);
	set(TRACING "buffer_size_kb", "4096", O_TRUNC);
	set(TRACING "events/irq/softirq_entry/filter", "vec==7", O_TRUNC);
	set(TRACING "events/irq/softirq_exit/filter", "vec==7", O_TRUNC);
	if (strstr(options, "bal.probes")) {
		probe("p:k/bal sched_balance_rq cpu=this_cpu idle=idle w=sd->span_weight\n");
		probe("r:k/balr sched_balance_rq moved=$retval\n");
		probe("p:k/det can_migrate_task src=env->src_cpu dst=env->dst_cpu failed=env->sd->nr_balance_failed "
		      "imb=env->imbalance mt=env->migration_type pid=p->pid v=p->se.vruntime\n");
		probe("r:k/detr can_migrate_task ok=$retval\n");
		probe("p:k/ni pick_task_fair avg=rq->avg_idle over=rq->rd->overloaded "
		      "ratio0=rq->sd->newidle_ratio ratio1=rq->sd->parent->newidle_ratio "
		      "call1=rq->sd->parent->newidle_call suc1=rq->sd->parent->newidle_success "
		      "cost0=rq->sd->max_newidle_lb_cost cost1=rq->sd->parent->max_newidle_lb_cost "
		      "nr=rq->cfs.h_nr_runnable ttwu=rq->ttwu_pending curr=rq->curr->pid\n");
		probe("r:k/nir pick_task_fair found=$retval\n");
		set(TRACING "events/k/enable", "1", O_TRUNC);
	}
	if (strstr(options, "bal.switches"))
		set(TRACING "events/sched/sched_switch/enable", "1", O_TRUNC);
	set(TRACING "events/irq/softirq_entry/enable", "1", O_TRUNC);
	set(TRACING "events/irq/softirq_exit/enable", "1", O_TRUNC);
	set(TRACING "events/sched/sched_migrate_task/enable", "1", O_TRUNC);
}

/* What a new-idle pass is known to have taken at most, of every CPU and domain. */
static void set_costs(int ns)
{
	char path[128], value[16];
	set("/sys/kernel/debug/sched/verbose", "Y", O_TRUNC);
	snprintf(value, sizeof value, "%d", ns);
	for (int cpu = 0;; cpu++)
		for (int level = 0;; level++) {
			snprintf(path, sizeof path, "/sys/kernel/debug/sched/domains/cpu%d/domain%d/max_newidle_lb_cost", cpu, level);
			if (access(path, W_OK)) {
				if (!level)
					return;
				break;
			}
			dump(path);
			set(path, value, 0);
		}
}

int main(void)
{
	static pthread_t threads[MOST_THREADS];
	cpu_set_t first, all;
	pthread_attr_t attributes;

	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/dev", 0755);
	mount("p", "/proc", "proc", 0, 0);
	mount("s", "/sys", "sysfs", 0, 0);
	mount("d", "/dev", "devtmpfs", 0, 0);
	mount("d", "/sys/kernel/debug", "debugfs", 0, 0);
	mount("t", "/sys/kernel/tracing", "tracefs", 0, 0);
	open_channel();
	int file = open("/proc/cmdline", O_RDONLY);
	if (read(file, options, sizeof options - 1) < 0)
		say("!no command line\n");
	close(file);
	int count = option("bal.n=", 128), pin = option("bal.pin=", 1), idle = option("bal.idle=", 0);
	set("/sys/kernel/debug/sched/llc_balancing/enabled", option("bal.cas=", 0) ? "1" : "0", O_TRUNC);
	record();
	if (strstr(options, "bal.cost="))
		set_costs(option("bal.cost=", 0));
	dump("/proc/schedstat");
	set(TRACING "trace", "", O_TRUNC);
	rest_ms(1200);

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	CPU_ZERO(&all);
	for (int i = 0; i < CPU_SETSIZE; i++)
		CPU_SET(i, &all);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 65536);
	if (pin)
		pthread_attr_setaffinity_np(&attributes, sizeof first, &first);
	long begun = clock_ns(CLOCK_MONOTONIC);
	for (long i = 0; i < count; i++) {
		void *(*does)(void *) = option("bal.bursts=", 0) ? bursts : option("bal.duty=", 0) ? (i < 6 ? spin : duty) : !idle ? spin : i < 8 ? idle_spin : periodic;
		if (pthread_create(&threads[i], &attributes, does, (void *)i))
			say("!no thread %ld\n", i);
	}
	say("made in %ld\n", clock_ns(CLOCK_MONOTONIC) - begun);
	rest_ms(option("bal.before=", 200));
	dump("/proc/schedstat");
	begun = clock_ns(CLOCK_MONOTONIC);
	say("release %ld\n", begun);
	for (int i = 0; pin && i < count; i++)
		sched_setaffinity(tids[i], sizeof all, &all);
	say("released in %ld\n", clock_ns(CLOCK_MONOTONIC) - begun);
	rest_ms(option("bal.after=", 650));
	set(TRACING "tracing_on", "0", O_TRUNC);
	say("end %ld\n", clock_ns(CLOCK_MONOTONIC));
	stop = 1;
	dump("/proc/schedstat");
	dump(TRACING "trace");
	say("done\n");
	rest_ms(500);
	reboot(RB_POWER_OFF);
	return 0;
}
