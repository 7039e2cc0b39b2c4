/* config/model/instances.c - reads instance_group of a model's YAML, where instances are workers.
 * Any thread.
 *
 * A group without a count has one instance, as in Triton. KIND_GPU is refused rather than ignored:
 * a worker is a process, and whether it uses a GPU is said by deviceType. */
#include "config/model/instances.h"

#include <stdio.h>

#include "core/text/str.h"

#define WORKERS_MAX 1024 /* the same limit as minWorkers has */

static const char *const own_keys[] = {"instance_group", "instanceGroup"};

bool
cn_instances_own(const struct cn_yaml *value)
{
    return cn_str_eq(value->key, cn_str_from(own_keys[0])) ||
           cn_str_eq(value->key, cn_str_from(own_keys[1]));
}

const struct cn_yaml *
cn_instances_get(const struct cn_yaml *map)
{
    const struct cn_yaml *list = cn_yaml_get(map, own_keys[0]);

    return list ? list : cn_yaml_get(map, own_keys[1]);
}

static int
read_group(const struct cn_yaml *group, const char *name, uint32_t *sum, struct cn_error *err)
{
    const struct cn_yaml *count = cn_yaml_get(group, "count"), *kind = cn_yaml_get(group, "kind");
    int64_t n = 1;

    if (group->kind != CN_YAML_MAP)
        return cn_yaml_refuse(name, group, "instance_group",
                              "a map with count and kind for each group", err);
    if (kind && !(kind->kind == CN_YAML_STRING && (cn_str_eq(kind->text, CN_STR("KIND_CPU")) ||
                                                   cn_str_eq(kind->text, CN_STR("KIND_AUTO")))))
        return cn_yaml_refuse(
            name, kind, "instance_group: kind",
            "KIND_CPU or KIND_AUTO, since instances are processes (TorchScript and ONNX "
            "models go to a GPU by deviceType)",
            err);
    if (count && (!cn_yaml_take_integer(count, &n) || n < 0 || n > WORKERS_MAX))
        return cn_yaml_refuse(name, count, "instance_group: count", "an integer from 0 to 1024",
                              err);
    *sum += (uint32_t)n;
    if (*sum > WORKERS_MAX)
        return cn_yaml_refuse(name, count ? count : group, "instance_group: count",
                              "at most 1024 instances in total", err);
    return 0;
}

int
cn_instances_read(const struct cn_yaml *list, const char *name, uint32_t *out, struct cn_error *err)
{
    int rc = 0;

    *out = 0;
    if (list->kind != CN_YAML_LIST)
        return cn_yaml_refuse(name, list, "instance_group", "a list of groups", err);
    for (uint32_t i = 0; !rc && i < list->n_items; i++)
        rc = read_group(list->items[i], name, out, err);
    return rc;
}

/* An empty list says nothing, since a configuration that is shown may have one. */
int
cn_instances_apply(const struct cn_yaml_doc *doc, struct cn_model_config *config,
                   struct cn_error *err)
{
    static const char *const others[] = {"minWorkers", "min_workers", "maxWorkers", "max_workers"};
    const struct cn_yaml *root = cn_yaml_root(doc), *list = cn_instances_get(root);
    uint32_t workers;
    int rc;

    if (!list || (list->kind == CN_YAML_LIST && list->n_items == 0))
        return 0;
    if ((rc = cn_instances_read(list, cn_yaml_name(doc), &workers, err)))
        return rc;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (cn_yaml_get(root, others[i]))
            return cn_fail(err, CN_E_CONFIG,
                           "%s:%u:%u: instance_group and %s set the same thing; remove one of them",
                           cn_yaml_name(doc), list->key_line, list->key_column, others[i]);
    config->min_workers = config->max_workers = workers;
    return 0;
}
