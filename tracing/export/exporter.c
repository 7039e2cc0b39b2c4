/* tracing/export/exporter.c - the thread that sends traces to a collector.
 *
 * The thread takes traces out of the loops' rings at intervals, or when a loop says that its ring
 * is half full, makes one message of up to BATCH_MAX traces and posts it. One message is under way
 * at a time. If the collector is away or asks for patience (429, 502, 503, 504), the message is
 * sent again after a growing pause, three times in all; any other refusal drops it. Meanwhile the
 * rings fill up and drop what is too much, so the memory is bounded by the rings and one message.
 *
 * The server never depends on any of this. What is lost is counted, and the log says so at most
 * once a minute.
 *
 * Who owns a trace: until cn_traces_take() the ring, then this thread, which frees it as soon as it
 * is in the message. The thread has its own libcurl handle, and so its own connection to the
 * collector. At the end of the server it sends what is left for LAST_MS at most; on_progress() cuts
 * a transfer that takes longer. */
#include "tracing/export/exporter.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/log/log_files.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "core/text/str.h"
#include "core/time/clock.h"
#include "tracing/exemplars.h"
#include "tracing/export/otlp.h"
#include "tracing/trace.h"

#define BATCH_MAX 512
#define TRIES_MAX 3
#define PAUSE_MS 1000 /* before the second try; twice as long before the third */
#define LAST_MS 2000  /* how long the end of the server waits for the collector */
#define CONNECT_TIMEOUT_MS 3000L
#define RESPONSE_MAX_BYTES 65536 /* the answer is a small message */
#define TELL_EVERY_MS 60000

struct cn_exporter {
    struct cn_otlp_sender sender;
    char *url;
    struct curl_slist *headers;
    CURL *curl;
    uint32_t timeout_ms, interval_ms;
    pthread_t thread;
    int wake_fd;
    atomic_bool stopping;
    atomic_uint_least64_t give_up_ms; /* when the last message must be sent; 0: not stopping */
    uint64_t told_ms;
    char why[CURL_ERROR_SIZE];
    struct cn_trace *traces[BATCH_MAX];
};

/* --- options */

char *
cn_exporter_url(const char *endpoint, struct cn_error *err)
{
    const char *host = strncmp(endpoint, "http://", 7) == 0    ? endpoint + 7
                       : strncmp(endpoint, "https://", 8) == 0 ? endpoint + 8
                                                               : NULL;
    struct cn_buf url;
    const char *path;
    size_t len;

    if (!host || !*host || *host == '/' || *host == ':' || strpbrk(endpoint, " \t\r\n#@")) {
        cn_fail(err, CN_E_CONFIG,
                "--otlp-endpoint is \"%.200s\"; it must be the URL of a collector that takes OTLP "
                "over HTTP, as in http://127.0.0.1:4318 (a password belongs into --otlp-headers)",
                endpoint);
        return NULL;
    }
    path = strchr(host, '/');
    cn_buf_init(&url, 0);
    cn_buf_puts(&url, endpoint);
    if (!path || !path[1])
        cn_buf_puts(&url, path ? "v1/traces" : "/v1/traces");
    return cn_buf_take(&url, &len);
}

/* Appends a header of "name=value". */
static int
add_header(struct cn_exporter *exporter, struct cn_str pair, struct cn_error *err)
{
    const char *equals = pair.len ? memchr(pair.ptr, '=', pair.len) : NULL;
    char line[2048];

    for (size_t i = 0; i < pair.len; i++)
        if ((unsigned char)pair.ptr[i] < ' ' || pair.ptr[i] == 0x7f)
            equals = NULL;
    if (!equals || equals == pair.ptr || pair.len >= sizeof(line) - 2)
        return cn_fail(err, CN_E_CONFIG,
                       "--otlp-headers must be NAME=VALUE,NAME=VALUE without control characters, "
                       "and each at most %zu bytes",
                       sizeof(line) - 3);
    snprintf(line, sizeof(line), "%.*s: %.*s", (int)(equals - pair.ptr), pair.ptr,
             (int)(pair.len - (size_t)(equals - pair.ptr) - 1), equals + 1);
    exporter->headers = curl_slist_append(exporter->headers, line);
    return 0;
}

static int
set_headers(struct cn_exporter *exporter, const char *given, struct cn_error *err)
{
    exporter->headers = curl_slist_append(NULL, "Content-Type: application/x-protobuf");
    exporter->headers = curl_slist_append(exporter->headers, "Expect:");
    while (given && *given) {
        const size_t len = strcspn(given, ",");

        if (add_header(exporter, (struct cn_str){given, len}, err))
            return err->code;
        given += len + (given[len] == ',');
    }
    return 0;
}

