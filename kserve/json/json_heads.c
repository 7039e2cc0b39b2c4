/* kserve/json/json_heads.c - the cache: a hash table with one place for each hash value, one table
 * per thread.
 *
 * A head replaces the one that was at its place. There is no list of collisions and no age: a head
 * that meets another one is only parsed again. Each thread has its own table, so no lock is needed,
 * and the table is freed when the thread ends.
 */
#include "kserve/json/json_heads.h"

#include <pthread.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/tuning/tuning.h"
#include "kserve/json/json_words.h"

struct head {
    json_t *root; /* NULL: the place is empty */
    size_t len;
    char text[CN_V2_HEAD_MAX];
};

struct heads {
    struct head at[CN_V2_HEADS];
};

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void
heads_free(void *ctx)
{
    struct heads *heads = ctx;

    for (size_t i = 0; i < CN_V2_HEADS; i++)
        json_decref(heads->at[i].root);
    cn_free(heads);
}

static void
make_key(void)
{
    cn_assert(pthread_key_create(&key, heads_free) == 0);
}

static struct heads *
heads_of_thread(void)
{
    struct heads *heads;

    pthread_once(&key_once, make_key);
    heads = pthread_getspecific(key);
    if (!heads) {
        heads = cn_alloc(sizeof(*heads));
        pthread_setspecific(key, heads);
    }
    return heads;
}

static uint64_t
mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

/* Hashes the text, eight bytes at a time. A client that provokes collisions only makes its own
 * heads be parsed again. */
static size_t
place_of(struct cn_str text)
{
    uint64_t hash = text.len, word;
    size_t at = 0;

    for (; text.len - at >= sizeof(word); at += sizeof(word)) {
        memcpy(&word, text.ptr + at, sizeof(word));
        hash = mix(hash, word);
    }
    word = 0;
    memcpy(&word, text.ptr + at, text.len - at);
    return mix(hash, word) % CN_V2_HEADS;
}

int
cn_v2_json_head(struct cn_str text, json_t **out, struct cn_error *err)
{
    struct head *head;
    int rc;

    if (text.len == 0 || text.len > CN_V2_HEAD_MAX || !cn_tuned(CN_TUNING_JSON_HEADS))
        return cn_v2_json_load(text, out, err);
    head = &heads_of_thread()->at[place_of(text)];
    if (!head->root || !cn_str_eq((struct cn_str){head->text, head->len}, text)) {
        if ((rc = cn_v2_json_load(text, out, err)) != 0)
            return rc;
        json_decref(head->root);
        head->root = *out;
        head->len = text.len;
        memcpy(head->text, text.ptr, text.len);
    }
    *out = json_incref(head->root);
    return 0;
}
