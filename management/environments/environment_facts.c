/* management/environments/environment_facts.c - what the management API shows of environments and
 * of the models that wait for one. Loop 0. */
#include <string.h>

#include "management/environments/environments_priv.h"

const char *
cn_environment_python(const struct cn_environment *environment)
{
    return environment->python;
}

const char *
cn_environment_digest_of(const struct cn_environment *environment)
{
    return environment->digest;
}

void
cn_environment_facts(const struct cn_environment *environment, struct cn_environment_facts *out)
{
    static const char *const words[] = {
        [CN_ENVIRONMENT_IS_QUEUED] = "queued",   [CN_ENVIRONMENT_IS_BUILDING] = "building",
        [CN_ENVIRONMENT_IS_SEALING] = "sealing", [CN_ENVIRONMENT_IS_READY] = "ready",
        [CN_ENVIRONMENT_IS_UNUSED] = "unused",   [CN_ENVIRONMENT_IS_REMOVING] = "removing",
    };

    *out = (struct cn_environment_facts){
        .environment = environment,
        .digest = environment->digest,
        .python = environment->python,
        .state = words[environment->phase],
        .step = environment->installer ? cn_installer_step(environment->installer) : "",
        .for_ms = cn_loop_now_ms(environment->owner->loop) - environment->since_ms,
    };
}

static void
want_facts(const struct cn_environment_want *want, struct cn_environment_facts *out)
{
    if (want->waits_for)
        cn_environment_facts(want->waits_for, out);
    else
        *out = (struct cn_environment_facts){
            .digest = "", .python = "", .state = "looking", .step = ""};
}

bool
cn_environments_awaited(const struct cn_environments *environments, const char *model,
                        const char *version, struct cn_environment_facts *out)
{
    struct cn_list *node;

    if (!environments)
        return false;
    cn_list_for_each(node, &environments->wants) {
        const struct cn_environment_want *want =
            cn_container_of(node, struct cn_environment_want, link);

        if (strcmp(want->model, model) != 0 ||
            (version && *version && strcmp(want->version, version) != 0))
            continue;
        want_facts(want, out);
        return true;
    }
    return false;
}

void
cn_environments_each(const struct cn_environments *environments,
                     void (*fn)(void *ctx, const struct cn_environment_facts *facts),
                     void (*waits)(void *ctx, const struct cn_environment_want *want,
                                   const struct cn_environment_facts *facts),
                     void *ctx)
{
    struct cn_environment_facts facts;
    struct cn_list *node;

    if (!environments)
        return;
    cn_list_for_each(node, &environments->all) {
        cn_environment_facts(cn_container_of(node, struct cn_environment, link), &facts);
        fn(ctx, &facts);
    }
    cn_list_for_each(node, &environments->wants) {
        const struct cn_environment_want *want =
            cn_container_of(node, struct cn_environment_want, link);

        want_facts(want, &facts);
        waits(ctx, want, &facts);
    }
}
