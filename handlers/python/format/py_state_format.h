/* handlers/python/format/py_state_format.h - how a Python handler's state is written. Any thread.
 *
 * Two bytes 'P' 'y' and one with the version 1, then one value. A value is a tag (one byte) and
 * what the tag says. Numbers are little-endian, and sizes are counted in bytes unless they count
 * values:
 *   N T F     None, True, False
 *   i         an int: 8 bytes, signed            I   a larger int: u32 size, its bytes, signed
 *   d         a float: 8 bytes                   c   a complex number: two floats
 *   s         a str: u32 size, UTF-8 (surrogates may stand alone)
 *   b B       bytes, bytearray: u32 size, bytes
 *   l t       list, tuple: u32 count, values     S z   set, frozenset: the same
 *   D         deque: u32 maxlen + 1 (0: none), u32 count, values
 *   m         dict: u32 count, each a key and a value, in the dict's order
 *   a         NumPy array: type (u8 size, text such as "<f4"), u8 1 for column-major order, u8
 *             rank, u64 for each dimension, u64 size, the elements
 *   g         NumPy scalar: type as above, u32 size, its bytes
 *   x         PyTorch tensor on the CPU: type (u8 size, text such as "float32"), u8 0, u8 rank, u64
 *             for each dimension, u64 size, the elements in row-major order
 *   p         any object, pickled: u32 size, bytes; written and read only where the handler asks
 *             for it (state_format = "pickle"), and only as the whole state
 */
#ifndef CN_HANDLERS_PYTHON_PY_STATE_FORMAT_H
#define CN_HANDLERS_PYTHON_PY_STATE_FORMAT_H

#include "core/errors/error.h"
#include "core/text/str.h"

#define PY_STATE_DEPTH_MAX 64 /* containers within containers */
#define PY_STATE_HEADER "Py\x01"
#define PY_STATE_HEADER_BYTES 3
#define PY_STATE_RANK_MAX 32
#define PY_STATE_TYPE_MAX 32 /* bytes of the name of an element's type */

/* Checks that the bytes are one whole state, so that a reader needs no further checks of sizes.
 * Runs no Python. Returns 0, or CN_E_STATE_STORE with a message that names the offset. */
int cn_py_state_check(struct cn_str bytes, struct cn_error *err);

#endif
