/* management/environments/environments.c - environments of Python packages, one for each digest.
 * Loop 0, with visits to a file thread of its own.
 *
 * A model that wants an environment has a struct cn_environment_want, a want for short. This is how
 * it gets its answer:
 * - cn_environments_want() runs the interpreter for some milliseconds, which prints its version and
 *   its folders.
 * - work_read() makes the recipe from that and from the archive's files, and the digest from it.
 * - attach() finds the environment with this digest, or begins to make one (environment.c). If it
 *   is READY, that is the answer; otherwise the want waits for it, and all wants that wait for it
 *   are answered together.
 *
 * The file thread does its tasks in order. Its first one looks at what an earlier server left, so
 * the environments on the disk are known before the first digest is. It is not the server's other
 * file thread, because deleting or flushing gigabytes of packages may take seconds. */
#include "management/environments/environments.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "management/environments/environments_priv.h"

/* --- a model wants one */

/* Finds the environment with this digest. One whose interpreter has disappeared meanwhile is
 * removed, and so is not found. */
static struct cn_environment *
find_environment(struct cn_environments *environments, const char *digest)
{
    struct cn_list *node;

    cn_list_for_each(node, &environments->all) {
        struct cn_environment *environment = cn_container_of(node, struct cn_environment, link);

        if (cn_environment_is(environment, CN_ENVIRONMENT_IS_REMOVING) ||
            strcmp(environment->digest, digest) != 0)
            continue;
        if (!cn_environment_is(environment, CN_ENVIRONMENT_IS_UNUSED) ||
            access(environment->python, X_OK) == 0)
            return environment;
        cn_environment_remove(environment);
    }
    return NULL;
}

static void
attach(struct cn_environment_want *want)
{
    struct cn_environments *environments = want->owner;
    struct cn_environment *environment = find_environment(environments, want->digest);

    if (!environment) {
        environment =
            cn_environment_add(environments, want->digest,
                               cn_environment_files_place(environments->folder, want->digest),
                               CN_ENVIRONMENT_IS_QUEUED);
        environment->recipe = want->recipe;
        cn_buf_init(&want->recipe, 0);
    }
    if (cn_environment_is(environment, CN_ENVIRONMENT_IS_UNUSED)) {
        cn_timer_cancel(&environment->keep);
        cn_environment_to(environment, CN_ENVIRONMENT_IS_READY);
    }
    if (cn_environment_is(environment, CN_ENVIRONMENT_IS_READY)) {
        cn_environment_answer(want, environment, NULL);
        return;
    }
    want->waits_for = environment;
    cn_environments_build_next(environments);
}

static void
work_read(struct cn_file_task *task)
{
    struct cn_environment_want *want = cn_container_of(task, struct cn_environment_want, task);
    char identity[1024];

    snprintf(identity, sizeof identity, "%s", cn_installer_identity(want->asking));
    want->err.code = 0;
    if (cn_environment_recipe(want->dir, want->requirements, identity, &want->recipe, &want->err))
        return;
    cn_environment_digest(cn_buf_str(&want->recipe), want->digest);
}

static void
refuse(struct cn_environment_want *want, const struct cn_error *why)
{
    struct cn_error named;

    cn_environment_name_model(want, why, &named);
    cn_environment_answer(want, NULL, &named);
}

static const struct cn_error draining = {.code = CN_E_DRAINING,
                                         .message = "the server is stopping"};

static void
done_read(struct cn_file_task *task)
{
    struct cn_environment_want *want = cn_container_of(task, struct cn_environment_want, task);
    const struct cn_error why = want->err;

    if (want->owner->stopping)
        refuse(want, &draining);
    else if (why.code)
        refuse(want, &why);
    else
        attach(want);
}

static void
on_asked(void *ctx, const struct cn_error *err)
{
    struct cn_environment_want *want = ctx;
    struct cn_error why;

    if (!err && cn_installer_identity(want->asking)[0]) {
        want->task.work = work_read;
        want->task.done = done_read;
        cn_file_thread_run(want->owner->files, &want->task);
        return;
    }
    if (err)
        why = *err;
    else
        cn_fail(&why, CN_E_INSTALL_FAILED, "%s does not say which Python it is", want->python);
    refuse(want, &why);
}