/* --- one message */

static size_t
on_bytes(char *bytes, size_t size, size_t count, void *ctx)
{
    struct cn_buf *body = ctx;

    if (body->len + size * count <= RESPONSE_MAX_BYTES)
        cn_buf_append(body, bytes, size * count);
    return size * count;
}

/* Called by libcurl, about once a second also while nothing comes. Not 0: give up. */
static int
on_progress(void *ctx, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    const struct cn_exporter *exporter = ctx;
    const uint64_t give_up_ms = atomic_load(&exporter->give_up_ms);
    const bool give_up = give_up_ms && cn_now_ms() >= give_up_ms;

    (void)total, (void)now, (void)up_total, (void)up_now;
#if LIBCURL_VERSION_NUM >= 0x075700 /* 7.87 */
    /* Otherwise libcurl would wait for the resolver, however long a name server does not answer. */
    if (give_up)
        curl_easy_setopt(exporter->curl, CURLOPT_QUICK_EXIT, 1L);
#endif
    return give_up;
}

/* Posts the message. Returns the HTTP status, or 0 when no answer came. */
static long
post(struct cn_exporter *exporter, const struct cn_buf *message, struct cn_buf *answer)
{
    CURL *curl = exporter->curl;
    long status = 0;

    exporter->why[0] = '\0';
    curl_easy_reset(curl); /* it keeps the connection */
    curl_easy_setopt(curl, CURLOPT_URL, exporter->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "continuo/" CN_VERSION);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)exporter->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, exporter->why);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, exporter->headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)message->len);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, message->data);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, exporter);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    if (curl_easy_perform(curl) != CURLE_OK) {
        if (!exporter->why[0])
            snprintf(exporter->why, sizeof(exporter->why), "no answer");
        return 0;
    }
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    snprintf(exporter->why, sizeof(exporter->why), "status %ld", status);
    return status;
}

