/* store/valkey/fitness.c - what a server must be before states are trusted to it. The
 * connection's thread.
 *
 * The same checks are made after each reconnection, because another server may have become the
 * primary. */
#include "store/valkey/fitness.h"

#include <stdio.h>
#include <string.h>

#define INFO_MAX 32768 /* a server's INFO has about 6 KiB */

/* What the server said of itself. */
struct answers {
    bool login_refused;
    char why[200]; /* the server's words, when it refused something */
    char info[INFO_MAX];
    size_t info_len;
    char fsync[24]; /* CONFIG GET appendfsync; "" when it does not say */
};

#define fail_at(link, err, ...) cn_wire_fail(&(link)->wire, CN_E_STATE_STORE, err, __VA_ARGS__)
#define fail_for_now(link, err, ...)                                                               \
    cn_wire_fail(&(link)->wire, CN_E_STORE_UNREACHABLE, err, __VA_ARGS__)

struct cn_str
cn_valkey_info_field(struct cn_str info, const char *name)
{
    const size_t len = strlen(name);
    const char *at = info.ptr, *end = info.ptr + info.len, *stop;

    while (at < end) {
        stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if ((size_t)(stop - at) > len && memcmp(at, name, len) == 0 && at[len] == ':') {
            const char *value = at + len + 1;

            while (stop > value && stop[-1] == '\r')
                stop--;
            return (struct cn_str){value, (size_t)(stop - value)};
        }
        at = stop < end ? stop + 1 : end;
    }
    return (struct cn_str){"", 0};
}

static void
copy_text(char *out, size_t max, struct cn_str text)
{
    const size_t n = text.len < max - 1 ? text.len : max - 1;

    memcpy(out, text.ptr, n);
    out[n] = '\0';
}

static void
take_login(void *ctx, uint32_t i, const redisReply *reply)
{
    struct answers *answers = ctx;

    (void)i;
    answers->login_refused = reply->type == REDIS_REPLY_ERROR;
    copy_text(answers->why, sizeof(answers->why), cn_valkey_text(reply));
}

static void
take_answer(void *ctx, uint32_t i, const redisReply *reply)
{
    struct answers *answers = ctx;
    const struct cn_str text = cn_valkey_text(reply);

    if (reply->type == REDIS_REPLY_ERROR && i == 0) {
        copy_text(answers->why, sizeof(answers->why), text);
    } else if (i == 0) {
        copy_text(answers->info, sizeof(answers->info), text);
        answers->info_len = strlen(answers->info);
    } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2) {
        copy_text(answers->fsync, sizeof(answers->fsync), cn_valkey_text(reply->element[1]));
    }
}

static int
log_in(struct cn_valkey_link *link, struct answers *answers, uint64_t deadline_us,
       struct cn_error *err)
{
    const struct cn_shared_options *options = &link->options;
    int rc;

    if (!options->password[0])
        return 0;
    cn_valkey_command(link, options->user[0] ? 3 : 2);
    cn_valkey_word(link, CN_STR("AUTH"));
    if (options->user[0])
        cn_valkey_word(link, cn_str_from(options->user));
    cn_valkey_word(link, cn_str_from(options->password));
    if ((rc = cn_valkey_talk(link, take_login, answers, deadline_us, err)) != 0)
        return rc;
    if (!answers->login_refused)
        return 0;
    return fail_at(link, err,
                   "refuses the user name or the password of the URL (it says: %.60s); the URL is "
                   "state-store or the model's state.store",
                   answers->why);
}

static int
ask(struct cn_valkey_link *link, struct answers *answers, uint64_t deadline_us,
    struct cn_error *err)
{
    int rc;

    cn_valkey_command(link, 1);
    cn_valkey_word(link, CN_STR("INFO"));
    if (link->options.power) {
        cn_valkey_command(link, 3);
        cn_valkey_word(link, CN_STR("CONFIG"));
        cn_valkey_word(link, CN_STR("GET"));
        cn_valkey_word(link, CN_STR("appendfsync"));
    }
    if ((rc = cn_valkey_talk(link, take_answer, answers, deadline_us, err)) != 0)
        return rc;
    if (answers->info_len)
        return 0;
    return fail_at(link, err, "does not answer INFO (it says: %.100s)%s", answers->why,
                   strncmp(answers->why, "NOAUTH", 6) == 0
                       ? "; put a password into the URL, as in valkey://:password@host"
                       : "");
}

static bool
says(const struct answers *answers, const char *field, const char *value)
{
    const struct cn_str info = {answers->info, answers->info_len};

    return cn_str_eq(cn_valkey_info_field(info, field), cn_str_from(value));
}

/* Does the server have WAITAOF? Redis has it from 7.2 on. Valkey, which says that it is Redis
 * 7.2.4 for such questions, has it in all versions. */
static bool
has_waitaof(const struct answers *answers)
{
    const struct cn_str version =
        cn_valkey_info_field((struct cn_str){answers->info, answers->info_len}, "redis_version");
    char text[24];
    unsigned major = 0, minor = 0;

    copy_text(text, sizeof(text), version);
    return sscanf(text, "%3u.%3u", &major, &minor) == 2 &&
           (major > 7 || (major == 7 && minor >= 2));
}

/* A step with durability power must survive an outage of the primary's machine. Either the server
 * syncs each write, or it is asked after each batch whether it has done so. */
static int
check_power(struct cn_valkey_link *link, const struct answers *answers, struct cn_error *err)
{
    const bool aof = says(answers, "aof_enabled", "1");

    link->waits_for_disk = false;
    if (!link->options.power || (aof && strcmp(answers->fsync, "always") == 0))
        return 0;
    link->waits_for_disk = aof && has_waitaof(answers);
    if (link->waits_for_disk)
        return 0;
    return fail_at(
        link, err,
        "does not sync each write to its disk, which durability power needs (aof_enabled "
        "is %s, appendfsync is %s); set appendonly yes there, and appendfsync always unless it has "
        "WAITAOF (Valkey, or Redis from 7.2 on); or set durability process",
        aof ? "1" : "0", answers->fsync[0] ? answers->fsync : "not readable");
}

static int
check_answers(struct cn_valkey_link *link, const struct answers *answers, struct cn_error *err)
{
    const struct cn_str policy =
        cn_valkey_info_field((struct cn_str){answers->info, answers->info_len}, "maxmemory_policy");

    if (says(answers, "loading", "1"))
        return fail_for_now(link, err, "is still loading its data");
    if (!says(answers, "role", "master"))
        return fail_for_now(link, err, "is a replica; %s",
                            link->options.master[0] ? "the Sentinels still take it for the primary"
                                                    : "add the primary to the URL, as in "
                                                      "valkey://host1:6379,host2:6379");
    if (says(answers, "cluster_enabled", "1"))
        return fail_at(link, err, "is a node of a cluster, which is not supported yet");
    if (!cn_str_eq(policy, CN_STR("noeviction")))
        return fail_at(link, err,
                       "may evict keys, and a state with them (maxmemory-policy is %.*s); set "
                       "maxmemory-policy noeviction there",
                       CN_STR_ARG(policy));
    return check_power(link, answers, err);
}

int
cn_valkey_check_server(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    struct answers answers = {0};
    int rc = log_in(link, &answers, deadline_us, err);

    if (rc == 0)
        rc = ask(link, &answers, deadline_us, err);
    return rc ? rc : check_answers(link, &answers, err);
}
