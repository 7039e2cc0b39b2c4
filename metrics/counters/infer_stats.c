/* metrics/counters/infer_stats.c - the counters of a typed model's requests.
 *
 * They are written by one loop and read by any thread. So an increment needs no atomic addition: a
 * relaxed load and a relaxed store are enough, and cost no more than a plain variable. A reader may
 * see a request counted in one sum and not yet in another one, which statistics can live with; it
 * never sees half a number.
 *
 * What is counted follows the v2 protocol: `success`, `fail` and `queue` count requests; a request
 * that was replayed counts as a hit and not in the phases of computing; `inferences` counts the
 * rows of successful requests; `executions` counts calls of the handler. Responses of decoupled
 * models are counted by their position in the request. */
#include "metrics/counters/infer_stats.h"

#include <stdatomic.h>

#include "core/memory/mem.h"

typedef _Atomic uint64_t counter;

struct sum {
    counter count, us;
};

struct batch {
    counter executions;
    counter phase_us[CN_INFER_N_PHASES];
};

struct position {
    struct sum handler, output, kinds[CN_RESPONSE_CANCELED + 1];
};

/* The lists have room for all sizes and positions. Most models use few of them, and memory pages
 * that nobody touches cost nothing. */
struct cn_infer_stats {
    counter last_wall_ms, inferences, executions, pending;
    struct sum success, fail, queue, phases[CN_INFER_N_PHASES], hits;
    counter failures[CN_INFER_N_REASONS];
    counter largest_batch, n_positions;
    struct batch *batches; /* [size - 1] */
    struct position *positions;
};

static uint64_t
get(const counter *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

static void
set(counter *at, uint64_t value)
{
    atomic_store_explicit(at, value, memory_order_relaxed);
}

static void
add(counter *at, uint64_t n)
{
    set(at, get(at) + n);
}

static void
put(struct sum *sum, uint64_t us)
{
    add(&sum->count, 1);
    add(&sum->us, us);
}

const char *
cn_infer_reason_word(enum cn_infer_reason reason)
{
    static const char *const words[] = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};

    return words[reason];
}

struct cn_infer_stats *
cn_infer_stats_create(void)
{
    struct cn_infer_stats *stats = cn_alloc(sizeof(*stats));

    stats->batches = cn_alloc(CN_INFER_BATCHES_MAX * sizeof(*stats->batches));
    stats->positions = cn_alloc(CN_INFER_RESPONSES_MAX * sizeof(*stats->positions));
    return stats;
}

void
cn_infer_stats_destroy(struct cn_infer_stats *stats)
{
    if (!stats)
        return;
    cn_free(stats->batches);
    cn_free(stats->positions);
    cn_free(stats);
}

/* Sizes above the limit count as the largest one. */
void
cn_infer_executed(struct cn_infer_stats *stats, uint32_t size, uint64_t wall_ms,
                  const uint64_t phase_us[CN_INFER_N_PHASES])
{
    struct batch *batch;

    if (size == 0)
        return;
    if (size > CN_INFER_BATCHES_MAX)
        size = CN_INFER_BATCHES_MAX;
    batch = &stats->batches[size - 1];
    add(&stats->executions, 1);
    set(&stats->last_wall_ms, wall_ms);
    add(&batch->executions, 1);
    for (unsigned i = 0; i < CN_INFER_N_PHASES; i++)
        add(&batch->phase_us[i], phase_us[i]);
    if (size > get(&stats->largest_batch))
        set(&stats->largest_batch, size);
}

void
cn_infer_succeeded(struct cn_infer_stats *stats, const struct cn_infer_done *done)
{
    put(&stats->success, done->total_us);
    put(&stats->queue, done->queue_us);
    if (done->replayed) {
        put(&stats->hits, done->total_us);
        return;
    }
    add(&stats->inferences, done->batch ? done->batch : 1);
    for (unsigned i = 0; i < CN_INFER_N_PHASES; i++)
        put(&stats->phases[i], done->phase_us[i]);
}

