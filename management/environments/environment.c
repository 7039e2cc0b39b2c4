/* management/environments/environment.c - one environment: it is made, used, kept without users,
 * and removed. Loop 0, with visits to the file thread.
 *
 * An environment counts its users, which are model versions. Without users it stays for keep_ms,
 * since a model that is registered again wants the same packages, and is deleted after that. At the
 * start of a server all environments on the disk begin like this, so those that nobody wants any
 * more go by themselves. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/environments/environments_priv.h"

/* pip is busy with the disk and with one processor, and models come in crowds only at a start. */
#define BUILDS_MAX 2

static const struct cn_phase phases[] = {
#define CN_PHASE(name, waits_for, followers, mover)                                                \
    [CN_ENVIRONMENT_IS_##name] = {#name, CN_PHASE_SET(CN_ENVIRONMENT_IS_, followers)},
#include "management/environments/environment_phases.def"
#undef CN_PHASE
};

void
cn_environment_to(struct cn_environment *environment, enum cn_environment_phase to)
{
    cn_phase_move(phases, "an environment", &environment->phase, to);
    environment->since_ms = cn_loop_now_ms(environment->owner->loop);
}

/* --- answers */

static void
tell(void *ctx)
{
    struct cn_environment_want *want = ctx;

    want->on_done(want);
}

void
cn_environment_answer(struct cn_environment_want *want, struct cn_environment *environment,
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

void
cn_environment_name_model(const struct cn_environment_want *want, const struct cn_error *why,
                          struct cn_error *out)
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
            cn_environment_name_model(want, err, &named);
        cn_environment_answer(want, err ? NULL : environment, &named);
    }
}

/* --- an environment goes */

void
cn_environment_free(struct cn_environment *environment)
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
    cn_environment_free(cn_container_of(task, struct cn_environment, task));
}

void
cn_environment_remove(struct cn_environment *environment)
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
    cn_environment_remove(cn_container_of(timer, struct cn_environment, keep));
}

void
cn_environment_become_unused(struct cn_environment *environment)
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
        cn_environment_become_unused(environment);
}

/* --- an environment is made */

static void
fail(struct cn_environment *environment, const struct cn_error *err)
{
    char quoted[CN_ERROR_MESSAGE_MAX + 64];

    cn_log(CN_LOG_ERROR, "event=environment_failed digest=%s reason=%s", environment->digest,
           cn_log_quote(err->message, strlen(err->message), quoted, sizeof quoted));
    answer_wants(environment, err);
    cn_environment_remove(environment);
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
        cn_environment_become_unused(environment); /* a drain has answered those that waited */
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
    cn_environments_build_next(environment->owner);
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

int
cn_environment_install(const struct cn_environment_want *want, const char *const *words,
                       void (*on_done)(void *ctx, const struct cn_error *err), void *ctx,
                       struct cn_installer **out, struct cn_error *err)
{
    char label[300];

    snprintf(label, sizeof label, "%.128s/%.128s", want->model, want->version);
    return cn_installer_start(&(struct cn_installer_spec){.loop = want->owner->loop,
                                                          .python = want->python,
                                                          .package = want->package,
                                                          .dir = want->dir,
                                                          .label = label,
                                                          .words = words,
                                                          .timeout_ms = want->owner->timeout_ms,
                                                          .on_done = on_done,
                                                          .ctx = ctx},
                              out, err);
}

/* Files and interpreter are those of the first model that waits; they are the same for all. */
static void
build(struct cn_environment *environment)
{
    const struct cn_environment_want *want = first_want(environment);
    const char *words[] = {"build", environment->place, NULL, NULL, NULL};
    char wheels[4096];
    struct cn_error err;

    cn_assert(want);
    cn_environment_to(environment, CN_ENVIRONMENT_IS_BUILDING);
    words[2] = want->requirements;
    snprintf(wheels, sizeof wheels, "%s/" CN_ENVIRONMENT_WHEELS, want->dir);
    if (access(wheels, R_OK) == 0)
        words[3] = CN_ENVIRONMENT_WHEELS;
    cn_log(CN_LOG_INFO, "event=environment_building digest=%s model=%s version=%s place=%s",
           environment->digest, want->model, want->version, environment->place);
    if (cn_environment_install(want, words, on_built, environment, &environment->installer, &err))
        fail(environment, &err);
}

void
cn_environments_build_next(struct cn_environments *environments)
{
    struct cn_list *node, *next;
    unsigned n = 0;

    cn_list_for_each(node, &environments->all)
        n += cn_environment_is(cn_container_of(node, struct cn_environment, link),
                               CN_ENVIRONMENT_IS_BUILDING);
    cn_list_for_each_safe(node, next, &environments->all) {
        struct cn_environment *environment = cn_container_of(node, struct cn_environment, link);

        if (n >= BUILDS_MAX || !cn_environment_is(environment, CN_ENVIRONMENT_IS_QUEUED))
            continue;
        build(environment);
        n += cn_environment_is(environment, CN_ENVIRONMENT_IS_BUILDING);
    }
}

struct cn_environment *
cn_environment_add(struct cn_environments *environments, const char *digest, char *place,
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
