/* archiver/pack/pack_test.c - tests packing as torch-model-archiver does it, with the same bytes
 * each time. */
#include "archiver/pack/pack.h"

#include <sys/time.h>

#include "archiver/archive/digest.h"
#include "archiver/test_support.h"
#include "core/memory/mem.h"

static char last_warning[1024];

static void
keep_warning(void *ctx, const char *line)
{
    (void)ctx;
    snprintf(last_warning, sizeof(last_warning), "%s", line);
}

/* Returns a spec that can be packed into the scratch folder. Its strings are valid until the next
 * test. */
static struct cn_pack_spec
good_spec(void)
{
    static char handler[512], export_path[512];

    write_text("handler.lua", "return {}\n");
    snprintf(handler, sizeof(handler), "%s", in_scratch("handler.lua"));
    snprintf(export_path, sizeof(export_path), "%s", in_scratch("out"));
    mkdir(export_path, 0755);
    last_warning[0] = '\0';
    return (struct cn_pack_spec){
        .model_name = "m", .version = "1.0", .handler = handler, .export_path = export_path};
}

static void
packs(const struct cn_pack_spec *spec, char hex[65])
{
    struct cn_pack_result result;
    struct cn_error err = {0};

    if (cn_pack(spec, keep_warning, NULL, &result, &err) != 0)
        fail_msg("%s", err.message);
    if (hex != NULL)
        memcpy(hex, result.sha256, 65);
    cn_free(result.path);
}

static void
fails(const struct cn_pack_spec *spec, int code, const char *message)
{
    struct cn_pack_result result;
    struct cn_error err = {0};

    assert_int_equal(cn_pack(spec, keep_warning, NULL, &result, &err), code);
    assert_contains(err.message, message);
    assert_null(result.path);
    assert_false(is_there("out/m.mar"));
}

/* Lists the content of `archive` by its digests. The caller frees manifest and dir. */
static void
unpacks(const char *archive, struct cn_manifest *manifest, char **dir)
{
    struct cn_error err = {0};

    cn_archive_remove_dir(in_scratch("dest"));
    if (cn_archive_unpack(in_scratch(archive), in_scratch("dest"), NULL, manifest, dir, &err) != 0)
        fail_msg("%s", err.message);
}

/* An archive is packed and unpacked in every format, and the content is the same. */
static void
every_format_comes_back(void **state)
{
    static const char *const names[] = {"out/m.mar", "out/m.mar", "out/m.tar.gz", "out/m"};
    struct cn_pack_spec spec = good_spec();
    char yaml[512];

    (void)state;
    write_text("model-config.yaml", "minWorkers: 1\n");
    snprintf(yaml, sizeof(yaml), "%s", in_scratch("model-config.yaml"));
    spec.config_file = yaml;
    spec.force = true;
    for (int format = CN_PACK_MAR; format <= CN_PACK_FOLDER; format++) {
        struct cn_manifest manifest;
        char *dir;

        spec.format = (enum cn_pack_format)format;
        packs(&spec, NULL);
        unpacks(names[format], &manifest, &dir);
        assert_string_equal(manifest.model_name, "m");
        assert_string_equal(manifest.model_version, "1.0");
        assert_string_equal(manifest.handler, "handler.lua");
        assert_string_equal(manifest.runtime, "lua");
        assert_string_equal(manifest.config_file, "model-config.yaml");
        assert_string_equal(manifest.created_on, "01/01/1980 00:00:00");
        assert_int_equal(manifest.n_files, 2);
        cn_manifest_fini(&manifest);
        cn_free(dir);
    }
}

/* Archives can be compared and cached by their digest: time, time zone, file modes and order do not
 * change the bytes. */
