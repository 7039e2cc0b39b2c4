/* bench/post-bench.c - load for HTTP: one request of any size, over and over.
 *
 *   post-bench HOST:PORT PATH BODY_FILE [--header "NAME: VALUE"] [--end FILE] [--connections N]
 *              [--seconds S] [--warmup S] [--processes N] [--sequences]
 *
 * Closed loop over keep-alive connections, one request in flight on each. An answer is right if its
 * status is 200 and its body ends with the bytes of --end (the request's body, if there is none).
 * With --sequences each connection has a sequence of its own, which the header Continuo-Sequence-Id
 * names; an answer then only needs the status 200, because it differs from step to step.
 * One thread a process. Prints one line of JSON; exit 1 when anything was wrong, and 3, without
 * figures of speed, when this tool was slower than the server (bench/load/tally.h).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench/load/tally.h"

#define HEAD_MAX_BYTES 8192

struct bytes {
    char *ptr;
    size_t len;
};

struct conn {
    int fd;
    bool asks_to_write;
    struct bytes request; /* with --sequences its own one */
    size_t sent, got;
    double began_s;
    char *answer; /* its size is answer_room */
};

static struct {
    struct bytes request, end;
    size_t answer_room;
    int epoll_fd, n_conns;
    bool sequences;
    const char *target, *path, *header;
    struct bytes body;
    unsigned n_processes;
    double seconds, warmup;
    struct sockaddr_in address;
    struct tally *tally;
} load;

static void
die(const char *why)
{
    fprintf(stderr, "post-bench: %s: %s\n", why, strerror(errno));
    exit(2);
}

static double
now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct bytes
read_file(const char *path)
{
    struct bytes all = {NULL, 0};
    FILE *file = fopen(path, "rb");
    size_t room = 0;

    if (!file)
        die(path);
    do {
        if (all.len == room)
            all.ptr = realloc(all.ptr, room = room ? 2 * room : 65536);
        all.len += fread(all.ptr + all.len, 1, room - all.len, file);
    } while (!feof(file) && !ferror(file));
    fclose(file);
    return all;
}

/* Returns the request with this header beside that of the command line; "" for none. */
static struct bytes
make_request(const char *more)
{
    struct bytes request = {.ptr = malloc(HEAD_MAX_BYTES + load.body.len)};

    request.len = (size_t)snprintf(request.ptr, HEAD_MAX_BYTES,
                                   "POST %s HTTP/1.1\r\nHost: %s\r\n%s%s%sContent-Length: "
                                   "%zu\r\n\r\n",
                                   load.path, load.target, load.header, *load.header ? "\r\n" : "",
                                   more, load.body.len);
    if (request.len >= HEAD_MAX_BYTES) {
        fputs("post-bench: the path or the header is too long\n", stderr);
        exit(2);
    }
    memcpy(request.ptr + request.len, load.body.ptr, load.body.len);
    request.len += load.body.len;
    return request;
}

/* The request of a connection's own sequence. */
static struct bytes
sequence_request(unsigned number)
{
    char header[128];

    snprintf(header, sizeof(header), "Continuo-Sequence-Id: bench-%lx-%u\r\n",
             (unsigned long)(now_s() * 1e6), number);
    return make_request(header);
}

/* --- one connection */

static void
watch(struct conn *c, bool write)
{
    struct epoll_event event = {.events = EPOLLIN | (write ? EPOLLOUT : 0), .data.ptr = c};

    if (c->asks_to_write != write && epoll_ctl(load.epoll_fd, EPOLL_CTL_MOD, c->fd, &event) < 0)
        die("epoll_ctl");
    c->asks_to_write = write;
}

static void
send_more(struct conn *c)
{
    if (c->sent == 0)
        c->began_s = now_s();
    while (c->sent < c->request.len) {
        ssize_t n = send(c->fd, c->request.ptr + c->sent, c->request.len - c->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0)
            die("send");
        c->sent += (size_t)n;
    }
    watch(c, c->sent < c->request.len);
}

/* Returns the length of the whole answer once its head has arrived, or else 0. */
static size_t
answer_len(struct conn *c)
{
    const char *end, *field;

    c->answer[c->got] = '\0'; /* a head contains no NUL, so searches end in it or here */
    if (!(end = strstr(c->answer, "\r\n\r\n")))
        return 0;
    field = strcasestr(c->answer, "\r\nContent-Length:");
    if (!field || field > end) {
        fputs("post-bench: an answer without Content-Length\n", stderr);
        exit(2);
    }
    return (size_t)(end + 4 - c->answer) + strtoull(field + 17, NULL, 10);
}

static bool
is_right(const struct conn *c)
{
    if (strncmp(c->answer, "HTTP/1.1 200", 12) != 0)
        return false;
    return load.sequences || (c->got >= load.end.len && memcmp(c->answer + c->got - load.end.len,
                                                               load.end.ptr, load.end.len) == 0);
}

/* Returns true if an answer is complete. */
static bool
receive_more(struct conn *c)
{
    for (;;) {
        ssize_t n = recv(c->fd, c->answer + c->got, load.answer_room - 1 - c->got, MSG_DONTWAIT);
        size_t whole;

        if (n < 0 && errno == EAGAIN)
            return false;
        if (n <= 0)
            die("recv");
        c->got += (size_t)n;
        whole = answer_len(c);
        if (whole > load.answer_room - 1) {
            fputs("post-bench: an answer much larger than the request\n", stderr);
            exit(2);
        }
        if (whole && c->got >= whole)
            return true;
    }
}

