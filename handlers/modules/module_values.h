/* handlers/modules/module_values.h - reads and writes elements of tensors as numbers, for the probe
 * of a model and for nanPolicy. Any thread. */
#ifndef CN_HANDLERS_MODULES_MODULE_VALUES_H
#define CN_HANDLERS_MODULES_MODULE_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/tensor.h"

bool cn_module_is_float(enum cn_datatype type);

/* Returns element `i` of packed elements, which need not be aligned. Not for BYTES. */
double cn_module_value(enum cn_datatype type, const char *data, size_t i);
/* Writes element `i`, rounded to what the type can hold. A BOOL is true from 0.5 on. */
void cn_module_value_put(enum cn_datatype type, char *data, size_t i, double value);

/* Returns by how much results of a model may differ if it adds in another order, as a share of the
 * largest magnitude of the tensor: about a thousand rounding errors of the type. Returns 0 for
 * integers. */
double cn_module_tolerance(enum cn_datatype type);

/* Returns how far two tensors of `n` elements differ: the largest difference, divided by the
 * largest magnitude in them. Equal tensors give 0. If one has a NaN where the other has none, the
 * result is infinity. Integers that differ give at least 1. */
double cn_module_distance(enum cn_datatype type, const char *a, const char *b, size_t n);

/* Returns true if there is a NaN or an infinity. */
bool cn_module_has_no_number(enum cn_datatype type, const char *data, size_t n);

#endif
