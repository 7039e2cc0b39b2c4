/* bench/load/tally.c - see tally.h. */
#include "bench/load/tally.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct shared {
    pthread_barrier_t ready;
    struct tally tallies[];
} * shared; /* NULL in a program that runs in one process */

/* --- the time that this process took */

struct tally_clock
tally_clock_read(void)
{
    struct tally_clock now = {0};
    struct rusage usage;
    unsigned long long ran, waited;
    FILE *file = fopen("/proc/self/schedstat", "r");

    getrusage(RUSAGE_SELF, &usage);
    now.cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    if (file && fscanf(file, "%llu %llu", &ran, &waited) == 2)
        now.waited_s = (double)waited / 1e9;
    if (file)
        fclose(file);
    return now;
}

void
tally_measured(struct tally *t, double seconds, struct tally_clock begin)
{
    struct tally_clock end = tally_clock_read();

    t->seconds = seconds;
    t->cpu_s = end.cpu_s - begin.cpu_s;
    t->waited_s = end.waited_s - begin.waited_s;
    t->busiest = seconds > 0 ? t->cpu_s / seconds : 0;
}

/* --- processes */

static void
fail(const char *what)
{
    fprintf(stderr, "load tool: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void
tally_add(struct tally *sum, const struct tally *t)
{
    histogram_merge(&sum->latency, &t->latency);
    histogram_merge(&sum->lateness, &t->lateness);
    for (unsigned i = 0; i < TALLY_SLICES; i++) {
        histogram_merge(&sum->slices[i], &t->slices[i]);
        sum->slice_steps[i] += t->slice_steps[i];
    }
    sum->steps += t->steps;
    sum->errors += t->errors;
    sum->mismatches += t->mismatches;
    sum->stalled += t->stalled;
    sum->ended += t->ended;
    sum->unanswered += t->unanswered;
    sum->cpu_s += t->cpu_s;
    sum->waited_s += t->waited_s;
    sum->seconds = t->seconds > sum->seconds ? t->seconds : sum->seconds;
    sum->busiest = t->busiest > sum->busiest ? t->busiest : sum->busiest;
}

static void
share_memory(unsigned n)
{
    pthread_barrierattr_t attr;

    shared = mmap(NULL, sizeof(*shared) + n * sizeof(struct tally), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("mmap");
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->ready, &attr, n);
    pthread_barrierattr_destroy(&attr);
}

/* A process that failed before it was ready would leave the others at the barrier, so all are
 * ended with it. */
static int
wait_for_children(unsigned n, pid_t *children)
{
    int worst = 0;

    for (unsigned left = n; left > 0; left--) {
        int status, rc;
        pid_t ended = wait(&status);

        if (ended < 0)
            fail("wait");
        rc = WIFEXITED(status) ? WEXITSTATUS(status) : 2;
        worst = rc > worst ? rc : worst;
        for (unsigned i = 0; i < n; i++) {
            if (children[i] == ended)
                children[i] = 0; /* another process may get its number now */
            else if (rc > 1 && children[i] > 0)
                kill(children[i], SIGKILL);
        }
    }
    return worst;
}

int
tally_run(unsigned n, int (*load)(void *ctx, unsigned i, struct tally *t), void *ctx,
          struct tally *out)
{
    pid_t children[TALLY_MAX_PROCESSES], parent = getpid();
    int rc;

    memset(out, 0, sizeof(*out));
    if (n <= 1)
        return load(ctx, 0, out);
    share_memory(n);
    for (unsigned i = 0; i < n; i++) {
        children[i] = fork();
        if (children[i] < 0)
            fail("fork");
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(2);
            rc = load(ctx, i, &shared->tallies[i]);
            fflush(NULL);
            _exit(rc);
        }
    }
    signal(SIGINT, SIG_IGN); /* the children get it, too, and end their measurement */
    rc = wait_for_children(n, children);
    for (unsigned i = 0; i < n; i++)
        tally_add(out, &shared->tallies[i]);
    return rc;
}

void
tally_wait_for_all(void)
{
    if (shared)
        pthread_barrier_wait(&shared->ready);
}

/* --- what is printed */

const char *
tally_verdict(const struct tally *t)
{
    static char why[200];
    double late_ms = (double)histogram_quantile_us(&t->lateness, 0.99) / 1e3;
    double p99_ms = (double)histogram_quantile_us(&t->latency, 0.99) / 1e3;

    if (t->seconds < TALLY_MIN_SECONDS)
        return NULL;
    if (t->busiest > TALLY_MAX_SHARE) {
        snprintf(
            why, sizeof(why),
            "a process of the load tool ran for %.0f %% of the time, so it was the bottleneck; "
            "use more --processes",
            t->busiest * 100);
        return why;
    }
    if (late_ms > p99_ms / 2) {
        snprintf(why, sizeof(why),
                 "the load tool sent steps up to %.3f ms late (p99), over half of the p99 of %.3f "
                 "ms; use more --processes, or leave it a core",
                 late_ms, p99_ms);
        return why;
    }
    return NULL;
}

static double
quantile_ms(const struct histogram *h, double share)
{
    return (double)histogram_quantile_us(h, share) / 1e3;
}

void
tally_print(FILE *file, const struct tally *t, const char *refused)
{
    fprintf(file, "\"steps\": %" PRIu64 ", \"seconds\": %.3f", t->steps, t->seconds);
    if (refused)
        fprintf(file, ", \"refused\": \"%s\"", refused);
    else
        fprintf(file,
                ", \"steps_per_s\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f, "
                "\"max_ms\": %.3f",
                t->seconds > 0 ? (double)t->steps / t->seconds : 0, quantile_ms(&t->latency, 0.50),
                quantile_ms(&t->latency, 0.99), quantile_ms(&t->latency, 0.999),
                (double)t->latency.max_us / 1e3);
    fprintf(file,
            ", \"client_cpu_s\": %.3f, \"client_busiest_share\": %.3f, \"client_waited_s\": %.3f, "
            "\"client_late_p99_ms\": %.3f",
            t->cpu_s, t->busiest, t->waited_s, quantile_ms(&t->lateness, 0.99));
}
