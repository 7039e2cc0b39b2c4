/* config/model/model_words.h - the words that some keys of a model's YAML take. Any thread. */
#ifndef CN_CONFIG_MODEL_MODEL_WORDS_H
#define CN_CONFIG_MODEL_MODEL_WORDS_H

#include "core/text/str.h"

/* Returns the words of the key with this path ("stream.input"), which must be a WORD of
 * model_options.def. A NULL ends the list. A word's place is its number. */
const char *const *cn_model_words(const char *path);
/* Returns the number of the word; -1: the key does not take it. */
int cn_model_word_parse(const char *path, struct cn_str word);
/* Writes the words, "none, audio or series", with `last` (", " or " or ") before the last one. */
const char *cn_model_words_text(const char *path, const char *last, char out[96]);

#endif
