/* management/state/health_reasons.c - the table of reasons for which the server is unhealthy.
 *
 * Loop 0 sets and clears reasons. A reason has a kind (a row of metrics/counters/unready.def), a
 * subject, such as a model, and a text. Setting the same reason again changes its text at most, and
 * both functions say whether anything changed, so that the log records when a reason begins and
 * ends and nothing in between.
 *
 * A health check may come on any loop and many times a second, so other loops do not look at the
 * table: they read atomic counters, one for all reasons and one for each kind. */
#include "management/state/health_reasons.h"

#include <string.h>

#include "core/memory/mem.h"

void
cn_health_init(struct cn_health *health)
{
    cn_list_init(&health->reasons);
    atomic_store(&health->n, 0);
    for (int i = 0; i < CN_N_UNREADY; i++)
        atomic_store(&health->counts[i], 0);
}

static void
reason_free(struct cn_health_reason *reason)
{
    cn_free(reason->kind);
    cn_free(reason->subject);
    cn_free(reason->text);
    cn_free(reason);
}

void
cn_health_fini(struct cn_health *health)
{
    struct cn_list *link;

    while (health->reasons.next && (link = cn_list_pop_front(&health->reasons)) != NULL)
        reason_free(cn_container_of(link, struct cn_health_reason, link));
}

static struct cn_health_reason *
find(struct cn_health *health, const char *kind, const char *subject)
{
    struct cn_list *link;

    cn_list_for_each(link, &health->reasons) {
        struct cn_health_reason *reason = cn_container_of(link, struct cn_health_reason, link);

        if (strcmp(reason->kind, kind) == 0 && strcmp(reason->subject, subject) == 0)
            return reason;
    }
    return NULL;
}

bool
cn_health_set(struct cn_health *health, const char *kind, const char *subject, const char *text)
{
    struct cn_health_reason *reason = find(health, kind, subject);

    if (reason && strcmp(reason->text, text) == 0)
        return false;
    if (!reason) {
        reason = cn_alloc(sizeof *reason);
        cn_list_init(&reason->link);
        reason->kind = cn_strdup(kind);
        reason->subject = cn_strdup(subject);
        cn_list_push_back(&health->reasons, &reason->link);
        atomic_fetch_add(&health->n, 1);
        atomic_fetch_add(&health->counts[cn_unready_find(kind)], 1);
    }
    cn_free(reason->text);
    reason->text = cn_strdup(text);
    return true;
}

bool
cn_health_clear(struct cn_health *health, const char *kind, const char *subject)
{
    struct cn_health_reason *reason = find(health, kind, subject);

    if (!reason)
        return false;
    atomic_fetch_sub(&health->counts[cn_unready_find(kind)], 1);
    cn_list_remove(&reason->link);
    reason_free(reason);
    atomic_fetch_sub(&health->n, 1);
    return true;
}

bool
cn_health_is_good(struct cn_health *health)
{
    return atomic_load_explicit(&health->n, memory_order_relaxed) == 0;
}

uint32_t
cn_health_count(struct cn_health *health, enum cn_unready kind)
{
    return atomic_load_explicit(&health->counts[kind], memory_order_relaxed);
}
