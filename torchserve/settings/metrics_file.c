/* torchserve/settings/metrics_file.c - reads TorchServe's metrics.yaml: which metrics there may be,
 * with their kinds, units and dimensions. Before the loops run; read-only after that.
 *
 * The file has two sections, ts_metrics and model_metrics, each with lists named counter, gauge and
 * histogram. A metric in ts_metrics is one that the server itself writes, one in model_metrics
 * comes from handlers. The rules decide which metrics are shown, and whether a handler may make a
 * metric that the file does not name (auto-detect).
 *
 * All names are checked here, so that the page of metrics and the log lines, which are written on
 * the request's path, need not check or escape anything. The rules are sorted by name, and
 * cn_metrics_file_find is a binary search. */
#include "torchserve/settings/metrics_file.h"

#include <stdlib.h>
#include <string.h>

#include "config/yaml/yaml.h"
#include "core/memory/mem.h"

static const char *const kind_words[] = {"counter", "gauge", "histogram"};

static const struct cn_metrics_file *in_force;
static bool detects;

void
cn_metric_rules_use(const struct cn_metrics_file *file, bool auto_detect)
{
    in_force = file;
    detects = auto_detect;
}

const struct cn_metrics_file *
cn_metric_rules(void)
{
    return in_force;
}

bool
cn_metric_rules_auto_detect(void)
{
    return detects;
}

const char *
cn_metric_kind_word(enum cn_metric_kind kind)
{
    return kind_words[kind];
}

struct parse {
    const char *name;
    struct cn_metrics_file *out;
    struct cn_error *err;
};

static int
refuse(const struct parse *parse, const struct cn_yaml *at, const char *what, const char *expected)
{
    char shown[CN_YAML_SHOWN_MAX];

    return cn_fail(parse->err, CN_E_CONFIG, "%s:%u:%u: %s: expected %s, got %s %s", parse->name,
                   at->line, at->column, what, expected, cn_yaml_kind_word(at->kind),
                   cn_yaml_shown(at->text, shown));
}

/* Names must be those that Prometheus takes without quotes. */
static bool
is_name(struct cn_str text)
{
    if (text.len == 0 || text.len > 128)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

        if (!letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return true;
}

/* A unit stands in log lines between other fields, so it must not have their separators. */
static bool
is_unit(struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~' || strchr("\"\\|#:,", text.ptr[i]))
            return false;
    return text.len > 0 && text.len <= 64;
}

static int
read_dims(const struct parse *parse, const struct cn_yaml *dims, struct cn_metric_rule *rule)
{
    if (!dims || dims->kind == CN_YAML_NULL)
        return 0;
    if (dims->kind != CN_YAML_LIST || dims->n_items > CN_METRIC_DIMS_MAX)
        return refuse(parse, dims, "dimensions", "a list of at most 16 names");
    rule->dims = cn_alloc((dims->n_items + 1) * sizeof(*rule->dims));
    for (uint32_t i = 0; i < dims->n_items; i++) {
        if (dims->items[i]->kind != CN_YAML_STRING || !is_name(dims->items[i]->text))
            return refuse(parse, dims->items[i], "dimensions",
                          "a name of letters, digits and _ that does not begin with a digit");
        rule->dims[rule->n_dims++] = cn_strndup(dims->items[i]->text.ptr, dims->items[i]->text.len);
    }
    return 0;
}

static int
read_metric(const struct parse *parse, const struct cn_yaml *item, enum cn_metric_kind kind,
            bool of_model)
{
    const struct cn_yaml *name = cn_yaml_get(item, "name"), *unit = cn_yaml_get(item, "unit");
    struct cn_metric_rule *rule;

    if (item->kind != CN_YAML_MAP)
        return refuse(parse, item, kind_words[kind], "name, unit and dimensions of a metric");
    if (!name || name->kind != CN_YAML_STRING || !is_name(name->text))
        return refuse(
            parse, name ? name : item, "name",
            "a name of at most 128 letters, digits and _ that does not begin with a digit");
    if (!unit || unit->kind != CN_YAML_STRING || !is_unit(unit->text))
        return refuse(parse, unit ? unit : item, "unit", "a word of at most 64 characters");
    rule = &parse->out->rules[parse->out->n++];
    rule->name = cn_strndup(name->text.ptr, name->text.len);
    rule->unit = cn_strndup(unit->text.ptr, unit->text.len);
    rule->kind = kind;
    rule->of_model = of_model;
    return read_dims(parse, cn_yaml_get(item, "dimensions"), rule);
}

static int
read_section(const struct parse *parse, const struct cn_yaml *section, bool of_model)
{
    const char *what = of_model ? "model_metrics" : "ts_metrics";
    int rc = 0;

    if (!section || section->kind == CN_YAML_NULL)
        return 0;
    if (section->kind != CN_YAML_MAP)
        return refuse(parse, section, what, "lists named counter, gauge and histogram");
    for (uint32_t i = 0; i < section->n_items; i++) {
        const struct cn_yaml *list = section->items[i];
        unsigned kind = 0;

        while (kind < 3 && !cn_str_eq(list->key, cn_str_from(kind_words[kind])))
            kind++;
        if (kind == 3)
            return refuse(parse, list, what, "lists named counter, gauge and histogram");
        if (list->kind == CN_YAML_NULL)
            continue;
        if (list->kind != CN_YAML_LIST)
            return refuse(parse, list, kind_words[kind], "a list of metrics");
        if (list->n_items > CN_METRICS_FILE_MAX - parse->out->n)
            return refuse(parse, list, kind_words[kind], "at most 10000 metrics in the file");
        for (uint32_t m = 0; rc == 0 && m < list->n_items; m++)
            rc = read_metric(parse, list->items[m], (enum cn_metric_kind)kind, of_model);
        if (rc)
            return rc;
    }
    return 0;
}

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const struct cn_metric_rule *)a)->name,
                  ((const struct cn_metric_rule *)b)->name);
}

