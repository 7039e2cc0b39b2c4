/* management/models/registry_views.c - the views by which loops find queues.
 *
 * The registry itself is lists that only loop 0 uses (registry.c). A loop that looks for a queue
 * must not read these lists, so loop 0 makes a view: an immutable, sorted copy of what requests
 * need. Each loop has its own pointer to the newest view that it has taken, so a look-up needs no
 * lock and no atomic.
 *
 * A view is published by a message to each loop. The message visits the loop three times: the loop
 * takes the view; its turn ends; its next turn begins, and only then the loop acknowledges. By then
 * everything that the loop found by the old view has been submitted, so it lies in the queue's
 * mailbox before any later message of loop 0. So when a publication is done, the old view can be
 * freed, and a version that is no longer in any view can be closed.
 *
 * Publications do not overtake each other, because mailboxes keep the order of each sender. So the
 * end of one publication frees exactly the view before it.
 */
#include <stdlib.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "management/models/registry_priv.h"

struct view_version {
    struct cn_str version; /* borrowed from the struct cn_version, which outlives the view */
    struct cn_model_queue *queue;
    const struct cn_worker_pool_health *health;
};

struct view_model {
    struct cn_str name; /* borrowed from the struct cn_version, too */
    /* NULL: the default version is still being registered */
    const struct view_version *default_version;
    struct view_version *versions;
    unsigned n_versions;
    bool at_startup; /* one of its versions was loaded at start-up */
    bool coming;     /* a version that the command line names is still being registered */
};

struct view {
    unsigned n_models;
    struct view_model *models; /* sorted by name */
    /* the only model that was loaded at start-up; NULL: none or several were */
    const struct view_model *startup;
};

/* A loop's pointer to its view. It has a cache line of its own, because it is read with each
 * request. */
struct loop_view {
    _Alignas(64) const struct view *view;
};

struct visit {
    struct cn_msg msg;
    struct cn_deferred turn_end;
    struct publication *publication;
    unsigned loop_index;
};

struct publication {
    struct cn_registry *registry;
    struct view *view, *before;
    unsigned left; /* number of loops that have not acknowledged; counted on loop 0 */
    void (*on_done)(void *ctx);
    void *ctx;
    struct visit visits[];
};

/* --- views */

static void
view_free(struct view *view)
{
    unsigned i;

    for (i = 0; i < view->n_models; i++)
        cn_free(view->models[i].versions);
    cn_free(view->models);
    cn_free(view);
}

static unsigned
list_length(const struct cn_list *head)
{
    const struct cn_list *node;
    unsigned n = 0;

    cn_list_for_each(node, head)
        n++;
    return n;
}

static void
fill_model(struct view_model *to, const struct cn_model *model)
{
    struct cn_list *node;
    struct cn_version *version;

    to->versions = cn_alloc(list_length(&model->versions) * sizeof *to->versions);
    cn_list_for_each(node, (struct cn_list *)&model->versions) {
        version = cn_container_of(node, struct cn_version, link);
        to->coming |= version->at_startup && version->phase == CN_VERSION_REGISTERING;
        if (version->phase != CN_VERSION_UP)
            continue;
        to->name = cn_str_from(version->about.name);
        to->versions[to->n_versions] = (struct view_version){
            .version = cn_str_from(version->about.version),
            .queue = version->queue,
            .health = &version->health,
        };
        to->at_startup |= version->at_startup;
        if (version == model->default_version)
            to->default_version = &to->versions[to->n_versions];
        to->n_versions++;
    }
}

static void
find_startup(struct view *view)
{
    unsigned i, n = 0;

    for (i = 0; i < view->n_models; i++) {
        if (!view->models[i].at_startup)
            continue;
        view->startup = &view->models[i];
        n++;
    }
    if (n != 1)
        view->startup = NULL;
}

static struct view *
view_make(const struct cn_registry *registry)
{
    struct view *view = cn_alloc(sizeof *view);
    struct cn_list *node;
    struct view_model *to;

    view->models = cn_alloc((list_length(&registry->models) + 1) * sizeof *view->models);
    cn_list_for_each(node, (struct cn_list *)&registry->models) {
        to = &view->models[view->n_models];
        fill_model(to, cn_container_of(node, struct cn_model, link));
        if (to->n_versions) {
            view->n_models++;
        } else {
            cn_free(to->versions);
            *to = (struct view_model){0};
        }
    }
    find_startup(view);
    return view;
}

static int
compare(struct cn_str a, struct cn_str b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int rc = len ? memcmp(a.ptr, b.ptr, len) : 0;

    return rc ? rc : (a.len > b.len) - (a.len < b.len);
}

