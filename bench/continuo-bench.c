/* bench/continuo-bench.c - sends load to a counter model and verifies every answer.
 *
 * It steps N sequences over C keep-alive connections, or over a WebSocket stream each (--stream),
 * with one step in flight on each. By default a connection sends its next step when the last one is
 * answered (a closed loop). With --rate, step i is due at the time i/rate, whatever the server
 * does, and its latency counts from then, so that a stall is not hidden. With --ramp, the rate
 * changes evenly.
 *
 * Each step posts a digit that follows from the sequence and the step. The answer must be the sum
 * of all digits so far, which also proves that no step was lost, doubled or reordered. The program
 * has one thread, or --processes of them, which share the connections. It prints one line of JSON
 * with the CPU time that it took itself. It exits with 1 when anything was wrong, and with 3, and
 * without figures of speed, when it was slower than the server (bench/load/tally.h).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "bench/connection.h"
#include "bench/load/arrivals.h"
#include "bench/load/tally.h"
#include "bench/options.h"
#include "core/text/number.h"

#define DRAIN_US 10000000u /* how long to wait at the end for answers that are missing */
#define ERRORS_SHOWN 5

struct sequence {
    uint64_t sum;
    uint32_t step;
    uint32_t retry; /* counts how often it began anew; part of its id */
};

struct bench {
    struct options opt;
    struct sockaddr_in address;
    struct request_template request;
    struct connection *connections;
    struct sequence *sequences;
    struct arrivals arrivals;
    struct tally *tally;
    uint32_t process, processes; /* this process has arrivals process, process + processes, ... */
    int epoll_fd;
    bool stopping, ending;
    uint32_t in_flight;
    uint64_t started_us, measured_us, stop_us, arrived, next_stall_check_us;
    uint64_t chance; /* the state of a xorshift generator */
};

static volatile sig_atomic_t interrupted;

static void
on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static uint64_t
now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

