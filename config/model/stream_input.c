/* config/model/stream_input.c - checks the settings of a model that gets windows of a stream. Any
 * thread.
 *
 * The table of options has checked each value by itself. The rules here concern several settings,
 * or the model's tensors, so they are checked when everything has been read. The server does this
 * at the registration; the worker relies on it. */
#include "config/model/stream_input.h"

#include <inttypes.h>
#include <string.h>

#include "config/model/batching.h"
#include "config/model/model_config.h"

/* A model without stream.input must not have the other keys: their author expects an effect. */
static int
check_unused(const struct cn_model_config *config, struct cn_error *err)
{
    const char *key = config->stream_window ? "stream.window"
                      : config->stream_hop  ? "stream.hop"
                                            : NULL;

    if (!key)
        return 0;
    return cn_fail(
        err, CN_E_CONFIG,
        "%s has no effect without stream.input; add stream: {input: audio} or series, or "
        "remove it",
        key);
}

static int
check_sizes(const struct cn_model_config *config, struct cn_error *err)
{
    if (config->stream_window == 0)
        return cn_fail(err, CN_E_CONFIG,
                       "stream.input needs stream.window, the number of samples that the handler "
                       "gets in each call");
    if (config->stream_hop > config->stream_window)
        return cn_fail(err, CN_E_CONFIG,
                       "stream.hop %" PRIu32 " is above stream.window %" PRIu32
                       ", so samples between two windows would be lost; lower it or leave it out",
                       config->stream_hop, config->stream_window);
    if (config->stream_chunk_max < config->stream_window)
        return cn_fail(err, CN_E_CONFIG,
                       "stream.maxChunkSamples %" PRIu32 " is below stream.window %" PRIu32
                       "; raise it or leave it out",
                       config->stream_chunk_max, config->stream_window);
    return 0;
}

/* The windows of a request are steps of its sequence. What needs a place of its own for each row,
 * or commits before the last window has run, cannot be combined with that. */
static int
check_rest(const struct cn_model_config *config, const struct cn_model_io *io, struct cn_error *err)
{
    if (!config->sequence_batching)
        return cn_fail(err, CN_E_CONFIG,
                       "stream.input needs sequences, in which the rest of a request is kept: set "
                       "sequenceBatching: true");
    if (config->continuous_batching)
        return cn_fail(err, CN_E_CONFIG,
                       "stream.input cannot be combined with continuousBatching, which commits a "
                       "step before its last window has run; remove one of them");
    if (io && io->decoupled)
        return cn_fail(err, CN_E_CONFIG,
                       "stream.input cannot be combined with decoupled: a request gets one answer "
                       "with all its windows; remove one of them");
    if (io && io->batching &&
        (io->batching->n_controls > 0 || io->batching->kind == CN_BATCHING_DIRECT))
        return cn_fail(err, CN_E_CONFIG,
                       "stream.input cannot be combined with sequence_batching's direct strategy "
                       "or its control_input; remove them");
    return 0;
}

/* The model's first input gets the window: FP32 or INT16, with dims that hold its samples. */
static int
check_tensor(const struct cn_model_config *config, const struct cn_model_io *io,
             struct cn_error *err)
{
    const struct cn_tensor_spec *spec = &io->inputs[0];
    uint64_t fixed = 1;
    uint32_t open = 0;

    if (spec->type != CN_DATATYPE_FP32 && spec->type != CN_DATATYPE_INT16)
        return cn_fail(err, CN_E_CONFIG,
                       "with stream.input the first input gets the window; '%.*s' is %s, but must "
                       "be FP32 or INT16",
                       CN_STR_ARG(spec->name), cn_datatype_word(spec->type));
    if (spec->type == CN_DATATYPE_INT16 && config->stream_input == CN_STREAM_SERIES)
        return cn_fail(err, CN_E_CONFIG,
                       "with stream.input: series the first input gets numbers; '%.*s' is INT16, "
                       "but must be FP32",
                       CN_STR_ARG(spec->name));
    for (uint32_t i = 0; i < spec->rank; i++) {
        if (spec->dims[i] < 0)
            open++;
        else if (__builtin_mul_overflow(fixed, (uint64_t)spec->dims[i], &fixed))
            fixed = 0;
    }
    if (open > 1 || fixed == 0 ||
        (open ? config->stream_window % fixed : config->stream_window != fixed))
        return cn_fail(err, CN_E_CONFIG,
                       "stream.window %" PRIu32
                       " does not fit the dims of input '%.*s'; declare dims: [%" PRIu32 "]",
                       config->stream_window, CN_STR_ARG(spec->name), config->stream_window);
    if (config->stream_answers == CN_STREAM_BYTES)
        return cn_fail(err, CN_E_CONFIG,
                       "stream.answers: bytes is for handlers that answer with bytes; a typed "
                       "model answers with tensors, so remove it");
    for (uint32_t i = 0; io->max_batch_size == 0 && i < io->n_outputs; i++)
        if (io->outputs[i].rank == CN_TENSOR_RANK_MAX - 1)
            return cn_fail(err, CN_E_CONFIG,
                           "with stream.input output '%.*s' gets one more dimension, the windows, "
                           "but it has %d already",
                           CN_STR_ARG(io->outputs[i].name), CN_TENSOR_RANK_MAX - 1);
    return 0;
}

int
cn_stream_input_check(const struct cn_model_config *config, const struct cn_model_io *io,
                      struct cn_error *err)
{
    int rc;

    if (config->stream_input == CN_STREAM_NONE)
        return check_unused(config, err);
    rc = check_sizes(config, err);
    if (!rc)
        rc = check_rest(config, io, err);
    if (!rc && io)
        rc = check_tensor(config, io, err);
    return rc;
}

static struct cn_tensor_spec *
copy_specs(struct cn_model_io *io, const struct cn_tensor_spec *specs, uint32_t n)
{
    struct cn_tensor_spec *copy = cn_arena_alloc(&io->arena, sizeof(*copy) * (n + 1));

    memcpy(copy, specs, sizeof(*copy) * n);
    return copy;
}

void
cn_stream_input_widen(const struct cn_model_config *config, struct cn_model_io *io)
{
    struct cn_tensor_spec *spec = &io->inputs[0];

    if (config->stream_input == CN_STREAM_NONE)
        return;
    io->own_inputs = copy_specs(io, io->inputs, io->n_inputs);
    io->own_outputs = copy_specs(io, io->outputs, io->n_outputs);
    spec->samples = spec->ragged = true;
    spec->rank = 1;
    spec->dims[0] = -1;
    for (uint32_t i = 0; io->max_batch_size == 0 && i < io->n_outputs; i++) {
        struct cn_tensor_spec *output = &io->outputs[i];

        memmove(output->dims + 1, output->dims, sizeof(output->dims[0]) * output->rank);
        output->dims[0] = -1;
        output->rank++;
    }
}

bool
cn_stream_takes(enum cn_datatype type)
{
    return type == CN_DATATYPE_INT16 || type == CN_DATATYPE_FP32 || type == CN_DATATYPE_UINT8 ||
           type == CN_DATATYPE_BYTES;
}
