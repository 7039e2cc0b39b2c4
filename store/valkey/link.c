/* store/valkey/link.c - finds the shared store's primary, connects to it, and does so again after
 * failures. The thread that owns the link. */
#include "store/valkey/link.h"

#include <string.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "store/valkey/fitness.h"

#define FAIL_FAST_US 100000 /* after a wait in vain, calls fail at once for this time */
#define RETRY_US 20000      /* pause between two attempts to connect */
#define ASK_AGAIN_US 100000 /* the same pause if Sentinels are asked each time */
#define ATTEMPT_US 500000   /* an attempt with Sentinels need not leave time for another one */

static void
copy_options(struct cn_valkey_link *link, const struct cn_shared_options *options)
{
    struct cn_shared_options *own = &link->options;

    *own = *options;
    if (own->n_hosts > CN_VALKEY_HOSTS_MAX)
        own->n_hosts = CN_VALKEY_HOSTS_MAX;
    for (uint32_t i = 0; i < own->n_hosts; i++)
        link->hosts[i] = (struct cn_shared_host){.host = cn_strdup(options->hosts[i].host),
                                                 .port = options->hosts[i].port};
    own->hosts = link->hosts;
    own->master = cn_strdup(options->master ? options->master : "");
    own->user = cn_strdup(options->user);
    own->password = cn_strdup(options->password);
    own->prefix = cn_strdup(options->prefix);
    own->model = cn_strdup(options->model);
    own->version = cn_strdup(options->version);
    if (!options->tls)
        return;
    link->tls = (struct cn_shared_tls){.ca = cn_strdup(options->tls->ca),
                                       .certificate = cn_strdup(options->tls->certificate),
                                       .key = cn_strdup(options->tls->key),
                                       .name = cn_strdup(options->tls->name)};
    own->tls = &link->tls;
}

int
cn_valkey_link_init(struct cn_valkey_link *link, const struct cn_shared_options *options,
                    const char *script, struct cn_error *err)
{
    const struct cn_hiredis *lib;
    int rc = cn_hiredis_open(&lib, err);

    memset(link, 0, sizeof(*link));
    link->script = script;
    copy_options(link, options);
    cn_wire_init(&link->wire, lib, &link->options);
    cn_sentinel_init(&link->sentinel, &link->options, lib);
    return rc;
}

static void
free_text(const char *text)
{
    cn_free((void *)(uintptr_t)text);
}

void
cn_valkey_link_fini(struct cn_valkey_link *link)
{
    cn_wire_fini(&link->wire);
    cn_sentinel_fini(&link->sentinel);
    for (uint32_t i = 0; i < link->options.n_hosts; i++)
        free_text(link->hosts[i].host);
    free_text(link->options.master);
    free_text(link->options.user);
    free_text(link->options.password);
    free_text(link->options.prefix);
    free_text(link->options.model);
    free_text(link->options.version);
    free_text(link->tls.ca);
    free_text(link->tls.certificate);
    free_text(link->tls.key);
    free_text(link->tls.name);
}

void
cn_valkey_link_drop(struct cn_valkey_link *link)
{
    cn_wire_drop(&link->wire);
}

uint64_t
cn_valkey_deadline_us(const struct cn_valkey_link *link)
{
    return cn_now_us() + (uint64_t)link->options.timeout_ms * 1000;
}

int
cn_valkey_talk(struct cn_valkey_link *link, cn_valkey_reply_fn on_reply, void *ctx,
               uint64_t deadline_us, struct cn_error *err)
{
    int rc = cn_wire_talk(&link->wire, on_reply, ctx, deadline_us, err);

    /* The wait was in vain, and further calls should not wait at once again. */
    if (rc != 0 && cn_now_us() >= deadline_us) {
        link->failed_us = cn_now_us();
        if (err != &link->failure)
            link->failure = *err;
    }
    return rc;
}

/* --- connecting */

