/* kserve/access.c - restricted groups and forwarded headers. Only read once it is set up.
 *
 * A restriction works like a shared password: operators give clients that may, for example, load
 * models a header and its value. The value is compared in a time that does not depend on where it
 * differs. Both options are Triton's, and so are their texts and the prefix of gRPC's metadata
 * keys.
 */
#include "kserve/access.h"

#include <regex.h>
#include <string.h>

#include "core/memory/buf.h"
#include "core/memory/mem.h"

#define METADATA_PREFIX "triton-grpc-protocol-"

struct gate {
    char *header, *value; /* NULL: the group is open to all */
};

static struct {
    struct gate gates[CN_V2_N_GROUPS];
    bool forwards;
    regex_t forward;
} transports[CN_V2_N_TRANSPORTS];

static const char *const group_words[CN_V2_N_GROUPS] = {
    "health",           "metadata",   "inference", "shared-memory", "model-config",
    "model-repository", "statistics", "trace",     "logging"};

/* --- set-up */

static int
find_group(struct cn_str word)
{
    for (int i = 0; i < CN_V2_N_GROUPS; i++)
        if (cn_str_eq(word, cn_str_from(group_words[i])))
            return i;
    return -1;
}

/* Returns what stands before `stop` in *rest; *rest becomes what stands after it. */
static struct cn_str
cut(struct cn_str *rest, char stop)
{
    const char *at = rest->len ? memchr(rest->ptr, stop, rest->len) : NULL;
    struct cn_str head = {rest->ptr, at ? (size_t)(at - rest->ptr) : rest->len};

    rest->ptr += at ? head.len + 1 : head.len;
    rest->len -= at ? head.len + 1 : head.len;
    return head;
}

/* Reads one rule, "GROUP,GROUP:HEADER=VALUE". */
static int
take_rule(enum cn_v2_transport transport, struct cn_str rule, struct cn_error *err)
{
    struct cn_str rest = rule, groups = cut(&rest, ':'), header = cut(&rest, '=');
    const char *prefix = transport == CN_V2_GRPC ? METADATA_PREFIX : "";
    struct cn_str word;

    if (groups.len == 0 || header.len == 0 || rest.len == 0)
        return cn_fail(err, CN_E_CONFIG,
                       "a restricted API must be written GROUP,GROUP:HEADER=VALUE, with at least "
                       "one group, a header and a value");
    while ((word = cut(&groups, ',')).len > 0) {
        int group = find_group(word);
        struct gate *gate = group < 0 ? NULL : &transports[transport].gates[group];
        struct cn_buf name;

        if (!gate)
            return cn_fail(
                err, CN_E_CONFIG,
                "unknown API group \"%.*s\"; the groups are health, metadata, inference, "
                "shared-memory, model-config, model-repository, statistics, trace and "
                "logging",
                CN_STR_ARG(word));
        if (gate->header)
            return cn_fail(err, CN_E_CONFIG, "the API group %s is restricted twice",
                           group_words[group]);
        cn_buf_init(&name, 0);
        cn_buf_puts(&name, prefix);
        cn_buf_append_str(&name, header);
        cn_buf_append(&name, "", 1);
        gate->header = cn_buf_take(&name, NULL);
        gate->value = cn_strndup(rest.ptr, rest.len);
    }
    return 0;
}

int
cn_v2_access_setup(enum cn_v2_transport transport, const char *restricted, const char *forward,
                   struct cn_error *err)
{
    struct cn_str rest = restricted ? cn_str_from(restricted) : CN_STR("");
    char why[200];
    int rc = 0;

    for (unsigned i = 0; i < CN_V2_N_GROUPS; i++) {
        cn_free(transports[transport].gates[i].header);
        cn_free(transports[transport].gates[i].value);
        transports[transport].gates[i] = (struct gate){NULL, NULL};
    }
    while (rest.len > 0 && !rc)
        rc = take_rule(transport, cut(&rest, ';'), err);
    if (transports[transport].forwards)
        regfree(&transports[transport].forward);
    transports[transport].forwards = false;
    if (rc || !forward || !*forward)
        return rc;
    rc = regcomp(&transports[transport].forward, forward, REG_EXTENDED | REG_ICASE | REG_NOSUB);
    if (rc) {
        regerror(rc, &transports[transport].forward, why, sizeof why);
        return cn_fail(err, CN_E_CONFIG, "the header forward pattern %.200s: %s", forward, why);
    }
    transports[transport].forwards = true;
    return 0;
}

/* --- restricted groups */

