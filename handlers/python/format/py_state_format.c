/* handlers/python/format/py_state_format.c - checks the bytes of a stored state. Any thread.
 *
 * What is stored was written by this server, but it comes from a disk or from a client that imports
 * a sequence. So it is checked as any bytes from outside, before Python sees it: each size fits
 * what is left, containers nest only so far, and nothing is left over at the end. A count needs no
 * limit of its own, since each value has at least one byte.
 */
#include "handlers/python/format/py_state_format.h"

#include "proto/wire.h"

/* Reads the type, the flag, the shape and the elements of an array or tensor. */
static bool
check_array(struct cn_reader *reader, uint8_t tag)
{
    uint8_t len = cn_read_u8(reader), flag, rank;

    cn_read_bytes(reader, len);
    flag = cn_read_u8(reader);
    rank = cn_read_u8(reader);
    if (reader->bad || len == 0 || len > PY_STATE_TYPE_MAX || flag > (tag == 'a') ||
        rank > PY_STATE_RANK_MAX)
        return false;
    for (uint8_t i = 0; i < rank; i++)
        if (cn_read_u64(reader) > INT64_MAX)
            return false;
    /* Not cn_read_bytes with the number as it came: a size_t could be smaller. */
    return cn_reader_take(reader, cn_read_u64(reader)) != NULL;
}

static bool
check_scalar(struct cn_reader *reader)
{
    uint8_t len = cn_read_u8(reader);

    cn_read_bytes(reader, len);
    cn_read_str32(reader);
    return len > 0 && len <= PY_STATE_TYPE_MAX;
}

/* Reads one value, except for the values within it. Returns false if it is malformed; else
 * *within is the number of values that follow as its parts. */
static bool
check_value(struct cn_reader *reader, bool whole, uint64_t *within)
{
    uint8_t tag = cn_read_u8(reader);

    *within = 0;
    switch (tag) {
    case 'N':
    case 'T':
    case 'F':
        return true;
    case 'i':
    case 'd':
        return cn_reader_take(reader, 8) != NULL;
    case 'c':
        return cn_reader_take(reader, 16) != NULL;
    case 'p':
        if (!whole)
            return false;
        __attribute__((fallthrough));
    case 'I':
    case 's':
    case 'b':
    case 'B':
        cn_read_str32(reader);
        return true;
    case 'D':
        cn_read_u32(reader);
        *within = cn_read_u32(reader);
        return true;
    case 'l':
    case 't':
    case 'S':
    case 'z':
        *within = cn_read_u32(reader);
        return true;
    case 'm':
        *within = 2 * (uint64_t)cn_read_u32(reader);
        return true;
    case 'a':
    case 'x':
        return check_array(reader, tag);
    case 'g':
        return check_scalar(reader);
    }
    return false;
}

int
cn_py_state_check(struct cn_str bytes, struct cn_error *err)
{
    uint64_t left[PY_STATE_DEPTH_MAX + 1]; /* values that each open container still needs */
    struct cn_reader reader;
    uint64_t within;
    uint32_t depth = 0;
    size_t at = 0;

    cn_reader_init(&reader, bytes.ptr, bytes.len);
    if (!cn_str_eq(cn_read_bytes(&reader, PY_STATE_HEADER_BYTES), CN_STR(PY_STATE_HEADER)))
        return cn_fail(err, CN_E_STATE_STORE,
                       "a stored state does not begin as one of a Python handler");
    left[0] = 1;
    while (left[0] > 0 || depth > 0) {
        if (left[depth] == 0) {
            depth--;
            continue;
        }
        left[depth]--;
        at = bytes.len - cn_reader_left(&reader);
        if (!check_value(&reader, at == PY_STATE_HEADER_BYTES, &within) || reader.bad ||
            within > cn_reader_left(&reader) || (within > 0 && depth == PY_STATE_DEPTH_MAX))
            return cn_fail(err, CN_E_STATE_STORE,
                           "a stored state of %zu bytes has a malformed value at offset %zu",
                           bytes.len, at);
        if (within > 0)
            left[++depth] = within;
    }
    if (cn_reader_left(&reader) > 0)
        return cn_fail(err, CN_E_STATE_STORE, "a stored state has %zu bytes behind its end",
                       cn_reader_left(&reader));
    return 0;
}
