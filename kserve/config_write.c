/* kserve/config_write.c - writes a model's configuration as clients of the protocol know it. Any
 * thread.
 *
 * It has only the members that clients read. 64-bit numbers are written as numbers, enumerations as
 * names, and a setting that a model does not have is written with the value that it has in effect.
 */
#include <inttypes.h>
#include <string.h>

#include "config/model/batching.h"
#include "kserve/infer_answer.h"

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

/* Writes the initial state. If the caller provides it, zeros are written, since the protocol has no
 * way to express that. */
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

/* Writes the control inputs of a sequence batcher: tensors that tell the model START, END, READY
 * and the id. */
static void
write_controls(const struct cn_batching *batching, struct cn_buf *out)
{
    cn_buf_puts(out, ",\"control_input\":[");
    for (uint32_t i = 0; i < batching->n_controls; i++) {
        const struct cn_control *control = &batching->controls[i];
        int32_t integers[2];
        float numbers[2];

        memcpy(integers, control->bytes, sizeof(integers));
        memcpy(numbers, control->bytes, sizeof(numbers));
        cn_buf_puts(out, i ? ",{\"name\":" : "{\"name\":");
        cn_v2_write_text(control->name, out);
        cn_buf_printf(out, ",\"control\":[{\"kind\":\"%s\",\"int32_false_true\":[",
                      cn_control_word(control->kind));
        if (control->type == CN_DATATYPE_INT32 && control->kind != CN_CONTROL_SEQUENCE_CORRID)
            cn_buf_printf(out, "%" PRId32 ",%" PRId32, integers[0], integers[1]);
        cn_buf_puts(out, "],\"fp32_false_true\":[");
        if (control->type == CN_DATATYPE_FP32)
            cn_buf_printf(out, "%.9g,%.9g", (double)numbers[0], (double)numbers[1]);
        cn_buf_puts(out, "],\"bool_false_true\":[");
        if (control->type == CN_DATATYPE_BOOL)
            cn_buf_printf(out, "%s,%s", control->bytes[0][0] ? "true" : "false",
                          control->bytes[1][0] ? "true" : "false");
        cn_buf_printf(out, "],\"data_type\":\"%s\"}]}",
                      control->kind == CN_CONTROL_SEQUENCE_CORRID
                          ? cn_datatype_config_word(control->type)
                          : "TYPE_INVALID");
    }
    cn_buf_puts(out, "]");
}

/* Writes the preferred batch sizes; without any, the largest batch is the preferred one. */
static void
write_preferred(const struct cn_batching *batching, uint32_t rows, struct cn_buf *out)
{
    cn_buf_puts(out, "\"preferred_batch_size\":[");
    for (uint32_t i = 0; i < batching->n_preferred; i++)
        cn_buf_printf(out, "%s%u", i ? "," : "", batching->preferred[i]);
    if (batching->n_preferred == 0 && rows)
        cn_buf_printf(out, "%u", rows);
    cn_buf_printf(out, "],\"max_queue_delay_microseconds\":%" PRIu64, batching->delay_us);
}

static void
write_policy(const struct cn_queue_policy *policy, struct cn_buf *out)
{
    cn_buf_printf(out,
                  "{\"timeout_action\":\"%s\",\"default_timeout_microseconds\":%" PRIu64
                  ",\"allow_timeout_override\":%s,\"max_queue_size\":%u}",
                  policy->delay ? "DELAY" : "REJECT", policy->timeout_us,
                  policy->allow_override ? "true" : "false", policy->max_queued);
}

static void
write_dynamic(const struct cn_batching *batching, struct cn_buf *out)
{
    cn_buf_puts(out, ",\"dynamic_batching\":{");
    write_preferred(batching, 0, out);
    cn_buf_printf(out,
                  ",\"preserve_ordering\":%s,\"priority_levels\":%u,\"default_priority_level\":%u",
                  batching->preserve_ordering ? "true" : "false", batching->priority_levels,
                  batching->default_level);
    cn_buf_puts(out, ",\"default_queue_policy\":");
    write_policy(&batching->policies[0], out);
    cn_buf_puts(out, ",\"priority_queue_policy\":{");
    for (uint32_t i = 1; i <= batching->priority_levels; i++) {
        cn_buf_printf(out, "%s\"%u\":", i > 1 ? "," : "", i);
        write_policy(&batching->policies[i], out);
    }
    cn_buf_puts(out, "}}");
}