static void note_error(struct bench *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void
note_error(struct bench *b, const char *fmt, ...)
{
    va_list args;

    if (b->tally->errors++ >= ERRORS_SHOWN)
        return;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

static unsigned
digit_of_step(uint32_t sequence, uint32_t step)
{
    return 1u + (sequence * 31u + step * 7u) % 9u;
}

static void
reconnect(struct bench *b, struct connection *c)
{
    /* Edge-triggered, so the next wait does not look again at a socket that was read empty. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = c};
    uint32_t index = (uint32_t)(c - b->connections); /* that of the sequence of a stream, too */

    connection_close(c);
    if (connection_open(c, &b->address, &b->request, index, b->sequences[index].retry) < 0 ||
        epoll_ctl(b->epoll_fd, EPOLL_CTL_ADD, c->fd, &event) < 0) {
        fprintf(stderr, "continuo-bench: cannot connect to %s:%s: %s\n", b->opt.host, b->opt.port,
                strerror(errno));
        exit(2);
    }
}

/* Gives up a sequence whose last step may or may not have been done. It cannot be verified any
 * further, so it starts anew under another id. */
static void
abandon(struct bench *b, struct connection *c)
{
    struct sequence *s = &b->sequences[c->sequence];

    s->sum = 0;
    s->step = 0;
    s->retry++;
    b->in_flight--;
    reconnect(b, c);
}

static uint64_t
next_random(struct bench *b)
{
    b->chance ^= b->chance << 13;
    b->chance ^= b->chance >> 7;
    b->chance ^= b->chance << 17;
    return b->chance;
}

/* Chooses the sequence of the connection's next step. Sequence i belongs to connection i modulo the
 * number of connections, so the steps of a sequence are always sent over one connection. A random
 * sequence (--random) is chosen one step ahead, so that fetch_ahead() can load its memory. Returns
 * false when the connection has nothing left to do. */
static bool
pick_sequence(struct bench *b, struct connection *c, uint32_t *out)
{
    uint32_t index = (uint32_t)(c - b->connections);
    uint32_t own = (b->opt.sequences - index - 1) / b->opt.connections + 1;
    bool once_each = b->opt.open_only > 0 || b->ending;

    if (once_each && c->turn >= own)
        return false;
    *out = index + (uint32_t)(c->turn % own) * b->opt.connections;
    if (b->opt.random && !once_each) {
        *out = c->ahead;
        c->ahead = index + (uint32_t)(next_random(b) % own) * b->opt.connections;
    }
    return true;
}

/* Prefetches the memory of the sequences whose turn comes next. Among a million sequences it is in
 * none of the processor's caches, and the bench should measure how long the server waits for
 * memory, not how long this program does. */
static void
fetch_ahead(const struct bench *b, const struct connection *c)
{
    __builtin_prefetch(&b->sequences[c->sequence], 1);
    __builtin_prefetch(&b->sequences[c->ahead], 1);
}

/* Sends the connection's next step. Returns false if there is none. */
static bool
start_step(struct bench *b, struct connection *c, uint64_t due_us)
{
    uint32_t sequence;
    struct sequence *s;
    unsigned digit;

    if (!pick_sequence(b, c, &sequence))
        return false;
    c->turn++;
    s = &b->sequences[sequence];
    digit = b->ending ? 0 : digit_of_step(sequence, s->step);
    c->sent_us = now_us();
    c->due_us = due_us ? due_us : c->sent_us;
    b->in_flight++;
    if (connection_send(c, &b->request, sequence, s->retry, (char)('0' + digit), s->step == 0) <
        0) {
        note_error(b, "sequence %u: send: %s", sequence, strerror(errno));
        abandon(b, c);
        return true;
    }
    s->sum += digit;
    s->step++;
    return true;
}

/* When this process's arrival i is due. */
static uint64_t
due_of_arrival(const struct bench *b, uint64_t i)
{
    return b->started_us +
           (uint64_t)(arrivals_due_s(&b->arrivals, i * b->processes + b->process) * 1e6);
}

static uint64_t
due_of(const struct bench *b, const struct connection *c)
{
    return due_of_arrival(b, c->arrivals_started * b->opt.connections +
                                 (uint64_t)(c - b->connections));
}

static void
start_next(struct bench *b, struct connection *c)
{
    bool started = true;

    while (started && !c->waiting && (!b->stopping || b->ending)) {
        if (b->opt.rate <= 0 || b->ending) {
            started = start_step(b, c, 0);
        } else if (c->backlog > 0) {
            uint64_t due = due_of(b, c);
            c->backlog--;
            c->arrivals_started++;
            started = start_step(b, c, due);
        } else {
            started = false;
        }
    }
}

static bool
answer_is_right(struct bench *b, const struct connection *c, struct answer *a)
{
    const struct sequence *s = &b->sequences[c->sequence];
    char expected[CN_NUMBER_MAX];
    size_t len = 1;

    if (b->opt.any_answer)
        return true;
    if (b->opt.v2)
        answer_find_data(a);
    if (b->opt.echo)
        expected[0] = c->request[b->request.digit_at];
    else
        len = (size_t)(cn_put_uint(s->sum, expected) - expected);
    if (a->body_len == len && memcmp(a->body, expected, len) == 0)
        return true;
    b->tally->mismatches++;
    note_error(b, "sequence %u step %u: expected %.*s, got %.*s", c->sequence, s->step, (int)len,
               expected, (int)(a->body_len < 200 ? a->body_len : 200), a->body);
    return false;
}

/* Notes the latency of a step that was due in the measured time. */
static void
note_latency(struct bench *b, uint64_t due_us, uint64_t now)
{
    histogram_add(&b->tally->latency, now - due_us);
    if (b->opt.ramp > 0 && due_us >= b->measured_us) {
        uint64_t at = (due_us - b->measured_us) * TALLY_SLICES / (b->stop_us - b->measured_us);
        if (at < TALLY_SLICES)
            histogram_add(&b->tally->slices[at], now - due_us);
    }
}

/* Counts an answer by the time at which it arrived. At a fixed rate, the latency of a late answer
 * counts even if the measurement has ended; else the slowest steps would be left out. */
static void
note_answer(struct bench *b, const struct connection *c, uint64_t now)
{
    bool measured = now >= b->measured_us && !b->stopping;

    if (b->ending) {
        b->tally->ended++;
        return;
    }
    if (measured || (b->opt.rate > 0 && b->stopping))
        note_latency(b, c->due_us, now);
    if (!measured)
        return;
    b->tally->steps++;
    if (b->opt.ramp > 0) {
        uint64_t at = (now - b->measured_us) * TALLY_SLICES / (b->stop_us - b->measured_us);
        b->tally->slice_steps[at < TALLY_SLICES ? at : TALLY_SLICES - 1]++;
    }
}

/* Steps that were due and could not even be sent waited at least until now. */
static void
note_unsent(struct bench *b, uint64_t now)
{
    for (uint32_t i = 0; i < b->opt.connections; i++) {
        struct connection *c = &b->connections[i];

        for (; c->backlog > 0; c->backlog--, c->arrivals_started++) {
            note_latency(b, due_of(b, c), now);
            b->tally->unanswered++;
        }
    }
}

static void
on_readable(struct bench *b, struct connection *c)
{
    struct answer a;
    const char *why = "";
    uint64_t now;
    int rc = connection_receive(c, &b->request, &a, &why);

    if (rc == 0)
        return;
    if (rc < 0) {
        if (c->waiting) {
            note_error(b, "sequence %u: %s", c->sequence, why);
            abandon(b, c);
        } else {
            if (b->opt.wire != WIRE_HTTP) /* no stream ends between two steps */
                note_error(b, "sequence %u: %s", c->sequence, why);
            reconnect(b, c);
        }
        start_next(b, c);
        return;
    }
    now = now_us();
    if (a.status != 200) {
        note_error(b, "sequence %u: status %d: %.*s", c->sequence, a.status,
                   (int)(a.body_len < 300 ? a.body_len : 300), a.body);
        abandon(b, c);
    } else if (!answer_is_right(b, c, &a)) {
        abandon(b, c);
    } else {
        c->waiting = false;
        b->in_flight--;
        note_answer(b, c, now);
        if (a.closes)
            reconnect(b, c);
    }
    start_next(b, c);
}

/* For --rate: gives every step that is due to its connection. Returns the us until the next one. */
static uint64_t
run_schedule(struct bench *b, uint64_t now)
{
    for (;;) {
        uint64_t due = due_of_arrival(b, b->arrived);
        struct connection *c;

        if (due > now)
            return due - now;
        if (now >= b->measured_us)
            histogram_add(&b->tally->lateness, now - due);
        c = &b->connections[b->arrived++ % b->opt.connections];
        c->backlog++;
        start_next(b, c);
    }
}

static void
check_stalls(struct bench *b, uint64_t now)
{
    if (now < b->next_stall_check_us)
        return;
    b->next_stall_check_us = now + 100000;
    for (uint32_t i = 0; i < b->opt.connections; i++) {
        struct connection *c = &b->connections[i];
        if (c->waiting && !c->stalled && (double)(now - c->sent_us) > b->opt.stall_s * 1e6) {
            c->stalled = true;
            b->tally->stalled++;
        }
    }
}

/* Runs the event loop until the time `until_us`. With `until_quiet` it returns as soon as nothing
 * is in flight. */
static void
run_loop(struct bench *b, uint64_t until_us, bool until_quiet)
{
    struct epoll_event events[256];

    for (;;) {
        uint64_t now = now_us(), wait_us = 100000;
        struct timespec timeout;
        int n;

        check_stalls(b, now);
        if (now >= until_us || (until_quiet && b->in_flight == 0) || (interrupted && !b->stopping))
            return;
        if (until_us - now < wait_us)
            wait_us = until_us - now;
        if (b->opt.rate > 0 && !b->stopping) {
            uint64_t next_us = run_schedule(b, now);
            if (next_us < wait_us)
                wait_us = next_us;
        }
        timeout = (struct timespec){.tv_sec = 0, .tv_nsec = (long)wait_us * 1000};
        n = epoll_pwait2(b->epoll_fd, events, 256, &timeout, NULL);
        for (int i = 0; i < n; i++)
            fetch_ahead(b, events[i].data.ptr);
        for (int i = 0; i < n; i++)
            on_readable(b, events[i].data.ptr);
    }
}

/* Sends the digit 0 to each sequence. The counter answers with the total and ends the sequence. */
static void
end_sequences(struct bench *b)
{
    b->ending = true;
    for (uint32_t i = 0; i < b->opt.connections; i++) {
        b->connections[i].turn = 0;
        start_next(b, &b->connections[i]);
    }
    run_loop(b, now_us() + 60000000u, true);
}

/* A ramp's parts: the rate at which steps were due, and what came of it. */
static void
print_slices(const struct bench *b, const struct tally *t)
{
    double part_s = t->seconds / TALLY_SLICES;

    printf(", \"ramp\": [");
    for (unsigned i = 0; i < TALLY_SLICES; i++) {
        double middle = ((double)i + 0.5) / TALLY_SLICES;

        printf("%s{\"rate\": %.1f, \"steps_per_s\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f}",
               i > 0 ? ", " : "", b->opt.rate + (b->opt.ramp - b->opt.rate) * middle,
               part_s > 0 ? (double)t->slice_steps[i] / part_s : 0.0,
               (double)histogram_quantile_us(&t->slices[i], 0.50) / 1e3,
               (double)histogram_quantile_us(&t->slices[i], 0.99) / 1e3);
    }
    printf("]");
}

/* Returns the exit status that follows from the figures. */
static int
print_result(const struct bench *b, const struct tally *t)
{
    bool judged = b->opt.open_only == 0 && !b->opt.any_share;
    const char *refused = judged ? tally_verdict(t) : NULL;

    printf("{");
    tally_print(stdout, t, refused);
    printf(", \"errors\": %" PRIu64 ", \"mismatches\": %" PRIu64 ", \"stalled\": %" PRIu64
           ", \"connections\": %u, \"sequences\": %u, \"rate\": %.1f, \"ended\": %" PRIu64
           ", \"unanswered\": %" PRIu64,
           t->errors, t->mismatches, t->stalled, b->opt.connections, b->opt.sequences, b->opt.rate,
           t->ended, t->unanswered);
    if (b->opt.ramp > 0 && !refused)
        print_slices(b, t);
    printf("}\n");
    if (t->errors || t->stalled)
        return 1;
    if (refused)
        fprintf(stderr, "continuo-bench: no figures: %s\n", refused);
    return refused ? TALLY_REFUSED : 0;
}

static void
run(struct bench *b)
{
    struct tally_clock begin;
    uint64_t ended_us;

    tally_wait_for_all();
    b->started_us = now_us();
    b->measured_us = b->started_us + (uint64_t)(b->opt.warmup_s * 1e6);
    b->stop_us = b->measured_us + (uint64_t)(b->opt.duration_s * 1e6);
    if (b->opt.open_only > 0) {
        b->measured_us = b->started_us;
        b->stop_us = UINT64_MAX;
    }
    if (b->opt.rate <= 0)
        for (uint32_t i = 0; i < b->opt.connections; i++)
            start_next(b, &b->connections[i]);
    run_loop(b, b->measured_us, b->opt.open_only > 0);
    begin = tally_clock_read();
    run_loop(b, b->stop_us, b->opt.open_only > 0);
    ended_us = now_us();
    tally_measured(b->tally, (double)(ended_us - b->measured_us) / 1e6, begin);
    b->stopping = true;
    note_unsent(b, ended_us);
    run_loop(b, ended_us + DRAIN_US, true);
    if (b->in_flight > 0)
        note_error(b, "%u requests were not answered within 10 s of the end", b->in_flight);
    if (b->opt.end && b->in_flight == 0)
        end_sequences(b);
}

static void
resolve(struct bench *b)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    int rc = getaddrinfo(b->opt.host, b->opt.port, &hints, &found);

    if (rc != 0) {
        fprintf(stderr, "continuo-bench: %s:%s: %s\n", b->opt.host, b->opt.port, gai_strerror(rc));
        exit(2);
    }
    memcpy(&b->address, found->ai_addr, sizeof(b->address));
    freeaddrinfo(found);
}

/* Reads the sums and steps that earlier runs have reached (--sums). If there is no such file yet,
 * all sequences are new. */
static void
read_sums(struct bench *b)
{
    FILE *file = b->opt.sums_file ? fopen(b->opt.sums_file, "rb") : NULL;

    if (file == NULL)
        return;
    if (fread(b->sequences, sizeof(*b->sequences), b->opt.sequences, file) != b->opt.sequences ||
        fgetc(file) != EOF) {
        fprintf(stderr,
                "continuo-bench: --sums: %s does not hold %u sequences; use the --sequences of the "
                "run that wrote it\n",
                b->opt.sums_file, b->opt.sequences);
        exit(2);
    }
    fclose(file);
}

static void
write_sums(const struct bench *b)
{
    FILE *file = b->opt.sums_file ? fopen(b->opt.sums_file, "wb") : NULL;
    size_t written;

    if (b->opt.sums_file == NULL)
        return;
    written =
        file ? fwrite(b->sequences, sizeof(*b->sequences), b->opt.sequences, file) : (size_t)0;
    if (file == NULL || written != b->opt.sequences || fclose(file) != 0) {
        fprintf(stderr, "continuo-bench: --sums: cannot write %s: %s\n", b->opt.sums_file,
                strerror(errno));
        exit(2);
    }
}

static void
raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void
connect_all(struct bench *b)
{
    const struct options *opt = &b->opt;
    char host[300], path[300];
    int rc;

    snprintf(host, sizeof(host), "%s:%s", opt->host, opt->port);
    snprintf(path, sizeof(path), "/predictions/%s", opt->model);
    if (opt->wire != WIRE_HTTP)
        rc = request_template_init_stream(&b->request, host, opt->model, opt->prefix, opt->wire);
    else if (opt->v2)
        rc = request_template_init_v2(&b->request, host, opt->model, opt->prefix);
    else
        rc = request_template_init(&b->request, host, path, opt->header, opt->prefix);
    if (rc < 0) {
        fputs("continuo-bench: host, model, header and prefix are too long\n", stderr);
        exit(2);
    }
    for (uint32_t i = 0; i < b->opt.connections; i++) {
        struct connection *c = &b->connections[i];
        c->fd = -1;
        c->ahead = i;
        c->request = malloc(b->request.len);
        memcpy(c->request, b->request.bytes, b->request.len);
        reconnect(b, c);
    }
}

/* Gives this process its share of the connections, of the sequences and of the rate. */
static void
take_share(struct bench *b, unsigned process)
{
    uint32_t n = b->processes, connections = b->opt.connections, sequences = b->opt.sequences;
    char suffix[16];

    b->process = process;
    b->opt.connections = connections / n + (process < connections % n ? 1 : 0);
    b->opt.sequences = sequences / n + (process < sequences % n ? 1 : 0);
    if (b->opt.open_only > 0)
        b->opt.open_only = b->opt.sequences;
    if (n == 1)
        return;
    snprintf(suffix, sizeof(suffix), "-%u", process);
    strncat(b->opt.prefix, suffix, sizeof(b->opt.prefix) - strlen(b->opt.prefix) - 1);
}

/* The load of one process. */
static int
run_process(void *ctx, unsigned process, struct tally *tally)
{
    struct bench *b = ctx;
    struct options whole = b->opt;

    b->tally = tally;
    take_share(b, process);
    b->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    b->connections = calloc(b->opt.connections, sizeof(*b->connections));
    b->sequences = calloc(b->opt.sequences, sizeof(*b->sequences));
    if (b->epoll_fd < 0 || b->connections == NULL || b->sequences == NULL) {
        fputs("continuo-bench: not enough memory for these connections and sequences\n", stderr);
        exit(2);
    }
    b->chance = now_us() | 1;
    read_sums(b);
    connect_all(b);
    run(b);
    write_sums(b);
    for (uint32_t i = 0; i < b->opt.connections; i++) {
        connection_close(&b->connections[i]);
        free(b->connections[i].request);
    }
    free(b->connections);
    free(b->sequences);
    close(b->epoll_fd);
    b->opt = whole;
    return 0;
}

int
main(int argc, char **argv)
{
    static struct bench b;
    static struct tally sum;
    int rc;

    options_parse(&b.opt, argc, argv);
    b.processes = b.opt.processes;
    b.arrivals = (struct arrivals){.from = b.opt.rate,
                                   .to = b.opt.ramp > 0 ? b.opt.ramp : b.opt.rate,
                                   .warmup_s = b.opt.warmup_s,
                                   .ramp_s = b.opt.duration_s};
    raise_descriptor_limit();
    signal(SIGINT, on_signal);
    resolve(&b);
    rc = tally_run(b.processes, run_process, &b, &sum);
    if (rc > 1)
        return rc;
    rc = print_result(&b, &sum);
    options_fini(&b.opt);
    return rc;
}