static const struct view_model *
view_find(const struct view *view, struct cn_str name)
{
    unsigned low = 0, high = view->n_models, middle;
    int rc;

    while (low < high) {
        middle = (low + high) / 2;
        rc = compare(name, view->models[middle].name);
        if (rc == 0)
            return &view->models[middle];
        if (rc < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* The view of the loop that is running. */
static const struct view *
view_here(struct cn_registry *registry)
{
    struct cn_loop *loop = cn_loop_current();

    cn_assert(loop && cn_loop_index(loop) < registry->n_loops);
    return registry->views[cn_loop_index(loop)].view;
}

struct cn_model_queue *
cn_registry_lookup(struct cn_registry *registry, struct cn_str name, struct cn_str version,
                   struct cn_error *err)
{
    const struct view_model *model = view_find(view_here(registry), name);
    unsigned i;

    if (!model || (version.len == 0 && !model->default_version)) {
        cn_fail(err, CN_E_MODEL_NOT_FOUND, "Model not found: %.*s", CN_STR_ARG(name));
        return NULL;
    }
    if (version.len == 0)
        return model->default_version->queue;
    for (i = 0; i < model->n_versions; i++)
        if (cn_str_eq(model->versions[i].version, version))
            return model->versions[i].queue;
    cn_fail(err, CN_E_VERSION_NOT_FOUND, "Model version: %.*s does not exist for model: %.*s",
            CN_STR_ARG(version), CN_STR_ARG(name));
    return NULL;
}

int
cn_registry_version_at(struct cn_registry *registry, struct cn_str name, unsigned i,
                       struct cn_model_queue **out, struct cn_error *err)
{
    const struct view_model *model = view_find(view_here(registry), name);

    if (model && model->coming)
        return cn_fail(err, CN_E_MODEL_LOADING,
                       "versions of model %.*s are still loading, and the sequence may live in one "
                       "of them; try again",
                       CN_STR_ARG(name));
    *out = model && i < model->n_versions ? model->versions[i].queue : NULL;
    return 0;
}

struct cn_model_queue *
cn_registry_lookup_startup(struct cn_registry *registry, struct cn_error *err)
{
    const struct view_model *model = view_here(registry)->startup;

    if (model && model->default_version)
        return model->default_version->queue;
    cn_fail(err, CN_E_BAD_REQUEST, "Parameter model_name is required.");
    return NULL;
}

int
cn_registry_is_ready(struct cn_registry *registry, struct cn_str name, bool *out,
                     struct cn_error *err)
{
    const struct view_model *model = view_find(view_here(registry), name);

    if (!model || !model->default_version)
        return cn_fail(err, CN_E_MODEL_NOT_FOUND, "Model not found: %.*s", CN_STR_ARG(name));
    *out = cn_worker_pool_is_ready(model->default_version->health);
    return 0;
}

uint32_t
cn_registry_count_short(struct cn_registry *registry)
{
    const struct view *view = view_here(registry);
    const struct view_version *version;
    uint32_t n = 0;
    unsigned i;

    for (i = 0; i < view->n_models; i++) {
        version = view->models[i].default_version;
        if (version && atomic_load_explicit(&version->health->ready, memory_order_relaxed) <
                           atomic_load_explicit(&version->health->wanted, memory_order_relaxed))
            n++;
    }
    return n;
}

void
cn_registry_each(struct cn_registry *registry,
                 void (*fn)(void *ctx, struct cn_model_queue *queue, bool is_ready), void *ctx)
{
    const struct view *view = view_here(registry);

    for (unsigned i = 0; i < view->n_models; i++)
        for (unsigned k = 0; k < view->models[i].n_versions; k++) {
            const struct view_version *version = &view->models[i].versions[k];

            fn(ctx, version->queue, cn_worker_pool_is_ready(version->health));
        }
}

/* --- the life of the views */

void
cn_registry_views_init(struct cn_registry *registry)
{
    unsigned i;

    registry->published = view_make(registry);
    registry->views = aligned_alloc(64, registry->n_loops * sizeof *registry->views);
    cn_assert(registry->views);
    for (i = 0; i < registry->n_loops; i++)
        registry->views[i].view = registry->published;
}

void
cn_registry_views_fini(struct cn_registry *registry)
{
    view_free(registry->published);
    free(registry->views);
}

/* --- publications */

/* On loop 0: one more loop has acknowledged. The last one ends the publication. */
static void
on_acknowledged(struct cn_msg *msg)
{
    struct publication *publication = cn_container_of(msg, struct visit, msg)->publication;
    void (*on_done)(void *ctx) = publication->on_done;
    void *ctx = publication->ctx;

    if (--publication->left > 0)
        return;
    view_free(publication->before);
    cn_free(publication);
    if (on_done)
        on_done(ctx);
}

static void
on_next_turn(struct cn_msg *msg)
{
    struct visit *visit = cn_container_of(msg, struct visit, msg);

    msg->fn = on_acknowledged;
    cn_loop_post(visit->publication->registry->loops[0], msg);
}

static void
on_turn_end(struct cn_deferred *deferred)
{
    struct visit *visit = cn_container_of(deferred, struct visit, turn_end);

    visit->msg.fn = on_next_turn;
    cn_loop_post(visit->publication->registry->loops[visit->loop_index], &visit->msg);
}

static void
on_take_view(struct cn_msg *msg)
{
    struct visit *visit = cn_container_of(msg, struct visit, msg);
    struct cn_registry *registry = visit->publication->registry;

    registry->views[visit->loop_index].view = visit->publication->view;
    cn_loop_defer(registry->loops[visit->loop_index], &visit->turn_end);
}

void
cn_registry_publish(struct cn_registry *registry, void (*on_done)(void *ctx), void *ctx)
{
    struct publication *publication =
        cn_alloc(sizeof *publication + registry->n_loops * sizeof publication->visits[0]);
    unsigned i;

    publication->registry = registry;
    publication->before = registry->published;
    publication->view = view_make(registry);
    publication->left = registry->n_loops;
    publication->on_done = on_done;
    publication->ctx = ctx;
    registry->published = publication->view;
    for (i = 0; i < registry->n_loops; i++) {
        struct visit *visit = &publication->visits[i];

        visit->publication = publication;
        visit->loop_index = i;
        visit->turn_end.fn = on_turn_end;
        cn_list_init(&visit->turn_end.link);
        visit->msg.fn = on_take_view;
        cn_loop_post(registry->loops[i], &visit->msg);
    }
}
