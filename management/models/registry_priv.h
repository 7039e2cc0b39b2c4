/* management/models/registry_priv.h - what registry.c and registry_views.c share: the registry from
 * inside. */
#ifndef CN_MANAGEMENT_MODELS_REGISTRY_PRIV_H
#define CN_MANAGEMENT_MODELS_REGISTRY_PRIV_H

#include "management/models/registry.h"

struct cn_registry {
    struct cn_loop *const *loops;
    unsigned n_loops;
    struct cn_list models, closing;
    struct view *published; /* the newest view, which some loops may not have taken yet */
    struct loop_view *views;
};

/* --- registry_views.c */

/* Gives every loop a view of the registry as it is. No loop runs yet. */
void cn_registry_views_init(struct cn_registry *registry);
/* Frees the views, when no loop runs. */
void cn_registry_views_fini(struct cn_registry *registry);

#endif
