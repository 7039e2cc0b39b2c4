/* archiver/archive/manifest_test.c - tests that manifests of both archivers are read, and that
 * wrong ones are refused with the reason. */
#include "archiver/archive/manifest.h"

#include "archiver/test_support.h"

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void
refused(const char *json, const char *message)
{
    struct cn_manifest manifest;
    struct cn_error err = {0};

    assert_int_equal(cn_manifest_parse("m", cn_str_from(json), &manifest, &err),
                     CN_E_INVALID_MODEL);
    assert_contains(err.message, message);
    assert_null(manifest.files);
}

/* The keys come in the order of torch-model-archiver, then ours. */
static void
it_prints_what_it_read(void **state)
{
    static const char text[] = "{\n"
                               "  \"createdOn\": \"21/11/2026 01:45:48\",\n"
                               "  \"runtime\": \"python\",\n"
                               "  \"model\": {\n"
                               "    \"modelName\": \"seqm\",\n"
                               "    \"serializedFile\": \"model.pt\",\n"
                               "    \"handler\": \"handler.py\",\n"
                               "    \"modelFile\": \"net.py\",\n"
                               "    \"modelVersion\": \"1.0\",\n"
                               "    \"requirementsFile\": \"requirements.txt\",\n"
                               "    \"configFile\": \"model-config.yaml\"\n"
                               "  },\n"
                               "  \"archiverVersion\": \"0.12.0\",\n"
                               "  \"files\": {\n"
                               "    \"handler.py\": \"sha256:" DIGEST "\"\n"
                               "  }\n"
                               "}";
    struct cn_manifest manifest;
    struct cn_error err = {0};
    struct cn_buf out;

    (void)state;
    cn_buf_init(&out, 0);
    assert_int_equal(cn_manifest_parse("m", cn_str_from(text), &manifest, &err), 0);
    assert_string_equal(manifest.model_name, "seqm");
    assert_string_equal(manifest.config_file, "model-config.yaml");
    assert_int_equal(manifest.n_files, 1);
    assert_string_equal(manifest.files[0].sha256, DIGEST);
    cn_manifest_print(&manifest, &out);
    assert_int_equal(out.len, sizeof(text) - 1);
    assert_memory_equal(out.data, text, out.len);
    cn_buf_fini(&out);
    cn_manifest_fini(&manifest);
}

/* Old archives have few keys, and some that are no longer used. */
static void
missing_and_legacy_keys_are_fine(void **state)
{
    struct cn_manifest manifest;

    (void)state;
    assert_int_equal(cn_manifest_parse("m",
                                       CN_STR("{\"model\": {\"handler\": \"image_classifier\","
                                              "\"extensions\": {}, \"envelope\": null}, "
                                              "\"description\": 5}"),
                                       &manifest, NULL),
                     0);
    assert_null(manifest.model_name);
    assert_string_equal(manifest.handler, "image_classifier");
    assert_string_equal(cn_manifest_runtime(&manifest), "python");
    cn_manifest_fini(&manifest);
    assert_int_equal(cn_manifest_parse("m", CN_STR("{}"), &manifest, NULL), 0);
    cn_manifest_fini(&manifest);
}

/* The message has the key and the reason. */
static void
wrong_manifests_say_why(void **state)
{
    (void)state;
    refused("{", "m:1:");
    refused("", "m:1:");
    refused("[]", "m: must be a JSON object");
    refused("{\"a\": 1, \"a\": 2}", "duplicate");
    refused("{\"model\": 5}", "model must be an object");
    refused("{\"model\": {\"modelName\": \"\"}}", "model.modelName must be a string that is not");
    refused("{\"model\": {\"modelVersion\": 1}}", "model.modelVersion must be a string");
    refused("{\"runtime\": \"cobol\"}", "unknown runtime \"cobol\"");
    refused("{\"model\": {\"handler\": \"../../etc/passwd\"}}",
            "model.handler \"../../etc/passwd\"");
    refused("{\"model\": {\"configFile\": \"/etc/passwd\"}}", "model.configFile");
    refused("{\"model\": {\"modelName\": \"a\\u0000b\"}}", "m:1:");
    refused("{\"createdOn\": \"\\u001b[2J\"}", "createdOn has a control character");
    refused("{\"runtime\": \"\\u001b[2J\"}", "runtime has a control character");
    refused("{\"model\": {\"modelName\": \"a\\u009bb\"}}", "model.modelName has a control");
    refused("{\"files\": {}}", "files must be an object");
    refused("{\"files\": []}", "files must be an object");
    refused("{\"files\": {\"a\": \"md5:1\"}}", "\"a\" has no \"sha256:");
    refused("{\"files\": {\"a\": 5}}", "\"a\" has no \"sha256:");
    refused("{\"files\": {\"a\": \"sha256:" DIGEST "\", \"../b\": \"sha256:" DIGEST "\"}}", "../b");
    refused("{\"files\": {\"MAR-INF/MANIFEST.json\": \"sha256:" DIGEST "\"}}", "not a plain path");
}

/* torch-model-archiver says "python" even beside a Lua handler. */
static void
the_handlers_suffix_decides_the_runtime(void **state)
{
    static const char *const cases[][3] = {
        {"h.lua", "python", "lua"},     {"h.so", "python", "c"}, {"h.so", "LSP", "LSP"},
        {"h.py", "python3", "python3"}, {"h.so", NULL, "c"},     {NULL, "c", "c"},
        {"x", NULL, "python"}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_manifest manifest = {.handler = (char *)(uintptr_t)cases[i][0],
                                       .runtime = (char *)(uintptr_t)cases[i][1]};
        assert_string_equal(cn_manifest_runtime(&manifest), cases[i][2]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_prints_what_it_read),
        cmocka_unit_test(missing_and_legacy_keys_are_fine),
        cmocka_unit_test(wrong_manifests_say_why),
        cmocka_unit_test(the_handlers_suffix_decides_the_runtime),
    };
    return cmocka_run_group_tests_name("archiver.manifest", tests, NULL, NULL);
}
