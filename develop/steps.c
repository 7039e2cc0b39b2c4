/* develop/steps.c - continuo test: sends the steps of a model's test.yaml and compares the answers.
 * One thread.
 *
 * All tests run twice, each in sequences of its own: once plainly, and once with the worker killed
 * after each step, since a handler that keeps something outside of its state gives other answers
 * then. A test may begin with a recorded state (state: FILE, from continuo-ctl seq export), which
 * the handler migrates if its schema is older.
 *
 * A test.yaml looks like this:
 *   tests:
 *     - name: it counts
 *       steps:
 *         - {body: 4, expect: 4}
 *         - {body: 5, expect: 9}
 *         - {sequence: other, json: {x: [1]}, expect: {y: [1]}}   # in a second sequence
 *         - {body: nonsense, error: "not a number"}               # a part of the error's message
 * Numbers match within a relative 1e-6, and a text that is equal byte for byte matches, too. Each
 * test has sequences of its own, "test-1-" and "test-1-other" here, and "test-1-killed-" in the
 * second round. A recorded state is that of the steps without the key `sequence`. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "develop/develop.h"
#include "develop/json_compare.h"

#define ANSWER_MAX_BYTES (64u << 20)
#define STATE_MAX_MB 64
#define STATE_PATH_MAX 255

struct run {
    const struct cn_project *project;
    struct cn_develop_server *server;
    const char *file; /* the name of test.yaml in messages */
    bool kills;       /* kill the worker after each step */
    unsigned n_tests, n_steps, n_failed;
};

/* --- reading test.yaml --- */

static int
refuse(const struct run *run, const struct cn_yaml *at, const char *what, struct cn_error *err)
{
    return cn_fail(err, CN_E_CONFIG, "%s:%u:%u: %s", run->file, at->line, at->column, what);
}

/* The text of a key; empty if it is missing. A number is the text that is written there. */
static struct cn_str
text_of(const struct cn_yaml *map, const char *key)
{
    const struct cn_yaml *value = cn_yaml_get(map, key);

    return value && value->kind != CN_YAML_MAP && value->kind != CN_YAML_LIST
               ? value->text
               : (struct cn_str){NULL, 0};
}

static int
check_keys(const struct run *run, const struct cn_yaml *map, const char *const *known, size_t n,
           const char *message, struct cn_error *err)
{
    if (map->kind != CN_YAML_MAP)
        return refuse(run, map, message, err);
    for (uint32_t i = 0; i < map->n_items; i++) {
        size_t k = 0;

        while (k < n && !cn_str_eq(map->items[i]->key, cn_str_from(known[k])))
            k++;
        if (k == n)
            return cn_fail(err, CN_E_CONFIG, "%s:%u:%u: unknown key %.*s: %s", run->file,
                           map->items[i]->key_line, map->items[i]->key_column,
                           (int)(map->items[i]->key.len < 40 ? map->items[i]->key.len : 40),
                           map->items[i]->key.ptr, message);
    }
    return 0;
}

/* --- one step --- */

static void
put_body(const struct cn_yaml *step, struct cn_buf *out)
{
    const struct cn_yaml *json = cn_yaml_get(step, "json");
    json_t *value;
    char *text;

    if (!json) {
        cn_buf_append_str(out, text_of(step, "body"));
        return;
    }
    value = cn_json_of_yaml(json);
    text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    cn_buf_puts(out, text ? text : "");
    free(text);
    json_decref(value);
}

/* Sends the step. Returns 0 with the answer, or the error that the server gave. */
static int
send_step(const struct run *run, const struct cn_yaml *step, const char *sequence,
          struct cn_buf *answer, struct cn_error *err)
{
    char path[200], id[300];
    const char *headers[] = {id, "Content-Type: application/json"};
    const bool json = cn_yaml_get(step, "json") != NULL;
    struct cn_ctl_call call = {.method = "POST",
                               .path = path,
                               .max_bytes = ANSWER_MAX_BYTES,
                               .patient = true,
                               .headers = headers,
                               .n_headers = json ? 2 : 1};
    struct cn_buf body;
    int rc;

    snprintf(path, sizeof path, "/predictions/%s", run->project->name);
    snprintf(id, sizeof id, "ts-request-sequence-id: %s", sequence);
    cn_buf_init(&body, 0);
    put_body(step, &body);
    call.body = cn_buf_str(&body);
    rc = cn_ctl_http_call(run->server->http, run->server->inference, &call, answer, err);
    cn_buf_fini(&body);
    return rc;
}

static void
tell(struct run *run, const struct cn_yaml *step, const char *expected, const char *got)
{
    run->n_failed++;
    cn_develop_error("%s:%u: %s\n  expected: %.1000s\n  got:      %.1000s", run->file, step->line,
                     run->kills ? "a step has another answer when the worker is killed after each "
                                  "step"
                                : "a step has another answer",
                     expected, got);
}

