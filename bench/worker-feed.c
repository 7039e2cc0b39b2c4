/* bench/worker-feed.c - a worker alone, fed over its socket: what of its time is not the model's.
 *
 * Starts continuo-worker with a TorchScript model and sends it full batches, the next one always
 * waiting, as a busy server does, but without one: sequences of two batches take turns. After a
 * second of warm-up prints one JSON line: runs, and microseconds a run of the model and of the
 * whole worker, both as the worker tells them. One thread.
 *
 *   worker-feed WORKER FOLDER ROWS none|process|power [SECONDS [STATE-DIR [awake]]]
 *
 * `awake`: looks again and again instead of sleeping, as a server does that has much else to do:
 * the worker then pays for no wake-up, which on a virtual machine can cost more than all the rest.
 *
 * FOLDER holds model.pt and config.yaml; its one input is a tensor x of UINT8[1,1].
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/model/model_config.h"
#include "core/errors/panic.h"
#include "core/time/clock.h"
#include "core/tuning/tuning.h"
#include "proto/frame.h"

#define IN_BYTES (1u << 20)
#define AHEAD 2 /* how many batches the worker has at once */

struct feed {
    int fd;
    pid_t pid;
    uint32_t rows;
    uint64_t next_job, answers;
    bool loaded, ended, awake;
    double runs, model_us, busy_us;
    unsigned told; /* number of reports since the last look: STATS, then a REPORT */
    struct cn_buf out;
    char in[IN_BYTES];
    size_t in_len;
};

static struct feed feed;

static void
start_worker(const char *program)
{
    int fds[2];

    cn_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    feed.pid = fork();
    cn_assert(feed.pid >= 0);
    if (feed.pid == 0) {
        dup2(fds[1], CN_WORKER_FD);
        execl(program, program, "fed", (char *)NULL);
        perror(program);
        _exit(1);
    }
    close(fds[1]);
    feed.fd = fds[0];
}

static void
flush(void)
{
    for (size_t sent = 0; sent < feed.out.len;) {
        ssize_t n = send(feed.fd, feed.out.data + sent, feed.out.len - sent, MSG_NOSIGNAL);

        if (n <= 0)
            cn_panic(__FILE__, __LINE__, "the worker is gone");
        sent += (size_t)n;
    }
    cn_buf_reset(&feed.out);
}

static int
durability_of(const char *word)
{
    return strcmp(word, "none") == 0      ? CN_DURABILITY_NONE
           : strcmp(word, "process") == 0 ? CN_DURABILITY_PROCESS
                                          : CN_DURABILITY_POWER;
}

static void
put_load(const char *folder, const char *durability, const char *state_dir)
{
    int kept = durability_of(durability);

    cn_frame_put_load(&feed.out, &(struct cn_load){
                                     .model_name = "fed",
                                     .model_version = "1.0",
                                     .model_dir = folder,
                                     .handler = "model.pt",
                                     .config_file = "config.yaml",
                                     .runtime = "torch",
                                     .store_dir = kept == CN_DURABILITY_NONE ? "" : state_dir,
                                     .torch_library = "",
                                     .onnxruntime = "",
                                     .service_envelope = "",
                                     .worker_index = 1,
                                     .batch_size = feed.rows,
                                     .stateful = 1,
                                     .durability = (uint64_t)kept,
                                     .cache_entries = 1000000,
                                     .cache_bytes = 512u << 20,
                                     .state_max_bytes = 16u << 20,
                                     .answer_keep_bytes = 65536,
                                     .answer_max_bytes = 16u << 20,
                                     .store_max_bytes = 1ull << 33,
                                     .journal_max_bytes = 64 << 20,
                                     .journal = 1,
                                     .tombstone_ms = 600000,
                                     .key_window = 16,
                                     .stream_bytes = 1u << 20,
                                     .max_batch_size = feed.rows,
                                     .samples_max = 1000,
                                     .busy_wait_us = 50,
                                     .tuning = cn_tuning_bits,
                                 });
}

/* Writes rows as the server does: with the headers of a plain HTTP request and one tensor. */
static void
put_batch(void)
{
    size_t begun = cn_frame_begin_batch(&feed.out);

    for (uint32_t i = 0; i < feed.rows; i++) {
        char id[32], request[40];
        struct cn_header headers[] = {
            {CN_STR("Content-Length"), CN_STR("1")},
            {CN_STR("ts_request_sequence_id"), {id, 0}},
            {CN_STR("Host"), CN_STR("127.0.0.1:8080")},
        };
        struct cn_part part = {CN_STR("x"), CN_STR("tensor/UINT8[1,1]"), CN_STR("5")};
        struct cn_row row = {
            .job_id = ++feed.next_job,
            .flags = CN_ROW_STATEFUL,
            .deadline_ms = 120000,
            .n_headers = 3,
            .headers = headers,
            .n_parts = 1,
            .parts = &part,
        };

        snprintf(id, sizeof(id), "c1a2b3-%06u",
                 (unsigned)(feed.next_job % ((uint64_t)feed.rows * AHEAD)));
        snprintf(request, sizeof(request), "4f9d8c1e-77aa-4b6e-9a55-%012llu",
                 (unsigned long long)feed.next_job);
        row.sequence_id = headers[1].value = cn_str_from(id);
        row.request_id = cn_str_from(request);
        cn_frame_put_row(&feed.out, &row);
    }
    cn_frame_end_batch(&feed.out, begun, feed.rows);
}

