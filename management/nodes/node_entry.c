/* management/nodes/node_entry.c - makes a node's entry and reads those of others. No state.
 *
 * The entry is a JSON object, so that a newer version of Continuo can add members that an older one
 * skips. */
#include "management/nodes/node_entry.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/system/random.h"
#include "core/time/clock.h"

static bool
is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == ':';
}

static int
set_name(struct cn_node *node, const char *wanted, struct cn_error *err)
{
    const size_t len = wanted ? strlen(wanted) : 0;

    if (!wanted) {
        char host[256] = "";

        gethostname(host, sizeof(host) - 1);
        snprintf(node->name, sizeof(node->name), "%.*s", CN_NODE_NAME_MAX, host[0] ? host : "node");
        for (char *c = node->name; *c; c++)
            *c = is_name_char(*c) ? *c : '-';
        return 0;
    }
    for (size_t i = 0; i < len; i++)
        if (!is_name_char(wanted[i]))
            return cn_fail(err, CN_E_CONFIG,
                           "--node-name %.100s: a name may have letters, digits and - _ . : only",
                           wanted);
    if (len == 0 || len > CN_NODE_NAME_MAX)
        return cn_fail(err, CN_E_CONFIG, "--node-name %.100s: a name must have 1 to %d characters",
                       wanted, CN_NODE_NAME_MAX);
    memcpy(node->name, wanted, len + 1);
    return 0;
}

static int
check_url(const char *flag, const char *text, struct cn_error *err)
{
    struct cn_address address;
    struct cn_error why;

    if (!text)
        return 0;
    if (strlen(text) >= CN_NODE_URL_MAX)
        return cn_fail(err, CN_E_CONFIG, "%s: the URL has more than %d characters", flag,
                       CN_NODE_URL_MAX - 1);
    if (cn_address_parse(text, 0, &address, &why))
        return cn_fail(err, CN_E_CONFIG, "%s: %s", flag, why.message);
    return 0;
}

int
cn_node_init(struct cn_node *node, const struct cn_server_config *config, struct cn_error *err)
{
    int rc = set_name(node, config->node_name, err);

    if (rc == 0)
        rc = check_url("--advertise", config->advertise, err);
    if (rc == 0)
        rc = check_url("--advertise-management", config->advertise_management, err);
    snprintf(node->instance, sizeof(node->instance), "%016llx",
             (unsigned long long)cn_random_u64());
    node->started_wall_ms = cn_wall_ms();
    node->ttl_ms = config->node_ttl_ms;
    node->state = "starting";
    return rc;
}

/* Finds what others can reach of an address on which the server listens. All interfaces
 * (0.0.0.0, ::) stand for `host`. */
static void
set_url(char out[CN_NODE_URL_MAX], const char *given, const char *bound, const char *host)
{
    struct cn_address address;

    if (given || cn_address_parse(bound, 0, &address, NULL) != 0 || address.is_unix ||
        (strcmp(address.host, "0.0.0.0") != 0 && strcmp(address.host, "::") != 0)) {
        snprintf(out, CN_NODE_URL_MAX, "%s", given ? given : bound);
        return;
    }
    snprintf(out, CN_NODE_URL_MAX, strchr(host, ':') ? "%s://[%s]:%u" : "%s://%s:%u",
             address.is_https ? "https" : "http", host, address.port);
}

void
cn_node_set_addresses(struct cn_node *node, const struct cn_server_config *config,
                      const char *inference, const char *management, const char *metrics)
{
    struct cn_address advertised = {0};
    const char *host = advertised.host;

    if (!config->advertise || cn_address_parse(config->advertise, 0, &advertised, NULL) != 0 ||
        advertised.is_unix) {
        gethostname(advertised.host, sizeof(advertised.host) - 1);
        host = advertised.host[0] ? advertised.host : "localhost";
    }
    set_url(node->inference, config->advertise, inference, host);
    set_url(node->management, config->advertise_management, management, host);
    set_url(node->metrics, NULL, metrics, host);
}

static void
put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static json_t *
number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

json_t *
cn_node_json(const struct cn_node *node)
{
    json_t *out = json_object();

    put(out, "name", json_string(node->name));
    put(out, "instance", json_string(node->instance));
    put(out, "state", json_string(node->state));
    put(out, "inference", json_string(node->inference));
    put(out, "management", json_string(node->management));
    put(out, "metrics", json_string(node->metrics));
    put(out, "version", json_string(CN_VERSION));
    put(out, "pid", number((uint64_t)getpid()));
    put(out, "startedMSec", number(node->started_wall_ms));
    put(out, "renewal", number(node->renewal));
    put(out, "ttlMSec", number(node->ttl_ms));
    put(out, "storeRoundTripUSec", node->round_trip_us ? number(node->round_trip_us) : json_null());
    put(out, "clockAheadMSec",
        node->knows_clock ? json_integer((json_int_t)node->ahead_ms) : json_null());
    put(out, "duplicateName", json_boolean(node->has_duplicate));
    return out;
}

json_t *
cn_node_parse(struct cn_str value)
{
    json_t *entry = json_loadb(value.ptr, value.len, 0, NULL);

    if (json_is_object(entry) && json_is_string(json_object_get(entry, "name")) &&
        json_is_string(json_object_get(entry, "instance")))
        return entry;
    json_decref(entry);
    return NULL;
}

void
cn_node_see(const json_t *entry, struct cn_node_seen *out)
{
    const char *instance = json_string_value(json_object_get(entry, "instance"));
    const json_int_t renewal = json_integer_value(json_object_get(entry, "renewal"));

    snprintf(out->instance, sizeof(out->instance), "%s", instance ? instance : "");
    out->renewal = renewal > 0 ? (uint64_t)renewal : 0;
}