static void
the_same_input_gives_the_same_bytes(void **state)
{
    static const enum cn_pack_format formats[] = {CN_PACK_MAR, CN_PACK_MAR_STORE, CN_PACK_TGZ};
    struct cn_pack_spec spec = good_spec();
    struct timeval times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    char extra[512], one[65], two[65];

    (void)state;
    spec.force = true;
    assert_int_equal(mkdir(in_scratch("extra"), 0755), 0);
    write_text("extra/b.lua", "1");
    write_text("extra/a.lua", "2");
    snprintf(extra, sizeof(extra), "%s", in_scratch("extra"));
    spec.extra_files = extra;
    for (size_t i = 0; i < 3; i++) {
        spec.format = formats[i];
        setenv("TZ", "America/New_York", 1);
        packs(&spec, one);
        assert_int_equal(utimes(spec.handler, times), 0);
        assert_int_equal(chmod(spec.handler, 0700), 0);
        unlink(in_scratch("extra/a.lua"));
        write_text("extra/a.lua", "2");
        setenv("TZ", "Asia/Tokyo", 1);
        packs(&spec, two);
        assert_string_equal(one, two);
        write_text("extra/a.lua", "3");
        packs(&spec, two);
        assert_string_not_equal(one, two);
        write_text("extra/a.lua", "2");
    }
}

/* SOURCE_DATE_EPOCH is the convention of reproducible builds. */
static void
source_date_epoch_is_the_time_of_creation(void **state)
{
    struct cn_pack_spec spec = good_spec();
    struct cn_manifest manifest;
    char *dir;

    (void)state;
    setenv("SOURCE_DATE_EPOCH", "1795225548", 1);
    packs(&spec, NULL);
    unpacks("out/m.mar", &manifest, &dir);
    assert_string_equal(manifest.created_on, "21/11/2026 01:45:48");
    cn_manifest_fini(&manifest);
    cn_free(dir);
    unlink(in_scratch("out/m.mar"));
    setenv("SOURCE_DATE_EPOCH", "soon", 1);
    fails(&spec, CN_E_BAD_REQUEST, "SOURCE_DATE_EPOCH");
    unsetenv("SOURCE_DATE_EPOCH");
}

/* Extra files may be lists, patterns and folders; some files are left out of folders. */
static void
extra_files_are_collected(void **state)
{
    struct cn_pack_spec spec = good_spec();
    struct cn_manifest manifest;
    char extra[2048], *dir;

    (void)state;
    mkdir(in_scratch("x"), 0755);
    mkdir(in_scratch("x/.git"), 0755);
    mkdir(in_scratch("x/__pycache__"), 0755);
    mkdir(in_scratch("x/sub"), 0755);
    write_text("x/.hidden", "");
    write_text("x/.git/config", "");
    write_text("x/__pycache__/a.pyc", "");
    write_text("x/sub/\xc3\xbc.txt", "u");
    write_text("a1.bin", "");
    write_text("a2.bin", "");
    snprintf(extra, sizeof(extra), "%s, %s/a?.bin,%s,%s/no*,", in_scratch("x"), scratch,
             in_scratch("a1.bin"), scratch);
    spec.extra_files = extra;
    packs(&spec, NULL);
    assert_contains(last_warning, "nothing matches");
    unpacks("out/m.mar", &manifest, &dir);
    assert_int_equal(manifest.n_files, 5);
    assert_true(is_there("dest/sub/\xc3\xbc.txt"));
    assert_true(is_there("dest/.hidden"));
    assert_true(is_there("dest/a1.bin"));
    assert_true(is_there("dest/a2.bin"));
    assert_false(is_there("dest/.git"));
    assert_false(is_there("dest/__pycache__"));
    cn_manifest_fini(&manifest);
    cn_free(dir);
}

/* Two files would get one name, and nobody could know which one the model gets. */
static void
two_files_of_one_name_are_refused(void **state)
{
    struct cn_pack_spec spec = good_spec();
    char extra[512];

    (void)state;
    mkdir(in_scratch("x"), 0755);
    write_text("x/handler.lua", "other");
    snprintf(extra, sizeof(extra), "%s", in_scratch("x"));
    spec.extra_files = extra;
    fails(&spec, CN_E_BAD_REQUEST, "would both be handler.lua");
    unlink(in_scratch("x/handler.lua"));
    mkdir(in_scratch("x/MAR-INF"), 0755);
    write_text("x/" CN_MANIFEST_PATH, "");
    fails(&spec, CN_E_BAD_REQUEST, "MAR-INF");
}

