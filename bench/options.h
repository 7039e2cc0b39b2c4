/* bench/options.h - continuo-bench's command line. */
#ifndef CN_BENCH_OPTIONS_H
#define CN_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/connection.h"

struct options {
    char *url; /* host and port point into this copy */
    const char *host, *port, *model;
    const char *header; /* the request header with the sequence id */
    char prefix[64];    /* prefix of sequence ids */
    uint32_t connections, sequences, open_only, processes;
    double duration_s, warmup_s, rate, stall_s;
    double ramp; /* the rate at the end; 0: it stays the same */
    enum wire wire;
    bool echo, any_answer, end, random, any_share, v2;
    const char *sums_file; /* NULL: none */
};

/* Sets the defaults and then the flags. A wrong flag ends the program with 2, and --help ends it
 * with 0. */
void options_parse(struct options *opt, int argc, char **argv);
void options_fini(struct options *opt);

#endif
