/* store/link/valkey_server.c - connects to one server of the shared store, and asks it to confirm
 * what it has written. The link's thread.
 *
 * One trip costs one round trip, confirmation included: WAIT and WAITAOF go out together with the
 * commands that they confirm, and the server answers them when replicas or disk have caught up, or
 * when their time is over. WAIT 2 880, for instance, is answered with the number of replicas that
 * have everything, perhaps 1; WAITAOF 1 0 880 with [1, 2]: the server's own disk has it, and those
 * of two replicas. */
#include "store/link/valkey_server.h"

#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "store/link/fitness.h"

#define OUT_KEEP_BYTES (1u << 20)
#define PAUSE_MIN_US 100000   /* between two attempts to connect, also if they fail at once */
#define ATTEMPT_MIN_US 100000 /* how long the first attempts after a failure may take */

struct cn_valkey_server *
cn_valkey_server_create(const struct cn_shared_options *options, const struct cn_hiredis *lib,
                        const char *script)
{
    struct cn_valkey_server *server = cn_alloc(sizeof(*server));

    memset(server, 0, sizeof(*server));
    server->options = options;
    server->script = script;
    server->must_confirm = options->replicas == CN_REPLICAS_ALL ? 1 : options->replicas;
    cn_buf_init(&server->out, 0);
    cn_wire_init(&server->wire, lib, options);
    return server;
}

void
cn_valkey_server_destroy(struct cn_valkey_server *server)
{
    if (!server)
        return;
    cn_wire_fini(&server->wire);
    cn_buf_fini(&server->out);
    cn_free(server->replies);
    cn_free(server);
}

void
cn_valkey_server_move(struct cn_valkey_server *server, const char *host, uint16_t port)
{
    if (server->port == port && strcmp(server->host, host) == 0)
        return;
    cn_wire_drop(&server->wire);
    snprintf(server->host, sizeof(server->host), "%s", host);
    server->port = port;
}

/* --- connecting
 *
 * The script of conditional writes is loaded with each new connection, because a server that was
 * restarted has lost it. From then on only its digest is sent.
 */

static void
take_digest(void *ctx, uint32_t i, const redisReply *reply)
{
    struct cn_valkey_server *server = ctx;

    (void)i;
    server->digest[0] = '\0';
    if (reply->type == REDIS_REPLY_STRING && reply->len == CN_VALKEY_DIGEST_LEN)
        memcpy(server->digest, reply->str, CN_VALKEY_DIGEST_LEN + 1);
}

static int
load_script(struct cn_valkey_server *server, uint64_t deadline_us, struct cn_error *err)
{
    struct cn_valkey_wire *wire = &server->wire;
    int rc;

    cn_wire_command(wire, 3);
    cn_wire_word(wire, CN_STR("SCRIPT"));
    cn_wire_word(wire, CN_STR("LOAD"));
    cn_wire_word(wire, cn_str_from(server->script));
    if ((rc = cn_wire_talk(wire, take_digest, server, deadline_us, err)) != 0)
        return rc;
    if (server->digest[0])
        return 0;
    return cn_wire_fail(wire, CN_E_STATE_STORE, err,
                        "does not take the script of conditional writes; its user needs the "
                        "commands that docs/shared-store.md lists");
}

int
cn_valkey_server_connect(struct cn_valkey_server *server, uint64_t deadline_us,
                         struct cn_error *err)
{
    const struct cn_shared_host host = {.host = server->host, .port = server->port};
    int rc = cn_wire_connect(&server->wire, "the state store", &host, deadline_us, err);

    if (rc == 0)
        rc = cn_valkey_check_server(server, deadline_us, err);
    if (rc == 0 && server->script)
        rc = load_script(server, deadline_us, err);
    if (rc != 0)
        cn_wire_drop(&server->wire);
    return rc;
}

/* A server that is down must not hold up the steps whose keys other servers have. So the pause is
 * ten times what the attempt took: at most a tenth of the time is spent on such attempts, however
 * slowly they fail. */
void
cn_valkey_retry_later(struct cn_valkey_retry *retry, uint64_t began_us, uint32_t timeout_ms)
{
    const uint64_t now = cn_now_us(), took_us = now - began_us;
    const uint64_t most_us = (uint64_t)timeout_ms * 500;

    retry->failures++;
    retry->next_us = now + (took_us * 10 > PAUSE_MIN_US ? took_us * 10 : PAUSE_MIN_US);
    if (retry->failures <= 2)
        retry->attempt_us = ATTEMPT_MIN_US;
    else if (took_us >= retry->attempt_us && retry->attempt_us * 2 <= most_us)
        retry->attempt_us *= 2; /* it may only be slow */
}

