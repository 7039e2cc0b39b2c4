/* bench/continuo-bench.c - sends load to a counter model and verifies every answer.
 *
 * It steps N sequences over C keep-alive connections, with one request in flight on each. By
 * default a connection sends its next step when the last one is answered (a closed loop). With
 * --rate, step i is due at the time i/rate, whatever the server does, and its latency counts from
 * then, so that a stall is not hidden.
 *
 * Each step posts a digit that follows from the sequence and the step. The answer must be the sum
 * of all digits so far, which also proves that no step was lost, doubled or reordered. The program
 * has one thread. It prints one line of JSON, and exits with 1 when anything was wrong.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <sched.h>
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
#include "bench/histogram.h"
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
    struct histogram latency;
    int epoll_fd;
    bool stopping, ending;
    uint32_t in_flight;
    uint64_t started_us, measured_us, stop_us, arrivals, next_stall_check_us;
    uint64_t chance; /* the state of a xorshift generator */
    uint64_t steps, errors, mismatches, stalled, opened, ended;
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

    if (b->errors++ >= ERRORS_SHOWN)
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

    connection_close(c);
    if (connection_open(c, &b->address) < 0 ||
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
    if (connection_send(c, &b->request, sequence, s->retry, (char)('0' + digit)) < 0) {
        note_error(b, "sequence %u: send: %s", sequence, strerror(errno));
        abandon(b, c);
        return true;
    }
    s->sum += digit;
    s->step++;
    return true;
}

static uint64_t
due_of(const struct bench *b, const struct connection *c)
{
    uint64_t i = c->arrivals_started * b->opt.connections + (uint64_t)(c - b->connections);

    return b->started_us + (uint64_t)((double)i * 1e6 / b->opt.rate);
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
answer_is_right(struct bench *b, const struct connection *c, const struct answer *a)
{
    const struct sequence *s = &b->sequences[c->sequence];
    char expected[CN_NUMBER_MAX];
    size_t len = 1;

    if (b->opt.any_answer)
        return true;
    if (b->opt.echo)
        expected[0] = c->request[b->request.len - 1];
    else
        len = (size_t)(cn_put_uint(s->sum, expected) - expected);
    if (a->body_len == len && memcmp(a->body, expected, len) == 0)
        return true;
    b->mismatches++;
    note_error(b, "sequence %u step %u: expected %.*s, got %.*s", c->sequence, s->step, (int)len,
               expected, (int)(a->body_len < 200 ? a->body_len : 200), a->body);
    return false;
}

static void
on_readable(struct bench *b, struct connection *c)
{
    struct answer a;
    const char *why = "";
    uint64_t now;
    int rc = connection_receive(c, &a, &why);

    if (rc == 0)
        return;
    if (rc < 0) {
        if (c->waiting) {
            note_error(b, "sequence %u: %s", c->sequence, why);
            abandon(b, c);
        } else {
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
        if (b->ending) {
            b->ended++;
        } else if (now >= b->measured_us && !b->stopping) {
            histogram_add(&b->latency, now - c->due_us);
            b->steps++;
        }
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
        uint64_t due = b->started_us + (uint64_t)((double)b->arrivals * 1e6 / b->opt.rate);
        struct connection *c;

        if (due > now)
            return due - now;
        c = &b->connections[b->arrivals++ % b->opt.connections];
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
            b->stalled++;
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

static double
cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void
print_result(const struct bench *b, uint64_t ended_us)
{
    double seconds = (double)(ended_us - b->measured_us) / 1e6;

    printf("{\"steps\": %" PRIu64 ", \"seconds\": %.3f, \"steps_per_s\": %.1f, \"p50_ms\": %.3f, "
           "\"p99_ms\": %.3f, \"p999_ms\": %.3f, \"max_ms\": %.3f, \"errors\": %" PRIu64
           ", \"mismatches\": %" PRIu64 ", \"stalled\": %" PRIu64
           ", \"connections\": %u, \"sequences\": %u, \"rate\": %.1f, \"ended\": %" PRIu64
           ", \"client_cpu_s\": %.3f}\n",
           b->steps, seconds, seconds > 0 ? (double)b->steps / seconds : 0.0,
           (double)histogram_quantile_us(&b->latency, 0.50) / 1e3,
           (double)histogram_quantile_us(&b->latency, 0.99) / 1e3,
           (double)histogram_quantile_us(&b->latency, 0.999) / 1e3, (double)b->latency.max_us / 1e3,
           b->errors, b->mismatches, b->stalled, b->opt.connections, b->opt.sequences, b->opt.rate,
           b->ended, cpu_seconds());
}

static void
run(struct bench *b)
{
    uint64_t ended_us;

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
    run_loop(b, b->stop_us, b->opt.open_only > 0);
    ended_us = now_us();
    b->stopping = true;
    run_loop(b, ended_us + DRAIN_US, true);
    if (b->in_flight > 0)
        note_error(b, "%u requests were not answered within 10 s of the end", b->in_flight);
    if (b->opt.end && b->in_flight == 0)
        end_sequences(b);
    print_result(b, ended_us);
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
    char host[300], path[300];

    snprintf(host, sizeof(host), "%s:%s", b->opt.host, b->opt.port);
    snprintf(path, sizeof(path), "/predictions/%s", b->opt.model);
    if (request_template_init(&b->request, host, path, b->opt.header, b->opt.prefix) < 0) {
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

/* Lets the server keep its core when an answer wakes this program, because both share a machine. A
 * client on another machine would not take the server's core either. */
static void
be_no_bother(void)
{
    sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
}

int
main(int argc, char **argv)
{
    static struct bench b;

    options_parse(&b.opt, argc, argv);
    be_no_bother();
    raise_descriptor_limit();
    signal(SIGINT, on_signal);
    resolve(&b);
    b.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    b.connections = calloc(b.opt.connections, sizeof(*b.connections));
    b.sequences = calloc(b.opt.sequences, sizeof(*b.sequences));
    if (b.epoll_fd < 0 || b.connections == NULL || b.sequences == NULL) {
        fputs("continuo-bench: not enough memory for these connections and sequences\n", stderr);
        return 2;
    }
    b.chance = now_us() | 1;
    read_sums(&b);
    connect_all(&b);
    run(&b);
    write_sums(&b);
    for (uint32_t i = 0; i < b.opt.connections; i++) {
        connection_close(&b.connections[i]);
        free(b.connections[i].request);
    }
    free(b.connections);
    free(b.sequences);
    options_fini(&b.opt);
    close(b.epoll_fd);
    return b.errors || b.stalled ? 1 : 0;
}
