/* torchserve/settings/torchserve_sources.c - puts config.properties, flags and TS_ variables
 * together as properties, each with a word on where it came from. Main thread, at start.
 *
 * Later sources win: the file, then flags, then TS_ variables (if enable_envvars_config allows
 * them). The file is the one of TS_CONFIG_FILE, else of --ts-config, else the newest snapshot in
 * logs/config, else config.properties in the current folder. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/server/server_options.h"
#include "core/memory/mem.h"
#include "torchserve/settings/torchserve_sources_priv.h"

const struct row cn_torchserve_rows[CN_N_TORCHSERVE_ROWS] = {
#define CN_PROPERTY(key, kind, env, otherwise, flag, text) {key, kind, env, otherwise, flag, text},
#include "torchserve/settings/properties.def"
#undef CN_PROPERTY
};

static const char *const flag_keys[CN_TS_N_FLAGS] = {
#define CN_TORCHSERVE_FLAG(id, flag, other, kind, key, arg, help) key,
#include "torchserve/settings/torchserve_flags.def"
#undef CN_TORCHSERVE_FLAG
};
const char *const cn_torchserve_flag_names[CN_TS_N_FLAGS] = {
#define CN_TORCHSERVE_FLAG(id, flag, other, kind, key, arg, help) flag,
#include "torchserve/settings/torchserve_flags.def"
#undef CN_TORCHSERVE_FLAG
};

const char *
cn_torchserve_logs_dir(char **environment)
{
    const char *dir = cn_environment_value(environment, "LOG_LOCATION");

    return dir != NULL && dir[0] != '\0' ? dir : "logs";
}

bool
cn_torchserve_is_true(const char *text)
{
    return cn_str_eq_nocase(cn_str_from(text), CN_STR("true"));
}

const char *
cn_torchserve_value(const struct loading *loading, const char *key)
{
    const struct cn_property *found = cn_properties_find(&loading->properties, key);

    return found != NULL && found->value[0] != '\0' ? found->value : NULL;
}

/* --- which file */

bool
cn_snapshot_is_name(const char *name)
{
    size_t digits = strspn(name, "0123456789");

    return digits == 17 && (strcmp(name + digits, "-startup.cfg") == 0 ||
                            strcmp(name + digits, "-snapshot.cfg") == 0 ||
                            strcmp(name + digits, "-shutdown.cfg") == 0);
}

/* Finds the newest snapshot by the time in its name. Returns NULL if there is none; free the result
 * with cn_free(). */
static char *
newest_snapshot(const char *logs)
{
    char newest[64] = "", path[4096];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/config", logs);
    dir = opendir(path);
    if (dir == NULL)
        return NULL;
    while ((entry = readdir(dir)) != NULL) {
        if (cn_snapshot_is_name(entry->d_name) && strcmp(entry->d_name, newest) > 0)
            snprintf(newest, sizeof(newest), "%.63s", entry->d_name);
    }
    closedir(dir);
    if (newest[0] == '\0')
        return NULL;
    snprintf(path, sizeof(path), "%s/config/%s", logs, newest);
    return cn_strdup(path);
}

static int
read_file(struct loading *loading, struct cn_error *err)
{
    const char *path = cn_environment_value(loading->environment, "TS_CONFIG_FILE");
    char *snapshot = NULL, text[600];
    int rc;

    if (path == NULL)
        path = loading->command->values[CN_TS_TS_CONFIG];
    if (path != NULL && access(path, F_OK) != 0)
        return cn_fail(err, CN_E_CONFIG, "--ts-config file not found: %s", path);
    if (path == NULL && loading->command->values[CN_TS_NCS] == NULL)
        path = snapshot = newest_snapshot(cn_torchserve_logs_dir(loading->environment));
    if (path == NULL && access("config.properties", F_OK) == 0)
        path = "config.properties";
    if (path == NULL)
        return 0;
    if (loading->warn != NULL && snapshot != NULL) {
        snprintf(text, sizeof(text),
                 "restoring the newest snapshot %.400s (start with --ncs to ignore it)", snapshot);
        loading->warn(loading->ctx, text);
    }
    rc = cn_properties_read(path, &loading->properties, err);
    cn_free(snapshot);
    return rc;
}

/* --- the sources, one over the other */

/* Replaces $$NAME$$ by the value of that environment variable. The text of a snapshot stays as it
 * is: the server has written it, and names in it come from clients. */
static int
expand_value(const struct loading *loading, struct cn_property *property, struct cn_error *err)
{
    const char *at = property->value, *begin, *end;
    struct cn_buf out;

    if (strstr(at, "$$") == NULL || strcmp(property->key, "model_snapshot") == 0)
        return 0;
    cn_buf_init(&out, 0);
    while ((begin = strstr(at, "$$")) != NULL && (end = strstr(begin + 2, "$$")) != NULL) {
        char *name = cn_strndup(begin + 2, (size_t)(end - begin - 2));
        const char *value = cn_environment_value(loading->environment, name);

        if (value == NULL) {
            cn_fail(err, CN_E_CONFIG, "%s: %s: Invalid Environment Variable %s", property->where,
                    property->key, name);
            cn_free(name);
            cn_buf_fini(&out);
            return CN_E_CONFIG;
        }
        cn_free(name);
        cn_buf_append(&out, at, (size_t)(begin - at));
        cn_buf_puts(&out, value);
        at = end + 2;
    }
    cn_buf_puts(&out, at);
    cn_free(property->value);
    property->value = cn_buf_take(&out, NULL);
    return 0;
}

static int
add_flags(struct loading *loading, struct cn_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < CN_TS_N_FLAGS; i++) {
        if (flag_keys[i][0] != '\0' && loading->command->values[i] != NULL)
            rc = cn_properties_set(&loading->properties, cn_str_from(flag_keys[i]),
                                   cn_str_from(loading->command->values[i]),
                                   cn_torchserve_flag_names[i], err);
    }
    return rc;
}

/* TorchServe allows allowed_urls from the environment only with a second switch: somebody who can
 * set variables could otherwise make the server download from anywhere. */
static bool
may_come_from_environment(const struct loading *loading, const char *key)
{
    const char *allowed = cn_torchserve_value(loading, "use_env_allowed_urls");

    return strcmp(key, "allowed_urls") != 0 || (allowed != NULL && cn_torchserve_is_true(allowed));
}

static int
add_environment(struct loading *loading, struct cn_error *err)
{
    const char *allowed = cn_torchserve_value(loading, "enable_envvars_config");
    int rc = 0;

    if (allowed == NULL || !cn_torchserve_is_true(allowed))
        return 0;
    for (size_t i = 0; rc == 0 && i < CN_N_TORCHSERVE_ROWS; i++) {
        const char *value =
            cn_torchserve_rows[i].env[0]
                ? cn_environment_value(loading->environment, cn_torchserve_rows[i].env)
                : NULL;

        if (value != NULL && may_come_from_environment(loading, cn_torchserve_rows[i].key))
            rc = cn_properties_set(&loading->properties, cn_str_from(cn_torchserve_rows[i].key),
                                   cn_str_from(value), cn_torchserve_rows[i].env, err);
    }
    return rc;
}

int
cn_torchserve_gather(struct loading *loading, struct cn_error *err)
{
    int rc = read_file(loading, err);

    for (uint32_t i = 0; rc == 0 && i < loading->properties.n; i++)
        rc = expand_value(loading, &loading->properties.items[i], err);
    if (rc == 0)
        rc = add_flags(loading, err);
    if (rc == 0)
        rc = add_environment(loading, err);
    return rc;
}
