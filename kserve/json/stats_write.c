/* kserve/json/stats_write.c - writes statistics as JSON. Any thread.
 *
 * Durations are kept in microseconds and written in nanoseconds, the protocol's unit.
 */
#include <inttypes.h>

#include "kserve/infer_answer.h"
#include "kserve/stats.h"

static void
write_sum(const char *key, uint64_t count, uint64_t us, struct cn_buf *out)
{
    cn_buf_printf(out, "\"%s\":{\"count\":%" PRIu64 ",\"ns\":%" PRIu64 "}", key, count, us * 1000);
}

static void
write_sums(const char *const *keys, const struct cn_infer_sum *sums, unsigned n, struct cn_buf *out)
{
    for (unsigned i = 0; i < n; i++) {
        if (i > 0)
            cn_buf_puts(out, ",");
        write_sum(keys[i], sums[i].count, sums[i].us, out);
    }
}

static const char *const phases[] = {"compute_input", "compute_infer", "compute_output"};

static void
write_requests(const struct cn_infer_counts *counts, struct cn_buf *out)
{
    static const char *const keys[] = {"success",       "fail",          "queue",
                                       "compute_input", "compute_infer", "compute_output",
                                       "cache_hit",     "cache_miss"};
    const struct cn_infer_sum sums[] = {counts->success,
                                        counts->fail,
                                        counts->queue,
                                        counts->phases[CN_INFER_INPUT],
                                        counts->phases[CN_INFER_HANDLER],
                                        counts->phases[CN_INFER_OUTPUT],
                                        counts->hits,
                                        {0, 0}};

    cn_buf_puts(out, ",\"inference_stats\":{");
    write_sums(keys, sums, sizeof(sums) / sizeof(sums[0]), out);
    cn_buf_puts(out, "}");
}

/* Responses of decoupled models, by their position: "0" is the first response of a request. */
static void
write_responses(const struct cn_infer_counts *counts, struct cn_buf *out)
{
    static const char *const keys[] = {"compute_infer", "compute_output", "success",
                                       "fail",          "empty_response", "cancel"};

    cn_buf_puts(out, ",\"response_stats\":{");
    for (uint32_t i = 0; i < counts->n_positions; i++) {
        const struct cn_infer_position *at = &counts->positions[i];
        const struct cn_infer_sum sums[] = {at->handler, at->output, at->success,
                                            at->fail,    at->empty,  at->cancel};

        cn_buf_printf(out, "%s\"%u\":{", i ? "," : "", i);
        write_sums(keys, sums, sizeof(sums) / sizeof(sums[0]), out);
        cn_buf_puts(out, "}");
    }
    cn_buf_puts(out, "}");
}

static void
write_batches(const struct cn_infer_counts *counts, struct cn_buf *out)
{
    cn_buf_puts(out, ",\"batch_stats\":[");
    for (uint32_t i = 0; i < counts->n_batches; i++) {
        const struct cn_infer_batch *batch = &counts->batches[i];

        cn_buf_printf(out, "%s{\"batch_size\":%u", i ? "," : "", batch->size);
        for (unsigned p = 0; p < CN_INFER_N_PHASES; p++) {
            cn_buf_puts(out, ",");
            write_sum(phases[p], batch->executions, batch->phase_us[p], out);
        }
        cn_buf_puts(out, "}");
    }
    cn_buf_puts(out, "]");
}

void
cn_v2_write_stats(const struct cn_v2_model_stats *models, uint32_t n, struct cn_buf *out)
{
    cn_buf_puts(out, "{\"model_stats\":[");
    for (uint32_t i = 0; i < n; i++) {
        const struct cn_infer_counts *counts = &models[i].counts;

        cn_buf_puts(out, i ? ",{\"name\":" : "{\"name\":");
        cn_v2_write_text(cn_str_from(models[i].name), out);
        cn_buf_puts(out, ",\"version\":");
        cn_v2_write_text(cn_str_from(models[i].version), out);
        cn_buf_printf(out,
                      ",\"last_inference\":%" PRIu64 ",\"inference_count\":%" PRIu64
                      ",\"execution_count\":%" PRIu64,
                      counts->last_wall_ms, counts->inferences, counts->executions);
        write_requests(counts, out);
        write_responses(counts, out);
        write_batches(counts, out);
        cn_buf_puts(out, ",\"memory_usage\":[]}");
    }
    cn_buf_puts(out, "]}");
}
