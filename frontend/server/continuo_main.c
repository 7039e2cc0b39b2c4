/* frontend/server/continuo_main.c - the program `continuo`: reads its options, then runs the server
 * or prints what was asked for. */
#include <stdio.h>

#include "config/model/model_page.h"
#include "config/server/server_config.h"
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
          "       continuo --help [SECTION]\n"
          "The variable CONTINUO_MODEL_STORE, or model-store in the file of --config, may also "
          "name the folder.\n",
          stderr);
    return false;
}

int
main(int argc, char **argv)
{
    struct cn_server_config config;
    struct cn_error err;
    int rc = 0;

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