/* --- the commands of a trip */

void
cn_valkey_server_clear(struct cn_valkey_server *server)
{
    cn_buf_reset(&server->out);
    if (server->out.cap > OUT_KEEP_BYTES)
        cn_buf_fini(&server->out);
    server->begin = 0;
    server->n_replies = server->first_reply = 0;
    server->confirmed = (struct cn_valkey_confirmed){0};
}

void
cn_valkey_server_expect(struct cn_valkey_server *server, uint32_t what)
{
    if (server->n_replies == server->cap_replies) {
        server->cap_replies = server->cap_replies ? server->cap_replies * 2 : 64;
        server->replies =
            cn_try_realloc(server->replies, server->cap_replies * sizeof(*server->replies));
        if (!server->replies)
            cn_panic(__FILE__, __LINE__, "not enough memory for a batch's commands");
    }
    server->replies[server->n_replies++] = what;
    server->used = true;
}

/* --- confirmation */

/* How long the server may wait for its replicas: less than we wait for the server, so that it says
 * what is missing before our own time is over. It looks at the time of such waits every 100 ms, and
 * a machine with much work sends the answer late. */
static uint64_t
wait_ms(uint64_t deadline_us)
{
    const uint64_t now = cn_now_us();
    const uint64_t left_ms = deadline_us > now ? (deadline_us - now) / 1000 : 0;

    return left_ms > 300 ? left_ms - left_ms / 8 - 100 : left_ms / 2 + 1;
}

static void
put_number(struct cn_buf *out, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    cn_wire_put_word(out, cn_str_from(text));
}

bool
cn_valkey_server_waits(const struct cn_valkey_server *server)
{
    return server->must_confirm > 0 || server->waits_for_disk;
}

void
cn_valkey_server_put_wait(struct cn_valkey_server *server, uint64_t deadline_us, uint32_t what)
{
    server->confirmed = (struct cn_valkey_confirmed){.wanted = server->must_confirm};
    if (server->waits_for_disk) {
        cn_valkey_server_expect(server, what);
        cn_wire_put_command(&server->out, 4);
        cn_wire_put_word(&server->out, CN_STR("WAITAOF"));
        cn_wire_put_word(&server->out, CN_STR("1"));
        cn_wire_put_word(&server->out, CN_STR("0"));
        put_number(&server->out, wait_ms(deadline_us));
    }
    if (server->must_confirm == 0)
        return;
    cn_valkey_server_expect(server, what);
    cn_wire_put_command(&server->out, 3);
    cn_wire_put_word(&server->out, CN_STR("WAIT"));
    put_number(&server->out, server->must_confirm);
    put_number(&server->out, wait_ms(deadline_us));
}

void
cn_valkey_server_take_wait(struct cn_valkey_server *server, const redisReply *reply)
{
    struct cn_valkey_confirmed *confirmed = &server->confirmed;

    if (reply->type == REDIS_REPLY_INTEGER)
        confirmed->replicas = reply->integer;
    else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
             reply->element[0]->type == REDIS_REPLY_INTEGER)
        confirmed->on_disk = reply->element[0]->integer > 0;
    confirmed->said = true;
}

int
cn_valkey_server_check_wait(const struct cn_valkey_server *server, struct cn_error *err)
{
    const struct cn_shared_options *options = server->options;

    if (server->waits_for_disk && !server->confirmed.on_disk)
        return cn_wire_fail(&server->wire, CN_E_STORE_UNREACHABLE, err,
                            "did not have what was written last on its disk after %u ms "
                            "(durability power, state.storeTimeoutMSec)",
                            options->timeout_ms);
    if (server->confirmed.replicas >= (long long)server->confirmed.wanted)
        return 0;
    return cn_fail(err, CN_E_STORE_UNREACHABLE,
                   "only %lld of %u replicas of the state store have what was written last, after "
                   "%u ms (%s)",
                   server->confirmed.replicas, server->confirmed.wanted, options->timeout_ms,
                   options->replicas == CN_REPLICAS_ALL
                       ? "state.replicas: all waits for each replica that the Sentinels do not "
                         "take for down"
                       : "state.replicas");
}
