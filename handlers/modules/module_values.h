/* handlers/modules/module_values.h - elements of tensors as numbers: what the probe of a model
 * and nanPolicy look at. Any thread. */
#ifndef CN_HANDLERS_MODULES_MODULE_VALUES_H
#define CN_HANDLERS_MODULES_MODULE_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/tensor.h"

bool cn_module_is_float(enum cn_datatype type);

/* The element `i` of packed elements, any alignment. Not for BYTES. */
double cn_module_value(enum cn_datatype type, const char *data, size_t i);
/* Rounds to what the type can hold; a BOOL is true from 0.5 on. */
void cn_module_value_put(enum cn_datatype type, char *data, size_t i, double value);

/* By how much results of a model may differ that sums in another order, as a share of the largest
 * magnitude of the tensor: about a thousand roundings of the type. 0 for integers. */
double cn_module_tolerance(enum cn_datatype type);

/* How far two tensors of `n` elements are apart: the largest difference, divided by the largest
 * magnitude in them; 0 where they are equal, infinite where one has a NaN that the other has not.
 * Integers that differ at all are 1 apart or more. */
double cn_module_distance(enum cn_datatype type, const char *a, const char *b, size_t n);

/* Is there a NaN or an infinity? */
bool cn_module_has_no_number(enum cn_datatype type, const char *data, size_t n);

#endif