/* Compares an answer that is not an error. */
static void
compare_answer(struct run *run, const struct cn_yaml *step, struct cn_str answer)
{
    const struct cn_yaml *expect = cn_yaml_get(step, "expect");
    json_t *wanted, *got;
    char *shown;

    if (!expect)
        return;
    got = json_loadb(answer.ptr ? answer.ptr : "", answer.len, JSON_DECODE_ANY, NULL);
    wanted = cn_json_of_yaml(expect);
    if (!(expect->kind == CN_YAML_STRING && cn_str_eq(expect->text, answer)) &&
        !cn_json_matches(wanted, got)) {
        char text[1001];

        shown = json_dumps(wanted, JSON_COMPACT | JSON_ENCODE_ANY);
        snprintf(text, sizeof text, "%.*s", (int)(answer.len < 1000 ? answer.len : 1000),
                 answer.ptr ? answer.ptr : "");
        tell(run, step, shown ? shown : "?", text);
        free(shown);
    }
    json_decref(wanted);
    json_decref(got);
}

/* Kills the model's worker; the server starts another one, for which the next step waits. */
static int
kill_worker(const struct run *run, struct cn_error *err)
{
    struct cn_buf answer;
    char path[200];
    int rc;

    cn_buf_init(&answer, 0);
    snprintf(path, sizeof path, "/models/%s/1/workers/1", run->project->name);
    rc = cn_develop_manage(run->server, "DELETE", path, (struct cn_str){NULL, 0}, &answer, err);
    cn_buf_fini(&answer);
    return rc;
}

static int
run_step(struct run *run, const struct cn_yaml *step, const char *test, struct cn_error *err)
{
    static const char *const keys[] = {"sequence", "body", "json", "expect", "error"};
    const struct cn_str error = text_of(step, "error"), name = text_of(step, "sequence");
    char sequence[256], wanted[400];
    struct cn_buf answer;
    struct cn_error refused;
    int rc = check_keys(run, step, keys, 5,
                        "a step has sequence, body or json, and expect or error", err);

    if (rc)
        return rc;
    snprintf(sequence, sizeof sequence, "%s-%.*s", test, (int)(name.len < 100 ? name.len : 100),
             name.ptr ? name.ptr : "");
    snprintf(wanted, sizeof wanted, "%.*s", (int)(error.len < 380 ? error.len : 380),
             error.ptr ? error.ptr : "");
    run->n_steps++;
    cn_buf_init(&answer, 0);
    rc = send_step(run, step, sequence, &answer, &refused);
    if (rc == CN_E_UNAVAILABLE && cn_develop_server_ended(run->server))
        rc = cn_fail(err, CN_E_UNAVAILABLE, "the server has ended");
    else if (rc != 0 && !wanted[0])
        tell(run, step, "an answer", refused.message), rc = 0;
    else if (rc != 0 && !strstr(refused.message, wanted))
        tell(run, step, wanted, refused.message), rc = 0;
    else if (rc == 0 && wanted[0])
        cn_buf_append(&answer, "", 1), tell(run, step, wanted, answer.data);
    else if (rc == 0)
        compare_answer(run, step, cn_buf_str(&answer));
    else
        rc = 0;
    cn_buf_fini(&answer);
    return rc == 0 && run->kills ? kill_worker(run, err) : rc;
}

/* --- one test --- */

/* Imports the recorded state of the test as its sequence. */
static int
import_state(const struct run *run, const struct cn_yaml *at, const char *test,
             struct cn_error *err)
{
    char path[PATH_MAX + 300], chunk[16384];
    struct cn_buf bytes, answer;
    FILE *file;
    size_t n;
    int rc = 0;

    if (at->text.len == 0 || at->text.len > STATE_PATH_MAX)
        return cn_fail(err, CN_E_CONFIG,
                       "%s:%u: state: give the path of a file, of at most %d bytes", run->file,
                       at->line, STATE_PATH_MAX);
    snprintf(path, sizeof path, "%s/%.*s", run->project->dir, (int)at->text.len, at->text.ptr);
    file = fopen(path, "rbe");
    if (!file)
        return cn_fail_sys(err, CN_E_NOT_FOUND, errno, "%s:%u: cannot read the state %.300s",
                           run->file, at->line, path);
    cn_buf_init(&bytes, (size_t)STATE_MAX_MB << 20);
    cn_buf_init(&answer, 0);
    while (rc == 0 && (n = fread(chunk, 1, sizeof chunk, file)) > 0)
        if (cn_buf_append(&bytes, chunk, n) < 0)
            rc = cn_fail(err, CN_E_CONFIG, "%s:%u: the state %.300s has more than %d MB", run->file,
                         at->line, path, STATE_MAX_MB);
    fclose(file);
    if (rc) {
        cn_buf_fini(&bytes);
        return rc;
    }
    snprintf(path, sizeof path, "/models/%s/1/sequences/%s-?any_model=true", run->project->name,
             test);
    rc = cn_develop_manage(run->server, "PUT", path, cn_buf_str(&bytes), &answer, err);
    cn_buf_fini(&bytes);
    cn_buf_fini(&answer);
    return rc;
}

