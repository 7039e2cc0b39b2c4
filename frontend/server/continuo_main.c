/* frontend/server/continuo_main.c - the program `continuo`: reads its options, then runs the server
 * or prints what was asked for. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/model/model_page.h"
#include "config/server/server_config.h"
#include "core/system/program_path.h"
#include "core/system/write_file.h"
#include "frontend/server/server.h"

extern char **environ;

static void
warn(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "continuo: %s\n", line);
}

/* Handles the flags that only print something. Returns true when there was one. */
static bool
show(const struct cn_server_config *config)
{
    if (config->help)
        cn_server_config_help(config->help_section, stdout);
    else if (config->version)
        puts("continuo " CN_VERSION);
    else if (config->completions)
        cn_server_config_completions(config->completions, stdout);
    else if (config->print_man)
        cn_server_config_man(stdout);
    else if (config->print_yaml_man)
        cn_model_config_man(stdout);
    else if (config->print_model_page)
        cn_model_config_page(stdout);
    else if (config->print_config)
        cn_server_config_print(config, stdout);
    else
        return false;
    return true;
}

/* Is a model store given? No model can be registered without one, so the server would serve
 * nothing. */
static bool
has_store(const struct cn_server_config *config)
{
    if (config->model_store || config->model_repository)
        return true;
    fputs("continuo: error: no model store is given: name the folder with your model archives with "
          "--model-store DIR\n"
          "usage: continuo --model-store DIR [--models NAME=FILE ...] [options]\n"
          "       continuo --model-repository DIR [options], for a Triton model repository\n"
          "       continuo demo, to see in a second what a stateful model is\n"
          "       continuo new lua|python|c|torch|onnx NAME, to begin a model of your own\n"
          "       continuo dev DIR, continuo test DIR, to work on it\n"
          "       continuo --help [SECTION]\n"
          "The variable CONTINUO_MODEL_STORE, or model-store in the file of --config, may also "
          "name the folder.\n",
          stderr);
    return false;
}

/* Runs `continuo demo`, `new`, `dev` and `test` by the program continuo-dev, so that the server
 * does not contain their code. Returns only if that is impossible. */
static int
develop(char **argv)
{
    char path[4096];
    struct cn_error err;

    if (cn_program_path("continuo-dev", path, sizeof path, &err) == 0)
        execv(path, argv);
    fprintf(stderr,
            "continuo: error: cannot run continuo-dev, which must stand beside continuo: "
            "%s\n",
            strerror(errno));
    return 1;
}

static bool
is_for_authors(const char *word)
{
    static const char *const words[] = {"demo", "new", "dev", "test"};

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

int
main(int argc, char **argv)
{
    struct cn_server_config config;
    struct cn_error err;
    int rc = 0;

    if (argc > 1 && is_for_authors(argv[1]))
        return develop(argv);
    if (cn_server_config_load(argc, argv, environ, &config, warn, NULL, &err)) {
        fprintf(stderr, "continuo: %s\n", err.message);
        return 2;
    }
    if (show(&config))
        rc = cn_stdout_complete("continuo") ? 0 : 1;
    else
        rc = has_store(&config) ? cn_server_run(&config, NULL, NULL) : 2;
    cn_server_config_fini(&config);
    return rc;
}
