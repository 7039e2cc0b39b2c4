/* management/operations.c - what the operations on models, stores and the repository need of the
 * management they belong to. Loop 0; cn_management_version_at on any loop.
 *
 * An operation is whatever takes more than one turn of the loop: a registration, a scaling, a look
 * at a store. Each one says when it begins and when it ends, and a drain is over when none is left.
 * These functions lie below the files of the operations, and management.c, which starts, drains and
 * ends everything, lies above them.
 */
#include <string.h>

#include "access/keys.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/loop/loop_call.h"
#include "management/management_priv.h"

/* --- operations under way --- */

void
cn_management_op_begin(struct cn_management *management)
{
    management->operations++;
}

void
cn_management_check_drained(void *ctx)
{
    struct cn_management *management = ctx;

    if (!atomic_load(&management->draining) || management->drained || management->operations > 0)
        return;
    management->drained = true;
    cn_timer_cancel(&management->drain_timer);
    cn_log(CN_LOG_INFO, "event=drained");
    management->on_drained(management->drained_ctx);
}

void
cn_management_op_end(struct cn_management *management)
{
    cn_assert(management->operations > 0);
    management->operations--;
    /* In a later turn, because the caller may still use the management. */
    if (management->operations == 0 && atomic_load(&management->draining))
        cn_call_on(management->home, cn_management_check_drained, management);
}

/* --- the models of the command line --- */

/* Is `what` (FILE or NAME=FILE, from the command line) the model that has come? */
static bool
is_meant(const char *what, const struct cn_model_about *about)
{
    size_t len = strlen(what), url_len = strlen(about->url), name_len = strlen(about->name);

    if (len >= url_len && strcmp(what + len - url_len, about->url) == 0 &&
        (len == url_len || what[len - url_len - 1] == '='))
        return true;
    return strncmp(what, about->name, name_len) == 0 && what[name_len] == '=';
}

void
cn_management_model_came(struct cn_management *management, const struct cn_model_about *about)
{
    const char *kind = cn_unready_word(CN_UNREADY_MODEL_FAILED);
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &management->health.reasons) {
        struct cn_health_reason *reason = cn_container_of(node, struct cn_health_reason, link);

        if (strcmp(reason->kind, kind) == 0 && is_meant(reason->subject, about))
            cn_health_clear(&management->health, kind, reason->subject);
    }
}

static void
on_all_reserved(void *ctx)
{
    struct cn_management *management = ctx;

    atomic_store_explicit(&management->all_reserved, true, memory_order_relaxed);
    cn_management_op_end(management);
}

void
cn_management_reserved(struct cn_management *management)
{
    if (--management->unreserved > 0)
        return;
    cn_management_op_begin(management);
    cn_registry_publish(management->registry, on_all_reserved, management);
}

/* --- versions by name --- */

struct cn_version *
cn_management_find_version(struct cn_management *management, const char *name, const char *version,
                           struct cn_error *err)
{
    struct cn_error unread;
    struct cn_version *found;

    if (!err)
        err = &unread;
    found = cn_registry_find(management->registry, name, version, err);
    if (!found && !atomic_load_explicit(&management->started, memory_order_relaxed) &&
        (err->code == CN_E_MODEL_NOT_FOUND || err->code == CN_E_VERSION_NOT_FOUND))
        cn_fail(err, CN_E_MODEL_LOADING,
                "Model \"%s\" is not known yet: the server is starting and still loads its "
                "models; try again",
                name);
    return found;
}

int
cn_management_version_at(void *ctx, struct cn_str name, unsigned i, struct cn_model_queue **out,
                         struct cn_error *err)
{
    struct cn_management *management = ctx;

    if (atomic_load_explicit(&management->draining, memory_order_relaxed))
        return cn_fail(err, CN_E_DRAINING, "the server is stopping");
    if (!atomic_load_explicit(&management->all_reserved, memory_order_relaxed))
        return cn_fail(
            err, CN_E_MODEL_LOADING,
            "the server is starting and does not know the versions of model %.*s yet; try again",
            CN_STR_ARG(name));
    return cn_registry_version_at(management->registry, name, i, out, err);
}

/* --- health and start --- */

bool
cn_management_healthy(struct cn_management *management)
{
    return cn_health_is_good(&management->health) &&
           cn_registry_count_short(management->registry) == 0;
}

void
cn_management_start_hold(struct cn_management *management)
{
    management->starting++;
    management->unreserved++;
}

/* --- limits of named keys --- */

struct cn_accounts *
cn_management_accounts(const struct cn_management *management)
{
    return management->keys ? cn_keys_accounts(management->keys) : NULL;
}

struct cn_accounts *
cn_management_owners(const struct cn_management *management)
{
    return management->config->sequence_ownership ? cn_management_accounts(management) : NULL;
}
