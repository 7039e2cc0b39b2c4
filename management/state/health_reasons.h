/* management/state/health_reasons.h - why the server is unhealthy besides missing workers: a table
 * of reasons.
 *
 * Whatever finds something that an operator must look at sets a reason; /ping, the v2 protocol's
 * readiness and gRPC's health answer "unhealthy" while there is one. `continuo-ctl doctor` shows
 * them. The table belongs to loop 0; any loop may ask how many reasons there are.
 */
#ifndef CN_MANAGEMENT_STATE_HEALTH_REASONS_H
#define CN_MANAGEMENT_STATE_HEALTH_REASONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "metrics/counters/unready.h"

struct cn_management;

/* Embedded in struct cn_management. */
struct cn_health {
    struct cn_list reasons; /* struct cn_health_reason, oldest first */
    atomic_uint n;
    atomic_uint counts[CN_N_UNREADY]; /* number of reasons of each kind */
};

struct cn_health_reason {
    struct cn_list link;
    char *kind;    /* a word of metrics/counters/unready.def, such as "store_damaged" */
    char *subject; /* what it is about, such as a store; one reason for each kind and subject */
    char *text;    /* a sentence for the operator, with what to do */
};

void cn_health_init(struct cn_health *health);
void cn_health_fini(struct cn_health *health);
/* Sets a reason, or replaces the text of the one that is there. True when it is a new one or says
 * something else than before; the caller then logs it. Loop 0. */
bool cn_health_set(struct cn_health *health, const char *kind, const char *subject,
                   const char *text);
/* Takes a reason away; false when there was none. Loop 0. */
bool cn_health_clear(struct cn_health *health, const char *kind, const char *subject);
/* Any loop: is there no reason? */
bool cn_health_is_good(struct cn_health *health);
/* Any loop: how many reasons of the kind there are. */
uint32_t cn_health_count(struct cn_health *health, enum cn_unready kind);

#endif