static int
run_test(struct run *run, const struct cn_yaml *test, unsigned number, struct cn_error *err)
{
    static const char *const keys[] = {"name", "state", "steps"};
    const struct cn_yaml *steps, *state;
    char id[64];
    int rc = check_keys(run, test, keys, 3, "a test has name, state and steps", err);

    if (rc)
        return rc;
    steps = cn_yaml_get(test, "steps");
    state = cn_yaml_get(test, "state");
    if (!steps || steps->kind != CN_YAML_LIST)
        return refuse(run, test, "a test needs steps, a list", err);
    snprintf(id, sizeof id, "test-%u%s", number, run->kills ? "-killed" : "");
    if (state)
        rc = import_state(run, state, id, err);
    for (uint32_t i = 0; rc == 0 && i < steps->n_items; i++)
        rc = run_step(run, steps->items[i], id, err);
    run->n_tests++;
    return rc;
}

static int
run_tests(struct run *run, const struct cn_yaml *root, struct cn_error *err)
{
    static const char *const keys[] = {"tests"};
    const struct cn_yaml *tests = cn_yaml_get(root, "tests");
    int rc = check_keys(run, root, keys, 1, "the file has one key, tests", err);

    if (rc == 0 && (!tests || tests->kind != CN_YAML_LIST || tests->n_items == 0))
        rc = refuse(run, root, "there is no test: tests must be a list with at least one", err);
    for (int kills = 0; rc == 0 && kills < 2; kills++) {
        const unsigned failed = run->n_failed;

        run->kills = kills;
        run->n_tests = run->n_steps = 0;
        for (uint32_t i = 0; rc == 0 && i < tests->n_items; i++)
            rc = run_test(run, tests->items[i], i + 1, err);
        if (rc == 0)
            cn_develop_say(run->n_failed == failed, "%s: %u tests, %u steps, %u wrong",
                           kills ? "with the worker killed after each step" : "as they stand",
                           run->n_tests, run->n_steps, run->n_failed - failed);
    }
    return rc;
}

/* --- the command --- */

/* Prints what the server's log has about the handler, with its tracebacks. */
static void
show_log(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[4096];

    while (file && fgets(line, sizeof line, file))
        if (strstr(line, " event=handler_") || strstr(line, " error ") ||
            strncmp(line, "    ", 4) == 0)
            fputs(line, stderr);
    if (file)
        fclose(file);
}

static int
run_all(const struct cn_project *project, const struct cn_yaml_doc *doc, struct cn_error *err)
{
    struct cn_develop_server server;
    struct run run = {project, &server, "test.yaml", false, 0, 0, 0};
    char log[64] = "/tmp/continuo-test-XXXXXX";
    int fd = mkstemp(log), rc;

    if (fd < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot make the file %s", log);
    close(fd);
    rc = cn_develop_server_start(&server, NULL, NULL, NULL, log, err);
    if (rc == 0) {
        rc = cn_project_pack(project, server.store, 1, err);
        if (rc == 0)
            rc = cn_develop_register(&server, project->name, 1, err);
        if (rc == 0)
            rc = run_tests(&run, cn_yaml_root(doc), err);
        cn_develop_server_stop(&server);
    }
    if (rc || run.n_failed)
        show_log(log);
    unlink(log);
    if (rc == 0 && run.n_failed)
        rc = cn_fail(err, CN_E_HANDLER_FAILED, "wrong answers: %u", run.n_failed);
    return rc;
}

int
cn_develop_test(int argc, char **argv)
{
    static struct cn_project project;
    struct cn_yaml_doc *doc;
    struct cn_error err;
    char path[PATH_MAX + 16];
    int rc;

    if (argc > 1 || (argc == 1 && argv[0][0] == '-'))
        return fputs("usage: continuo test [DIR]\n", stderr), CN_DEVELOP_USAGE;
    rc = cn_project_open(argc ? argv[0] : ".", &project, &err);
    if (rc == 0) {
        snprintf(path, sizeof path, "%s/test.yaml", project.dir);
        rc = cn_yaml_parse_file_as(path, "test.yaml", &doc, &err);
        if (rc == 0) {
            rc = run_all(&project, doc, &err);
            cn_yaml_destroy(doc);
        }
    }
    if (rc)
        cn_develop_error("%s", err.message);
    else
        cn_develop_say(true, "%s: all answers are right", project.name);
    return rc ? CN_DEVELOP_FAILED : CN_DEVELOP_FINE;
}
