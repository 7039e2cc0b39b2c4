/* core/tuning/tuning.h - which performance mechanisms are switched on; tuning.def lists them.
 *
 * The switches belong to the process. The server sets them from --tuning before it starts a thread,
 * and a worker sets them from the LOAD frame before it opens its model; after that they are only
 * read. A program that sets nothing has the defaults. */
#ifndef CN_CORE_TUNING_TUNING_H
#define CN_CORE_TUNING_TUNING_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"

enum cn_tuning {
#define CN_TUNING(id, name, on, what, gained, decision) CN_TUNING_##id,
#include "core/tuning/tuning.def"
#undef CN_TUNING
    CN_N_TUNINGS
};

struct cn_tuning_row {
    const char *name, *what, *gained, *decision;
    bool on; /* the default */
};
extern const struct cn_tuning_row cn_tuning_rows[CN_N_TUNINGS];

/* Use the functions below. It has one bit for each row, the first row in the lowest bit. */
extern uint64_t cn_tuning_bits;

/* Is this mechanism switched on? Cheap enough for any place. */
static inline bool
cn_tuned(enum cn_tuning which)
{
    return cn_tuning_bits >> which & 1;
}

/* Reads a list of words with commas. The switches begin with the defaults, and the words change
 * them from left to right: "all", "none" and "default" set every switch, "-NAME" switches one off
 * and "NAME" switches one on. Examples: "none", "all,-busy-wait", "none,prefetch". CN_E_CONFIG with
 * the word and the names: an unknown word. */
int cn_tuning_parse(const char *list, uint64_t *bits, struct cn_error *err);

/* Sets the switches of this process. */
void cn_tuning_set(uint64_t bits);

#endif
