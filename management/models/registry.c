/* management/models/registry.c - names, versions and defaults: lists that only loop 0 uses. A loop
 * that looks for a queue finds it by its view (registry_views.c).
 */
#include "management/models/registry.h"

#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "management/models/registry_priv.h"

struct cn_registry *
cn_registry_create(struct cn_loop *const *loops, unsigned n_loops)
{
    struct cn_registry *registry = cn_alloc(sizeof *registry);

    registry->loops = loops;
    registry->n_loops = n_loops;
    cn_list_init(&registry->models);
    cn_list_init(&registry->closing);
    cn_registry_views_init(registry);
    return registry;
}

void
cn_registry_destroy(struct cn_registry *registry)
{
    if (!registry)
        return;
    cn_assert(cn_list_empty(&registry->models) && cn_list_empty(&registry->closing));
    cn_registry_views_fini(registry);
    cn_free(registry);
}

static struct cn_model *
find_model(struct cn_registry *registry, const char *name)
{
    struct cn_list *node;
    struct cn_model *model;

    cn_list_for_each(node, &registry->models) {
        model = cn_container_of(node, struct cn_model, link);
        if (strcmp(model->name, name) == 0)
            return model;
    }
    return NULL;
}

/* Adds a model to the list, which is sorted by name. */
static struct cn_model *
add_model(struct cn_registry *registry, const char *name)
{
    struct cn_model *model = cn_alloc(sizeof *model + strlen(name) + 1), *other;
    struct cn_list *node;

    memcpy(model->name_bytes, name, strlen(name) + 1);
    model->name = model->name_bytes;
    cn_list_init(&model->versions);
    cn_list_for_each(node, &registry->models) {
        other = cn_container_of(node, struct cn_model, link);
        if (strcmp(other->name, name) > 0)
            break;
    }
    cn_list_push_back(node, &model->link); /* inserts before `node` */
    return model;
}

static bool
has_version(const struct cn_list *versions, const struct cn_version *like)
{
    const struct cn_list *node;
    const struct cn_version *version;

    cn_list_for_each(node, versions) {
        version = cn_container_of(node, struct cn_version, link);
        if (strcmp(version->about.name, like->about.name) == 0 &&
            strcmp(version->about.version, like->about.version) == 0)
            return true;
    }
    return false;
}

int
cn_registry_add(struct cn_registry *registry, struct cn_version *version, struct cn_error *err)
{
    struct cn_model *model = find_model(registry, version->about.name);

    if (model && has_version(&model->versions, version))
        return cn_fail(err, CN_E_CONFLICT, "Model version %s is already registered for model %s",
                       version->about.version, version->about.name);
    if (has_version(&registry->closing, version))
        return cn_fail(err, CN_E_CONFLICT,
                       "Model version %s of model %s is still being unregistered; try again",
                       version->about.version, version->about.name);
    if (!model)
        model = add_model(registry, version->about.name);
    version->model = model;
    cn_list_push_back(&model->versions, &version->link);
    if (!model->default_version)
        model->default_version = version;
    return 0;
}

struct cn_version *
cn_registry_remove(struct cn_registry *registry, struct cn_version *version)
{
    struct cn_model *model = version->model;

    cn_list_remove(&version->link);
    version->model = NULL;
    version->phase = CN_VERSION_CLOSING;
    cn_list_push_back(&registry->closing, &version->link);
    if (cn_list_empty(&model->versions)) {
        cn_list_remove(&model->link);
        cn_free(model);
    } else if (model->default_version == version) {
        model->default_version = cn_container_of(model->versions.next, struct cn_version, link);
        return model->default_version;
    }
    return NULL;
}

void
cn_registry_forget(struct cn_version *version)
{
    cn_assert(version->phase == CN_VERSION_CLOSING);
    cn_list_remove(&version->link);
}

struct cn_version *
cn_registry_find(struct cn_registry *registry, const char *name, const char *version,
                 struct cn_error *err)
{
    struct cn_model *model = find_model(registry, name);
    struct cn_version *found;
    struct cn_list *node;

    if (model && (!version || !*version) && model->default_version->phase == CN_VERSION_UP)
        return model->default_version;
    if (model && (!version || !*version)) {
        cn_fail(err, CN_E_MODEL_LOADING, "Model \"%s\" is still loading; try again", name);
        return NULL;
    }
    if (!model) {
        cn_fail(err, CN_E_MODEL_NOT_FOUND, "Model not found: %s", name);
        return NULL;
    }
    cn_list_for_each(node, &model->versions) {
        found = cn_container_of(node, struct cn_version, link);
        if (strcmp(found->about.version, version) != 0)
            continue;
        if (found->phase == CN_VERSION_UP)
            return found;
        cn_fail(err, CN_E_MODEL_LOADING, "Model \"%s\" version %s is still loading; try again",
                name, version);
        return NULL;
    }
    cn_fail(err, CN_E_VERSION_NOT_FOUND, "Model version: %s does not exist for model: %s", version,
            name);
    return NULL;
}

void
cn_registry_set_default(struct cn_version *version)
{
    version->model->default_version = version;
}

struct cn_list *
cn_registry_models(struct cn_registry *registry)
{
    return &registry->models;
}

struct cn_list *
cn_registry_closing(struct cn_registry *registry)
{
    return &registry->closing;
}
