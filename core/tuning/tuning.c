/* core/tuning/tuning.c - the table of performance mechanisms, and the list of --tuning. The
 * switches are written by the main thread before other threads start. */
#include "core/tuning/tuning.h"

#include <stdio.h>
#include <string.h>

#include "core/text/str.h"

_Static_assert(CN_N_TUNINGS < 64, "each row needs a bit");

const struct cn_tuning_row cn_tuning_rows[CN_N_TUNINGS] = {
#define CN_TUNING(id, name_, on_, what_, gained_, decision_)                                       \
    {.name = name_, .what = what_, .gained = gained_, .decision = decision_, .on = on_},
#include "core/tuning/tuning.def"
#undef CN_TUNING
};

#define ALL ((UINT64_C(1) << CN_N_TUNINGS) - 1)

enum {
    DEFAULTS = 0
#define CN_TUNING(id, name, on, what, gained, decision) | (on) << CN_TUNING_##id
#include "core/tuning/tuning.def"
#undef CN_TUNING
};

uint64_t cn_tuning_bits = DEFAULTS;

void
cn_tuning_set(uint64_t bits)
{
    cn_tuning_bits = bits & ALL;
}

static int
unknown(struct cn_str word, struct cn_error *err)
{
    char names[512];
    size_t len = 0;

    names[0] = '\0';
    for (int i = 0; i < CN_N_TUNINGS && len < sizeof(names); i++)
        len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", i ? ", " : "",
                                cn_tuning_rows[i].name);
    return cn_fail(
        err, CN_E_CONFIG,
        "\"%.*s\" is not a performance mechanism; write all, none, default, a name, or a "
        "name behind a dash to switch it off. The names are %s",
        (int)(word.len < 64 ? word.len : 64), word.ptr, names);
}

static int
apply(struct cn_str word, uint64_t *bits, struct cn_error *err)
{
    const bool off = word.len > 0 && word.ptr[0] == '-';
    const struct cn_str name = {word.ptr + off, word.len - off};

    if (cn_str_eq(word, CN_STR("all")) || cn_str_eq(word, CN_STR("none")) ||
        cn_str_eq(word, CN_STR("default"))) {
        *bits = word.ptr[0] == 'a' ? ALL : word.ptr[0] == 'n' ? 0 : DEFAULTS;
        return 0;
    }
    for (int i = 0; i < CN_N_TUNINGS; i++) {
        const uint64_t bit = UINT64_C(1) << i;

        if (!cn_str_eq(name, cn_str_from(cn_tuning_rows[i].name)))
            continue;
        *bits = off ? *bits & ~bit : *bits | bit;
        return 0;
    }
    return unknown(word, err);
}

int
cn_tuning_parse(const char *list, uint64_t *bits, struct cn_error *err)
{
    int rc;

    *bits = DEFAULTS;
    for (;;) {
        const size_t len = strcspn(list, ",");

        if ((rc = apply((struct cn_str){list, len}, bits, err)) != 0 || list[len] == '\0')
            return rc;
        list += len + 1;
    }
}