static void
write_batching(const struct cn_model_io *io, uint32_t rows, struct cn_buf *out)
{
    const struct cn_batching *batching = io->batching;

    if (batching->kind == CN_BATCHING_DYNAMIC) {
        write_dynamic(batching, out);
        return;
    }
    cn_buf_printf(out, ",\"sequence_batching\":{\"max_sequence_idle_microseconds\":%" PRIu64,
                  batching->idle_us);
    write_controls(batching, out);
    write_state(&io->state, out);
    cn_buf_puts(out, ",\"iterative_sequence\":false,");
    if (batching->kind == CN_BATCHING_DIRECT) {
        cn_buf_printf(out,
                      "\"direct\":{\"max_queue_delay_microseconds\":%" PRIu64
                      ",\"minimum_slot_utilization\":%.9g}}",
                      batching->delay_us, (double)batching->min_utilization);
        return;
    }
    cn_buf_printf(out, "\"oldest\":{\"max_candidate_sequences\":%u,", batching->max_candidates);
    write_preferred(batching, rows, out);
    cn_buf_printf(out, ",\"preserve_ordering\":%s}}",
                  batching->preserve_ordering ? "true" : "false");
}

/* Writes how batches are formed. A model has one way: by sequence, or as requests come. */
static void
write_scheduling(const struct cn_model_io *io, const struct cn_v2_settings *settings,
                 struct cn_buf *out)
{
    const struct cn_batching plain = {.delay_us = settings->delay_us};
    uint32_t preferred = cn_batching_shown_preferred(settings->rows, io->max_batch_size);

    if (io->batching) {
        write_batching(io, preferred, out);
    } else if (settings->sequences) {
        cn_buf_printf(out,
                      ",\"sequence_batching\":{\"max_sequence_idle_microseconds\":%" PRIu64
                      ",\"control_input\":[]",
                      settings->idle_ms * 1000);
        write_state(&io->state, out);
        cn_buf_printf(out,
                      ",\"oldest\":{"
                      "\"max_candidate_sequences\":%u,",
                      settings->rows);
        write_preferred(&plain, preferred, out);
        cn_buf_puts(out, ",\"preserve_ordering\":false}}");
    } else {
        cn_buf_puts(out, ",\"dynamic_batching\":{");
        write_preferred(&plain, preferred, out);
        cn_buf_puts(out, ",\"preserve_ordering\":false,\"priority_levels\":0,"
                         "\"default_priority_level\":0}");
    }
}

void
cn_v2_write_config(const char *model, const struct cn_model_io *io,
                   const struct cn_v2_settings *settings, struct cn_buf *out)
{
    cn_buf_puts(out, "{\"name\":");
    cn_v2_write_text(cn_str_from(model), out);
    cn_buf_printf(out, ",\"platform\":\"continuo\",\"backend\":\"continuo\",\"max_batch_size\":%u",
                  io->max_batch_size);
    write_tensors("input", io->own_inputs ? io->own_inputs : io->inputs, io->n_inputs, true, out);
    write_tensors("output", io->own_outputs ? io->own_outputs : io->outputs, io->n_outputs, false,
                  out);
    cn_buf_puts(out, ",\"instance_group\":[{\"name\":");
    cn_v2_write_text(cn_str_from(model), out);
    cn_buf_printf(out, ",\"kind\":\"KIND_CPU\",\"count\":%u,\"gpus\":[]}]", settings->workers);
    write_scheduling(io, settings, out);
    cn_buf_printf(out,
                  ",\"model_transaction_policy\":{\"decoupled\":%s},"
                  "\"response_cache\":{\"enable\":false},\"parameters\":{}}",
                  io->decoupled ? "true" : "false");
}
