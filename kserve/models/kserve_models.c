/* kserve/models/kserve_models.c - metadata and configuration of the v2 protocol. On any loop.
 *
 * The error texts are those that clients of the protocol know, since some match on them ("Request
 * for unknown model: ..."). Management's own texts differ.
 */
#include "kserve/models/kserve_models.h"

#include "kserve/infer_answer.h"
#include "management/management.h"
#include "scheduler/queue/model_queue.h"

struct cn_model_queue *
cn_v2_find_any(struct cn_management *management, struct cn_str name, struct cn_str version,
               struct cn_error *err)
{
    struct cn_error why;
    struct cn_model_queue *queue = cn_management_find(management, name, version, &why);

    if (queue)
        return queue;
    if (why.code == CN_E_VERSION_NOT_FOUND)
        cn_fail(err, CN_E_VERSION_NOT_FOUND,
                "Request for unknown model: '%.*s' version %.*s is not found", CN_STR_ARG(name),
                CN_STR_ARG(version));
    else if (why.code == CN_E_MODEL_NOT_FOUND)
        cn_fail(err, CN_E_MODEL_NOT_FOUND, "Request for unknown model: '%.*s' is not found",
                CN_STR_ARG(name));
    else
        *err = why;
    return NULL;
}

/* Only a typed model can answer v2 requests; the message says what the others lack. */
struct cn_model_queue *
cn_v2_find(struct cn_management *management, struct cn_str name, struct cn_str version,
           struct cn_error *err)
{
    struct cn_model_queue *queue = cn_v2_find_any(management, name, version, err);

    if (!queue || cn_model_queue_config(queue)->io)
        return queue;
    cn_fail(err, CN_E_BAD_REQUEST,
            "model '%s' declares no inputs and outputs in its YAML, but the v2 protocol needs "
            "them; declare them, or call /predictions/%s",
            cn_model_queue_name(queue), cn_model_queue_name(queue));
    return NULL;
}

struct search {
    const struct cn_model_queue *queue;
    bool is_ready;
};

/* Called for each model version; remembers whether the one that is looked for is ready. */
static void
look_at_version(void *ctx, struct cn_model_queue *queue, bool is_ready)
{
    struct search *search = ctx;

    if (queue == search->queue)
        search->is_ready = is_ready;
}

int
cn_v2_model_is_ready(struct cn_management *management, struct cn_str name, struct cn_str version,
                     bool *out, struct cn_error *err)
{
    struct search search = {.queue = cn_v2_find_any(management, name, version, err)};

    if (!search.queue)
        return err->code;
    cn_management_each(management, look_at_version, &search);
    *out = search.is_ready;
    return 0;
}

void
cn_v2_write_server(struct cn_buf *out)
{
    cn_buf_puts(out, "{\"name\":\"continuo\",\"version\":\"" CN_VERSION
                     "\",\"extensions\":[\"classification\",\"sequence\",\"sequence(string_id)\","
                     "\"model_repository\",\"model_repository(unload_dependents)\","
                     "\"schedule_policy\",\"model_configuration\",\"system_shared_memory\","
                     "\"cuda_shared_memory\",\"binary_tensor_data\",\"parameters\","
                     "\"statistics\",\"trace\",\"logging\"]"
                     "}");
}

static void
write_model(const struct cn_model_queue *queue, struct cn_buf *out)
{
    static const struct cn_model_io nothing;
    const struct cn_model_io *io = cn_model_queue_config(queue)->io;
    const char *version = cn_model_queue_version(queue);

    cn_v2_write_metadata(cn_model_queue_name(queue), &version, 1, "continuo", io ? io : &nothing,
                         out);
}

int
cn_v2_write_model(struct cn_management *management, struct cn_str name, struct cn_str version,
                  struct cn_buf *out, struct cn_error *err)
{
    const struct cn_model_queue *queue = cn_v2_find(management, name, version, err);

    if (queue)
        write_model(queue, out);
    return queue ? 0 : err->code;
}

int
cn_v2_write_any_model(struct cn_management *management, struct cn_str name, struct cn_str version,
                      struct cn_buf *out, struct cn_error *err)
{
    const struct cn_model_queue *queue = cn_v2_find_any(management, name, version, err);

    if (queue)
        write_model(queue, out);
    return queue ? 0 : err->code;
}

int
cn_v2_write_model_config(struct cn_management *management, struct cn_str name,
                         struct cn_str version, struct cn_buf *out, struct cn_error *err)
{
    struct cn_model_queue *queue = cn_v2_find(management, name, version, err);
    const struct cn_model_config *config;
    struct cn_v2_settings settings;

    if (!queue)
        return err->code;
    config = cn_model_queue_config(queue);
    settings = (struct cn_v2_settings){.workers = config->min_workers,
                                       .rows = config->batch_size,
                                       .sequences = config->sequence_batching,
                                       .idle_ms = config->sequence_max_idle_ms,
                                       .delay_us = 1000 * (uint64_t)config->max_batch_delay_ms};
    cn_v2_write_config(cn_model_queue_name(queue), config->io, &settings, out);
    return 0;
}
