/* ctl/view.h - what a server showed of itself at one moment, out of its JSON and its metrics. */
#ifndef CN_CTL_VIEW_H
#define CN_CTL_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "metrics/counters/metrics.h"

struct cn_ctl_worker {
    uint32_t id, index, restarts;
    int64_t pid; /* 0: no process now */
    bool ready;
    const char *state;        /* "loading", ... */
    const char *last_exit;    /* how its last process ended; NULL: none has */
    const char *warning;      /* what its runtime said of the model; NULL: nothing */
    uint64_t started_wall_ms; /* 0: not known */
    uint64_t rss_bytes, live_sequences;
    uint64_t busy_rows;        /* that it works on; 0: none */
    uint64_t busy_ms;          /* without an answer */
    const char *busy_sequence; /* of the first row; NULL: none */
};

/* One version of a model. Text is the arena's. */
struct cn_ctl_model {
    struct cn_ctl_model *next;
    const char *name, *version;
    const char *url;        /* its archive */
    const char *last_error; /* of loading; NULL: the last load succeeded */
    const char *reload_error,
        *reload_since; /* its archive cannot be loaded anew; NULL: nothing wrong */
    bool is_default;
    bool scales; /* its workers follow the load */
    uint32_t min_workers, max_workers, n_workers, n_ready;
    struct cn_ctl_worker *workers;
    uint64_t waiting, queue_size, in_flight; /* jobs */
    uint64_t live_sequences, max_sequences, steps;
    bool ids_missing;             /* its steps come through a proxy without a sequence id */
    uint64_t response_timeout_ms; /* 0: not known */
    double mean_call_ms;          /* of the handler; 0: not known */
};

/* Why the server is unhealthy besides missing workers, in its own words. */
struct cn_ctl_reason {
    const char *kind, *subject, *text;
};
#define CN_CTL_REASONS_MAX 16

struct cn_ctl_view {
    struct cn_arena arena;
    struct cn_ctl_model *models, **end; /* as the server lists them */
    uint64_t at_us;                     /* of cn_now_us() */
    struct cn_ctl_reason reasons[CN_CTL_REASONS_MAX];
    unsigned n_reasons, n_unused; /* n_unused: stores that no registered model has, */
    uint64_t unused_bytes;        /* what they take, */
    const char *unused;           /* and the name of one of them; NULL: none */
    bool has_metrics;
    uint64_t metrics[CN_METRIC_COUNT];
};

void cn_ctl_view_init(struct cn_ctl_view *view);
void cn_ctl_view_fini(struct cn_ctl_view *view);

/* Adds the answer to GET /models/{m}/all. The version `default_version` is marked as the default;
 * NULL: it is if it is the only one. CN_E_PROTOCOL: the answer has another form. */
int cn_ctl_view_add(struct cn_ctl_view *view, struct cn_str json, const char *default_version,
                    struct cn_error *err);
/* The answer to GET /metrics; sums over labels. */
void cn_ctl_view_add_metrics(struct cn_ctl_view *view, struct cn_str text);

struct cn_ctl_totals {
    unsigned n_models;    /* versions */
    uint32_t ready, want; /* workers */
    uint64_t restarts, live_sequences, waiting, in_flight, steps;
    bool healthy; /* as /ping: the default versions have the workers they want */
};
struct cn_ctl_totals cn_ctl_view_totals(const struct cn_ctl_view *view);
/* NULL where there is none. */
const struct cn_ctl_model *cn_ctl_view_find(const struct cn_ctl_view *view, const char *name,
                                            const char *version);

/* Reads "2026-11-21T04:36:32.123Z". Returns milliseconds since 1970; 0 if the text is not a
 * time. */
uint64_t cn_ctl_parse_time(const char *text);

/* Steps per second between two views that lie `us` microseconds apart; 0 if no time passed, or if
 * the server was started anew between them. */
double cn_ctl_rate(uint64_t before, uint64_t now, uint64_t us);

#endif
