/* core/text/suggest.c - the edit distance behind "did you mean". Any thread.
 *
 * This is the optimal string alignment distance: the table's cell [i][j] is the least number of
 * edits that turn the first i letters of `a` into the first j letters of `b`, and is computed from
 * its neighbours. "loosp" is one edit away from "loops", since a swap of neighbours counts as one;
 * it is the most common slip. */
#include "core/text/suggest.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define WORD_MAX 63

static unsigned char
fold(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (unsigned char)(c - 'A' + 'a');
    return (unsigned char)(c == '_' ? '-' : c);
}

static unsigned
min2(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned
cn_edit_distance(struct cn_str a, struct cn_str b)
{
    /* Three rows of the table are enough, because a swap looks two rows back. */
    uint8_t rows[3][WORD_MAX + 1];

    if (a.len > WORD_MAX || b.len > WORD_MAX)
        return a.len > b.len ? (unsigned)a.len : (unsigned)b.len;
    for (size_t j = 0; j <= b.len; j++)
        rows[0][j] = (uint8_t)j;
    for (size_t i = 1; i <= a.len; i++) {
        uint8_t *row = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];

        row[0] = (uint8_t)i;
        for (size_t j = 1; j <= b.len; j++) {
            unsigned char ca = fold(a.ptr[i - 1]), cb = fold(b.ptr[j - 1]);
            unsigned best = min2(last[j], row[j - 1]) + 1u;

            best = min2(best, last[j - 1] + (ca != cb));
            if (i > 1 && j > 1 && ca == fold(b.ptr[j - 2]) && cb == fold(a.ptr[i - 2]))
                best = min2(best, before[j - 2] + 1u);
            row[j] = (uint8_t)best;
        }
    }
    return rows[a.len % 3][b.len];
}

static bool
begins_with(struct cn_str name, struct cn_str word)
{
    for (size_t i = 0; i < word.len; i++)
        if (i >= name.len || fold(name.ptr[i]) != fold(word.ptr[i]))
            return false;
    return true;
}

/* The only name that begins with the word, or that the word begins with: batch for batchSize, and
 * maxWorkersCount for maxWorkers. */
static const char *
longer_form(struct cn_str word, const char *const *names, size_t n_names)
{
    const char *found = NULL;

    for (size_t i = 0; i < n_names && word.len >= 4; i++) {
        struct cn_str name = cn_str_from(names[i]);

        if (name.len < 4 || !(begins_with(name, word) || begins_with(word, name)))
            continue;
        if (found && strcmp(found, names[i]) != 0)
            return NULL;
        found = names[i];
    }
    return found;
}

const char *
cn_suggest(struct cn_str word, const char *const *names, size_t n_names)
{
    const char *nearest = NULL;
    unsigned limit = min2(2, (unsigned)((word.len + 2) / 3));

    /* In twelve letters, four edits are still a slip: sequence_batch for sequenceBatching. */
    if (word.len >= 12)
        limit = 4;

    for (size_t i = 0; i < n_names; i++) {
        unsigned distance = cn_edit_distance(word, cn_str_from(names[i]));

        /* A name that is equally near and comes later does not win, so the answer depends on the
         * order of the list only. */
        if (distance <= limit && (nearest == NULL || distance < limit)) {
            nearest = names[i];
            limit = distance;
        }
    }
    return nearest ? nearest : longer_form(word, names, n_names);
}
