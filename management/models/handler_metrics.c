/* management/models/handler_metrics.c - tells Python workers which metrics metrics.yaml names, so
 * that a TorchServe handler finds them (context.metrics.get_metric). Any thread.
 *
 * The server reads the file, and a worker need not: its interpreter may have no parser for YAML. */
#include "management/models/handler_metrics.h"

#include <jansson.h>
#include <stdlib.h>

#include "core/memory/mem.h"
#include "torchserve/settings/metrics_file.h"

static json_t *
rule_json(const struct cn_metric_rule *rule)
{
    json_t *dims = json_array();

    for (uint32_t i = 0; i < rule->n_dims; i++)
        json_array_append_new(dims, json_string(rule->dims[i]));
    return json_pack("[s, s, s, o]", cn_metric_kind_word(rule->kind), rule->name, rule->unit, dims);
}

char *
cn_handler_metrics_json(void)
{
    const struct cn_metrics_file *file = cn_metric_rules();
    json_t *list = json_array();
    char *text, *copy;

    for (uint32_t i = 0; file && i < file->n; i++)
        if (file->rules[i].of_model)
            json_array_append_new(list, rule_json(&file->rules[i]));
    text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    copy = cn_strdup(text ? text : "[]");
    free(text);
    return copy;
}
