/* access/key_limits.c - the limits of a key as texts. Any thread, no state. */
#include "access/key_limits.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "config/yaml/yaml.h"
#include "core/text/number.h"

static const struct {
    const char *name;
    size_t at;
    uint64_t max;
    const char *expected;
} limits_of[CN_N_KEY_LIMITS] = {
#define ROW(name, field, max, what)                                                                \
    {                                                                                              \
        name, offsetof(struct cn_key_limits, field), max,                                          \
            "a number of " what ", without a unit (leave it out for no limit)"                     \
    }
    ROW("rate", rate, CN_KEY_RATE_MAX, "requests a second from 1 to 1000000"),
    ROW("burst", burst, CN_KEY_RATE_MAX, "requests from 1 to 1000000"),
    ROW("concurrency", concurrency, CN_KEY_COUNT_MAX, "requests from 1 to 1000000000"),
    ROW("maxNumSequence", sequences, CN_KEY_COUNT_MAX, "sequences from 1 to 1000000000"),
    ROW("storedBytes", stored_bytes, CN_KEY_BYTES_MAX, "bytes from 1 to 1125899906842624"),
#undef ROW
};

static uint64_t *
limit_at(struct cn_key_limits *limits, unsigned i)
{
    return (uint64_t *)((char *)limits + limits_of[i].at);
}

const char *
cn_key_limit_name(unsigned i)
{
    return limits_of[i].name;
}

uint64_t
cn_key_limit_get(const struct cn_key_limits *limits, unsigned i)
{
    return *(const uint64_t *)((const char *)limits + limits_of[i].at);
}

int
cn_key_limit_take(const char *file, const struct cn_yaml *node, struct cn_key_limits *limits,
                  struct cn_error *err)
{
    unsigned i = 0;

    while (i + 1 < CN_N_KEY_LIMITS && !cn_str_eq(node->key, cn_str_from(limits_of[i].name)))
        i++;
    if (node->kind != CN_YAML_INT || node->integer < 1 ||
        (uint64_t)node->integer > limits_of[i].max)
        return cn_yaml_refuse(file, node, limits_of[i].name, limits_of[i].expected, err);
    *limit_at(limits, i) = (uint64_t)node->integer;
    return 0;
}

int
cn_key_limit_read(unsigned i, const char *flag, const char *text, struct cn_key_limits *limits,
                  struct cn_error *err)
{
    uint64_t value;

    if (!cn_read_uint(cn_str_from(text), limits_of[i].max, &value) || value == 0)
        return cn_fail(err, CN_E_CONFIG, "%s is \"%.40s\"; it must be %s", flag, text,
                       limits_of[i].expected);
    *limit_at(limits, i) = value;
    return 0;
}

int
cn_key_limits_check(const char *where, const struct cn_key_limits *limits, struct cn_error *err)
{
    return limits->burst && !limits->rate
               ? cn_fail(err, CN_E_CONFIG,
                         "%s has a burst without a rate; set both, or leave burst out", where)
               : 0;
}

void
cn_key_limits_write_json(const struct cn_key_limits *limits, struct cn_buf *out)
{
    for (unsigned i = 0; i < CN_N_KEY_LIMITS; i++)
        if (cn_key_limit_get(limits, i))
            cn_buf_printf(out, ", \"%s\": %" PRIu64, limits_of[i].name,
                          cn_key_limit_get(limits, i));
}

void
cn_key_limits_show(const struct cn_key_limits *limits, struct cn_buf *out)
{
    const char *comma = "";

    for (unsigned i = 0; i < CN_N_KEY_LIMITS; i++)
        if (cn_key_limit_get(limits, i)) {
            cn_buf_printf(out, "%s%s %" PRIu64, comma, limits_of[i].name,
                          cn_key_limit_get(limits, i));
            comma = ", ";
        }
    if (!*comma)
        cn_buf_puts(out, "none");
}
