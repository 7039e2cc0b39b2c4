/* Tests of management/environments/environments.c: environments are made once, shared, kept and
 * removed. The interpreter is a shell script, and time stands still unless a test moves it. */
#include "management/environments/environments.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include "core/log/log.h"
#include "core/test_support.h"
#include "core/time/clock.h"

#define PATIENCE_S 20

/* $1 is environment.py, $2 the label, $3 the command, $4 the place, $5 the requirements. */
static const char script[] =
    "#!/bin/sh\n"
    "if [ \"$3\" = identify ]; then\n"
    "  echo 'identity cpython-311 test' >&3; exit 0\n"
    "fi\n"
    "echo x >> \"$(dirname \"$0\")/builds\"\n"
    "echo \"step Collecting $(cat \"$5\")\" >&3\n"
    "case $(cat \"$5\") in\n"
    "  hang*) sleep 1000 & echo $! > \"$(dirname \"$0\")/child\"; wait;;\n"
    "  die) echo last words; exit 7;;\n"
    "  bad) echo 'ERROR: no bad'; printf 'failed bad==1\\tno such package\\n' >&3; exit 1;;\n"
    "esac\n"
    "mkdir -p \"$4/bin\" && cp \"$0\" \"$4/bin/python\"\n";

static char dir[TEST_DIR_MAX], folder[100], python[100];
static struct cn_loop *loop;
static struct cn_environments *environments;

struct model {
    struct cn_environment_want want;
    char dir[200];
    bool done;
};

static void
on_done(struct cn_environment_want *want)
{
    cn_container_of(want, struct model, want)->done = true;
}

static void
turn_until(bool (*is_true)(void *ctx), void *ctx, const char *what)
{
    struct timespec now;
    time_t end;

    clock_gettime(CLOCK_MONOTONIC, &now);
    end = now.tv_sec + PATIENCE_S;
    while (!is_true(ctx)) {
        cn_loop_turn(loop, 5);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec > end)
            fail_msg("waited too long for %s", what);
    }
}

static bool
is_done(void *ctx)
{
    return ((struct model *)ctx)->done;
}

static void
start(void)
{
    struct cn_error err;

    assert_int_equal(cn_environments_create(
                         &(struct cn_environments_spec){
                             .loop = loop, .folder = folder, .timeout_ms = 5000, .keep_ms = 1000},
                         &environments, &err),
                     0);
}

static void
stop(void)
{
    cn_environments_stop(environments);
    for (int i = 0; i < 20; i++)
        cn_loop_turn(loop, 1);
    cn_environments_destroy(environments);
    environments = NULL;
}

static int
set_up(void **state)
{
    (void)state;
    cn_clock_freeze();
    test_dir_make(dir);
    snprintf(folder, sizeof folder, "%s/environments", dir);
    snprintf(python, sizeof python, "%s/python", dir);
    test_dir_write(dir, "python", script);
    assert_int_equal(chmod(python, 0700), 0);
    assert_int_equal(cn_loop_create(0, &loop, NULL), 0);
    start();
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    stop();
    cn_loop_destroy(loop);
    return test_dir_remove(dir);
}

/* Begins to want an environment for a model with this text as its requirements. */
static void
want(struct model *model, const char *name, const char *requirements)
{
    *model = (struct model){.want = {.model = name,
                                     .version = "1.0",
                                     .dir = model->dir,
                                     .requirements = "requirements.txt",
                                     .python = python,
                                     .package = dir,
                                     .on_done = on_done}};
    snprintf(model->dir, sizeof model->dir, "%s/%s", dir, name);
    mkdir(model->dir, 0700);
    test_dir_write(model->dir, "requirements.txt", requirements);
    cn_environments_want(environments, &model->want);
    assert_false(model->done);
}

static struct cn_environment *
get(struct model *model, const char *name, const char *requirements)
{
    want(model, name, requirements);
    turn_until(is_done, model, "an environment");
    if (!model->want.environment)
        fail_msg("%s", model->want.err.message);
    return model->want.environment;
}

static size_t
builds(void)
{
    char path[100];
    struct stat st;

    snprintf(path, sizeof path, "%s/builds", dir);
    return stat(path, &st) < 0 ? 0 : (size_t)st.st_size / 2;
}

static bool
is_missing(void *path)
{
    return access(path, F_OK) < 0;
}

static bool
is_there(void *path)
{
    return access(path, F_OK) == 0;
}

static void
count_one(void *ctx, const struct cn_environment_facts *facts)
{
    (void)facts;
    (*(unsigned *)ctx)++;
}

