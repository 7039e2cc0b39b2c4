/* ctl/http_client.c - HTTP requests to the server; the only file that knows libcurl.
 *
 * One handle serves all requests of a run, so that `top` keeps its connection. curl_easy_reset
 * drops the options of the last request and keeps the connection. An address is http://, https://
 * or unix:/PATH; for the last one the URL's host is only a placeholder.
 *
 * Answers are bounded, and so is the time: 15 seconds in all for ordinary calls. A stored sequence
 * may be larger than the usual 64 MiB; such a call may take any time as long as bytes keep coming.
 *
 * CONTINUO_TOKEN comes from the environment and not from a flag, because the command line of a
 * process can be read by all users of a machine, and so do CONTINUO_CA, CONTINUO_CLIENT_CERT and
 * CONTINUO_CLIENT_KEY, the files for TLS. */
#include "ctl/http_client.h"

#include <ctype.h>
#include <curl/curl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"

#define CONNECT_TIMEOUT_MS 3000L
#define ANSWER_TIMEOUT_MS 15000L /* `describe` waits for the turn of a busy loop */
#define PATIENT_TIMEOUT_MS 3600000L
#define STALLED_S 15L                     /* how long a large transfer may stand still */
#define MAX_BODY_BYTES (64 * 1024 * 1024) /* a thousand models with their workers have 2 MB */

struct cn_ctl_http {
    CURL *curl;
    struct curl_slist *headers; /* the headers of the present request */
    char why[CURL_ERROR_SIZE];
};

