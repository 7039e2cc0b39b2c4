/* bench/sequence_memory.c - measures what one idle live sequence costs the server, and what a job
 * costs.
 *
 * It opens sequences through a model queue and answers them in place of a worker. It prints one
 * line of JSON: bytes for each sequence, as the slope of the heap and of the resident set between
 * 10,000 and N sequences, and nanoseconds for each job from submit to its answer (with the work of
 * both ends). One thread.
 *
 * sequence_memory [N] has 1000000 sequences by default, and at least 20000.
 */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/queue/submit.h"
#include "scheduler/workers/workers.h"

#define FIRST 10000u
#define BATCH 64u
#define READ_BYTES (256u * 1024)

struct client {
    struct cn_job job;
    struct cn_part part;
    char id[64];
};

struct bench {
    struct cn_loop *loop;
    struct cn_model_queue *queue;
    struct cn_worker_link *link;
    int fd; /* the worker's end of the socket */
    struct cn_buf in, out;
    struct cn_arena arena;
    struct client clients[BATCH];
    unsigned answered;
};

static struct bench bench;

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    (void)job;
    cn_assert(box->answer.error_code == 0);
    bench.answered++;
    cn_answer_box_free(box);
}

static void
on_loaded(void *owner, const struct cn_loaded *loaded)
{
    (void)owner;
    (void)loaded;
}

static void
on_stats(void *owner, const struct cn_worker_stats *stats)
{
    (void)owner;
    (void)stats;
}

static void
on_trouble(void *owner, const char *why)
{
    (void)owner;
    cn_panic(__FILE__, __LINE__, "the link is lost: %s", why);
}

static const struct cn_job_ops job_ops = {on_answer};
static const struct cn_worker_link_ops link_ops = {on_loaded,  on_stats, on_trouble,
                                                   on_trouble, NULL,     NULL};

static void
answer_batch(const struct cn_frame *frame)
{
    struct cn_row *rows;
    uint32_t i;

    cn_assert(frame->type == CN_FRAME_BATCH);
    cn_assert(cn_frame_get_batch(frame, &bench.arena, &rows, NULL) == 0);
    for (i = 0; i < frame->count; i++) {
        const struct cn_answer answer = {.job_id = rows[i].job_id,
                                         .flags = CN_ANSWER_FINAL,
                                         .generation = rows[i].job_id,
                                         .opened_wall_ms = cn_wall_ms(),
                                         .content_type = CN_STR("text/plain"),
                                         .body = CN_STR("12345678")};

        cn_frame_put_answer(&bench.out, &answer);
    }
    cn_arena_fini(&bench.arena);
}

/* Does the worker's part. */
static void
work(void)
{
    char *to = cn_buf_reserve(&bench.in, READ_BYTES);
    struct cn_frame frame;
    size_t at = 0;
    long size;
    ssize_t n = recv(bench.fd, to, READ_BYTES, MSG_DONTWAIT);

    if (n <= 0)
        return;
    bench.in.len += (size_t)n;
    while ((size = cn_frame_next(bench.in.data + at, bench.in.len - at, READ_BYTES, &frame, NULL)) >
           0) {
        answer_batch(&frame);
        at += (size_t)size;
    }
    cn_buf_consume(&bench.in, at);
    cn_assert(send(bench.fd, bench.out.data, bench.out.len, 0) == (ssize_t)bench.out.len);
    cn_buf_reset(&bench.out);
}

/* Makes one step of each sequence from `from` up to but not including `to`, BATCH at a time. */
static void
step_sequences(unsigned from, unsigned to)
{
    while (from < to) {
        unsigned n = to - from < BATCH ? to - from : BATCH, i;

        bench.answered = 0;
        for (i = 0; i < n; i++) {
            struct client *client = &bench.clients[i];
            int len = snprintf(client->id, sizeof(client->id), "3f2504e0-4f89-41d3-9a0c-%012u",
                               from + i); /* as long as a UUID */

            client->part = (struct cn_part){.name = CN_STR("body"), .data = CN_STR("1")};
            client->job.ops = &job_ops;
            client->job.origin = bench.loop;
            client->job.deadline_ms = cn_now_ms() + 60000;
            client->job.row = (struct cn_row){
                .sequence_id = {client->id, (size_t)len}, .n_parts = 1, .parts = &client->part};
            cn_model_queue_submit(bench.queue, &client->job);
        }
        while (bench.answered < n) {
            cn_loop_turn(bench.loop, 0);
            work();
        }
        from += n;
    }
}

static size_t
resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    cn_assert(file && fscanf(file, "%*u %lu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t
heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

static void
set_up(unsigned n)
{
    struct cn_model_config config;
    struct cn_error err;
    int fds[2];

    cn_model_config_init(&config);
    config.sequence_batching = true;
    config.batch_size = BATCH;
    config.max_num_sequence = n;
    config.sequence_max_idle_ms = 3 * 3600 * 1000; /* both time limits apply */
    config.sequence_timeout_ms = 24 * 3600 * 1000;
    cn_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    cn_assert(cn_loop_create(0, &bench.loop, &err) == 0);
    bench.fd = fds[1];
    cn_assert(cn_worker_link_create(bench.loop, fds[0], 1, 1 << 20, &link_ops, NULL, &bench.link,
                                    &err) == 0);
    bench.queue = cn_model_queue_create(bench.loop, "bench", "1.0", &config);
    cn_model_queue_attach(bench.queue, bench.link);
    cn_loop_turn(bench.loop, 0);
}

int
main(int argc, char **argv)
{
    unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1000000;
    size_t heap, resident;
    uint64_t begun_us, open_us, step_us;
    struct cn_model_queue_stats stats;

    if (n < 2 * FIRST) {
        fprintf(stderr, "usage: %s [N], N sequences, at least %u\n", argv[0], 2 * FIRST);
        return 2;
    }
    set_up(n);
    step_sequences(0, FIRST);
    heap = heap_bytes();
    resident = resident_bytes();
    begun_us = cn_now_us();
    step_sequences(FIRST, n);
    open_us = cn_now_us() - begun_us;
    heap = heap_bytes() - heap;
    resident = resident_bytes() - resident;
    begun_us = cn_now_us();
    step_sequences(0, n);
    step_us = cn_now_us() - begun_us;
    cn_model_queue_stats(bench.queue, &stats);
    printf("{\"bench\":\"sequence_memory\",\"sequences\":%llu,\"heap_bytes_per_sequence\":%.1f,"
           "\"resident_bytes_per_sequence\":%.1f,\"open_ns\":%.0f,\"step_ns\":%.0f,\"batch\":%u}\n",
           (unsigned long long)stats.live_sequences, (double)heap / (n - FIRST),
           (double)resident / (n - FIRST), (double)open_us * 1000 / (n - FIRST),
           (double)step_us * 1000 / n, BATCH);
    return stats.live_sequences == n ? 0 : 1;
}