static void
count_none(void *ctx, const struct cn_environment_want *waiting,
           const struct cn_environment_facts *facts)
{
    (void)ctx;
    (void)waiting;
    (void)facts;
}

static bool
are_none(void *ctx)
{
    unsigned n = 0;

    (void)ctx;
    cn_environments_each(environments, count_one, count_none, &n);
    return n == 0;
}

/* Ten models with the same requirements cost one installation, also if they come at once. */
static void
models_with_one_digest_share_an_environment(void **state)
{
    struct model a, b, c;

    (void)state;
    want(&a, "a", "tiny");
    want(&b, "b", "tiny");
    turn_until(is_done, &a, "the first");
    turn_until(is_done, &b, "the second");
    assert_ptr_equal(a.want.environment, b.want.environment);
    assert_ptr_equal(get(&c, "c", "tiny"), a.want.environment);
    assert_int_equal(builds(), 1);
    assert_int_equal(access(cn_environment_python(c.want.environment), X_OK), 0);
    assert_ptr_not_equal(get(&b, "d", "other"), c.want.environment);
    assert_int_equal(builds(), 2);
}

/* Packages stay for a model that is registered anew soon, and then go. */
static void
an_unused_environment_is_kept_for_a_while(void **state)
{
    struct model a, b;
    struct cn_environment_facts facts;
    char path[200];

    (void)state;
    cn_environment_release(get(&a, "a", "tiny"));
    snprintf(path, sizeof path, "%s", cn_environment_python(a.want.environment));
    cn_environment_facts(a.want.environment, &facts);
    assert_string_equal(facts.state, "unused");
    cn_clock_advance(999);
    cn_loop_turn(loop, 5);
    cn_environment_release(get(&b, "b", "tiny"));
    assert_int_equal(builds(), 1);
    cn_clock_advance(999);
    cn_loop_turn(loop, 5);
    assert_true(is_there(path));
    cn_clock_advance(2);
    turn_until(are_none, NULL, "the removal");
    assert_true(is_missing(path));
    get(&a, "a", "tiny");
    assert_int_equal(builds(), 2);
}

/* A restart must not install everything again: the packages may no longer be had. */
static void
environments_outlive_the_server(void **state)
{
    struct model a, b;

    (void)state;
    get(&a, "a", "tiny");
    stop();
    start();
    get(&b, "b", "tiny");
    assert_int_equal(builds(), 1);
}

/* What a killed server left half done must not be used: it has no note. */
static void
half_an_environment_is_removed_and_made_again(void **state)
{
    struct model a, b;
    char path[200], note[300];

    (void)state;
    get(&a, "a", "tiny");
    snprintf(path, sizeof path, "%s", cn_environment_python(a.want.environment));
    snprintf(note, sizeof note, "%s/%s.whole", folder,
             cn_environment_digest_of(a.want.environment));
    assert_true(is_there(note));
    stop();
    assert_int_equal(unlink(note), 0);
    start();
    get(&b, "b", "tiny");
    assert_int_equal(builds(), 2);
    assert_true(is_missing(path));
}

/* An upgrade may remove the interpreter below an environment. */
static void
an_environment_without_its_interpreter_is_made_again(void **state)
{
    struct model a, b;

    (void)state;
    cn_environment_release(get(&a, "a", "tiny"));
    assert_int_equal(unlink(cn_environment_python(a.want.environment)), 0);
    get(&b, "b", "tiny");
    assert_int_equal(builds(), 2);
}

/* The operator learns which package it was, and what pip said last. */
static void
a_failure_names_the_package_and_leaves_nothing(void **state)
{
    struct model a;

    (void)state;
    want(&a, "a", "bad");
    turn_until(is_done, &a, "the failure");
    assert_null(a.want.environment);
    assert_int_equal(a.want.err.code, CN_E_INSTALL_FAILED);
    assert_non_null(strstr(a.want.err.message,
                           "Custom pip package installation failed for model a: the package bad==1 "
                           "cannot be installed: no such package; the installer's last lines: "
                           "ERROR: no bad; correct the requirements file"));
    turn_until(are_none, NULL, "the removal");
    want(&a, "a", "die");
    turn_until(is_done, &a, "the failure");
    assert_non_null(strstr(a.want.err.message,
                           "the installer exited with status 7; its last lines: last words"));
}

