/* management/api/self_description.c - asks a model's handler to describe itself, by a job of our
 * own in its queue.
 *
 * Loop 0 is the job's origin, as a front end's loop is for its requests. The job is stateless even
 * if the model is not, so that it neither opens a sequence nor waits for one.
 */
#include "management/api/self_description.h"

#include "core/memory/mem.h"
#include "management/api/json/json_text.h"
#include "scheduler/queue/submit.h"

#define METADATA_MAX_BYTES                                                                         \
    (1u << 20) /* bounds it, because it is held in memory and printed in a description */

struct asking {
    struct cn_management *management;
    struct cn_job job;
    struct cn_buf text; /* the pieces that came */
    char *model;
    cn_self_description_done_fn done;
    void *ctx;
};

/* Answers with an error; a missing worker is said in TorchServe's words. */
static void
fail(struct asking *asking, const struct cn_answer *answer)
{
    struct cn_error err;

    if (answer->error_code == CN_E_NO_WORKER)
        cn_fail(&err, CN_E_NO_WORKER,
                "Model \"%s\" has no worker to serve describe request. Please use scale workers "
                "API to add workers.",
                asking->model);
    else
        cn_fail(&err, answer->error_code, "%.*s", CN_STR_ARG(answer->body));
    asking->done(asking->ctx, NULL, &err);
}

static void
succeed(struct asking *asking)
{
    json_t *metadata = NULL;

    if (!asking->text.failed && asking->text.len)
        metadata = json_loadb(asking->text.data, asking->text.len, 0, NULL);
    if (!json_is_object(metadata)) {
        json_decref(metadata);
        metadata = json_object();
    }
    asking->done(asking->ctx, metadata, NULL);
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct asking *asking = cn_container_of(job, struct asking, job);
    struct cn_management *management = asking->management;
    bool final = (box->answer.flags & CN_ANSWER_FINAL) != 0;

    if (box->answer.error_code == 0)
        cn_buf_append_str(&asking->text, box->answer.body);
    if (final && box->answer.error_code)
        fail(asking, &box->answer);
    else if (final)
        succeed(asking);
    cn_answer_box_free(box);
    if (!final)
        return;
    cn_buf_fini(&asking->text);
    cn_free(asking->model);
    cn_free(asking);
    cn_management_op_end(management);
}

void
cn_self_description_ask(struct cn_management *management, const struct cn_version *version,
                        cn_self_description_done_fn done, void *ctx)
{
    static const struct cn_job_ops ops = {on_answer};
    const struct cn_model_config *config = &version->about.config;
    struct asking *asking = cn_alloc(sizeof *asking);

    cn_management_op_begin(management);
    asking->management = management;
    asking->model = cn_strdup(version->about.name);
    asking->done = done;
    asking->ctx = ctx;
    cn_buf_init(&asking->text, METADATA_MAX_BYTES);
    asking->job.ops = &ops;
    asking->job.origin = management->home;
    asking->job.row.flags = CN_ROW_DESCRIBE;
    asking->job.deadline_ms =
        cn_loop_now_ms(management->home) + 1000 * (uint64_t)config->response_timeout_s;
    cn_model_queue_submit(version->queue, &asking->job);
}
