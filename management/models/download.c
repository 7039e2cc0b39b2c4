/* management/models/download.c - a model's archive from an http(s) URL into the model store.
 * Download threads.
 *
 * This is the only file of the server that uses libcurl. A URL comes from a client, so a download
 * must not reach what only this machine can reach. Two things are therefore done here and not by
 * libcurl. Redirects are followed one by one, and each target is held against the rules. And the
 * address is checked when the socket is made: at that time the name is resolved, so it cannot point
 * elsewhere afterwards.
 *
 * The bytes go into a hidden file of the store, which gets its name only when it is complete, and
 * only if no file has that name. Size, time, redirects and slowness are bounded. A server that
 * stops ends its downloads within about a second. Parts that a killed server left are removed at a
 * later start.
 */
#include "management/models/download.h"

#include <curl/curl.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "core/system/write_file.h"
#include "core/text/str.h"
#include "management/repository/download_signature.h"
#include "management/repository/model_store.h"

#define REDIRECTS_MAX 5
#define CONNECT_TIMEOUT_MS 10000L
/* A transfer that is slower than this for this time is given up. */
#define SLOW_BYTES_S 1024L
#define SLOW_S 60L
#define PART_PREFIX ".continuo-download-"
#define PART_OLD_S (24 * 60 * 60)

/* One download with all its redirects, into one file. */
struct transfer {
    struct cn_download *download;
    CURL *curl;
    const char *url; /* the one that is asked now */
    int fd, write_errno;
    bool was_private, was_large;
    char why[CURL_ERROR_SIZE];
};

bool
cn_download_is_url(const char *url)
{
    return strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
}

static int
failed(const struct cn_download *download, struct cn_error *err, const char *why)
{
    return cn_fail(err, CN_E_DOWNLOAD_FAILED, "Failed to download archive from: %.600s: %s",
                   download->url, why);
}

static bool
is_trusted(const struct cn_download *download, const char *url)
{
    return download->trusted && strncmp(url, download->trusted, strlen(download->trusted)) == 0;
}

/* May the transfer go wherever its present URL leads? */
static bool
may_go_anywhere(const struct transfer *transfer)
{
    return cn_url_rules_are_set(transfer->download->rules) ||
           is_trusted(transfer->download, transfer->url);
}

/* Decodes %xx in place; what is not a valid %xx stays. */
static void
unescape(char *text)
{
    char *to = text;

    for (; *text; text++) {
        if (*text == '%' && cn_hex_digit(text[1]) >= 0 && cn_hex_digit(text[2]) >= 0) {
            *to++ = (char)(cn_hex_digit(text[1]) << 4 | cn_hex_digit(text[2]));
            text += 2;
        } else {
            *to++ = *text;
        }
    }
    *to = '\0';
}

char *
cn_download_file_name(const char *url, struct cn_error *err)
{
    const char *path = strstr(url, "://") + 3, *last;
    size_t len = strcspn(path, "?#"), i;
    char *name;

    last = memrchr(path, '/', len);
    name = last ? cn_strndup(last + 1, len - (size_t)(last + 1 - path)) : cn_strdup("");
    unescape(name);
    for (i = 0; name[i]; i++)
        if (name[i] == '/' || (unsigned char)name[i] < ' ' || name[i] == 0x7f)
            break;
    if (!name[i] && name[0] != '.' && strlen(name) <= NAME_MAX && cn_model_store_is_archive(name))
        return name;
    cn_free(name);
    cn_fail(err, CN_E_DOWNLOAD_FAILED,
            "Failed to download archive from: %.600s: its path must end in the name of an archive, "
            "such as model.mar or model.tar.gz",
            url);
    return NULL;
}

/* --- libcurl's questions */

static size_t
on_bytes(char *bytes, size_t size, size_t count, void *ctx)
{
    struct transfer *transfer = ctx;
    struct cn_download *download = transfer->download;
    uint64_t before = atomic_load_explicit(&download->bytes, memory_order_relaxed);
    size_t len = size * count;
    long status = 0;

    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return len; /* the text of an error page; the time limit bounds it */
    if (len > download->max_bytes - before) {
        transfer->was_large = true;
        return 0;
    }
    transfer->write_errno = cn_write_all(transfer->fd, bytes, len);
    if (transfer->write_errno)
        return 0;
    atomic_store_explicit(&download->bytes, before + len, memory_order_relaxed);
    return len;
}

/* Keeps the value of the header line if it has this name. */
static void
take_header(struct cn_str line, const char *name, char *out, size_t max)
{
    const size_t len = strlen(name);
    size_t from = len + 1, to = line.len;

    if (line.len <= len || line.ptr[len] != ':' || strncasecmp(line.ptr, name, len) != 0)
        return;
    while (from < to && (line.ptr[from] == ' ' || line.ptr[from] == '\t'))
        from++;
    while (to > from && (unsigned char)line.ptr[to - 1] <= ' ')
        to--;
    if (to - from >= max)
        return; /* too long to be sent back; the file is then downloaded whole each time */
    memcpy(out, line.ptr + from, to - from);
    out[to - from] = '\0';
}