/* The messages are torch-model-archiver's, so that people find help for them. */
static void
wrong_arguments_are_named(void **state)
{
    struct cn_pack_spec spec = good_spec(), wrong = spec;

    (void)state;
    wrong.model_name = "-m";
    fails(&wrong, CN_E_BAD_REQUEST, "Model name contains special characters.");
    wrong.model_name = "a/b";
    fails(&wrong, CN_E_BAD_REQUEST, "^[A-Za-z0-9][A-Za-z0-9_\\-.]*$");
    wrong = spec;
    wrong.version = "1/2";
    fails(&wrong, CN_E_BAD_REQUEST, "--version");
    wrong = spec;
    wrong.handler = "/nowhere/handler.lua";
    fails(&wrong, CN_E_NOT_FOUND, "File does not exist: /nowhere/handler.lua");
    wrong = spec;
    wrong.serialized_file = "/nowhere/model.pt";
    fails(&wrong, CN_E_NOT_FOUND, "File does not exist: /nowhere/model.pt");
    wrong = spec;
    wrong.extra_files = "/nowhere/x";
    fails(&wrong, CN_E_NOT_FOUND, "File does not exist: /nowhere/x");
    wrong = spec;
    wrong.model_file = "/tmp";
    fails(&wrong, CN_E_BAD_REQUEST, "/tmp is not a file");
    wrong = spec;
    wrong.export_path = spec.handler;
    fails(&wrong, CN_E_BAD_REQUEST, "is not a directory");
    wrong.export_path = "";
    fails(&wrong, CN_E_BAD_REQUEST, "export-path is empty");
}

/* Mistakes in the YAML are found when the archive is packed, with file, line and column. */
static void
the_model_yaml_is_checked(void **state)
{
    struct cn_pack_spec spec = good_spec();
    char yaml[512];

    (void)state;
    write_text("c.yaml", "minWorkers: 1\nbatchSize: many\n");
    snprintf(yaml, sizeof(yaml), "%s", in_scratch("c.yaml"));
    spec.config_file = yaml;
    fails(&spec, CN_E_CONFIG, "c.yaml:2:12: batchSize: expected an integer");
    write_text("c.yaml", "minWorker: 1\n");
    packs(&spec, NULL);
    assert_contains(last_warning, "c.yaml:1:1: unknown key minWorker (did you mean minWorkers?)");
}

/* An existing archive is kept without --force, as in torch-model-archiver. With it, a folder is
 * written over but not emptied first. */
static void
what_exists_is_kept_unless_forced(void **state)
{
    struct cn_pack_spec spec = good_spec();
    struct cn_pack_result result;
    struct cn_error err = {0};

    (void)state;
    packs(&spec, NULL);
    assert_int_equal(cn_pack(&spec, NULL, NULL, &result, &err), CN_E_CONFLICT);
    assert_contains(err.message, "m.mar already exists. Please specify --force/-f option");
    spec.force = true;
    packs(&spec, NULL);
    spec.format = CN_PACK_FOLDER;
    packs(&spec, NULL);
    write_text("out/m/mine", "");
    packs(&spec, NULL);
    assert_true(is_there("out/m/mine"));
    spec.force = false;
    assert_int_equal(cn_pack(&spec, NULL, NULL, &result, &err), CN_E_CONFLICT);
}

/* Packing a folder over itself must not cut its files to nothing. */
static void
a_folder_can_be_packed_over_itself(void **state)
{
    struct cn_pack_spec spec = good_spec();
    struct cn_manifest manifest;
    char handler[512], *dir;

    (void)state;
    mkdir(in_scratch("out/m"), 0755);
    write_text("out/m/handler.lua", "return 5\n");
    snprintf(handler, sizeof(handler), "%s", in_scratch("out/m/handler.lua"));
    spec.handler = handler;
    spec.format = CN_PACK_FOLDER;
    spec.force = true;
    packs(&spec, NULL);
    unpacks("out/m", &manifest, &dir);
    cn_manifest_fini(&manifest);
    cn_free(dir);
}

