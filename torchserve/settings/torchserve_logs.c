/* torchserve/settings/torchserve_logs.c - LOG_LOCATION and METRICS_LOCATION, the folders of
 * TorchServe's logs, become options. Main thread, at start.
 *
 * TorchServe writes into logs/ of its current folder if nothing else is said. A server in a
 * container often may not write there. So if both folders are only defaults and one cannot be
 * written, the logs go to the standard output alone, with a warning; a folder that somebody has
 * named must work. */
#include "torchserve/settings/torchserve_logs.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/server/server_options.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"

#define METRICS_DIR "logs" /* the default of METRICS_LOCATION */

static int
set_default(struct cn_server_config *config, const char *flag, const char *where, const char *dir,
            struct cn_error *err)
{
    const struct cn_option *option = cn_option_find(cn_str_from(flag));

    cn_assert(option != NULL);
    return cn_option_set(config, option, CN_FROM_DEFAULT, where, dir, err);
}

int
cn_torchserve_logs_place(struct cn_server_config *config, const char *logs, const char *metrics,
                         struct cn_error *err)
{
    int rc = set_default(config, "log-dir", "LOG_LOCATION", logs, err);

    if (metrics == NULL || metrics[0] == '\0') /* LOG_LOCATION does not move them */
        metrics = strcmp(logs, METRICS_DIR) != 0 ? METRICS_DIR : NULL;
    if (rc == 0 && metrics != NULL)
        rc = set_default(config, "metrics-log-dir", "METRICS_LOCATION", metrics, err);
    return rc;
}

/* Returns whether this is a folder that can be written or made. A folder can be made if the nearest
 * existing folder above it can be written. */
static bool
may_write_into(const char *path)
{
    char part[4096], *slash;
    struct stat st;

    snprintf(part, sizeof(part), "%s", path);
    while (stat(part, &st) < 0 && strcmp(part, ".") != 0 && strcmp(part, "/") != 0) {
        slash = strrchr(part, '/');
        if (slash == NULL)
            snprintf(part, sizeof(part), ".");
        else
            slash[slash == part] = '\0';
    }
    return stat(part, &st) == 0 && S_ISDIR(st.st_mode) && access(part, W_OK | X_OK) == 0;
}

static bool
is_default(const struct cn_server_config *config, const char *flag)
{
    const struct cn_option *option = cn_option_find(cn_str_from(flag));

    return config->sources[option - cn_server_options] == CN_FROM_DEFAULT;
}

bool
cn_torchserve_logs_check(struct cn_server_config *config, char *text, size_t text_bytes)
{
    const char *wrong = NULL;

    if (!is_default(config, "log-dir") || !is_default(config, "metrics-log-dir"))
        return false;
    if (!may_write_into(config->log_dir))
        wrong = config->log_dir;
    else if (config->metrics_log_dir != NULL && !may_write_into(config->metrics_log_dir))
        wrong = config->metrics_log_dir;
    if (wrong == NULL)
        return false;
    snprintf(text, text_bytes,
             "%.400s cannot be written, so the logs go to the standard output only", wrong);
    cn_free(config->log_dir);
    cn_free(config->metrics_log_dir);
    config->log_dir = config->metrics_log_dir = NULL;
    return true;
}
