/* kserve/json/json_heads.c - the cache: a hash table with one place for each hash value, one table
 * per thread.
 *
 * A head replaces the one that was at its place. There is no list of collisions and no age: a head
 * that meets another one is only read again. Each thread has its own table, so no lock is needed,
 * and the table is freed when the thread ends.
 *
 * A request is kept in one block of memory: its lists, and behind them all texts. copy() makes such
 * a block, both of the request that is to be kept and of the kept one for a new request. A kept
 * request is never changed, while the copy may be: its shapes, for example, get a batch dimension.
 */
#include "kserve/json/json_heads.h"

#include <pthread.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/tuning/tuning.h"

struct head {
    size_t len;
    char text[CN_V2_HEAD_MAX];
    struct cn_v2_request request;
    size_t bytes; /* of the block */
    char *block;  /* NULL: the place is empty */
    struct cn_v2_source *sources;
};

struct heads {
    struct head at[CN_V2_HEADS];
};

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void
head_clear(struct head *head)
{
    cn_free(head->block);
    cn_free(head->sources);
    head->block = NULL;
    head->sources = NULL;
}

static void
heads_free(void *ctx)
{
    struct heads *heads = ctx;

    for (size_t i = 0; i < CN_V2_HEADS; i++)
        head_clear(&heads->at[i]);
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
 * heads be read again. */
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

/* The place of a head; NULL if none is kept for it. */
static struct head *
place(struct cn_str text)
{
    if (text.len == 0 || text.len > CN_V2_HEAD_MAX || !cn_tuned(CN_TUNING_JSON_HEADS))
        return NULL;
    return &heads_of_thread()->at[place_of(text)];
}

/* --- copies of requests */

static size_t
text_bytes(struct cn_str text)
{
    return text.len ? text.len + 1 : 0;
}

/* The bytes of the block that a request needs. */
static size_t
block_bytes(const struct cn_v2_request *request)
{
    size_t bytes = text_bytes(request->id) + text_bytes(request->sequence_text) +
                   request->n_params * sizeof(*request->params) +
                   request->n_inputs * sizeof(*request->inputs) +
                   (request->windows ? request->n_inputs * sizeof(*request->windows) : 0) +
                   request->n_outputs * sizeof(*request->outputs);

    for (uint32_t i = 0; i < request->n_params; i++)
        bytes += text_bytes(request->params[i].name) + text_bytes(request->params[i].text);
    for (uint32_t i = 0; i < request->n_inputs; i++)
        bytes += text_bytes(request->inputs[i].name) +
                 (request->windows ? text_bytes(request->windows[i].region) : 0);
    for (uint32_t i = 0; i < request->n_outputs; i++)
        bytes +=
            text_bytes(request->outputs[i].name) + text_bytes(request->outputs[i].window.region);
    return bytes;
}

static void *
put(char **at, const void *from, size_t bytes)
{
    void *const to = *at;

    if (bytes)
        memcpy(to, from, bytes);
    *at += bytes;
    return to;
}

/* Moves a text behind what is in the block, with a NUL. */
static void
put_text(char **at, struct cn_str *text)
{
    const size_t len = text->len;

    if (len == 0) {
        *text = CN_STR("");
        return;
    }
    text->ptr = put(at, text->ptr, len);
    *(*at)++ = '\0';
}

/* Copies a request. Its lists and texts go into `block`, which has room for block_bytes(). Returns
 * the end of what was written. */
static char *
copy(const struct cn_v2_request *from, char *block, struct cn_v2_request *to)
{
    char *at = block;

    *to = *from;
    to->params = put(&at, from->params, from->n_params * sizeof(*from->params));
    to->inputs = put(&at, from->inputs, from->n_inputs * sizeof(*from->inputs));
    to->outputs = put(&at, from->outputs, from->n_outputs * sizeof(*from->outputs));
    if (from->windows)
        to->windows = put(&at, from->windows, from->n_inputs * sizeof(*from->windows));
    put_text(&at, &to->id);
    put_text(&at, &to->sequence_text);
    for (uint32_t i = 0; i < to->n_params; i++) {
        put_text(&at, &to->params[i].name);
        put_text(&at, &to->params[i].text);
    }
    for (uint32_t i = 0; i < to->n_inputs; i++) {
        put_text(&at, &to->inputs[i].name);
        if (to->windows)
            put_text(&at, &to->windows[i].region);
    }
    for (uint32_t i = 0; i < to->n_outputs; i++) {
        put_text(&at, &to->outputs[i].name);
        put_text(&at, &to->outputs[i].window.region);
    }
    return at;
}

const struct cn_v2_source *
cn_v2_head_find(struct cn_str text, struct cn_arena *arena, struct cn_v2_request *out)
{
    const struct head *head = place(text);

    if (!head || !head->block || !cn_str_eq((struct cn_str){head->text, head->len}, text))
        return NULL;
    copy(&head->request, cn_arena_alloc(arena, head->bytes), out);
    return head->sources;
}

void
cn_v2_head_keep(struct cn_str text, const struct cn_v2_request *request,
                const struct cn_v2_source *sources)
{
    const size_t sources_bytes = request->n_inputs * sizeof(*sources);
    struct head *head = place(text);

    if (!head)
        return;
    for (uint32_t i = 0; i < request->n_inputs; i++)
        if (sources[i].from == CN_V2_FROM_HEAD)
            return;
    head_clear(head);
    head->len = text.len;
    memcpy(head->text, text.ptr, text.len);
    head->bytes = block_bytes(request);
    head->block = cn_alloc(head->bytes + 1); /* a request may have no lists and texts */
    head->sources = cn_alloc(sources_bytes + 1);
    if (sources_bytes)
        memcpy(head->sources, sources, sources_bytes);
    cn_assert(copy(request, head->block, &head->request) == head->block + head->bytes);
    for (uint32_t i = 0; i < request->n_inputs; i++)
        head->request.inputs[i].data.ptr = NULL;
}
