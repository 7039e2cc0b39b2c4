/* management/api/shared_states.c - what the shared store has of a model version. Loop 0; the store
 * is asked on the thread of the list of nodes.
 *
 * A removal takes as many calls as it needs, and no call takes long, so nothing has to be
 * remembered between them: a removal that was interrupted goes on with the next call, on any
 * node. */
#include "management/api/shared_states.h"

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/api/json/json_text.h"
#include "management/nodes/nodes.h"
#include "store/shared_url.h"

#define TIMEOUT_MS 2000

struct asking {
    struct cn_api_call *call;
    struct cn_file_task task;
    bool removes;
    struct cn_shared_url url;
    struct cn_shared_removal found;
    int rc;
    struct cn_error err;
};

static void
work(struct cn_file_task *task)
{
    struct asking *asking = cn_container_of(task, struct asking, task);

    asking->rc =
        cn_shared_store_remove(&asking->url.options, asking->removes, &asking->found, &asking->err);
}

static void
done(struct cn_file_task *task)
{
    struct asking *asking = cn_container_of(task, struct asking, task);
    struct cn_api_call *call = asking->call;
    struct cn_management *management = call->management;
    json_t *value;

    if (asking->rc) {
        cn_api_fail(call, asking->rc, asking->err.message);
    } else {
        value = json_object();
        json_object_set_new(value, "modelName", cn_json_text(call->parts[1]));
        json_object_set_new(value, "modelVersion", cn_json_text(call->parts[2]));
        json_object_set_new(value, "inUse", json_boolean(asking->found.in_use));
        if (asking->removes) {
            json_object_set_new(value, "removed", json_integer((json_int_t)asking->found.removed));
            cn_log(CN_LOG_INFO,
                   "event=shared_states_removed model=%s version=%s removed=%llu left=%llu",
                   call->parts[1], call->parts[2], (unsigned long long)asking->found.removed,
                   (unsigned long long)asking->found.left);
        }
        json_object_set_new(value, "left", json_integer((json_int_t)asking->found.left));
        cn_api_answer(call, 200, value);
    }
    cn_free(asking);
    cn_management_op_end(management);
}

void
cn_api_shared_states(struct cn_api_call *call, bool removes)
{
    struct cn_management *management = call->management;
    const char *name = call->parts[1], *version = call->parts[2];
    struct cn_error err = {0};
    struct asking *asking;

    if (!management->nodes) {
        cn_api_fail(call, CN_E_BAD_REQUEST,
                    "this server has no shared store: its state-store is not a URL; GET /stores "
                    "lists the stores in its state folder");
        return;
    }
    if (removes && cn_registry_find(management->registry, name, version, &err)) {
        cn_fail(&err, CN_E_CONFLICT,
                "model %.100s version %.100s is registered on this node; unregister it on all "
                "nodes first",
                name, version);
        cn_api_fail(call, err.code, err.message);
        return;
    }
    /* No worker of this node has a lease yet. */
    if (removes && (err.code == CN_E_MODEL_LOADING || !atomic_load(&management->started))) {
        cn_fail(&err, CN_E_CONFLICT,
                "this node is still registering models, perhaps model %.100s version %.100s; try "
                "again when it has done so",
                name, version);
        cn_api_fail(call, err.code, err.message);
        return;
    }
    asking = cn_alloc(sizeof *asking);
    if (cn_shared_url_read(management->config->state_store, &asking->url, &err)) {
        cn_free(asking);
        cn_api_fail(call, err.code, err.message);
        return;
    }
    asking->call = call;
    asking->removes = removes;
    asking->url.options.model = name;
    asking->url.options.version = version;
    asking->url.options.timeout_ms = TIMEOUT_MS;
    asking->task.work = work;
    asking->task.done = done;
    cn_management_op_begin(management);
    cn_file_thread_run(cn_nodes_thread(management->nodes), &asking->task);
}
