/* torchserve/metrics/metric_lines.c - TorchServe's metrics as log lines. Formatted on the loop that
 * has the value.
 *
 * TorchServe writes each metric as a line that ends like
 * "QueueTime.Milliseconds:0|#Level:Host|#hostname:h,timestamp:1700000000", and people have programs
 * that read them. The names of the default set stand here; metrics.yaml can leave some of them out,
 * and `hidden` remembers which. */
#include "torchserve/metrics/metric_lines.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/text/number.h"
#include "core/time/clock.h"

static enum cn_ts_mode the_mode;
static char host[256] = "localhost";

/* TorchServe's default set. */
static const char *const names[] = {
    "Requests2XX",
    "Requests4XX",
    "Requests5XX",
    "ts_inference_requests_total",
    "ts_inference_latency_microseconds",
    "ts_queue_latency_microseconds",
    "QueueTime",
    "WorkerThreadTime",
    "WorkerLoadTime",
    "CPUUtilization",
    "MemoryUsed",
    "MemoryAvailable",
    "MemoryUtilization",
    "DiskUsage",
    "DiskAvailable",
    "DiskUtilization",
    "GPUMemoryUtilization",
    "GPUMemoryUsed",
    "GPUUtilization",
    "HandlerTime",
    "PredictionTime",
};
#define N_NAMES (sizeof(names) / sizeof(names[0]))

static bool hidden[N_NAMES], any_hidden;

/* The name of the host is put into labels and lines as it is, so characters that could break them
 * are replaced. */
void
cn_ts_setup(enum cn_ts_mode mode)
{
    the_mode = mode;
    if (gethostname(host, sizeof(host)) < 0)
        snprintf(host, sizeof(host), "localhost");
    host[sizeof(host) - 1] = '\0';
    for (char *at = host; *at; at++)
        if (*at <= ' ' || *at > '~' || strchr("\"\\|#,:", *at))
            *at = '_';
}

enum cn_ts_mode
cn_ts_mode(void)
{
    return the_mode;
}

const char *
cn_ts_host(void)
{
    return host;
}

bool
cn_ts_logs(void)
{
    return the_mode != CN_TS_PROMETHEUS;
}

bool
cn_ts_is_own(struct cn_str name)
{
    for (size_t i = 0; i < N_NAMES; i++)
        if (cn_str_eq(name, cn_str_from(names[i])))
            return true;
    return name.len >= 9 && memcmp(name.ptr, "continuo_", 9) == 0;
}

void
cn_ts_show(bool (*shown)(const char *name, void *ctx), void *ctx)
{
    any_hidden = false;
    for (size_t i = 0; i < N_NAMES; i++) {
        hidden[i] = !shown(names[i], ctx);
        any_hidden |= hidden[i];
    }
}

bool
cn_ts_is_shown(struct cn_str name)
{
    for (size_t i = 0; any_hidden && i < N_NAMES; i++)
        if (hidden[i] && cn_str_eq(name, cn_str_from(names[i])))
            return false;
    return true;
}

unsigned long
cn_ts_format(enum cn_log_file file, const char *name_and_unit, double value, const char *dims,
             const char *request_id, char out[CN_TS_LINE_MAX])
{
    uint64_t now_ms = cn_wall_ms();
    char when[25], number[CN_NUMBER_MAX];
    int number_len = (int)(cn_put_double(value, number) - number);
    int n;

    if (file == CN_LOG_MODEL_METRICS && number_len > 2 && !memcmp(number + number_len - 2, ".0", 2))
        number_len -= 2; /* mostly a handler's counts, which Python writes so */
    cn_wall_format(now_ms, when);
    n = snprintf(out, CN_TS_LINE_MAX, "%s - %s:%.*s|#%s|#hostname:%s%s%s,timestamp:%llu\n", when,
                 name_and_unit, number_len, number, dims, host,
                 request_id && *request_id ? ",requestID:" : "", request_id ? request_id : "",
                 (unsigned long long)(now_ms / 1000));
    return n > 0 && n < CN_TS_LINE_MAX ? (unsigned long)n : 0;
}

void
cn_ts_log(enum cn_log_file file, const char *name_and_unit, double value, const char *dims,
          const char *request_id)
{
    char line[CN_TS_LINE_MAX];
    unsigned long len;

    if (!cn_ts_is_shown((struct cn_str){name_and_unit, strcspn(name_and_unit, ".")}))
        return;
    len = cn_ts_format(file, name_and_unit, value, dims, request_id, line);
    if (len)
        cn_log_files_put(file, line, len);
}
