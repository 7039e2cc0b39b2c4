/* kserve/json/test_request.h - says whether two requests are the same, for the unit tests and the
 * fuzz targets. */
#ifndef CN_KSERVE_JSON_TEST_REQUEST_H
#define CN_KSERVE_JSON_TEST_REQUEST_H

#include <string.h>

#include "kserve/request.h"

static inline bool
test_same_param(const struct cn_v2_param *a, const struct cn_v2_param *b)
{
    return cn_str_eq(a->name, b->name) && a->kind == b->kind && a->boolean == b->boolean &&
           a->integer == b->integer && memcmp(&a->number, &b->number, sizeof(a->number)) == 0 &&
           cn_str_eq(a->text, b->text);
}

static inline bool
test_same_window(const struct cn_v2_window *a, const struct cn_v2_window *b)
{
    return cn_str_eq(a->region, b->region) && a->offset == b->offset && a->bytes == b->bytes;
}

static inline bool
test_same_input(const struct cn_tensor *a, const struct cn_tensor *b)
{
    return cn_str_eq(a->name, b->name) && a->type == b->type && a->rank == b->rank &&
           memcmp(a->shape, b->shape, a->rank * sizeof(a->shape[0])) == 0 &&
           cn_str_eq(a->data, b->data);
}

static inline bool
test_same_output(const struct cn_v2_output *a, const struct cn_v2_output *b)
{
    return cn_str_eq(a->name, b->name) && a->binary == b->binary && a->classes == b->classes &&
           test_same_window(&a->window, &b->window);
}

static inline bool
test_same_lists(const struct cn_v2_request *a, const struct cn_v2_request *b)
{
    bool same = a->n_params == b->n_params && a->n_inputs == b->n_inputs &&
                !a->windows == !b->windows && a->n_outputs == b->n_outputs;

    for (uint32_t i = 0; same && i < a->n_params; i++)
        same = test_same_param(&a->params[i], &b->params[i]);
    for (uint32_t i = 0; same && i < a->n_inputs; i++)
        same = test_same_input(&a->inputs[i], &b->inputs[i]) &&
               (!a->windows || test_same_window(&a->windows[i], &b->windows[i]));
    for (uint32_t i = 0; same && i < a->n_outputs; i++)
        same = test_same_output(&a->outputs[i], &b->outputs[i]);
    return same;
}

/* Compares what was read: all but the references to shared memory, which are taken later. */
static inline bool
test_same_request(const struct cn_v2_request *a, const struct cn_v2_request *b)
{
    return cn_str_eq(a->id, b->id) && a->sequence_kind == b->sequence_kind &&
           a->sequence_number == b->sequence_number &&
           cn_str_eq(a->sequence_text, b->sequence_text) && a->start == b->start &&
           a->end == b->end && a->has_step == b->has_step && a->step == b->step &&
           a->priority == b->priority && a->timeout_us == b->timeout_us &&
           a->binary_by_default == b->binary_by_default && a->lists_outputs == b->lists_outputs &&
           a->batch == b->batch && test_same_lists(a, b);
}

#endif
