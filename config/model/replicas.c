/* config/model/replicas.c - reads state.replicas, and refuses `all` where nobody could say which
 * replicas these are. Any thread. */
#include "config/model/replicas.h"

bool
cn_replicas_take(const struct cn_yaml *value, uint64_t max, uint32_t *out)
{
    if (value->kind == CN_YAML_STRING && cn_str_eq(value->text, CN_STR(CN_REPLICAS_ALL_WORD))) {
        *out = CN_REPLICAS_ALL;
        return true;
    }
    if (value->kind != CN_YAML_INT || value->integer < 0 || (uint64_t)value->integer > max)
        return false;
    *out = (uint32_t)value->integer;
    return true;
}

/* What the states are kept in, if it is not a store with Sentinels; else NULL. */
static const char *
other_store(const struct cn_model_config *config, bool whole)
{
    struct cn_state_store_url url;

    if (config->durability == CN_DURABILITY_NONE)
        return "are in memory only (durability none)";
    if (!config->state_store.url[0])
        return whole ? "are in the embedded store" : NULL;
    if (cn_state_store_url_parse(cn_str_from(config->state_store.url), &url, NULL) != 0 ||
        url.master[0])
        return NULL;
    return url.cluster ? "are in a cluster" : "are in a store whose URL names no Sentinels";
}

int
cn_replicas_check(const struct cn_model_config *config, bool whole, struct cn_error *err)
{
    const char *other = NULL;

    if (config->sequence_batching && config->store_replicas == CN_REPLICAS_ALL)
        other = other_store(config, whole);
    if (!other)
        return 0;
    return cn_fail(err, CN_E_CONFIG,
                   "state.replicas is " CN_REPLICAS_ALL_WORD
                   ", but the states %s, and only Sentinels say which replicas could become the "
                   "primary; use a URL with valkey+sentinel://, or set state.replicas to a number",
                   other);
}
