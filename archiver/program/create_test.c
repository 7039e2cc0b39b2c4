/* archiver/program/create_test.c - the command line: torch-model-archiver's spellings and exit
 * statuses. */
#include "archiver/program/subcommands.h"

#include <fcntl.h>

#include "archiver/test_support.h"

static char printed[8192]; /* what the last command wrote to both streams */

/* Runs `command` on words with '|' between them. */
static int
run(int (*command)(int argc, char **argv), const char *words)
{
    char text[2048], *argv[32] = {NULL}, *rest = text;
    int argc = 0, rc, out = dup(1), errs = dup(2);
    int fd = open(in_scratch("printed"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ssize_t got;

    snprintf(text, sizeof(text), "%s", words);
    while (words[0] && rest != NULL)
        argv[argc++] = strsep(&rest, "|");
    fflush(stdout);
    dup2(fd, 1);
    dup2(fd, 2);
    rc = command(argc, argv);
    fflush(stdout);
    dup2(out, 1);
    dup2(errs, 2);
    close(out);
    close(errs);
    got = pread(fd, printed, sizeof(printed) - 1, 0);
    printed[got > 0 ? got : 0] = '\0';
    close(fd);
    unlink(in_scratch("printed"));
    return rc;
}

static int
create(int argc, char **argv)
{
    return cn_archiver_create("prog", argc, argv, false);
}

static int
create_quietly(int argc, char **argv)
{
    return cn_archiver_create("prog", argc, argv, true);
}

/* Returns the flags for a handler that exists in the scratch folder. */
static const char *
with_paths(const char *flags)
{
    static char text[2048];

    write_text("handler.lua", "return {}\n");
    snprintf(text, sizeof(text), "%s|--handler|%s|--export-p|%s", flags, in_scratch("handler.lua"),
             scratch);
    return text;
}

/* Flags may be long, short, attached, abbreviated, or written with `=`. */
static void
every_spelling_is_understood(void **state)
{
    (void)state;
    assert_int_equal(run(create, with_paths("--model-name=a|-v1.0|-f")), 0);
    assert_true(is_there("a.mar"));
    assert_contains(printed, "a.mar: ");
    assert_contains(printed, " bytes, sha256 ");
    assert_int_equal(run(create_quietly, with_paths("--model-name|b|-v|1.0|"
                                                    "--archive-format=tgz")),
                     0);
    assert_true(is_there("b.tar.gz"));
    assert_string_equal(printed, "");
    assert_int_equal(run(create, "-h"), 0);
    assert_contains(printed, "--archive-format");
}

/* Scripts distinguish a wrong command line (2) from a failure (1). */
static void
exit_statuses_are_torch_model_archivers(void **state)
{
    (void)state;
    assert_int_equal(run(create, "--model-name|m"), 2);
    assert_contains(printed, "prog: error: the following arguments are required: --version, "
                             "--handler");
    assert_int_equal(run(create, "--model-nam|m|--modle|x"), 2);
    assert_contains(printed, "unrecognized arguments: --modle");
    assert_int_equal(run(create, "--run-time|m"), 2);
    assert_contains(printed, "(did you mean --runtime?)");
    assert_int_equal(run(create, "--model|m"), 2); /* --model-name or --model-file? */
    assert_int_equal(run(create, "--handler"), 2);
    assert_contains(printed, "argument --handler: expected one argument");
    assert_int_equal(run(create, "--handler|--force"), 2);
    assert_int_equal(run(create, "--force=1"), 2);
    assert_int_equal(run(create, "stray"), 2);
    assert_int_equal(run(create, "--runtime|cobol"), 2);
    assert_contains(printed, "argument --runtime: invalid choice: 'cobol' (choose from 'python',");
    assert_int_equal(run(create, "--archive-format|rar"), 2);
    assert_contains(printed, "'default', 'zip-store', 'tgz', 'no-archive')");
    assert_int_equal(run(create, "--model-name|m|-v|1|--handler|/nowhere/h.lua"), 1);
    assert_contains(printed, "prog: error: File does not exist: /nowhere/h.lua");
}

/* Both people and programs inspect archives. */
static void
inspect_shows_text_and_json(void **state)
{
    char words[600];

    (void)state;
    assert_int_equal(run(create, with_paths("--model-name=a|-v2.5")), 0);
    assert_int_equal(run(cn_archiver_inspect, in_scratch("a.mar")), 0);
    assert_contains(printed, "version:  2.5\n");
    assert_contains(printed, "handler.lua\n");
    snprintf(words, sizeof(words), "--json|%s", in_scratch("a.mar"));
    assert_int_equal(run(cn_archiver_inspect, words), 0);
    assert_contains(printed, "\"modelVersion\": \"2.5\"");
    assert_contains(printed, "\"bytes\": 10,");
    assert_int_equal(run(cn_archiver_inspect, ""), 2);
    assert_int_equal(run(cn_archiver_inspect, "/nowhere.mar"), 1);
}

/* `verify` exits with 0 only if a server would load the archive. */
static void
verify_says_good_or_why_not(void **state)
{
    char words[600];

    (void)state;
    assert_int_equal(run(create, with_paths("--model-name=a|-v1|--archive-format|no-archive")), 0);
    assert_int_equal(run(cn_archiver_verify, in_scratch("a")), 0);
    assert_contains(printed, "a: good (a 1, digests match)");
    write_text("a/handler.lua", "return {x}\n");
    write_text("handler.py", "");
    snprintf(words, sizeof(words), "--model-name|p|-v|1|--handler|%s|--export-path|%s",
             in_scratch("handler.py"), scratch);
    assert_int_equal(run(create, words), 0);
    snprintf(words, sizeof(words), "%s|%s", in_scratch("a"), in_scratch("p.mar"));
    assert_int_equal(run(cn_archiver_verify, words), 1);
    assert_contains(printed, "a: handler.lua differs from its sha256");
    assert_contains(printed, "p.mar: good");
    assert_int_equal(run(cn_archiver_verify, ""), 2);
}

/* A folder without the archiver's manifest may hold any YAML. */
static void
verify_checks_the_yaml(void **state)
{
    (void)state;
    mkdir(in_scratch("w"), 0755);
    write_text("w/handler.lua", "");
    write_text("w/model-config.yaml", "batchSize: 0\n");
    assert_int_equal(run(cn_archiver_verify, in_scratch("w")), 1);
    assert_contains(printed, "model-config.yaml:1:12: batchSize: expected an integer from 1");
}

#define SCRATCH_TEST(f) cmocka_unit_test_setup_teardown(f, make_scratch, remove_scratch)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(every_spelling_is_understood),
        SCRATCH_TEST(exit_statuses_are_torch_model_archivers),
        SCRATCH_TEST(inspect_shows_text_and_json),
        SCRATCH_TEST(verify_says_good_or_why_not),
        SCRATCH_TEST(verify_checks_the_yaml),
    };
    return cmocka_run_group_tests_name("archiver.create", tests, NULL, NULL);
}
