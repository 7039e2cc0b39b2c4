/* management/api/json/environment_json.c - environments of Python packages as JSON. Loop 0.
 *
 * An environment is shown with the models that use it or wait for it. A model that waits appears in
 * the list also while its interpreter and its requirements are looked at, when there is no digest
 * yet: then its entry has the state "looking".
 */
#include "management/api/json/environment_json.h"

#include <string.h>

#include "management/api/json/json_text.h"
#include "management/management_priv.h"

static void
put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static json_t *
show(const struct cn_environment_facts *facts)
{
    json_t *out = json_object();

    put(out, "state", json_string(facts->state));
    put(out, "digest", facts->digest[0] ? json_string(facts->digest) : json_null());
    put(out, "python", facts->python[0] ? cn_json_text(facts->python) : json_null());
    put(out, "step", facts->step[0] ? cn_json_text(facts->step) : json_null());
    put(out, "forMSec", json_integer((json_int_t)facts->for_ms));
    return out;
}

json_t *
cn_environment_json(const struct cn_version *version)
{
    struct cn_environment_facts facts;

    if (!version->environment)
        return NULL;
    cn_environment_facts(version->environment, &facts);
    return show(&facts);
}

json_t *
cn_environment_awaited_json(struct cn_management *management, const char *model,
                            const char *version)
{
    struct cn_environment_facts facts;

    if (!cn_environments_awaited(management->environments, model, version, &facts))
        return NULL;
    return show(&facts);
}

/* --- the list */

struct listing {
    struct cn_management *management;
    json_t *items;
};

static void
add_model(json_t *models, const char *name, const char *version)
{
    json_t *out = json_object();

    put(out, "modelName", cn_json_text(name));
    put(out, "modelVersion", cn_json_text(version));
    json_array_append_new(models, out);
}

/* The versions that are registered, and those that are going, whose workers may still run. */
static void
add_users(json_t *models, const struct cn_list *versions, const struct cn_environment *environment)
{
    const struct cn_list *node;

    cn_list_for_each(node, versions) {
        const struct cn_version *version = cn_container_of(node, struct cn_version, link);

        if (version->environment == environment)
            add_model(models, version->about.name, version->about.version);
    }
}

static void
list_environment(void *ctx, const struct cn_environment_facts *facts)
{
    struct listing *listing = ctx;
    struct cn_registry *registry = listing->management->registry;
    json_t *out = show(facts), *models = json_array();
    struct cn_list *node;

    cn_list_for_each(node, cn_registry_models(registry))
        add_users(models, &cn_container_of(node, struct cn_model, link)->versions,
                  facts->environment);
    add_users(models, cn_registry_closing(registry), facts->environment);
    put(out, "models", models);
    json_array_append_new(listing->items, out);
}

/* Adds a model that waits to its environment, or as an entry of its own. */
static void
list_want(void *ctx, const struct cn_environment_want *want,
          const struct cn_environment_facts *facts)
{
    struct listing *listing = ctx;
    json_t *item, *models;
    size_t i;

    json_array_foreach(listing->items, i, item)
    {
        const char *digest = json_string_value(json_object_get(item, "digest"));
        const char *state = json_string_value(json_object_get(item, "state"));

        if (!digest || strcmp(digest, facts->digest) != 0 || strcmp(state, facts->state) != 0)
            continue;
        add_model(json_object_get(item, "models"), want->model, want->version);
        return;
    }
    item = show(facts);
    models = json_array();
    add_model(models, want->model, want->version);
    put(item, "models", models);
    json_array_append_new(listing->items, item);
}

json_t *
cn_environments_json(struct cn_management *management)
{
    struct listing listing = {management, json_array()};
    json_t *out = json_object();

    cn_environments_each(management->environments, list_environment, list_want, &listing);
    put(out, "environments", listing.items);
    return out;
}