/* The version of Python that a handler needs is in the manifest. */
static void
a_python_handler_may_name_its_versions(void **state)
{
    struct cn_pack_spec spec = good_spec();
    struct cn_manifest manifest;
    char handler[512], *dir;

    (void)state;
    spec.python = ">=3.9";
    fails(&spec, CN_E_BAD_REQUEST, "runs in the runtime lua and needs no Python");
    write_text("h.py", "pass\n");
    snprintf(handler, sizeof(handler), "%s", in_scratch("h.py"));
    spec.handler = handler;
    spec.python = "3.9";
    fails(&spec, CN_E_BAD_REQUEST, "--python: \"3.9\" is not a constraint of versions");
    spec.python = ">=3.9,<3.14";
    packs(&spec, NULL);
    unpacks("out/m.mar", &manifest, &dir);
    assert_string_equal(manifest.python, ">=3.9,<3.14");
    cn_manifest_fini(&manifest);
    cn_free(dir);
}

/* Archives for TorchServe can be made here, by TorchServe's rules for names. */
static void
python_handlers_are_packed_as_torchserve_would(void **state)
{
    struct cn_pack_spec spec = good_spec();
    struct cn_manifest manifest;
    char handler[512], *dir;

    (void)state;
    spec.force = true;
    spec.handler = "image_classifier";
    packs(&spec, NULL);
    unpacks("out/m.mar", &manifest, &dir);
    assert_string_equal(manifest.handler, "image_classifier");
    assert_string_equal(manifest.runtime, "python");
    assert_int_equal(manifest.n_files, 0);
    cn_manifest_fini(&manifest);
    cn_free(dir);
    write_text("h.py", "pass\n");
    snprintf(handler, sizeof(handler), "%s", in_scratch("h:entry"));
    spec.handler = handler;
    packs(&spec, NULL);
    unpacks("out/m.mar", &manifest, &dir);
    assert_string_equal(manifest.handler, "h:entry");
    assert_string_equal(manifest.files[0].path, "h.py");
    cn_manifest_fini(&manifest);
    cn_free(dir);
    spec.handler = "BaseHandler";
    spec.runtime = "LSP";
    packs(&spec, NULL);
}

/* Newer versions of torch-model-archiver create the folder and say so. */
static void
a_missing_export_folder_is_made(void **state)
{
    struct cn_pack_spec spec = good_spec();
    char path[512];

    (void)state;
    snprintf(path, sizeof(path), "%s", in_scratch("deep/er"));
    spec.export_path = path;
    packs(&spec, NULL);
    assert_true(is_there("deep/er/m.mar"));
    assert_contains(last_warning, "did not exist and was made");
}

#define SCRATCH_TEST(f) cmocka_unit_test_setup_teardown(f, make_scratch, remove_scratch)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(every_format_comes_back),
        SCRATCH_TEST(the_same_input_gives_the_same_bytes),
        SCRATCH_TEST(source_date_epoch_is_the_time_of_creation),
        SCRATCH_TEST(extra_files_are_collected),
        SCRATCH_TEST(two_files_of_one_name_are_refused),
        SCRATCH_TEST(wrong_arguments_are_named),
        SCRATCH_TEST(the_model_yaml_is_checked),
        SCRATCH_TEST(what_exists_is_kept_unless_forced),
        SCRATCH_TEST(a_folder_can_be_packed_over_itself),
        SCRATCH_TEST(a_python_handler_may_name_its_versions),
        SCRATCH_TEST(python_handlers_are_packed_as_torchserve_would),
        SCRATCH_TEST(a_missing_export_folder_is_made),
    };
    return cmocka_run_group_tests_name("archiver.pack", tests, NULL, NULL);
}