static void
on_report(const struct cn_frame *frame)
{
    struct cn_report report;
    struct cn_arena arena;

    cn_arena_init(&arena);
    cn_assert(cn_frame_get_report(frame, &arena, &report, NULL) == 0);
    for (uint32_t i = 0; i < report.n_samples; i++) {
        if (cn_str_eq(report.samples[i].name, CN_STR("TorchRuns")))
            feed.runs += report.samples[i].value;
        else if (cn_str_eq(report.samples[i].name, CN_STR("TorchRunTime")))
            feed.model_us += report.samples[i].value;
        feed.told++;
    }
    cn_arena_fini(&arena);
}

static void
on_frame(const struct cn_frame *frame)
{
    struct cn_worker_stats stats;
    struct cn_loaded loaded;
    struct cn_answer answer;
    struct cn_arena arena;

    if (frame->type == CN_FRAME_LOADED) {
        cn_assert(cn_frame_get_loaded(frame, &loaded, NULL) == 0);
        if (loaded.error_code)
            cn_panic(__FILE__, __LINE__, "%.*s", CN_STR_ARG(loaded.message));
        feed.loaded = true;
    } else if (frame->type == CN_FRAME_ANSWER) {
        cn_arena_init(&arena);
        cn_assert(cn_frame_get_answer(frame, &arena, &answer, NULL) == 0);
        if (answer.error_code)
            cn_panic(__FILE__, __LINE__, "%.*s", CN_STR_ARG(answer.body));
        cn_arena_fini(&arena);
        feed.answers++;
    } else if (frame->type == CN_FRAME_REPORT) {
        on_report(frame);
    } else if (frame->type == CN_FRAME_STATS) {
        cn_assert(cn_frame_get_stats(frame, &stats, NULL) == 0);
        feed.busy_us += (double)stats.busy_us;
    }
}

/* Waits until something arrives and reads everything. It sleeps in poll, as the server does. In
 * recv it would also be woken when the worker reads, and the worker would pay for that. */
static void
take(void)
{
    struct pollfd watched = {.fd = feed.fd, .events = POLLIN};
    struct cn_frame frame;
    size_t at = 0;
    ssize_t n;
    long used;

    if (!feed.awake)
        poll(&watched, 1, -1);
    do
        n = recv(feed.fd, feed.in + feed.in_len, IN_BYTES - feed.in_len, MSG_DONTWAIT);
    while (n < 0 && errno == EAGAIN);

    if (n <= 0)
        cn_panic(__FILE__, __LINE__, "the worker is gone");
    feed.in_len += (size_t)n;
    while ((used = cn_frame_next(feed.in + at, feed.in_len - at, IN_BYTES, &frame, NULL)) > 0) {
        on_frame(&frame);
        at += (size_t)used;
    }
    cn_assert(used == 0);
    memmove(feed.in, feed.in + at, feed.in_len - at);
    feed.in_len -= at;
}

/* Sends batches for this time, and then until the next STATS, which the worker sends once a second.
 */
static void
feed_for(double seconds)
{
    uint64_t end_us = cn_now_us() + (uint64_t)(seconds * 1e6), batches = feed.next_job / feed.rows;

    feed.told = 0;
    while (cn_now_us() < end_us || feed.told == 0) {
        while (batches * feed.rows < feed.answers + (uint64_t)feed.rows * AHEAD) {
            put_batch();
            batches++;
        }
        flush();
        if (cn_now_us() < end_us)
            feed.told = 0;
        take();
    }
}

int
main(int argc, char **argv)
{
    double seconds = argc > 5 ? atof(argv[5]) : 2, runs, model_us, busy_us;

    if (argc < 5 || (feed.rows = (uint32_t)atoi(argv[3])) == 0 || feed.rows > 1024) {
        fprintf(
            stderr,
            "worker-feed WORKER FOLDER ROWS none|process|power [SECONDS [STATE-DIR [awake]]]\n");
        return 2;
    }
    feed.awake = argc > 7 && strcmp(argv[7], "awake") == 0;
    cn_buf_init(&feed.out, 0);
    start_worker(argv[1]);
    put_load(argv[2], argv[4], argc > 6 ? argv[6] : argv[2]);
    flush();
    while (!feed.loaded)
        take();
    feed_for(0.5);
    runs = feed.runs, model_us = feed.model_us, busy_us = feed.busy_us;
    feed_for(seconds);
    runs = feed.runs - runs;
    model_us = (feed.model_us - model_us) / runs;
    busy_us = (feed.busy_us - busy_us) / runs;
    printf("{\"rows\":%u,\"durability\":\"%s\",\"runs\":%.0f,\"model_us\":%.1f,\"worker_us\":%.1f,"
           "\"outside_us\":%.1f,\"outside\":%.4f}\n",
           feed.rows, argv[4], runs, model_us, busy_us, busy_us - model_us, 1 - model_us / busy_us);
    close(feed.fd);
    waitpid(feed.pid, NULL, 0);
    cn_buf_fini(&feed.out);
    return 0;
}