void
cn_environments_want(struct cn_environments *environments, struct cn_environment_want *want)
{
    static const char *const words[] = {"identify", NULL};
    struct cn_error err;

    cn_assert_on_loop(environments->loop);
    want->owner = environments;
    want->environment = NULL;
    want->waits_for = NULL;
    want->asking = NULL;
    want->task = (struct cn_file_task){0};
    want->answered = false;
    cn_buf_init(&want->recipe, 0);
    cn_list_init(&want->link);
    cn_list_push_back(&environments->wants, &want->link);
    if (environments->stopping) {
        refuse(want, &draining);
        return;
    }
    if (cn_environment_install(want, words, on_asked, want, &want->asking, &err))
        refuse(want, &err);
}

/* --- begin and end */

static void
work_scan(struct cn_file_task *task)
{
    struct cn_environments *environments = cn_container_of(task, struct cn_environments, scan);

    cn_environment_files_scan(environments->folder, environments->left);
}

static void
done_scan(struct cn_file_task *task)
{
    struct cn_environments *environments = cn_container_of(task, struct cn_environments, scan);
    struct cn_environments_left *left = environments->left;

    for (uint32_t i = 0; i < left->n; i++) {
        struct cn_environment *environment = cn_environment_add(
            environments, left->items[i].digest, left->items[i].place, CN_ENVIRONMENT_IS_READY);

        cn_environment_become_unused(environment);
    }
    left->n = 0;
}

int
cn_environments_create(const struct cn_environments_spec *spec, struct cn_environments **out,
                       struct cn_error *err)
{
    struct cn_environments *environments = cn_alloc(sizeof *environments);
    int rc = cn_file_thread_create(spec->loop, 1, &environments->files, err);

    if (rc) {
        cn_free(environments);
        return rc;
    }
    environments->loop = spec->loop;
    environments->folder = cn_strdup(spec->folder);
    environments->timeout_ms = spec->timeout_ms;
    environments->keep_ms = spec->keep_ms;
    environments->left = cn_alloc(sizeof *environments->left);
    cn_list_init(&environments->all);
    cn_list_init(&environments->wants);
    environments->scan.work = work_scan;
    environments->scan.done = done_scan;
    cn_file_thread_run(environments->files, &environments->scan);
    *out = environments;
    return 0;
}

/* A want whose requirements are being read is answered when the file thread is done with them. */
void
cn_environments_stop(struct cn_environments *environments)
{
    struct cn_list *node, *next;

    if (!environments)
        return;
    environments->stopping = true;
    cn_list_for_each_safe(node, next, &environments->wants) {
        struct cn_environment_want *want = cn_container_of(node, struct cn_environment_want, link);

        if (want->waits_for || !want->task.work)
            refuse(want, &draining);
    }
    cn_list_for_each_safe(node, next, &environments->all) {
        struct cn_environment *environment = cn_container_of(node, struct cn_environment, link);

        cn_timer_cancel(&environment->keep);
        if (!cn_environment_is(environment, CN_ENVIRONMENT_IS_QUEUED) &&
            !cn_environment_is(environment, CN_ENVIRONMENT_IS_BUILDING))
            continue;
        cn_installer_destroy(environment->installer);
        environment->installer = NULL;
        cn_environment_remove(environment);
    }
}

void
cn_environments_destroy(struct cn_environments *environments)
{
    struct cn_list *node;

    if (!environments)
        return;
    cn_file_thread_destroy(environments->files);
    while ((node = cn_list_pop_front(&environments->wants))) {
        struct cn_environment_want *want = cn_container_of(node, struct cn_environment_want, link);

        cn_installer_destroy(want->asking);
        cn_buf_fini(&want->recipe);
    }
    while (!cn_list_empty(&environments->all))
        cn_environment_free(cn_container_of(environments->all.next, struct cn_environment, link));
    for (uint32_t i = 0; i < environments->left->n; i++)
        cn_free(environments->left->items[i].place);
    cn_free(environments->left);
    cn_free(environments->folder);
    cn_free(environments);
}