/* An interpreter that disappeared, or another program in its place, is an error of the model. */
static void
an_interpreter_that_cannot_run_is_an_error(void **state)
{
    struct model a;

    (void)state;
    assert_int_equal(unlink(python), 0);
    want(&a, "a", "tiny");
    turn_until(is_done, &a, "the failure");
    assert_int_equal(a.want.err.code, CN_E_INSTALL_FAILED);
    assert_non_null(strstr(a.want.err.message, "cannot start"));
    test_dir_write(dir, "python", "#!/bin/sh\nexit 0\n");
    assert_int_equal(chmod(python, 0700), 0);
    want(&a, "a", "tiny");
    turn_until(is_done, &a, "the failure");
    assert_non_null(strstr(a.want.err.message, "does not say which Python it is"));
}

static bool
shows_step(void *ctx)
{
    struct cn_environment_facts facts;

    return cn_environments_awaited(environments, ctx, NULL, &facts) &&
           strncmp(facts.step, "Collecting hang", 15) == 0;
}

static pid_t
child_of_installer(void)
{
    char path[100];
    FILE *file;
    int pid = 0;

    snprintf(path, sizeof path, "%s/child", dir);
    turn_until(is_there, path, "the installer's child");
    while (pid == 0) {
        file = fopen(path, "r");
        assert_non_null(file);
        if (fscanf(file, "%d", &pid) != 1)
            pid = 0;
        fclose(file);
    }
    return (pid_t)pid;
}

static bool
is_gone(void *pid)
{
    char path[64], state = 'X';
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)*(pid_t *)pid);
    file = fopen(path, "r");
    if (!file)
        return true;
    if (fscanf(file, "%*d %*s %c", &state) != 1)
        state = 'X';
    fclose(file);
    return state == 'Z' || state == 'X';
}

/* An index that does not answer must not keep a model for ever, nor leave processes behind. */
static void
an_installer_that_hangs_is_ended_with_its_children(void **state)
{
    struct model a;
    pid_t child;

    (void)state;
    want(&a, "a", "hang");
    turn_until(shows_step, (void *)"a", "progress");
    child = child_of_installer();
    cn_clock_advance(4999);
    cn_loop_turn(loop, 5);
    assert_false(a.done);
    cn_clock_advance(2);
    turn_until(is_done, &a, "the timeout");
    assert_non_null(strstr(a.want.err.message,
                           "the installer did not end within 5000 ms (--install-timeout); it was "
                           "at: Collecting hang"));
    turn_until(is_gone, &child, "the end of the installer's child");
}

/* A server that stops does not wait for pip. */
static void
a_drain_ends_installers(void **state)
{
    struct model a, b;
    pid_t child;

    (void)state;
    want(&a, "a", "hang");
    child = child_of_installer();
    want(&b, "b", "tiny");
    cn_environments_stop(environments);
    turn_until(is_done, &a, "the drain");
    turn_until(is_done, &b, "the drain");
    assert_int_equal(a.want.err.code, CN_E_DRAINING);
    assert_int_equal(b.want.err.code, CN_E_DRAINING);
    turn_until(is_gone, &child, "the end of the installer's child");
    want(&b, "b", "tiny");
    turn_until(is_done, &b, "the refusal");
    assert_int_equal(b.want.err.code, CN_E_DRAINING);
}

/* A crowd of models must not start a crowd of installers. */
static void
few_environments_are_built_at_once(void **state)
{
    struct model a, b, c;
    struct cn_environment_facts facts;

    (void)state;
    want(&a, "a", "hang1");
    turn_until(shows_step, (void *)"a", "progress");
    want(&b, "b", "hang2");
    turn_until(shows_step, (void *)"b", "progress");
    want(&c, "c", "tiny");
    do {
        cn_loop_turn(loop, 5);
        assert_true(cn_environments_awaited(environments, "c", "1.0", &facts));
    } while (strcmp(facts.state, "looking") == 0);
    assert_string_equal(facts.state, "queued");
    cn_clock_advance(5001);
    turn_until(is_done, &c, "its turn");
    assert_non_null(c.want.environment);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(models_with_one_digest_share_an_environment),
        CASE(an_unused_environment_is_kept_for_a_while),
        CASE(environments_outlive_the_server),
        CASE(half_an_environment_is_removed_and_made_again),
        CASE(an_environment_without_its_interpreter_is_made_again),
        CASE(a_failure_names_the_package_and_leaves_nothing),
        CASE(an_interpreter_that_cannot_run_is_an_error),
        CASE(an_installer_that_hangs_is_ended_with_its_children),
        CASE(a_drain_ends_installers),
        CASE(few_environments_are_built_at_once),
    };

    signal(SIGPIPE, SIG_IGN);
    if (!getenv("CN_TEST_LOG")) {
        cn_log_set_level(CN_LOG_ERROR);
        cn_log_enable(CN_LOG_ERROR, false);
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("management.environments", tests, NULL, NULL);
}