void
cn_infer_failed(struct cn_infer_stats *stats, enum cn_infer_reason reason, uint64_t total_us)
{
    put(&stats->fail, total_us);
    add(&stats->failures[reason], 1);
}

/* A response with data counts in the handler's and the output's time of its position. Each response
 * counts once by its kind. */
void
cn_infer_response(struct cn_infer_stats *stats, uint32_t at, enum cn_infer_response kind,
                  const uint64_t phase_us[CN_INFER_N_PHASES])
{
    struct position *position;

    if (at >= CN_INFER_RESPONSES_MAX)
        at = CN_INFER_RESPONSES_MAX - 1;
    position = &stats->positions[at];
    if (kind == CN_RESPONSE_DATA) {
        put(&position->handler, phase_us[CN_INFER_HANDLER]);
        put(&position->output, phase_us[CN_INFER_OUTPUT]);
    }
    put(&position->kinds[kind], phase_us[CN_INFER_HANDLER] + phase_us[CN_INFER_OUTPUT]);
    if (at >= get(&stats->n_positions))
        set(&stats->n_positions, at + 1);
}

void
cn_infer_set_pending(struct cn_infer_stats *stats, uint64_t pending)
{
    set(&stats->pending, pending);
}

static struct cn_infer_sum
read_sum(const struct sum *sum)
{
    return (struct cn_infer_sum){get(&sum->count), get(&sum->us)};
}

/* Copies the counters of batch sizes that ran at least once. */
static void
read_batches(const struct cn_infer_stats *stats, struct cn_arena *arena,
             struct cn_infer_counts *out)
{
    uint32_t largest = (uint32_t)get(&stats->largest_batch);

    out->batches = cn_arena_alloc(arena, (largest + 1) * sizeof(*out->batches));
    for (uint32_t i = 0; i < largest; i++) {
        const struct batch *batch = &stats->batches[i];
        struct cn_infer_batch *copy = &out->batches[out->n_batches];

        *copy = (struct cn_infer_batch){.size = i + 1, .executions = get(&batch->executions)};
        for (unsigned p = 0; p < CN_INFER_N_PHASES; p++)
            copy->phase_us[p] = get(&batch->phase_us[p]);
        if (copy->executions)
            out->n_batches++;
    }
}

void
cn_infer_read(const struct cn_infer_stats *stats, struct cn_arena *arena,
              struct cn_infer_counts *out)
{
    *out = (struct cn_infer_counts){
        .last_wall_ms = get(&stats->last_wall_ms),
        .inferences = get(&stats->inferences),
        .executions = get(&stats->executions),
        .pending = get(&stats->pending),
        .success = read_sum(&stats->success),
        .fail = read_sum(&stats->fail),
        .queue = read_sum(&stats->queue),
        .hits = read_sum(&stats->hits),
        .n_positions = (uint32_t)get(&stats->n_positions),
    };
    for (unsigned i = 0; i < CN_INFER_N_PHASES; i++)
        out->phases[i] = read_sum(&stats->phases[i]);
    for (unsigned i = 0; i < CN_INFER_N_REASONS; i++)
        out->failures[i] = get(&stats->failures[i]);
    read_batches(stats, arena, out);
    out->positions = cn_arena_alloc(arena, (out->n_positions + 1) * sizeof(*out->positions));
    for (uint32_t i = 0; i < out->n_positions; i++) {
        const struct position *position = &stats->positions[i];

        out->positions[i] = (struct cn_infer_position){
            .handler = read_sum(&position->handler),
            .output = read_sum(&position->output),
            .success = read_sum(&position->kinds[CN_RESPONSE_DATA]),
            .fail = read_sum(&position->kinds[CN_RESPONSE_FAILED]),
            .empty = read_sum(&position->kinds[CN_RESPONSE_EMPTY]),
            .cancel = read_sum(&position->kinds[CN_RESPONSE_CANCELED]),
        };
    }
}