void
cn_ctl_http_begin(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

void
cn_ctl_http_end(void)
{
    curl_global_cleanup();
}

struct cn_ctl_http *
cn_ctl_http_create(void)
{
    struct cn_ctl_http *http = cn_alloc(sizeof *http);

    http->curl = curl_easy_init();
    cn_assert(http->curl);
    return http;
}

void
cn_ctl_http_destroy(struct cn_ctl_http *http)
{
    if (!http)
        return;
    curl_easy_cleanup(http->curl);
    cn_free(http);
}

int
cn_ctl_url_check(const char *url, struct cn_error *err)
{
    static const char *const starts[] = {"http://", "https://", "unix:/"};
    size_t i;

    for (i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (strncmp(url, starts[i], strlen(starts[i])) == 0 && url[strlen(starts[i])])
            return 0;
    return cn_fail(err, CN_E_CONFIG,
                   "\"%.200s\" is not an address; write http://HOST:PORT, https://HOST:PORT or "
                   "unix:/PATH",
                   url);
}

static size_t
on_bytes(char *bytes, size_t size, size_t count, void *ctx)
{
    return cn_buf_append(ctx, bytes, size * count) == 0 ? size * count : 0;
}

/* Fails with the server's own message, if the answer has one. */
static int
fail_status(long status, const char *base, const struct cn_buf *body, struct cn_error *err)
{
    json_t *value = json_loadb(body->data ? body->data : "", body->len, 0, NULL);
    const char *words = json_string_value(json_object_get(value, "message"));
    int code = status == 404   ? CN_E_NOT_FOUND
               : status == 409 ? CN_E_CONFLICT
               : status == 410 ? CN_E_SEQUENCE_ENDED
                               : CN_E_PROTOCOL;

    cn_fail(err, code, "%s answered with status %ld%s%s", base, status, words ? ": " : "",
            words ? words : "");
    json_decref(value);
    return code;
}

/* Sets token and certificate from the environment, for a server that needs them. */
static void
set_credentials(struct cn_ctl_http *http, bool with_token)
{
    const char *token = getenv("CONTINUO_TOKEN"), *ca = getenv("CONTINUO_CA");
    const char *certificate = getenv("CONTINUO_CLIENT_CERT"), *key = getenv("CONTINUO_CLIENT_KEY");

    if (with_token && token && *token) {
        curl_easy_setopt(http->curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(http->curl, CURLOPT_XOAUTH2_BEARER, token);
    }
    if (ca && *ca)
        curl_easy_setopt(http->curl, CURLOPT_CAINFO, ca);
    if (certificate && *certificate)
        curl_easy_setopt(http->curl, CURLOPT_SSLCERT, certificate);
    if (key && *key)
        curl_easy_setopt(http->curl, CURLOPT_SSLKEY, key);
}

static void
set_request(struct cn_ctl_http *http, const struct cn_ctl_call *call)
{
    curl_easy_setopt(http->curl, CURLOPT_CUSTOMREQUEST, call->method);
    for (unsigned i = 0; i < call->n_headers; i++)
        http->headers = curl_slist_append(http->headers, call->headers[i]);
    if (call->answer_headers) {
        curl_easy_setopt(http->curl, CURLOPT_HEADERFUNCTION, on_bytes);
        curl_easy_setopt(http->curl, CURLOPT_HEADERDATA, call->answer_headers);
    }
    if (http->headers)
        curl_easy_setopt(http->curl, CURLOPT_HTTPHEADER, http->headers);
    if (!call->body.len)
        return;
    curl_easy_setopt(http->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.len);
    curl_easy_setopt(http->curl, CURLOPT_POSTFIELDS, call->body.ptr);
    if (!call->n_headers)
        http->headers = curl_slist_append(NULL, "Content-Type: application/octet-stream");
    curl_easy_setopt(http->curl, CURLOPT_HTTPHEADER, http->headers);
}

int
cn_ctl_http_get(struct cn_ctl_http *http, const char *base, const char *path, struct cn_buf *body,
                struct cn_error *err)
{
    struct cn_ctl_call call = {.method = "GET", .path = path, .max_bytes = MAX_BODY_BYTES};

    return cn_ctl_http_call(http, base, &call, body, err);
}

int
cn_ctl_http_call(struct cn_ctl_http *http, const char *base, const struct cn_ctl_call *call,
                 struct cn_buf *body, struct cn_error *err)
{
    bool is_unix = strncmp(base, "unix:", 5) == 0;
    size_t len = strlen(base);
    struct cn_buf url;
    long status = 0;
    CURLcode rc;

    while (!is_unix && len > 0 && base[len - 1] == '/')
        len--;
    cn_buf_init(&url, 0);
    cn_buf_append_str(&url, is_unix ? CN_STR("http://localhost") : (struct cn_str){base, len});
    cn_buf_append(&url, call->path, strlen(call->path) + 1);
    cn_buf_reset(body);
    body->max_bytes = call->max_bytes;
    http->why[0] = '\0';

    /* This keeps the connection and drops the options of the last request. */
    curl_easy_reset(http->curl);
    curl_easy_setopt(http->curl, CURLOPT_URL, url.data);
    curl_easy_setopt(http->curl, CURLOPT_PATH_AS_IS, 1L); /* ".." may be the id of a sequence */
    curl_easy_setopt(http->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(http->curl, CURLOPT_NOPROXY, "*"); /* never ask through a proxy */
    curl_easy_setopt(http->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(http->curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    if (call->patient) {
        curl_easy_setopt(http->curl, CURLOPT_TIMEOUT_MS, PATIENT_TIMEOUT_MS);
    } else if (call->max_bytes >
               MAX_BODY_BYTES) { /* a large one takes its time, as long as it gets on */
        curl_easy_setopt(http->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(http->curl, CURLOPT_LOW_SPEED_TIME, STALLED_S);
    } else {
        curl_easy_setopt(http->curl, CURLOPT_TIMEOUT_MS, ANSWER_TIMEOUT_MS);
    }
    curl_easy_setopt(http->curl, CURLOPT_ERRORBUFFER, http->why);
    curl_easy_setopt(http->curl, CURLOPT_USERAGENT, "continuo-ctl/" CN_VERSION);
    curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, body);
    set_credentials(http, strcmp(call->path, "/metrics") != 0);
    set_request(http, call);
    if (is_unix)
        curl_easy_setopt(http->curl, CURLOPT_UNIX_SOCKET_PATH, base + 5);
    rc = curl_easy_perform(http->curl);
    curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &status);
    cn_buf_fini(&url);
    curl_slist_free_all(http->headers);
    http->headers = NULL;
    if (body->failed)
        return cn_fail(err, CN_E_PROTOCOL,
                       "the answer from %s is larger than %d MiB; is it a Continuo server?", base,
                       (int)(call->max_bytes / 1024 / 1024));
    if (rc != CURLE_OK)
        return cn_fail(err, CN_E_UNAVAILABLE, "no answer from %s: %s", base,
                       http->why[0] ? http->why : curl_easy_strerror(rc));
    return status >= 200 && status < 300 ? 0 : fail_status(status, base, body, err);
}

void
cn_ctl_put_escaped(struct cn_buf *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (isalnum(c) || strchr("-._~", c))
            cn_buf_append(out, text, 1);
        else
            cn_buf_printf(out, "%%%02X", c);
    }
}
