/* management/nodes/node_table.c - the inference URLs of the nodes, by name. Filled on loop 0, read
 * on any. */
#include "management/nodes/node_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory/mem.h"
#include "store/record/checksum.h"

struct cn_node_url {
    char name[CN_NODE_NAME_MAX + 1], url[CN_NODE_URL_MAX];
    bool usable; /* not draining, and no other node has the name */
};

void
cn_node_table_init(struct cn_node_table *table)
{
    *table = (struct cn_node_table){.n = 0};
    pthread_mutex_init(&table->lock, NULL);
}

void
cn_node_table_fini(struct cn_node_table *table)
{
    pthread_mutex_destroy(&table->lock);
    cn_free(table->urls);
}

static const char *
text_of(const json_t *entry, const char *key)
{
    const char *text = json_string_value(json_object_get(entry, key));

    return text ? text : "";
}

/* The order of NAME#INSTANCE is that of the names, because # comes before every character of a
 * name. So two nodes with the same name are neighbours. */
void
cn_node_table_fill(struct cn_node_table *table, const json_t *entries)
{
    struct cn_node_url *urls = cn_alloc(sizeof(*urls) * (json_array_size(entries) + 1));
    struct cn_node_url *before;
    json_t *entry;
    size_t n = 0, i;

    json_array_foreach(entries, i, entry)
    {
        const bool draining = strcmp(text_of(entry, "state"), "draining") == 0;

        if (strlen(text_of(entry, "name")) > CN_NODE_NAME_MAX ||
            strlen(text_of(entry, "inference")) >= CN_NODE_URL_MAX)
            continue;
        if (n > 0 && strcmp(urls[n - 1].name, text_of(entry, "name")) == 0) {
            urls[n - 1].usable = false;
            continue;
        }
        snprintf(urls[n].name, sizeof(urls[n].name), "%s", text_of(entry, "name"));
        snprintf(urls[n].url, sizeof(urls[n].url), "%s", text_of(entry, "inference"));
        urls[n++].usable = !draining;
    }
    pthread_mutex_lock(&table->lock);
    before = table->urls;
    table->urls = urls;
    table->n = n;
    pthread_mutex_unlock(&table->lock);
    cn_free(before);
}

static int
compare_name(const void *key, const void *element)
{
    return strcmp(key, ((const struct cn_node_url *)element)->name);
}

bool
cn_node_table_find(struct cn_node_table *table, struct cn_str name, char out[CN_NODE_URL_MAX])
{
    char wanted[CN_NODE_NAME_MAX + 1];
    const struct cn_node_url *url;
    bool found;

    if (name.len > CN_NODE_NAME_MAX)
        return false;
    snprintf(wanted, sizeof(wanted), "%.*s", CN_STR_ARG(name));
    pthread_mutex_lock(&table->lock);
    url = table->n ? bsearch(wanted, table->urls, table->n, sizeof(*table->urls), compare_name)
                   : NULL;
    found = url && url->usable;
    if (found)
        memcpy(out, url->url, CN_NODE_URL_MAX);
    pthread_mutex_unlock(&table->lock);
    return found;
}

bool
cn_node_table_home(struct cn_node_table *table, const char *own, struct cn_str sequence,
                   char out[CN_NODE_URL_MAX])
{
    const uint64_t seed = cn_checksum(sequence.ptr, sequence.len, 0);
    const struct cn_node_url *home = NULL;
    uint64_t best = 0;
    bool elsewhere;

    pthread_mutex_lock(&table->lock);
    for (size_t i = 0; i < table->n; i++) {
        const struct cn_node_url *url = &table->urls[i];
        const uint64_t score = cn_checksum(url->name, strlen(url->name), seed);

        if (url->usable && (!home || score > best)) {
            home = url;
            best = score;
        }
    }
    elsewhere = home && strcmp(home->name, own) != 0;
    if (elsewhere)
        memcpy(out, home->url, CN_NODE_URL_MAX);
    pthread_mutex_unlock(&table->lock);
    return elsewhere;
}
