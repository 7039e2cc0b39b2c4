/* management/environments/environments.c - environments of Python packages, one for each digest.
 * Loop 0, with visits to a file thread of its own.
 *
 * A model that wants an environment has a struct cn_environment_want, a want for short. This is how
 * it gets its answer:
 * - ask() runs the interpreter for some milliseconds, which prints its version and its folders.
 * - work_read() makes the recipe from that and from the archive's files, and the digest from it.
 * - attach() finds the environment with this digest, or begins to make one. If it is READY, that is
 *   the answer; otherwise the want waits for it.
 * - answer_wants() answers all wants that waited for the environment together.
 *
 * The file thread does its tasks in order. Its first one looks at what an earlier server left, so
 * the environments on the disk are known before the first digest is. It is not the server's other
 * file thread, because deleting or flushing gigabytes of packages may take seconds.
 *
 * An environment counts its users, which are model versions. Without users it stays for keep_ms,
 * since a model that is registered again wants the same packages, and is deleted after that. At the
 * start of a server all environments on the disk begin like this, so those that nobody wants any
 * more go by themselves. */
#include "management/environments/environments.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/containers/phase.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/loop/loop_call.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "management/environments/environment_files.h"
#include "management/environments/installer.h"

/* pip is busy with the disk and with one processor, and models come in crowds only at a start. */
#define BUILDS_MAX 2

enum cn_environment_phase {
#define CN_PHASE(name, waits_for, followers, mover) CN_ENVIRONMENT_IS_##name,
#include "management/environments/environment_phases.def"
#undef CN_PHASE
    CN_ENVIRONMENT_IS_ = CN_PHASE_NONE,
};

static const struct cn_phase phases[] = {
#define CN_PHASE(name, waits_for, followers, mover)                                                \
    [CN_ENVIRONMENT_IS_##name] = {#name, CN_PHASE_SET(CN_ENVIRONMENT_IS_, followers)},
#include "management/environments/environment_phases.def"
#undef CN_PHASE
};

struct cn_environments {
    struct cn_loop *loop;
    struct cn_file_thread *files;
    struct cn_file_task scan;
    struct cn_environments_left *left; /* of the scan */
    char *folder;
    uint64_t timeout_ms, keep_ms;
    struct cn_list all;   /* struct cn_environment, also those that are being removed */
    struct cn_list wants; /* struct cn_environment_want that are not answered */
    bool stopping;
};

struct cn_environment {
    struct cn_list link;
    struct cn_environments *owner;
    uint8_t phase; /* enum cn_environment_phase */
    char digest[CN_ENVIRONMENT_DIGEST_BYTES];
    char *place, *python; /* its folder, and the interpreter in it */
    unsigned users;
    uint64_t since_ms; /* when it came into its phase */
    struct cn_installer *installer;
    struct cn_buf recipe;
    struct cn_file_task task;
    struct cn_error err; /* why it could not be made */
    struct cn_timer keep;
};

static void
cn_environment_to(struct cn_environment *environment, enum cn_environment_phase to)
{
    cn_phase_move(phases, "an environment", &environment->phase, to);
    environment->since_ms = cn_loop_now_ms(environment->owner->loop);
}

static bool
is_in(const struct cn_environment *environment, enum cn_environment_phase phase)
{
    return environment->phase == phase;
}

/* --- answers */

static void
tell(void *ctx)
{
    struct cn_environment_want *want = ctx;

    want->on_done(want);
}

/* The answer comes in a later turn, so that a want is never answered from inside a call. */
static void
answer(struct cn_environment_want *want, struct cn_environment *environment,
       const struct cn_error *err)
{
    cn_assert(!want->answered);
    want->answered = true;
    want->waits_for = NULL;
    cn_list_remove(&want->link);
    cn_installer_destroy(want->asking);
    want->asking = NULL;
    cn_buf_fini(&want->recipe);
    want->environment = environment;
    if (environment)
        environment->users++;
    else
        want->err = *err;
    cn_call_on(want->owner->loop, tell, want);
}

/* Puts the name of the model before an error. The first words are TorchServe's. */
static void
name_model(const struct cn_environment_want *want, const struct cn_error *why, struct cn_error *out)
{
    if (why->code == CN_E_DRAINING)
        *out = *why;
    else
        cn_fail(out, why->code, "Custom pip package installation failed for model %.128s: %s",
                want->model, why->message);
}

static void
answer_wants(struct cn_environment *environment, const struct cn_error *err)
{
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &environment->owner->wants) {
        struct cn_environment_want *want = cn_container_of(node, struct cn_environment_want, link);
        struct cn_error named;

        if (want->waits_for != environment)
            continue;
        if (err)
            name_model(want, err, &named);
        answer(want, err ? NULL : environment, &named);
    }
}

/* --- an environment goes */

