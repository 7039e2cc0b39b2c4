/* management/api/sequence_removal.c - deletes a sequence: by message to the loop of its queue, and
 * back. Loop 0, unless a comment says otherwise.
 */
#include "management/api/sequences.h"

#include <string.h>

#include "core/log/log.h"
#include "core/loop/loop_call.h"
#include "core/memory/mem.h"
#include "management/api/json/json_text.h"

struct deleting {
    struct cn_management *management;
    struct cn_model_queue *queue;
    struct cn_sequence_delete order;
    char *model, *version;
    cn_sequence_done_fn done;
    void *ctx;
    char id[];
};

static json_t *
show(const struct deleting *op)
{
    json_t *value = json_object();
    char shown[4 * CN_SEQUENCE_ID_MAX + 3];

    cn_log(CN_LOG_INFO, "event=sequence_deleted model=%s version=%s sequence=%s live=%s", op->model,
           op->version, cn_log_quote(op->id, strlen(op->id), shown, sizeof shown),
           op->order.was_live ? "true" : "false");
    json_object_set_new(value, "status", json_string("deleted"));
    json_object_set_new(value, "modelName", cn_json_text(op->model));
    json_object_set_new(value, "modelVersion", cn_json_text(op->version));
    json_object_set_new(value, "sequence", cn_json_text(op->id));
    json_object_set_new(value, "wasLive", json_boolean(op->order.was_live));
    return value;
}

static void
finish(void *ctx)
{
    struct deleting *op = ctx;
    struct cn_management *management = op->management;

    if (op->order.err.code)
        op->done(op->ctx, NULL, &op->order.err);
    else
        op->done(op->ctx, show(op), NULL);
    cn_free(op->model);
    cn_free(op->version);
    cn_free(op);
    cn_management_op_end(management);
}

/* On the queue's loop. */
static void
on_deleted(struct cn_sequence_delete *order)
{
    struct deleting *op = cn_container_of(order, struct deleting, order);

    cn_call_on(op->management->home, finish, op);
}

/* On the queue's loop. The queue still lives: the message that ends it would come after ours. */
static void
do_delete(void *ctx)
{
    struct deleting *op = ctx;

    cn_model_queue_delete_sequence(op->queue, &op->order);
}

void
cn_sequence_remove(struct cn_management *management, const char *name, const char *version,
                   const char *id, cn_sequence_done_fn done, void *ctx)
{
    struct cn_version *found;
    struct deleting *op;
    struct cn_error err;

    found = cn_management_find_version(management, name, version, &err);
    if (!found) {
        done(ctx, NULL, &err);
        return;
    }
    op = cn_alloc(sizeof *op + strlen(id) + 1);
    memcpy(op->id, id, strlen(id) + 1);
    op->management = management;
    op->queue = found->queue;
    op->model = cn_strdup(found->about.name);
    op->version = cn_strdup(found->about.version);
    op->done = done;
    op->ctx = ctx;
    op->order.sequence_id = cn_str_from(op->id);
    op->order.on_done = on_deleted;
    cn_management_op_begin(management);
    cn_call_on(cn_model_queue_loop(found->queue), do_delete, op);
}
