/* v2/config_write.c - a model's configuration as clients of the protocol know it. Any thread.
 *
 * Only what they read: 64-bit numbers are numbers, enumerations are names, and what a model does not
 * say has the value that it means.
 */
#include <inttypes.h>
#include <string.h>

#include "v2/answer.h"

static void
write_tensors(const char *key, const struct cn_tensor_spec *specs, uint32_t n, bool inputs,
              struct cn_buf *out)
{
    cn_buf_printf(out, ",\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++) {
        const struct cn_tensor_spec *spec = &specs[i];

        cn_buf_puts(out, i ? ",{\"name\":" : "{\"name\":");
        cn_v2_write_text(spec->name, out);
        cn_buf_printf(out, ",\"data_type\":\"%s\",\"dims\":[", cn_datatype_config_word(spec->type));
        for (uint32_t d = 0; d < spec->rank; d++)
            cn_buf_printf(out, "%s%" PRId64, d ? "," : "", spec->dims[d]);
        cn_buf_puts(out, "],\"is_shape_tensor\":false");
        if (inputs)
            cn_buf_printf(out,
                          ",\"format\":\"FORMAT_NONE\",\"allow_ragged_batch\":%s,\"optional\":%s",
                          spec->ragged ? "true" : "false", spec->optional ? "true" : "false");
        else
            cn_buf_puts(out, ",\"label_filename\":\"\"");
        cn_buf_puts(out, "}");
    }
    cn_buf_puts(out, "]");
}

static void
write_dims(const int64_t *dims, uint32_t rank, struct cn_buf *out)
{
    cn_buf_puts(out, "\"dims\":[");
    for (uint32_t i = 0; i < rank; i++)
        cn_buf_printf(out, "%s%" PRId64, i ? "," : "", dims[i]);
    cn_buf_puts(out, "]");
}

/* A state that the caller begins has zeros here: the protocol has no word for it. */
static void
write_initial(const struct cn_state_spec *spec, struct cn_buf *out)
{
    const struct cn_str prefix = CN_STR("initial_state/");
    struct cn_str file = spec->init_from;

    cn_buf_puts(out, ",\"initial_state\":[{\"name\":");
    cn_v2_write_text(spec->input, out);
    cn_buf_printf(out, ",\"data_type\":\"%s\",", cn_datatype_config_word(spec->type));
    write_dims(spec->init_dims, spec->rank, out);
    if (spec->init != CN_STATE_FILE) {
        cn_buf_puts(out, ",\"zero_data\":true}]");
        return;
    }
    if (file.len > prefix.len && memcmp(file.ptr, prefix.ptr, prefix.len) == 0)
        file = (struct cn_str){file.ptr + prefix.len, file.len - prefix.len};
    cn_buf_puts(out, ",\"data_file\":");
    cn_v2_write_text(file, out);
    cn_buf_puts(out, "}]");
}

static void
write_state(const struct cn_state_specs *specs, struct cn_buf *out)
{
    cn_buf_puts(out, ",\"state\":[");
    for (uint32_t i = 0; i < specs->n; i++) {
        const struct cn_state_spec *spec = &specs->items[i];

        cn_buf_puts(out, i ? ",{\"input_name\":" : "{\"input_name\":");
        cn_v2_write_text(spec->input, out);
        cn_buf_puts(out, ",\"output_name\":");
        cn_v2_write_text(spec->output, out);
        cn_buf_printf(out, ",\"data_type\":\"%s\",", cn_datatype_config_word(spec->type));
        write_dims(spec->dims, spec->rank, out);
        write_initial(spec, out);
        cn_buf_puts(out,
                    ",\"use_same_buffer_for_input_output\":false,\"use_growable_memory\":false}");
    }
    cn_buf_puts(out, "]");
}

/* A model has one way of forming batches: by sequence, or as requests come. */
static void
write_scheduling(const struct cn_model_io *io, const struct cn_v2_settings *settings,
                 struct cn_buf *out)
{
    if (settings->sequences) {
        cn_buf_printf(out,
                      ",\"sequence_batching\":{\"max_sequence_idle_microseconds\":%" PRIu64
                      ",\"control_input\":[]",
                      settings->idle_ms * 1000);
        write_state(&io->state, out);
        cn_buf_printf(out,
                      ",\"oldest\":{"
                      "\"max_candidate_sequences\":%u,\"preferred_batch_size\":[%u],"
                      "\"max_queue_delay_microseconds\":%" PRIu64 "}}",
                      settings->rows, settings->rows, settings->delay_us);
    } else
        cn_buf_printf(out,
                      ",\"dynamic_batching\":{\"preferred_batch_size\":[%u],"
                      "\"max_queue_delay_microseconds\":%" PRIu64
                      ",\"preserve_ordering\":false,\"priority_levels\":0,"
                      "\"default_priority_level\":0}",
                      settings->rows, settings->delay_us);
}

void
cn_v2_write_config(const char *model, const struct cn_model_io *io,
                   const struct cn_v2_settings *settings, struct cn_buf *out)
{
    cn_buf_puts(out, "{\"name\":");
    cn_v2_write_text(cn_str_from(model), out);
    cn_buf_printf(out, ",\"platform\":\"continuo\",\"backend\":\"continuo\",\"max_batch_size\":%u",
                  io->max_batch_size);
    write_tensors("input", io->inputs, io->n_inputs, true, out);
    write_tensors("output", io->outputs, io->n_outputs, false, out);
    cn_buf_puts(out, ",\"instance_group\":[{\"name\":");
    cn_v2_write_text(cn_str_from(model), out);
    cn_buf_printf(out, ",\"kind\":\"KIND_CPU\",\"count\":%u,\"gpus\":[]}]", settings->workers);
    write_scheduling(io, settings, out);
    cn_buf_printf(out,
                  ",\"model_transaction_policy\":{\"decoupled\":%s},"
                  "\"response_cache\":{\"enable\":false},\"parameters\":{}}",
                  io->decoupled ? "true" : "false");
}