static int
read_all(const struct parse *parse, const struct cn_yaml *root)
{
    struct cn_metrics_file *out = parse->out;
    int rc;

    if (root->kind != CN_YAML_MAP)
        return refuse(parse, root, "the file", "dimensions, ts_metrics and model_metrics");
    rc = read_section(parse, cn_yaml_get(root, "ts_metrics"), false);
    if (rc == 0)
        rc = read_section(parse, cn_yaml_get(root, "model_metrics"), true);
    if (rc)
        return rc;
    if (out->n == 0)
        return refuse(parse, root, "the file", "metrics below ts_metrics or model_metrics");
    qsort(out->rules, out->n, sizeof(*out->rules), by_name);
    for (uint32_t i = 1; i < out->n; i++)
        if (strcmp(out->rules[i - 1].name, out->rules[i].name) == 0)
            return cn_fail(parse->err, CN_E_CONFIG, "%s: metric %s is declared twice", parse->name,
                           out->rules[i].name);
    return 0;
}

/* Returns an upper bound of the number of metrics, by which the array is allocated once. */
static uint32_t
count_items(const struct cn_yaml *root)
{
    static const char *const sections[] = {"ts_metrics", "model_metrics"};
    uint32_t n = 0;

    for (unsigned s = 0; s < 2; s++) {
        const struct cn_yaml *section = cn_yaml_get(root, sections[s]);

        for (uint32_t i = 0; section && i < section->n_items; i++)
            n += section->items[i]->n_items;
    }
    return n < CN_METRICS_FILE_MAX ? n : CN_METRICS_FILE_MAX;
}

static int
from_doc(struct cn_yaml_doc *doc, struct cn_metrics_file *out, struct cn_error *err)
{
    struct parse parse = {cn_yaml_name(doc), out, err};
    int rc;

    *out = (struct cn_metrics_file){0};
    out->rules = cn_alloc((count_items(cn_yaml_root(doc)) + 1) * sizeof(*out->rules));
    rc = read_all(&parse, cn_yaml_root(doc));
    if (rc)
        cn_metrics_file_fini(out);
    cn_yaml_destroy(doc);
    return rc;
}

int
cn_metrics_file_parse(const char *name, struct cn_str bytes, struct cn_metrics_file *out,
                      struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    int rc = cn_yaml_parse(name, bytes, &doc, err);

    return rc ? rc : from_doc(doc, out, err);
}

int
cn_metrics_file_read(const char *path, struct cn_metrics_file *out, struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    int rc = cn_yaml_parse_file(path, &doc, err);

    return rc ? rc : from_doc(doc, out, err);
}

void
cn_metrics_file_fini(struct cn_metrics_file *file)
{
    for (uint32_t i = 0; i < file->n; i++) {
        struct cn_metric_rule *rule = &file->rules[i];

        for (uint32_t d = 0; d < rule->n_dims; d++)
            cn_free(rule->dims[d]);
        cn_free(rule->dims);
        cn_free(rule->name);
        cn_free(rule->unit);
    }
    cn_free(file->rules);
    *file = (struct cn_metrics_file){0};
}

const struct cn_metric_rule *
cn_metrics_file_find(const struct cn_metrics_file *file, struct cn_str name)
{
    uint32_t low = 0, high = file->n;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const struct cn_metric_rule *rule = &file->rules[mid];
        size_t len = strlen(rule->name);
        int order = memcmp(name.ptr ? name.ptr : "", rule->name, len < name.len ? len : name.len);

        if (order == 0)
            order = (name.len > len) - (name.len < len);
        if (order == 0)
            return rule;
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}