static void
environment_free(struct cn_environment *environment)
{
    cn_list_remove(&environment->link);
    cn_timer_cancel(&environment->keep);
    cn_installer_destroy(environment->installer);
    cn_buf_fini(&environment->recipe);
    cn_free(environment->place);
    cn_free(environment->python);
    cn_free(environment);
}

static void
work_remove(struct cn_file_task *task)
{
    struct cn_environment *environment = cn_container_of(task, struct cn_environment, task);

    cn_environment_files_remove(environment->owner->folder, environment->digest,
                                environment->place);
}

static void
done_remove(struct cn_file_task *task)
{
    environment_free(cn_container_of(task, struct cn_environment, task));
}

static void
remove_environment(struct cn_environment *environment)
{
    cn_log(CN_LOG_INFO, "event=environment_removed digest=%s", environment->digest);
    cn_timer_cancel(&environment->keep);
    cn_environment_to(environment, CN_ENVIRONMENT_IS_REMOVING);
    environment->task.work = work_remove;
    environment->task.done = done_remove;
    cn_file_thread_run(environment->owner->files, &environment->task);
}

static void
on_keep_ends(struct cn_timer *timer)
{
    remove_environment(cn_container_of(timer, struct cn_environment, keep));
}

static void
become_unused(struct cn_environment *environment)
{
    struct cn_environments *environments = environment->owner;

    cn_environment_to(environment, CN_ENVIRONMENT_IS_UNUSED);
    if (!environments->stopping)
        cn_timer_set(cn_loop_wheel(environments->loop), &environment->keep,
                     cn_loop_now_ms(environments->loop) + environments->keep_ms);
}

void
cn_environment_release(struct cn_environment *environment)
{
    if (!environment)
        return;
    cn_assert(environment->users > 0);
    if (--environment->users == 0)
        become_unused(environment);
}

/* --- an environment is made */

static void build_next(struct cn_environments *environments);

static void
fail(struct cn_environment *environment, const struct cn_error *err)
{
    char quoted[CN_ERROR_MESSAGE_MAX + 64];

    cn_log(CN_LOG_ERROR, "event=environment_failed digest=%s reason=%s", environment->digest,
           cn_log_quote(err->message, strlen(err->message), quoted, sizeof quoted));
    answer_wants(environment, err);
    remove_environment(environment);
}

static void
work_seal(struct cn_file_task *task)
{
    struct cn_environment *environment = cn_container_of(task, struct cn_environment, task);

    environment->err.code = 0;
    cn_environment_files_seal(environment->owner->folder, environment->digest, environment->place,
                              cn_buf_str(&environment->recipe), &environment->err);
}

static void
done_seal(struct cn_file_task *task)
{
    struct cn_environment *environment = cn_container_of(task, struct cn_environment, task);

    cn_buf_fini(&environment->recipe);
    if (environment->err.code) {
        fail(environment, &environment->err);
        return;
    }
    cn_environment_to(environment, CN_ENVIRONMENT_IS_READY);
    cn_log(CN_LOG_INFO, "event=environment_ready digest=%s python=%s", environment->digest,
           environment->python);
    answer_wants(environment, NULL);
    if (environment->users == 0)
        become_unused(environment); /* a drain has answered those that waited */
}

static void
on_built(void *ctx, const struct cn_error *err)
{
    struct cn_environment *environment = ctx;
    struct cn_error copy = err ? *err : (struct cn_error){0};

    cn_installer_destroy(environment->installer);
    environment->installer = NULL;
    if (err) {
        fail(environment, &copy);
    } else {
        cn_environment_to(environment, CN_ENVIRONMENT_IS_SEALING);
        environment->task.work = work_seal;
        environment->task.done = done_seal;
        cn_file_thread_run(environment->owner->files, &environment->task);
    }
    build_next(environment->owner);
}

static const struct cn_environment_want *
first_want(const struct cn_environment *environment)
{
    struct cn_list *node;

    cn_list_for_each(node, &environment->owner->wants) {
        const struct cn_environment_want *want =
            cn_container_of(node, struct cn_environment_want, link);

        if (want->waits_for == environment)
            return want;
    }
    return NULL;
}

/* Files and interpreter are those of the first model that waits; they are the same for all. */
static void
build(struct cn_environment *environment)
{
    const struct cn_environment_want *want = first_want(environment);
    struct cn_environments *environments = environment->owner;
    const char *words[] = {"build", environment->place, NULL, NULL, NULL};
    char wheels[4096], label[300];
    struct cn_error err;

    cn_assert(want);
    cn_environment_to(environment, CN_ENVIRONMENT_IS_BUILDING);
    words[2] = want->requirements;
    snprintf(wheels, sizeof wheels, "%s/" CN_ENVIRONMENT_WHEELS, want->dir);
    if (access(wheels, R_OK) == 0)
        words[3] = CN_ENVIRONMENT_WHEELS;
    snprintf(label, sizeof label, "%.128s/%.128s", want->model, want->version);
    cn_log(CN_LOG_INFO, "event=environment_building digest=%s model=%s version=%s place=%s",
           environment->digest, want->model, want->version, environment->place);
    if (cn_installer_start(&(struct cn_installer_spec){.loop = environments->loop,
                                                       .python = want->python,
                                                       .package = want->package,
                                                       .dir = want->dir,
                                                       .label = label,
                                                       .words = words,
                                                       .timeout_ms = environments->timeout_ms,
                                                       .on_done = on_built,
                                                       .ctx = environment},
                           &environment->installer, &err))
        fail(environment, &err);
}

