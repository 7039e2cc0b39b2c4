/* frontend/intake/sequence_names.c - the names of the headers that control sequences, as the
 * options set them.
 *
 * Names are compared without regard to case, and with "-" and "_" as the same character, because
 * some proxies and clients change one into the other. The names are set before the loops run and
 * only read after that. A name that the server already reads for another purpose is refused at
 * start. */
#include "frontend/intake/sequence_names.h"

#include <stdio.h>
#include <string.h>

#include "frontend/intake/headers.h"

static char texts[CN_N_SEQUENCE_NAMES][CN_SEQUENCE_NAME_MAX + 1];
#define DEFAULT_NAMES                                                                              \
    {                                                                                              \
        CN_STR("ts_request_sequence_id"), CN_STR("ts_request_sequence_start"),                     \
            CN_STR("ts_request_sequence_end")                                                      \
    }
static const struct cn_str default_names[CN_N_SEQUENCE_NAMES] = DEFAULT_NAMES;
static struct cn_str names[CN_N_SEQUENCE_NAMES] = DEFAULT_NAMES;

struct cn_str
cn_sequence_name(enum cn_sequence_name which)
{
    return names[which];
}

enum cn_sequence_name
cn_sequence_name_find(struct cn_str name)
{
    unsigned i;

    if (cn_str_eq_header(name, CN_STR(CN_SHORT_SEQUENCE_HEADER)) ||
        cn_str_eq_header(name, CN_STR(CN_LONG_SEQUENCE_HEADER)))
        return CN_NAME_ID;
    for (i = 0; i < CN_N_SEQUENCE_NAMES; i++)
        if (cn_str_eq_header(name, names[i]))
            break;
    return (enum cn_sequence_name)i;
}

bool
cn_sequence_name_is_default(struct cn_str name)
{
    for (size_t i = 0; i < CN_N_SEQUENCE_NAMES; i++)
        if (cn_str_eq_header(name, default_names[i]))
            return true;
    return false;
}

static bool
is_good(const char *name)
{
    static const char chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t len = strlen(name);

    return len > 0 && len <= CN_SEQUENCE_NAME_MAX && strspn(name, chars) == len;
}

/* Does the server read this header for something else? */
static bool
is_taken(struct cn_str name)
{
    static const struct cn_str others[] = {CN_STR("authorization"),
                                           CN_STR("accept-encoding"),
                                           CN_STR("content-type"),
                                           CN_STR("content-encoding"),
                                           CN_STR("expect"),
                                           CN_STR("host"),
                                           CN_STR("idempotency-key"),
                                           CN_STR("ts-request-sequence-step"),
                                           CN_STR("origin"),
                                           CN_STR("inference-header-content-length"),
                                           CN_STR("x-amzn-sagemaker-session-id"),
                                           CN_STR(CN_SHORT_SEQUENCE_HEADER),
                                           CN_STR(CN_LONG_SEQUENCE_HEADER)};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (cn_str_eq_header(name, others[i]))
            return true;
    return cn_sequence_name_find(name) == CN_N_SEQUENCE_NAMES && cn_header_is_ours(name);
}

int
cn_sequence_names_use(const struct cn_server_config *config, struct cn_error *err)
{
    const struct {
        const char *flag, *name;
    } wanted[CN_N_SEQUENCE_NAMES] = {{"--sequence-id-header", config->sequence_id_header},
                                     {"--sequence-start-header", config->sequence_start_header},
                                     {"--sequence-end-header", config->sequence_end_header}};
    unsigned i, other;

    for (i = 0; i < CN_N_SEQUENCE_NAMES; i++) {
        struct cn_str name = cn_str_from(wanted[i].name);

        if (!is_good(wanted[i].name))
            return cn_fail(err, CN_E_CONFIG,
                           "%s: \"%.100s\" is not a valid header name; it must have 1 to %d "
                           "letters, digits, '-', '_' or '.'",
                           wanted[i].flag, wanted[i].name, CN_SEQUENCE_NAME_MAX);
        if (is_taken(name))
            return cn_fail(err, CN_E_CONFIG,
                           "%s: the header %s already has another meaning; choose another name",
                           wanted[i].flag, wanted[i].name);
        for (other = 0; other < i; other++)
            if (cn_str_eq_header(name, cn_str_from(wanted[other].name)))
                return cn_fail(err, CN_E_CONFIG,
                               "%s and %s both name the header %s; each needs its own header",
                               wanted[other].flag, wanted[i].flag, wanted[i].name);
    }
    for (i = 0; i < CN_N_SEQUENCE_NAMES; i++) {
        snprintf(texts[i], sizeof(texts[i]), "%s", wanted[i].name);
        for (char *at = texts[i]; *at; at++)
            if (*at >= 'A' && *at <= 'Z')
                *at = (char)(*at - 'A' + 'a');
        names[i] = cn_str_from(texts[i]);
    }
    return 0;
}