static bool
is_worth_a_retry(long status)
{
    return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

/* Waits until a loop wakes the thread, the server stops, or the time has passed. */
static void
wait_for(struct cn_exporter *exporter, uint32_t ms)
{
    struct pollfd fd = {.fd = exporter->wake_fd, .events = POLLIN};
    uint64_t count;

    if (poll(&fd, 1, (int)ms) > 0 && read(exporter->wake_fd, &count, sizeof(count)) < 0)
        return;
}

/* Waits before the next try. A loop with a full ring must not shorten this. */
static void
pause_for(struct cn_exporter *exporter, uint32_t ms)
{
    const uint64_t until_ms = cn_now_ms() + ms;
    uint64_t now_ms;

    while (!atomic_load(&exporter->stopping) && (now_ms = cn_now_ms()) < until_ms)
        wait_for(exporter, (uint32_t)(until_ms - now_ms));
}

static void
tell_lost(struct cn_exporter *exporter, uint64_t spans)
{
    char quoted[CURL_ERROR_SIZE + 64];
    const uint64_t now_ms = cn_now_ms();

    cn_trace_count_dropped(spans);
    if (exporter->told_ms && now_ms - exporter->told_ms < TELL_EVERY_MS)
        return;
    exporter->told_ms = now_ms ? now_ms : 1;
    cn_log(CN_LOG_WARN, "event=traces_not_exported spans=%llu reason=%s", (unsigned long long)spans,
           cn_log_quote(exporter->why, strlen(exporter->why), quoted, sizeof(quoted)));
}

static void
deliver(struct cn_exporter *exporter, const struct cn_buf *message, uint64_t spans)
{
    struct cn_buf answer;
    uint64_t rejected = 0;
    long status = 0;

    cn_buf_init(&answer, 0);
    for (uint32_t tries = 1; tries <= TRIES_MAX; tries++) {
        cn_buf_reset(&answer);
        status = post(exporter, message, &answer);
        if (!is_worth_a_retry(status) || atomic_load(&exporter->stopping))
            break;
        if (tries < TRIES_MAX)
            pause_for(exporter, PAUSE_MS * tries);
    }
    if (status < 200 || status > 299) {
        tell_lost(exporter, spans);
    } else {
        rejected = cn_otlp_rejected(cn_buf_str(&answer));
        rejected = rejected < spans ? rejected : spans;
        if (rejected) {
            snprintf(exporter->why, sizeof(exporter->why), "the collector rejected them");
            tell_lost(exporter, rejected);
        }
        cn_trace_count_exported(spans - rejected);
    }
    cn_buf_fini(&answer);
}

/* Sends what waits, up to BATCH_MAX traces. Returns false if nothing did. */
static bool
export_some(struct cn_exporter *exporter)
{
    const uint32_t n = cn_traces_take(exporter->traces, BATCH_MAX);
    struct cn_buf message;
    uint64_t spans = 0;

    if (n == 0)
        return false;
    cn_buf_init(&message, 0);
    cn_otlp_write(&exporter->sender, exporter->traces, n, cn_wall_us(), cn_now_us(), &message);
    for (uint32_t i = 0; i < n; i++) {
        spans += cn_trace_spans(exporter->traces[i]);
        cn_exemplars_note(exporter->traces[i], cn_wall_ms());
        cn_trace_free(exporter->traces[i]);
    }
    if (message.failed) {
        snprintf(exporter->why, sizeof(exporter->why), "not enough memory");
        tell_lost(exporter, spans);
    } else {
        deliver(exporter, &message, spans);
    }
    cn_buf_fini(&message);
    return true;
}

/* --- the thread */

static void *
thread_main(void *ctx)
{
    struct cn_exporter *exporter = ctx;

    pthread_setname_np(pthread_self(), "traces");
    cn_log_files_join();
    while (!atomic_load(&exporter->stopping)) {
        wait_for(exporter, exporter->interval_ms);
        while (export_some(exporter))
            ;
    }
    while (cn_now_ms() < atomic_load(&exporter->give_up_ms) && export_some(exporter))
        ;
    return NULL;
}

/* Called on a loop; a write to an eventfd never waits here. */
static void
wake(void *ctx)
{
    const struct cn_exporter *exporter = ctx;
    const uint64_t one = 1;

    if (write(exporter->wake_fd, &one, sizeof(one)) < 0)
        return; /* it has been woken often enough */
}

static void
destroy(struct cn_exporter *exporter)
{
    if (exporter->curl)
        curl_easy_cleanup(exporter->curl);
    curl_slist_free_all(exporter->headers);
    if (exporter->wake_fd >= 0)
        close(exporter->wake_fd);
    cn_free(exporter->url);
    cn_free((char *)(uintptr_t)exporter->sender.service);
    cn_free((char *)(uintptr_t)exporter->sender.instance);
    cn_free(exporter);
}

static int
prepare(struct cn_exporter *exporter, const struct cn_exporter_options *options,
        struct cn_error *err)
{
    exporter->url = cn_exporter_url(options->endpoint, err);
    if (!exporter->url || set_headers(exporter, options->headers, err))
        return err->code;
    exporter->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (exporter->wake_fd < 0)
        return cn_fail_sys(err, CN_E_UNAVAILABLE, errno, "cannot make the descriptor for traces");
    exporter->curl = curl_easy_init();
    return exporter->curl ? 0
                          : cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to export traces");
}

int
cn_exporter_start(const struct cn_exporter_options *options, struct cn_exporter **out,
                  struct cn_error *err)
{
    struct cn_exporter *exporter = cn_alloc(sizeof(*exporter));
    int rc;

    memset(exporter, 0, sizeof(*exporter));
    exporter->wake_fd = -1;
    exporter->sender =
        (struct cn_otlp_sender){cn_strdup(options->service), cn_strdup(options->instance)};
    exporter->timeout_ms = options->timeout_ms;
    exporter->interval_ms = options->interval_ms;
    curl_global_init(CURL_GLOBAL_DEFAULT); /* no other thread runs yet */
    if (prepare(exporter, options, err)) {
        destroy(exporter);
        return err->code;
    }
    cn_tracing_start(&(struct cn_tracing){.rate = options->rate,
                                          .queue = options->queue,
                                          .n_loops = options->n_loops,
                                          .wake = wake,
                                          .ctx = exporter});
    rc = pthread_create(&exporter->thread, NULL, thread_main, exporter);
    if (rc) {
        cn_tracing_stop();
        destroy(exporter);
        return cn_fail_sys(err, CN_E_UNAVAILABLE, rc, "cannot start the thread for traces");
    }
    cn_log(CN_LOG_INFO, "event=tracing endpoint=%s rate=%u.%06u", exporter->url,
           options->rate / CN_TRACE_RATE_ALL, options->rate % CN_TRACE_RATE_ALL);
    *out = exporter;
    return 0;
}

void
cn_exporter_stop(struct cn_exporter *exporter)
{
    if (!exporter)
        return;
    atomic_store(&exporter->give_up_ms, cn_now_ms() + LAST_MS);
    atomic_store(&exporter->stopping, true);
    wake(exporter);
    pthread_join(exporter->thread, NULL);
    cn_tracing_stop();
    destroy(exporter);
}
