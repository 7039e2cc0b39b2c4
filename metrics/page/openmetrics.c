/* metrics/page/openmetrics.c - Prometheus' text format as OpenMetrics. On loop 0.
 *
 * Samples are the same in both formats. The differences are these: a counter's family has its name
 * without _total, so a counter whose name does not end so has the type unknown; comments other than
 * HELP and TYPE are not allowed; the page ends with "# EOF"; and a bucket may have an exemplar. */
#include "metrics/page/openmetrics.h"

#include <inttypes.h>
#include <string.h>

#include "tracing/exemplars.h"

#define TOTAL "_total"
#define STEPS "continuo_step_duration_seconds_bucket{"

static bool
ends_with_total(struct cn_str name)
{
    const size_t len = sizeof(TOTAL) - 1;

    return name.len > len && memcmp(name.ptr + name.len - len, TOTAL, len) == 0;
}

/* Writes a family's TYPE, and the HELP that came before it. */
static void
put_family(struct cn_str line, struct cn_str help, struct cn_buf *out)
{
    struct cn_str name, type;

    line = (struct cn_str){line.ptr + strlen("# TYPE "), line.len - strlen("# TYPE ")};
    name = cn_str_cut(&line, ' ');
    type = line;
    if (cn_str_eq(type, CN_STR("counter")) && ends_with_total(name))
        name.len -= sizeof(TOTAL) - 1;
    else if (cn_str_eq(type, CN_STR("counter")) || cn_str_eq(type, CN_STR("untyped")))
        type = CN_STR("unknown");
    cn_buf_printf(out, "# TYPE %.*s %.*s\n", CN_STR_ARG(name), CN_STR_ARG(type));
    if (help.len == 0)
        return;
    help = (struct cn_str){help.ptr + strlen("# HELP "), help.len - strlen("# HELP ")};
    cn_str_cut(&help, ' ');
    cn_buf_printf(out, "# HELP %.*s ", CN_STR_ARG(name));
    for (size_t i = 0; i < help.len; i++)
        cn_buf_append(out, help.ptr[i] == '"' ? "\\\"" : &help.ptr[i], help.ptr[i] == '"' ? 2 : 1);
    cn_buf_puts(out, "\n");
}

/* Writes a sample. The other format allows a comma behind the last label. */
static void
put_sample(struct cn_str line, struct cn_buf *out)
{
    const char *brace = memrchr(line.ptr, '}', line.len);
    const size_t before = brace ? (size_t)(brace - line.ptr) : 0;

    if (before > 0 && brace[-1] == ',') {
        cn_buf_append(out, line.ptr, before - 1);
        cn_buf_append(out, brace, line.len - before);
    } else {
        cn_buf_append_str(out, line);
    }
}

/* The exemplars of one model version, and which of its buckets comes next. */
struct buckets {
    const struct cn_model_counted *model;
    struct cn_exemplar exemplars[CN_EXEMPLAR_BUCKETS];
    unsigned next;
};

/* Finds the model whose labels the sample has. Its buckets come one after the other. */
static void
find_model(struct buckets *at, struct cn_str line, const struct cn_model_counted *models,
           unsigned n)
{
    const struct cn_str labels = {line.ptr + strlen(STEPS), line.len - strlen(STEPS)};

    if (at->model && cn_str_begins(labels, cn_str_from(at->model->labels)) &&
        at->next < CN_EXEMPLAR_BUCKETS)
        return;
    at->model = NULL;
    at->next = 0;
    for (unsigned i = 0; i < n && !at->model; i++) {
        const size_t len = strlen(models[i].labels);

        if (cn_str_begins(labels, cn_str_from(models[i].labels)) && labels.len > len &&
            labels.ptr[len] == ',')
            at->model = &models[i];
    }
    if (at->model)
        cn_exemplars_read(cn_str_from(at->model->name), cn_str_from(at->model->version),
                          at->exemplars);
}

static void
put_exemplar(struct buckets *at, struct cn_buf *out)
{
    const struct cn_exemplar *exemplar;

    if (!at->model || at->next >= CN_EXEMPLAR_BUCKETS)
        return;
    exemplar = &at->exemplars[at->next++];
    if (exemplar->trace_id[0])
        cn_buf_printf(out, " # {trace_id=\"%s\"} %" PRIu64 ".%06" PRIu64 " %" PRIu64 ".%03" PRIu64,
                      exemplar->trace_id, exemplar->us / 1000000, exemplar->us % 1000000,
                      exemplar->wall_ms / 1000, exemplar->wall_ms % 1000);
}

void
cn_openmetrics_print(struct cn_str page, const struct cn_model_counted *models, unsigned n_models,
                     struct cn_buf *out)
{
    struct cn_str line, help = {NULL, 0};
    struct buckets buckets = {.model = NULL};

    while (page.len) {
        line = cn_str_cut(&page, '\n');
        if (cn_str_begins(line, CN_STR("# HELP "))) {
            help = line;
        } else if (cn_str_begins(line, CN_STR("# TYPE "))) {
            put_family(line, help, out);
            help.len = 0;
        } else if (line.len && line.ptr[0] != '#') {
            put_sample(line, out);
            if (cn_str_begins(line, CN_STR(STEPS))) {
                find_model(&buckets, line, models, n_models);
                put_exemplar(&buckets, out);
            }
            cn_buf_puts(out, "\n");
        }
    }
    cn_buf_puts(out, "# EOF\n");
}