static size_t
on_header(char *bytes, size_t size, size_t count, void *ctx)
{
    struct cn_download *download = ((struct transfer *)ctx)->download;
    const struct cn_str line = {bytes, size * count};

    take_header(line, "ETag", download->stamp.etag, sizeof download->stamp.etag);
    take_header(line, "Last-Modified", download->stamp.modified, sizeof download->stamp.modified);
    return line.len;
}

/* Called by libcurl, about once a second also while nothing comes. Not 0: give up. */
static int
on_progress(void *ctx, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    const struct transfer *transfer = ctx;
    struct cn_download *download = transfer->download;
    const bool stopping = atomic_load(download->stopping);

    (void)now, (void)up_total, (void)up_now;
    atomic_store_explicit(&download->total_bytes, (uint64_t)total, memory_order_relaxed);
#if LIBCURL_VERSION_NUM >= 0x075700 /* 7.87 */
    /* Otherwise libcurl would wait for the resolver, however long a name server does not answer. */
    if (stopping)
        curl_easy_setopt(transfer->curl, CURLOPT_QUICK_EXIT, 1L);
#endif
    return stopping;
}

static curl_socket_t
on_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct transfer *transfer = ctx;

    (void)purpose;
    if (!may_go_anywhere(transfer) && cn_address_is_private(&address->addr)) {
        transfer->was_private = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* --- one URL */

static void
set_options(struct transfer *transfer, const char *url, uint64_t left_ms)
{
    CURL *curl = transfer->curl;

    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "continuo/" CN_VERSION);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, transfer->why);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)left_ms);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, SLOW_BYTES_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, SLOW_S);
    curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)transfer->download->max_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, transfer);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, transfer);
    /* A proxy could reach what we must not. */
    if (!may_go_anywhere(transfer))
        curl_easy_setopt(curl, CURLOPT_PROXY, "");
}

/* The headers that ask for the file only if it is not the one that the caller has; or NULL. */
static struct curl_slist *
make_conditions(const struct cn_download *download)
{
    const struct cn_download_stamp *have = download->have;
    struct curl_slist *headers = NULL;
    char line[CN_DOWNLOAD_ETAG_MAX + 40];

    if (have && have->etag[0]) {
        snprintf(line, sizeof line, "If-None-Match: %s", have->etag);
        headers = curl_slist_append(headers, line);
    }
    if (have && have->modified[0]) {
        snprintf(line, sizeof line, "If-Modified-Since: %s", have->modified);
        headers = curl_slist_append(headers, line);
    }
    return headers;
}

static int
explain(const struct transfer *transfer, CURLcode rc, long status, struct cn_error *err)
{
    struct cn_download *download = transfer->download;
    char why[300];

    download->away = !atomic_load(download->stopping) && !transfer->was_private &&
                     !transfer->was_large && !transfer->write_errno &&
                     rc != CURLE_FILESIZE_EXCEEDED &&
                     (rc != CURLE_OK || status >= 500 || status == 429);
    if (atomic_load(download->stopping))
        return cn_fail(err, CN_E_DRAINING, "the server is stopping");
    if (transfer->was_private)
        snprintf(why, sizeof why,
                 "it leads to a private address, which is allowed only for URLs that allowed-urls "
                 "names");
    else if (transfer->was_large || rc == CURLE_FILESIZE_EXCEEDED)
        snprintf(why, sizeof why, "it is larger than %llu bytes (max-download-size)",
                 (unsigned long long)download->max_bytes);
    else if (transfer->write_errno)
        snprintf(why, sizeof why, "cannot write to the model store: %s",
                 strerror(transfer->write_errno));
    else if (rc != CURLE_OK)
        snprintf(why, sizeof why, "%s", transfer->why[0] ? transfer->why : curl_easy_strerror(rc));
    else
        snprintf(why, sizeof why, "the server answered with status %ld", status);
    return failed(download, err, why);
}

/* Downloads one URL. 0: the file is complete, or *next (free it with cn_free()) is where the server
 * redirects to. */
static int
download(struct transfer *transfer, const char *url, uint64_t left_ms, char **next,
         struct cn_error *err)
{
    const struct cn_download *order = transfer->download;
    struct curl_slist *conditions = make_conditions(order);
    const bool asks_for_change = conditions != NULL;
    long status = 0;
    char *target = NULL;
    CURLcode rc;

