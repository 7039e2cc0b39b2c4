/* core/log/log_tail.c - two rings with the newest lines of the log. Any thread.
 *
 * The memory is static, so a process that never begins to keep lines does not touch it. */
#include "core/log/log_tail.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

struct line {
    enum cn_log_level level;
    char text[CN_LOG_TAIL_BYTES];
};

struct ring {
    struct line *lines;
    unsigned room;
    uint64_t newest; /* number of the newest line; 0: there is none */
};

static struct line all[CN_LOG_TAIL_LINES], trouble[CN_LOG_TAIL_ERRORS];
static struct ring rings[] = {
    [CN_LOG_TAIL_ALL] = {.lines = all, .room = CN_LOG_TAIL_LINES},
    [CN_LOG_TAIL_TROUBLE] = {.lines = trouble, .room = CN_LOG_TAIL_ERRORS},
};
/* Guards the rings: any thread may log while loop 0 reads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_on;

void
cn_log_tail_begin(void)
{
    __atomic_store_n(&is_on, true, __ATOMIC_RELAXED);
}

static void
keep(struct ring *ring, enum cn_log_level level, const char *text, unsigned long len)
{
    struct line *line = &ring->lines[ring->newest++ % ring->room];

    line->level = level;
    memcpy(line->text, text, len);
    line->text[len] = '\0';
}

void
cn_log_tail_put(enum cn_log_level level, const char *line, unsigned long len)
{
    if (!__atomic_load_n(&is_on, __ATOMIC_RELAXED))
        return;
    while (len > 0 && line[len - 1] == '\n')
        len--;
    if (len >= CN_LOG_TAIL_BYTES)
        len = CN_LOG_TAIL_BYTES - 1;
    pthread_mutex_lock(&lock);
    keep(&rings[CN_LOG_TAIL_ALL], level, line, len);
    if (level <= CN_LOG_WARN)
        keep(&rings[CN_LOG_TAIL_TROUBLE], level, line, len);
    pthread_mutex_unlock(&lock);
}

uint64_t
cn_log_tail_read(enum cn_log_tail_kind kind, uint64_t after, unsigned most,
                 void (*take)(void *ctx, uint64_t number, enum cn_log_level level,
                              const char *text),
                 void *ctx)
{
    const struct ring *ring = &rings[kind];
    uint64_t newest, first;

    pthread_mutex_lock(&lock);
    newest = ring->newest;
    if (most > ring->room)
        most = ring->room;
    first = newest > most ? newest - most + 1 : 1;
    if (first <= after)
        first = after + 1;
    for (uint64_t number = first; number <= newest; number++) {
        const struct line *line = &ring->lines[(number - 1) % ring->room];

        take(ctx, number, line->level, line->text);
    }
    pthread_mutex_unlock(&lock);
    return newest;
}
