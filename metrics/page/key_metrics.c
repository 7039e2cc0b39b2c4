/* metrics/page/key_metrics.c - what the named keys use, on the metrics page. On loop 0.
 *
 * A row of `families` has the name, type and help text of a family and where its value is. A key
 * that nobody has used since the start, and that has no sequences, has no samples: a file may have
 * ten thousand keys. */
#include "metrics/page/key_metrics.h"

#include <inttypes.h>
#include <stddef.h>

#include "access/account.h"

#define REFUSED "continuo_key_refused_total"

static const struct {
    const char *name, *type, *help;
    size_t at;
} families[] = {
    {"continuo_key_requests_total", "counter", "Requests of a named key that its limits let in",
     offsetof(struct cn_account_use, requests)},
    {"continuo_key_requests_in_flight", "gauge", "Requests of a named key that have no answer yet",
     offsetof(struct cn_account_use, in_flight)},
    {"continuo_key_sequences", "gauge", "Open sequences of a named key, also those on disk only",
     offsetof(struct cn_account_use, sequences)},
    {"continuo_key_stored_bytes", "gauge", "Bytes of state of a named key's open sequences",
     offsetof(struct cn_account_use, stored_bytes)},
};

struct printing {
    struct cn_buf *out;
    size_t family; /* N_FAMILIES: the refusals */
};
#define N_FAMILIES (sizeof families / sizeof families[0])

static void
print_refused(const struct cn_account_use *use, struct cn_buf *out)
{
    for (int i = 0; i < CN_N_ACCOUNT_LIMITS; i++)
        cn_buf_printf(out, REFUSED "{key=\"%s\",limit=\"%s\"} %" PRIu64 "\n", use->name,
                      cn_account_limit_word((enum cn_account_limit)i), use->refused[i]);
}

/* The name of a key needs no escapes. */
static void
print_one(void *ctx, const struct cn_account_use *use)
{
    const struct printing *printing = ctx;
    uint64_t refused = 0;

    for (int i = 0; i < CN_N_ACCOUNT_LIMITS; i++)
        refused += use->refused[i];
    if (!use->requests && !use->sequences && !refused)
        return;
    if (printing->family == N_FAMILIES)
        print_refused(use, printing->out);
    else
        cn_buf_printf(printing->out, "%s{key=\"%s\"} %" PRIu64 "\n",
                      families[printing->family].name, use->name,
                      *(const uint64_t *)((const char *)use + families[printing->family].at));
}

void
cn_key_metrics_print(struct cn_accounts *accounts, const struct cn_metric_filter *filter,
                     struct cn_buf *out)
{
    struct printing printing = {.out = out};

    if (!accounts)
        return;
    for (size_t i = 0; i <= N_FAMILIES; i++) {
        const char *name = i < N_FAMILIES ? families[i].name : REFUSED;

        if (!cn_metric_wanted(filter, name))
            continue;
        cn_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name,
                      i < N_FAMILIES ? families[i].help
                                     : "Requests of a named key that one of its limits refused",
                      name, i < N_FAMILIES ? families[i].type : "counter");
        printing.family = i;
        cn_accounts_each(accounts, print_one, &printing);
    }
}
