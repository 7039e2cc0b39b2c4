/* management/nodes/node_entry.h - what a node says about itself in the shared store. */
#ifndef CN_MANAGEMENT_NODES_NODE_ENTRY_H
#define CN_MANAGEMENT_NODES_NODE_ENTRY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/server/server_config.h"
#include "core/errors/error.h"
#include "core/text/str.h"
#include "management/nodes/nodes.h"

#define CN_NODE_INSTANCE_LEN 16

/* This node. The first group does not change while the server runs. */
struct cn_node {
    char name[CN_NODE_NAME_MAX + 1];
    char instance[CN_NODE_INSTANCE_LEN + 1]; /* a random number of this process */
    char inference[CN_NODE_URL_MAX], management[CN_NODE_URL_MAX], metrics[CN_NODE_URL_MAX];
    uint64_t started_wall_ms;
    uint32_t ttl_ms;

    uint64_t renewal; /* counts the entry's renewals */
    const char *state;
    uint64_t round_trip_us; /* of the last renewal; 0: unknown */
    bool knows_clock, has_duplicate;
    int64_t ahead_ms; /* how far this node's clock is ahead of the store's */
};

/* Sets the name, from --node-name or the host's, and a new instance. CN_E_CONFIG: --node-name,
 * --advertise or --advertise-management is wrong. */
int cn_node_init(struct cn_node *node, const struct cn_server_config *config, struct cn_error *err);
/* Sets the addresses that the others see, from those on which the server listens. */
void cn_node_set_addresses(struct cn_node *node, const struct cn_server_config *config,
                           const char *inference, const char *management, const char *metrics);
/* The entry as JSON. */
json_t *cn_node_json(const struct cn_node *node);

/* What is read of another node's entry. */
struct cn_node_seen {
    char instance[CN_NODE_INSTANCE_LEN + 1];
    uint64_t renewal;
};
/* Reads an entry. Returns NULL if it is not the JSON of a node; such an entry is skipped. */
json_t *cn_node_parse(struct cn_str value);
void cn_node_see(const json_t *entry, struct cn_node_seen *out);

#endif