/* Compares in a time that does not depend on where the texts differ, since the value is a
 * secret. */
static bool
is_value(struct cn_str given, const char *wanted)
{
    size_t len = strlen(wanted);
    unsigned differs = given.len != len;

    for (size_t i = 0; i < given.len; i++)
        differs |= (unsigned char)given.ptr[i] ^ (unsigned char)wanted[len ? i % len : 0];
    return !differs;
}

bool
cn_v2_access_is_restricted(enum cn_v2_transport transport, enum cn_v2_group group)
{
    return transports[transport].gates[group].header != NULL;
}

int
cn_v2_access_check(enum cn_v2_transport transport, enum cn_v2_group group,
                   const struct cn_header *headers, uint32_t n, struct cn_error *err)
{
    const struct gate *gate = &transports[transport].gates[group];

    if (!gate->header)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (cn_str_eq_nocase(headers[i].name, cn_str_from(gate->header)) &&
            is_value(headers[i].value, gate->value))
            return 0;
    return cn_fail(err, CN_E_RESTRICTED, "This %s is restricted, expecting header '%s'",
                   transport == CN_V2_HTTP ? "API" : "protocol", gate->header);
}

static bool
ends_with(struct cn_str text, const char *end)
{
    size_t len = strlen(end);

    return text.len >= len && memcmp(text.ptr + text.len - len, end, len) == 0;
}

static bool
begins_with(struct cn_str text, const char *begin)
{
    size_t len = strlen(begin);

    return text.len >= len && memcmp(text.ptr, begin, len) == 0;
}

enum cn_v2_group
cn_v2_group_of_path(struct cn_str pattern)
{
    if (begins_with(pattern, "/v2/health/") || ends_with(pattern, "/ready"))
        return CN_V2_HEALTH;
    if (begins_with(pattern, "/v2/systemsharedmemory") || begins_with(pattern, "/v2/cudashared"))
        return CN_V2_SHARED_MEMORY;
    if (begins_with(pattern, "/v2/repository/"))
        return CN_V2_MODEL_REPOSITORY;
    if (begins_with(pattern, "/v2/logging"))
        return CN_V2_LOGGING;
    if (ends_with(pattern, "/trace/setting"))
        return CN_V2_TRACE;
    if (ends_with(pattern, "/stats"))
        return CN_V2_STATISTICS;
    if (ends_with(pattern, "/config"))
        return CN_V2_MODEL_CONFIG;
    if (ends_with(pattern, "/infer") || ends_with(pattern, "/generate") ||
        ends_with(pattern, "/generate_stream"))
        return CN_V2_INFERENCE;
    return CN_V2_METADATA;
}

/* --- forwarded headers */

/* Does the protocol itself use a parameter of this name? A header must not set it. */
static bool
is_reserved(struct cn_str name)
{
    static const char *const words[] = {"sequence_id",   "sequence_start",    "sequence_end",
                                        "sequence_step", "priority",          "timeout",
                                        "headers",       "binary_data_output"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (cn_str_eq(name, cn_str_from(words[i])))
            return true;
    return begins_with(name, "triton_");
}

/* Is the header to be passed on? Names too long for the buffer are not. */
static bool
goes_on(enum cn_v2_transport transport, struct cn_str name)
{
    char text[256];

    if (name.len >= sizeof text)
        return false;
    memcpy(text, name.ptr, name.len);
    text[name.len] = '\0';
    return regexec(&transports[transport].forward, text, 0, NULL, 0) == 0;
}

int
cn_v2_access_forward(enum cn_v2_transport transport, const struct cn_header *headers, uint32_t n,
                     struct cn_arena *arena, struct cn_v2_request *request, struct cn_error *err)
{
    struct cn_v2_param *params;

    if (!transports[transport].forwards || n == 0)
        return 0;
    params = cn_arena_alloc(arena, sizeof *params * (request->n_params + n));
    if (request->n_params)
        memcpy(params, request->params, sizeof *params * request->n_params);
    request->params = params;
    for (uint32_t i = 0; i < n; i++) {
        if (!goes_on(transport, headers[i].name))
            continue;
        if (is_reserved(headers[i].name))
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "Header '%.*s' is reserved for Triton usage and cannot be forwarded.",
                           CN_STR_ARG(headers[i].name));
        params[request->n_params++] =
            (struct cn_v2_param){.name = cn_arena_str(arena, headers[i].name),
                                 .kind = CN_V2_STRING,
                                 .text = cn_arena_str(arena, headers[i].value)};
    }
    return 0;
}
