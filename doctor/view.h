/* doctor/view.h - what a server reports about itself at one moment, read from its JSON and its
 * metrics. */
#ifndef CN_DOCTOR_VIEW_H
#define CN_DOCTOR_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "metrics/counters/metrics.h"

struct cn_ctl_worker {
    uint32_t id, index, restarts;
    int64_t pid; /* 0: there is no process now */
    bool ready;
    const char *state;     /* "loading", ... */
    const char *last_exit; /* how its last process ended; NULL: none has ended */
    const char *warning;   /* the runtime's warning about the model, or NULL */
    const char *walls_lacking, *limits_lacking; /* what protects others from it, or NULL */
    uint64_t started_wall_ms;                   /* 0: unknown */
    uint64_t rss_bytes, live_sequences;
    uint64_t busy_rows;        /* the rows of its present call; 0: it has none */
    uint64_t busy_ms;          /* how long this call has taken so far */
    const char *busy_sequence; /* the sequence of the call's first row, or NULL */
};

/* One version of a model. The texts lie in the view's arena. */
struct cn_ctl_model {
    struct cn_ctl_model *next;
    const char *name, *version;
    const char *url;        /* where its archive is */
    const char *last_error; /* why the last load failed; NULL if it succeeded */
    const char *reload_error,
        *reload_since; /* set if the archive cannot be loaded again; else NULL */
    bool is_default, stateful;
    bool scales; /* the number of its workers follows the load */
    uint32_t min_workers, max_workers, n_workers, n_ready;
    struct cn_ctl_worker *workers;
    uint64_t waiting, queue_size, in_flight; /* jobs */
    uint64_t live_sequences, max_sequences, steps;
    bool ids_missing;             /* its steps come through a proxy, and without a sequence id */
    uint64_t response_timeout_ms; /* 0: unknown */
    double mean_call_ms;          /* average time of the handler's calls; 0: unknown */
};

/* A reason for which the server is unhealthy, other than missing workers, in the server's own
 * words. */
struct cn_ctl_reason {
    const char *kind, *subject, *text;
};
#define CN_CTL_REASONS_MAX 16

struct cn_ctl_view {
    struct cn_arena arena;
    struct cn_ctl_model *models, **end; /* in the server's order */
    uint64_t at_us;                     /* when it was read, by cn_now_us() */
    struct cn_ctl_reason reasons[CN_CTL_REASONS_MAX];
    unsigned n_reasons, n_unused; /* n_unused: stores that belong to no registered model */
    uint64_t unused_bytes;        /* the disk space of those stores */
    const char *unused;           /* the name of one of them, or NULL */
    bool has_metrics;
    uint64_t metrics[CN_METRIC_COUNT];
};

void cn_ctl_view_init(struct cn_ctl_view *view);
void cn_ctl_view_fini(struct cn_ctl_view *view);

/* Adds the answer to GET /models/{m}/all. The version `default_version` is marked as the default.
 * If that is NULL, a model's only version is the default. Returns CN_E_PROTOCOL if the answer has
 * another form. */
int cn_ctl_view_add(struct cn_ctl_view *view, struct cn_str json, const char *default_version,
                    struct cn_error *err);
/* Does the same with an answer that is a JSON value already; the value stays the caller's. */
int cn_ctl_view_add_value(struct cn_ctl_view *view, const json_t *versions,
                          const char *default_version, struct cn_error *err);
/* Adds the answer to GET /metrics, each metric summed over its labels. */
void cn_ctl_view_add_metrics(struct cn_ctl_view *view, struct cn_str text);

struct cn_ctl_totals {
    unsigned n_models;    /* versions */
    uint32_t ready, want; /* workers */
    uint64_t restarts, live_sequences, waiting, in_flight, steps;
    bool healthy; /* by the rule of /ping: all default versions have the workers that they want */
};
struct cn_ctl_totals cn_ctl_view_totals(const struct cn_ctl_view *view);
/* Returns NULL if there is no such model. */
const struct cn_ctl_model *cn_ctl_view_find(const struct cn_ctl_view *view, const char *name,
                                            const char *version);

/* Reads a time such as "2026-11-21T04:36:32.123Z". Returns milliseconds since 1970, or 0 if the
 * text is not a time. */
uint64_t cn_ctl_parse_time(const char *text);

/* Returns the steps per second between two views that lie `us` microseconds apart. Returns 0 if no
 * time passed, or if the server was restarted in between. */
double cn_ctl_rate(uint64_t before, uint64_t now, uint64_t us);

#endif
