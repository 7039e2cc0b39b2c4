/* tracing/export/exporter.h - sends traces to a collector by OTLP over HTTP, on a thread of its
 * own. */
#ifndef CN_TRACING_EXPORT_EXPORTER_H
#define CN_TRACING_EXPORT_EXPORTER_H

#include <stdint.h>

#include "core/errors/error.h"

struct cn_exporter_options {
    const char *endpoint; /* http(s)://HOST:PORT, or with a path; without one it is /v1/traces */
    const char *headers;  /* "name=value,name=value" for each request, or NULL */
    const char *service, *instance; /* who sends */
    uint32_t timeout_ms;            /* of one request */
    uint32_t interval_ms;           /* between two requests, unless much waits */
    uint32_t rate, queue;           /* as in struct cn_tracing */
    unsigned n_loops;
};

struct cn_exporter;

/* Checks the options, switches tracing on and starts the thread. CN_E_CONFIG: an option is wrong.
 * Before the first loop runs; signals must be blocked. */
int cn_exporter_start(const struct cn_exporter_options *options, struct cn_exporter **out,
                      struct cn_error *err);
/* Sends what still waits, for at most two seconds, switches tracing off and frees the exporter.
 * When no loop runs any more. Accepts NULL. */
void cn_exporter_stop(struct cn_exporter *exporter);

/* Makes the URL to which traces are sent; freed with cn_free(). Public for tests. */
char *cn_exporter_url(const char *endpoint, struct cn_error *err);

#endif
