/* bench/load/tally.h - what a load tool counts, in one process or in several.
 *
 * A load tool has one thread a process. With --processes N it forks N of them, each with its share
 * of the connections; each counts in a tally of its own in shared memory, and the first process
 * adds the tallies up. Each tally also has the CPU time of its process, because a tool that needs a
 * whole core is slower than the server that it should measure.
 */
#ifndef CN_BENCH_LOAD_TALLY_H
#define CN_BENCH_LOAD_TALLY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/load/histogram.h"

#define TALLY_SLICES 10        /* parts of a ramp, each with its own latencies */
#define TALLY_MAX_PROCESSES 64 /* more than any machine needs: each has a core to itself */
#define TALLY_MAX_SHARE 0.9    /* a process that ran for a larger share of the time is refused */
#define TALLY_MIN_SECONDS 0.5  /* shorter runs are not judged: the share is mostly chance */
#define TALLY_REFUSED 3        /* exit status */

struct tally {
    struct histogram latency;              /* us, from the time at which a step was due */
    struct histogram lateness;             /* us by which this program itself was late to send it */
    struct histogram slices[TALLY_SLICES]; /* latencies of the parts of a ramp */
    uint64_t slice_steps[TALLY_SLICES];
    uint64_t steps, errors, mismatches, stalled, ended;
    uint64_t unanswered; /* steps that were due and had no answer at the end */
    double seconds;      /* measured time */
    double cpu_s;        /* CPU time of this process in the measured time */
    double waited_s;     /* how long it was ready to run then, and had no core */
    double busiest;      /* the largest cpu_s / seconds of any process; set by tally_add() */
};

/* CPU and waiting time of the calling process until now, in seconds. */
struct tally_clock {
    double cpu_s, waited_s;
};
struct tally_clock tally_clock_read(void);

/* Sets seconds, cpu_s and waited_s from the clocks at both ends of the measured time. */
void tally_measured(struct tally *t, double seconds, struct tally_clock begin);

/* Runs load(ctx, i, &tally) for i = 0 .. n-1, each in a process of its own if n is over 1, and
 * writes the sum of the tallies to *out. In each process, load() calls `tally_wait_for_all` once it
 * is ready to send. A child ends with its parent. Returns the largest result of load(); ends the
 * program with 2 if processes cannot be made. */
int tally_run(unsigned n, int (*load)(void *ctx, unsigned i, struct tally *t), void *ctx,
              struct tally *out);

/* Waits until all processes are here, so that they begin to send together. */
void tally_wait_for_all(void);

/* Returns NULL, or why these figures would be those of the load tool and not of the server: a
 * process was busy for nearly all of the time, or its own lateness is more than half of the
 * latency's p99. The text is in static memory. */
const char *tally_verdict(const struct tally *t);

/* Prints the members of a JSON object that all load tools have, without braces: rate, quantiles and
 * shares; or "refused" and the reason in place of rate and quantiles. */
void tally_print(FILE *file, const struct tally *t, const char *refused);

#endif