static void
take_digest(void *ctx, uint32_t i, const redisReply *reply)
{
    struct cn_valkey_link *link = ctx;

    (void)i;
    link->digest[0] = '\0';
    if (reply->type == REDIS_REPLY_STRING && reply->len == CN_VALKEY_DIGEST_LEN)
        memcpy(link->digest, reply->str, CN_VALKEY_DIGEST_LEN + 1);
}

int
cn_valkey_load_script(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    int rc;

    cn_valkey_command(link, 3);
    cn_valkey_word(link, CN_STR("SCRIPT"));
    cn_valkey_word(link, CN_STR("LOAD"));
    cn_valkey_word(link, cn_str_from(link->script));
    if ((rc = cn_valkey_talk(link, take_digest, link, deadline_us, err)) != 0)
        return rc;
    if (link->digest[0])
        return 0;
    return cn_wire_fail(&link->wire, CN_E_STATE_STORE, err,
                        "does not take the script of conditional writes; its user needs the "
                        "commands that docs/shared-store.md lists");
}

/* Connects to a host and finds out whether it is fit. */
static int
try_host(struct cn_valkey_link *link, const struct cn_shared_host *host, uint64_t deadline_us,
         struct cn_error *err)
{
    int rc = cn_wire_connect(&link->wire, "the state store", host, deadline_us, err);

    if (rc == 0)
        rc = cn_valkey_check_server(link, deadline_us, err);
    if (rc == 0 && link->script)
        rc = cn_valkey_load_script(link, deadline_us, err);
    if (rc != 0)
        cn_valkey_link_drop(link);
    return rc;
}

/* Tries each host once, beginning with the one that was the primary last. Each gets an equal share
 * of the time that is left. */
static int
try_hosts(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    const uint32_t n = link->options.n_hosts;
    int rc = CN_E_STORE_UNREACHABLE;

    for (uint32_t i = 0; i < n; i++) {
        const uint64_t now = cn_now_us();
        const uint64_t left = deadline_us > now ? deadline_us - now : 0;

        rc = try_host(link, &link->hosts[link->host], now + left / (n - i), err);
        if (rc != CN_E_STORE_UNREACHABLE)
            return rc;
        link->host = (link->host + 1) % n;
    }
    return rc;
}

/* Asks the Sentinels for the primary and connects to it. A primary that does not answer gets half
 * of the time, because the Sentinels may name another one then. */
static int
try_sentinels(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    const uint64_t now = cn_now_us(), left = deadline_us > now ? deadline_us - now : 0;
    struct cn_shared_host primary;
    int rc;

    if (left / 2 > ATTEMPT_US)
        deadline_us = now + left / 2;
    rc = cn_sentinel_find(&link->sentinel, deadline_us, &primary, err);
    return rc ? rc : try_host(link, &primary, deadline_us, err);
}

int
cn_valkey_link_ready(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    const bool was_down = link->failed_us != 0, sentinels = link->options.master[0] != '\0';
    const uint64_t pause_us = sentinels ? ASK_AGAIN_US : RETRY_US;
    struct cn_error last = {0}, why = {0};
    int rc;

    if (link->wire.fd >= 0 && sentinels && cn_sentinel_moved(&link->sentinel))
        cn_wire_drop(&link->wire);
    if (link->wire.fd >= 0)
        return 0;
    if (was_down && cn_now_us() - link->failed_us < FAIL_FAST_US) {
        if (err)
            *err = link->failure;
        return link->failure.code;
    }
    /* The first call that finds the store down tries again until its deadline. While the store
     * stays down, each later call tries once. The error is that of the last attempt that had enough
     * time: one that the deadline cut short only knows that the time was over. */
    for (;;) {
        rc = sentinels ? try_sentinels(link, deadline_us, &last)
                       : try_hosts(link, deadline_us, &last);
        if (!why.code || cn_now_us() < deadline_us)
            why = last;
        if (rc != CN_E_STORE_UNREACHABLE || was_down || cn_now_us() + pause_us >= deadline_us)
            break;
        usleep((useconds_t)pause_us);
    }
    link->failure = why;
    link->failed_us = rc == 0 ? 0 : cn_now_us();
    if (rc != 0 && err)
        *err = link->failure;
    return rc;
}