    transfer->url = url;
    transfer->download->stamp = (struct cn_download_stamp){0};
    set_options(transfer, url, left_ms);
    curl_easy_setopt(transfer->curl, CURLOPT_HTTPHEADER, conditions);
    rc = curl_easy_perform(transfer->curl);
    curl_slist_free_all(conditions);
    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(transfer->curl, CURLINFO_REDIRECT_URL, &target);
    transfer->download->is_same = rc == CURLE_OK && status == 304 && asks_for_change;
    if (transfer->download->is_same || (rc == CURLE_OK && status == 200))
        return 0;
    if (rc != CURLE_OK || status < 300 || status >= 400 || !target)
        return explain(transfer, rc, status, err);
    if (!may_go_anywhere(transfer))
        return failed(transfer->download, err,
                      "it redirects, which is allowed only for URLs that allowed-urls names");
    if (!is_trusted(order, target) &&
        !(cn_url_rules_are_set(order->rules) && cn_url_rules_allow(order->rules, target)))
        return failed(transfer->download, err,
                      "it redirects to a URL that does not match any allowed URL(s)");
    *next = cn_strdup(target);
    return 0;
}

static int
download_with_redirects(struct transfer *transfer, struct cn_error *err)
{
    struct timespec now;
    uint64_t end_ms, now_ms;
    char *url = cn_strdup(transfer->download->url), *next;
    int rc = 0, left;

    clock_gettime(CLOCK_MONOTONIC, &now); /* the real clock, because libcurl uses it */
    now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    end_ms = now_ms + transfer->download->timeout_ms;
    for (left = REDIRECTS_MAX; url && !rc; left--) {
        next = NULL;
        if (left < 0)
            rc = failed(transfer->download, err, "it redirects too often");
        else
            rc = download(transfer, url, end_ms > now_ms ? end_ms - now_ms : 1, &next, err);
        cn_free(url);
        url = next;
        clock_gettime(CLOCK_MONOTONIC, &now);
        now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    }
    cn_free(url);
    return rc;
}

/* --- the file */

static char *
in_store(const struct cn_download *download, const char *name)
{
    struct cn_buf path;

    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", download->store, name);
    return cn_buf_take(&path, NULL);
}

static int
exists(const char *path, struct cn_error *err)
{
    const char *slash = strrchr(path, '/');

    return cn_fail(err, CN_E_IO, "Model file already exists %s", slash ? slash + 1 : path);
}

int
cn_download_into(struct cn_download *download, int fd, struct cn_error *err)
{
    struct transfer transfer = {.download = download, .fd = fd, .url = download->url};
    int rc;

    download->is_same = download->away = false;
    download->stamp = (struct cn_download_stamp){0};
    if (!is_trusted(download, download->url) && !cn_url_rules_allow(download->rules, download->url))
        return cn_fail(err, CN_E_MODEL_NOT_FOUND,
                       "Given URL %.600s does not match any allowed URL(s)", download->url);
    transfer.curl = curl_easy_init();
    cn_assert(transfer.curl);
    rc = download_with_redirects(&transfer, err);
    curl_easy_cleanup(transfer.curl);
    return rc;
}

static int
run(struct cn_download *download, char *part, const char *path, struct cn_error *err)
{
    char why[300];
    int rc, fd = mkostemp(part, O_CLOEXEC);

    if (fd < 0) {
        snprintf(why, sizeof why, "cannot write to the model store: %s", strerror(errno));
        return failed(download, err, why);
    }
    rc = cn_download_into(download, fd, err);
    fchmod(fd, 0644);
    close(fd);
    if (!rc && renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_NOREPLACE) < 0)
        rc = errno == EEXIST
                 ? exists(path, err)
                 : cn_fail_sys(err, CN_E_IO, errno, "cannot make the model file %s", path);
    if (rc)
        unlink(part);
    return rc;
}

int
cn_download_run(struct cn_download *download, char **path, struct cn_error *err)
{
    char *name, *part;
    bool away;
    int rc;

    if (!cn_url_rules_allow(download->rules, download->url))
        return cn_fail(err, CN_E_MODEL_NOT_FOUND,
                       "Given URL %.600s does not match any allowed URL(s)", download->url);
    name = cn_download_file_name(download->url, err);
    if (!name)
        return CN_E_DOWNLOAD_FAILED;
    *path = in_store(download, name);
    part = in_store(download, PART_PREFIX "XXXXXX");
    rc = access(*path, F_OK) == 0 ? exists(*path, err) : run(download, part, *path, err);
    if (!rc && download->signed_archive) {
        rc = cn_download_signature(download, *path, &away, err);
        if (rc)
            cn_download_remove(*path);
    }
    if (rc) {
        cn_free(*path);
        *path = NULL;
    }
    cn_free(part);
    cn_free(name);
    return rc;
}

void
cn_download_begin(const char *store)
{
    DIR *dir = store ? opendir(store) : NULL;
    struct dirent *entry;
    struct stat st;

    curl_global_init(CURL_GLOBAL_DEFAULT);
    while (dir && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, PART_PREFIX, strlen(PART_PREFIX)) == 0 &&
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtime + PART_OLD_S < time(NULL))
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir)
        closedir(dir);
}
