/* cn_fuzz: core management */
/* tests/fuzz/wanted_fuzz.c - any bytes as the set of models that the nodes of a shared store serve.
 *
 * Besides memory errors: what is accepted has one default version for each name and is read again
 * as it was written, and a refusal says why. If a zero byte divides the bytes into two sets, they
 * are merged; the merged set can be read, and lacks nothing of either. */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "management/cluster/wanted.h"
#include "tests/fuzz/fuzz.h"

static void
check(const struct cn_wanted *wanted)
{
    struct cn_wanted again;
    struct cn_error err = {0};
    struct cn_buf text;

    for (uint32_t i = 0; i < wanted->n; i++)
        cn_assert(cn_wanted_find(wanted, wanted->models[i].name, NULL) &&
                  strlen(wanted->models[i].id) < CN_WANTED_ID_MAX);
    cn_buf_init(&text, 0);
    cn_wanted_print(wanted, &text);
    cn_assert(cn_wanted_parse(cn_buf_str(&text), &again, &err) == 0 && again.n == wanted->n &&
              again.n_log == wanted->n_log);
    cn_buf_fini(&text);
    cn_wanted_fini(&again);
}

static void
note_lost(void *ctx, const struct cn_wanted_change *change, const struct cn_error *err)
{
    (void)ctx;
    cn_assert(change->model.name && err->message[0]);
}

static uint64_t
above(const struct cn_wanted *a, const struct cn_wanted *b)
{
    uint64_t out = a->log_since > b->log_since ? a->log_since : b->log_since;

    if (a->n_log && a->log[a->n_log - 1].generation > out)
        out = a->log[a->n_log - 1].generation;
    if (b->n_log && b->log[b->n_log - 1].generation > out)
        out = b->log[b->n_log - 1].generation;
    return out + 1;
}

static void
merge(struct cn_wanted *stored, struct cn_str text)
{
    struct cn_wanted mine, again;
    struct cn_error err = {0};

    if (cn_wanted_parse(text, &mine, &err))
        return;
    if (cn_wanted_merge(stored, &mine, false, above(stored, &mine), note_lost, NULL)) {
        check(stored);
        cn_wanted_fini(&mine);
        cn_assert(cn_wanted_parse(text, &again, &err) == 0);
        cn_assert(!cn_wanted_merge(stored, &again, false, above(stored, &again), note_lost, NULL));
        cn_wanted_fini(&again);
    } else {
        cn_wanted_fini(&mine);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *middle = size ? memchr(data, 0, size) : NULL;
    const size_t first = middle ? (size_t)(middle - data) : size;
    struct cn_wanted wanted;
    struct cn_error err = {0};

    if (cn_wanted_parse((struct cn_str){(const char *)data, first}, &wanted, &err)) {
        cn_assert(err.code == CN_E_PROTOCOL && err.message[0] && wanted.n == 0);
        return 0;
    }
    check(&wanted);
    if (middle)
        merge(&wanted, (struct cn_str){(const char *)middle + 1, size - first - 1});
    cn_wanted_fini(&wanted);
    return 0;
}
