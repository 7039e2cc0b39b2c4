/* management/api/json/sequence_json.c - sequences as JSON, and the tokens by which lists go on. Any
 * thread.
 *
 * What is shown of a sequence comes from two places: the record in the store (struct
 * cn_sequence_info) and, if the server has it open, the queue (struct cn_sequence_live). The queue
 * knows better whether a step waits or runs: while one does, the idle clock stands still.
 */
#include "management/api/json/sequence_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/text/utf8.h"
#include "core/time/clock.h"
#include "management/api/json/json_text.h"

static void
put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static void
put_number(json_t *object, const char *key, uint64_t value)
{
    put(object, key, json_integer((json_int_t)value));
}

/* Puts a time; 0 means none and becomes null. */
static void
put_time(json_t *object, const char *key, uint64_t wall_ms)
{
    char text[25];

    if (wall_ms)
        cn_wall_format(wall_ms, text);
    put(object, key, wall_ms ? json_string(text) : json_null());
}

static json_t *
bytes_json(struct cn_str text)
{
    json_t *value = json_stringn(text.ptr, text.len);
    char copy[CN_SEQUENCE_ID_MAX + 1];

    if (value)
        return value;
    snprintf(copy, sizeof copy, "%.*s", CN_STR_ARG(text));
    return cn_json_text(copy);
}

static const char *
state_word(const struct cn_sequence_info *info, bool is_live)
{
    if (info->flags & CN_INFO_CLOSED)
        return "closed";
    if (is_live)
        return "live";
    return info->flags & CN_INFO_EXPIRED ? "expired" : "stored";
}

static uint64_t
left_of(uint64_t from, uint64_t limit_ms, uint64_t now)
{
    return from + limit_ms > now ? from + limit_ms - now : 0;
}

/* Puts how much is left of both clocks; null without a limit. */
static void
put_clocks(json_t *out, const struct cn_sequence_info *info, const struct cn_sequence_live *live,
           const struct cn_model_config *config, uint64_t now)
{
    uint64_t idle = config->sequence_max_idle_ms, total = config->sequence_timeout_ms;
    bool busy = live && (live->in_flight || live->waiting);

    put(out, "idleLeftMSec", json_null());
    put(out, "totalLeftMSec", json_null());
    if (idle) /* while a step waits or runs, the sequence is not idle */
        put_number(out, "idleLeftMSec", busy ? idle : left_of(info->last_wall_ms, idle, now));
    if (live && live->lifetime_left_ms != CN_NEVER)
        put_number(out, "totalLeftMSec", live->lifetime_left_ms);
    else if (total)
        put_number(out, "totalLeftMSec", left_of(info->opened_wall_ms, total, now));
    put_time(out, "expires", busy ? 0 : info->expires_wall_ms);
}

json_t *
cn_sequence_json(const struct cn_sequence_info *info, const struct cn_sequence_live *live,
                 const struct cn_model_config *config, uint64_t now_wall_ms)
{
    bool is_closed = info->flags & CN_INFO_CLOSED;
    json_t *out = json_object();

    put(out, "sequence", bytes_json(info->id));
    put(out, "state", json_string(state_word(info, live != NULL)));
    put_number(out, "generation", info->generation);
    put_number(out, "step", info->step);
    put_time(out, "opened", info->opened_wall_ms);
    put_time(out, "lastStep", info->last_wall_ms);
    if (is_closed) {
        put_time(out, "closed", info->closed_wall_ms);
        put(out, "reason",
            json_string(cn_close_reason_word((enum cn_close_reason)info->close_reason)));
        put_time(out, "forgotten", info->expires_wall_ms);
        return out;
    }
    put_number(out, "idleMSec",
               now_wall_ms > info->last_wall_ms ? now_wall_ms - info->last_wall_ms : 0);
    put_number(out, "stateBytes", info->state_bytes);
    put_number(out, "stateSchema", info->schema);
    put_number(out, "answerBytes", info->answer_bytes);
    put(out, "answerKept", json_boolean(info->flags & CN_INFO_HAS_ANSWER));
    put(out, "idempotencyKey", json_boolean(info->flags & CN_INFO_HAS_KEY));
    put_clocks(out, info, live, config, now_wall_ms);
    put(out, "worker", live && live->worker ? json_integer(live->worker) : json_null());
    put_number(out, "backlog", live ? live->waiting : 0);
    put(out, "inFlight", json_boolean(live && live->in_flight));
    return out;
}

/* A token is opaque to clients: the worker's index, a dash, and the id in hexadecimal, so that any
 * id fits into a URL. */
json_t *
cn_page_token_json(uint32_t worker, struct cn_str id)
{
    char text[16 + 2 * CN_SEQUENCE_ID_MAX];
    int at = snprintf(text, sizeof text, "%" PRIu32 "-", worker);

    for (size_t i = 0; i < id.len; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%02x", (unsigned char)id.ptr[i]);
    return json_string(text);
}

/* Only lower-case digits, as tokens have them. */
static int
hex_digit(char c)
{
    return c >= 'A' && c <= 'F' ? -1 : cn_hex_digit(c);
}

int
cn_page_token_parse(const char *token, uint32_t *worker, char *id, size_t *id_len,
                    struct cn_error *err)
{
    const char *at = token;
    uint64_t index = 0;
    size_t len = 0;

    for (; *at >= '0' && *at <= '9' && index < UINT16_MAX; at++)
        index = index * 10 + (uint64_t)(*at - '0');
    if (at == token || *at++ != '-')
        goto bad;
    for (; *at; at += 2) {
        int high = hex_digit(at[0]), low = high < 0 ? -1 : hex_digit(at[1]);

        if (low < 0 || len == CN_SEQUENCE_ID_MAX)
            goto bad;
        id[len++] = (char)(high * 16 + low);
    }
    *worker = (uint32_t)index;
    *id_len = len;
    return 0;

bad:
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "next_page_token is \"%.60s\", which did not come from an earlier page; list "
                   "without it first",
                   token);
}

int
cn_sequence_id_check(const char *id, struct cn_error *err)
{
    size_t len = strlen(id);

    if (len < 1 || len > CN_SEQUENCE_ID_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "the sequence id has %zu bytes; it must have 1 to %d",
                       len, CN_SEQUENCE_ID_MAX);
    return cn_utf8_is_printable((struct cn_str){id, len})
               ? 0
               : cn_fail(err, CN_E_BAD_REQUEST,
                         "a sequence id must be printable UTF-8, but this one has control "
                         "characters or invalid UTF-8");
}