static void
build_next(struct cn_environments *environments)
{
    struct cn_list *node, *next;
    unsigned n = 0;

    cn_list_for_each(node, &environments->all)
        n += is_in(cn_container_of(node, struct cn_environment, link), CN_ENVIRONMENT_IS_BUILDING);
    cn_list_for_each_safe(node, next, &environments->all) {
        struct cn_environment *environment = cn_container_of(node, struct cn_environment, link);

        if (n >= BUILDS_MAX || !is_in(environment, CN_ENVIRONMENT_IS_QUEUED))
            continue;
        build(environment);
        n += is_in(environment, CN_ENVIRONMENT_IS_BUILDING);
    }
}

/* `place` becomes the environment's. */
static struct cn_environment *
add_environment(struct cn_environments *environments, const char *digest, char *place,
                enum cn_environment_phase phase)
{
    struct cn_environment *environment = cn_alloc(sizeof *environment);

    environment->owner = environments;
    environment->phase = (uint8_t)phase;
    environment->since_ms = cn_loop_now_ms(environments->loop);
    snprintf(environment->digest, sizeof environment->digest, "%s", digest);
    environment->place = place;
    environment->python = cn_environment_files_python(place);
    cn_buf_init(&environment->recipe, 0);
    cn_timer_init(&environment->keep, on_keep_ends);
    cn_list_push_back(&environments->all, &environment->link);
    return environment;
}

/* --- a model wants one */

/* Finds the environment with this digest. One whose interpreter has disappeared meanwhile is
 * removed, and so is not found. */
static struct cn_environment *
find_environment(struct cn_environments *environments, const char *digest)
{
    struct cn_list *node;

    cn_list_for_each(node, &environments->all) {
        struct cn_environment *environment = cn_container_of(node, struct cn_environment, link);

        if (is_in(environment, CN_ENVIRONMENT_IS_REMOVING) ||
            strcmp(environment->digest, digest) != 0)
            continue;
        if (!is_in(environment, CN_ENVIRONMENT_IS_UNUSED) || access(environment->python, X_OK) == 0)
            return environment;
        remove_environment(environment);
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
            add_environment(environments, want->digest,
                            cn_environment_files_place(environments->folder, want->digest),
                            CN_ENVIRONMENT_IS_QUEUED);
        environment->recipe = want->recipe;
        cn_buf_init(&want->recipe, 0);
    }
    if (is_in(environment, CN_ENVIRONMENT_IS_UNUSED)) {
        cn_timer_cancel(&environment->keep);
        cn_environment_to(environment, CN_ENVIRONMENT_IS_READY);
    }
    if (is_in(environment, CN_ENVIRONMENT_IS_READY)) {
        answer(want, environment, NULL);
        return;
    }
    want->waits_for = environment;
    build_next(environments);
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

    name_model(want, why, &named);
    answer(want, NULL, &named);
}

static const struct cn_error draining = {CN_E_DRAINING, "the server is stopping"};

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
    char label[300];

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
    snprintf(label, sizeof label, "%.128s/%.128s", want->model, want->version);
    if (cn_installer_start(&(struct cn_installer_spec){.loop = environments->loop,
                                                       .python = want->python,
                                                       .package = want->package,
                                                       .dir = want->dir,
                                                       .label = label,
                                                       .words = words,
                                                       .timeout_ms = environments->timeout_ms,
                                                       .on_done = on_asked,
                                                       .ctx = want},
                           &want->asking, &err))
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
        struct cn_environment *environment = add_environment(
            environments, left->items[i].digest, left->items[i].place, CN_ENVIRONMENT_IS_READY);

        become_unused(environment);
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
        if (!is_in(environment, CN_ENVIRONMENT_IS_QUEUED) &&
            !is_in(environment, CN_ENVIRONMENT_IS_BUILDING))
            continue;
        cn_installer_destroy(environment->installer);
        environment->installer = NULL;
        remove_environment(environment);
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
        environment_free(cn_container_of(environments->all.next, struct cn_environment, link));
    for (uint32_t i = 0; i < environments->left->n; i++)
        cn_free(environments->left->items[i].place);
    cn_free(environments->left);
    cn_free(environments->folder);
    cn_free(environments);
}

/* --- what is shown */

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