static void
count(const struct conn *c)
{
    if (is_right(c)) {
        load.tally->steps++;
        histogram_add(&load.tally->latency, (uint64_t)((now_s() - c->began_s) * 1e6));
        return;
    }
    if (load.tally->errors++ == 0)
        fprintf(stderr, "post-bench: a wrong answer: %.300s\n", c->answer);
}

static void
step(struct conn *c, uint32_t events, bool goes_on)
{
    if (events & EPOLLOUT)
        send_more(c);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || !receive_more(c))
        return;
    count(c);
    c->sent = c->got = 0;
    if (goes_on)
        send_more(c);
}

static void
conn_open(struct conn *c, unsigned number, const struct sockaddr_in *address)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    int one = 1;

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->answer = malloc(load.answer_room);
    c->request = load.sequences ? sequence_request(number) : load.request;
    if (c->fd < 0 || connect(c->fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ||
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
        epoll_ctl(load.epoll_fd, EPOLL_CTL_ADD, c->fd, &event) < 0)
        die("connect");
    send_more(c);
}

/* --- the program */

static struct sockaddr_in
parse_target(const char *target)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *colon = strchr(target, ':');
    char host[64] = "";

    if (colon)
        snprintf(host, sizeof(host), "%.*s", (int)(colon - target), target);
    if (!colon || inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "post-bench: %s is not of the form ADDRESS:PORT\n", target);
        exit(2);
    }
    address.sin_port = htons((uint16_t)atoi(colon + 1));
    return address;
}

static void
turn(bool goes_on)
{
    struct epoll_event events[64];
    int n = epoll_wait(load.epoll_fd, events, 64, 100);

    for (int i = 0; i < n; i++)
        step(events[i].data.ptr, events[i].events, goes_on);
}

/* The load of one process. */
static int
run_process(void *ctx, unsigned process, struct tally *tally)
{
    unsigned n = load.n_processes, all = (unsigned)load.n_conns;
    struct tally_clock begin;
    double began;

    (void)ctx;
    load.tally = tally;
    load.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    tally_wait_for_all();
    for (unsigned i = process; i < all; i += n)
        conn_open(calloc(1, sizeof(struct conn)), i, &load.address);
    for (began = now_s(); now_s() - began < load.warmup;)
        turn(true);
    memset(tally, 0, sizeof(*tally));
    begin = tally_clock_read();
    for (began = now_s(); now_s() - began < load.seconds;)
        turn(true);
    tally_measured(tally, now_s() - began, begin);
    return tally->errors || tally->steps == 0;
}

/* Sets `load` from the command line. Returns false if it is wrong. */
static bool
parse_options(int argc, char **argv)
{
    static const struct option flags[] = {
        {"header", 1, NULL, 'h'},    {"end", 1, NULL, 'e'},    {"connections", 1, NULL, 'c'},
        {"seconds", 1, NULL, 's'},   {"warmup", 1, NULL, 'w'}, {"processes", 1, NULL, 'p'},
        {"sequences", 0, NULL, 'q'}, {NULL, 0, NULL, 0}};
    const char *end = NULL;
    int flag, n_processes = 1;

    load.seconds = 3, load.warmup = 0.3, load.n_conns = 16, load.header = "";
    while ((flag = getopt_long(argc, argv, "", flags, NULL)) != -1) {
        if (flag == '?')
            return false;
        load.header = flag == 'h' ? optarg : load.header;
        load.sequences |= flag == 'q';
        end = flag == 'e' ? optarg : end;
        load.n_conns = flag == 'c' ? atoi(optarg) : load.n_conns;
        load.seconds = flag == 's' ? atof(optarg) : load.seconds;
        load.warmup = flag == 'w' ? atof(optarg) : load.warmup;
        n_processes = flag == 'p' ? atoi(optarg) : n_processes;
    }
    if (argc - optind != 3 || load.n_conns < 1 || load.n_conns > 10000 || n_processes < 1 ||
        n_processes > TALLY_MAX_PROCESSES || n_processes > load.n_conns)
        return false;
    load.n_processes = (unsigned)n_processes;
    load.target = argv[optind], load.path = argv[optind + 1];
    load.body = read_file(argv[optind + 2]);
    load.end = end ? read_file(end) : load.body;
    load.request = make_request("");
    load.answer_room = 2 * load.body.len + 2 * HEAD_MAX_BYTES;
    load.address = parse_target(argv[optind]);
    return true;
}

int
main(int argc, char **argv)
{
    static struct tally sum;
    const char *refused;
    int rc;

    if (!parse_options(argc, argv)) {
        fputs("usage: post-bench HOST:PORT PATH BODY_FILE [--header H] [--end FILE] "
              "[--connections N] [--seconds S] [--warmup S] [--processes N] [--sequences]\n",
              stderr);
        return 2;
    }
    rc = tally_run(load.n_processes, run_process, NULL, &sum);
    if (rc > 1)
        return rc;
    refused = tally_verdict(&sum);
    printf("{");
    tally_print(stdout, &sum, refused);
    printf(", \"errors\": %llu}\n", (unsigned long long)sum.errors);
    return rc ? rc : refused ? TALLY_REFUSED : 0;
}
