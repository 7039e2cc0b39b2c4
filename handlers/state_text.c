/* handlers/state_text.c - reads the forms in which states are stored, without their runtimes: a
 * look at a sequence must not run a handler's code. Worker's thread.
 *
 * There are three forms: MessagePack (Lua), tagged values (Python,
 * handlers/python/format/py_state_format.h) and sets of tensors (declared states). A C handler's
 * state is bytes of its own. The bytes come from a disk or from an imported sequence, so each size
 * is checked, and nesting is bounded.
 *
 * The result is JSON for people and is cut where it becomes long: the first MEMBERS_MAX members of
 * a list or a map, the first SHOWN_VALUES elements of a tensor, the first SHOWN_BYTES bytes of what
 * is not text, the first SHOWN_KEY_BYTES bytes of a key that is a list or a map:
 *   Lua       82 a1 6e 05 a4 "last" c0                    {"n": 5, "last": null}
 *   Python    "Py\x01" m, 1 member, s "n", i 5            {"n": 5}
 *   tensors   h, FP32, [2]                                {"h": {"datatype": "FP32", "shape": [2],
 *                                                          "bytes": 8, "first": [0.5, 1.0]}}
 * If anything does not fit, also if bytes are left over at the end, the whole state is shown as
 * bytes: a wrong picture of a state would be worse than none. */
#include "handlers/state_text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory/arena.h"
#include "proto/state_tensors.h"
#include "proto/tensor.h"
#include "proto/wire.h"

#define DEPTH_MAX 64
#define MEMBERS_MAX 200
#define SHOWN_BYTES 32
#define SHOWN_VALUES 16
#define SHOWN_KEY_BYTES 200 /* of a key that is not a string */
#define TEXT_MAX_BYTES 4096
#define PY_HEADER "Py\x01"

/* Bytes that are not text: {"bytes": 1024, "hex": "00ff..."}. */
static json_t *
show_bytes(struct cn_str bytes)
{
    char hex[2 * SHOWN_BYTES + 4] = "";
    json_t *out = json_object();

    for (size_t i = 0; i < bytes.len && i < SHOWN_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)bytes.ptr[i]);
    json_object_set_new(out, "bytes", json_integer((json_int_t)bytes.len));
    json_object_set_new(out, "hex", json_string(hex));
    return out;
}

static json_t *
show_text(struct cn_str text)
{
    json_t *out = text.len <= TEXT_MAX_BYTES ? json_stringn(text.ptr ? text.ptr : "", text.len)
                                             : NULL; /* also NULL: it is not UTF-8 */

    return out ? out : show_bytes(text);
}

/* JSON has no nan and no infinity. */
static json_t *
show_double(double value)
{
    char text[32];
    json_t *out = json_real(value);

    if (out)
        return out;
    snprintf(text, sizeof(text), "%g", value);
    return json_string(text);
}

static json_t *
show_unsigned(uint64_t value)
{
    char text[24];

    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return json_string(text);
}

/* Adds member `number` of a map. A key that is not a string becomes the text of its JSON. A long
 * text is cut: keys may be maps, whose own keys are maps again, and each level would double the
 * backslashes in the text of the one below. The number keeps two keys apart that begin alike. */
static void
put_member(json_t *map, uint64_t number, json_t *key, json_t *value)
{
    char *text = json_is_string(key)
                     ? NULL
                     : json_dumps(key, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    char cut[SHOWN_KEY_BYTES + 64];

    if (text && strlen(text) > SHOWN_KEY_BYTES) {
        snprintf(cut, sizeof(cut), "%.*s... (%zu bytes, member %llu)", SHOWN_KEY_BYTES, text,
                 strlen(text), (unsigned long long)number + 1);
        json_object_set_new(map, cut, value);
    } else {
        json_object_set_new(map, text ? text : json_string_value(key), value);
    }
    free(text);
    json_decref(key);
}

/* Reads the members of a container with `read`. A cut container ends with what is left out.
 *
 * Members behind the cut are read, too, and thrown away, because the reader must know where the
 * container ends. Each member takes at least one byte, so a huge count in damaged bytes ends at the
 * end of the bytes. */
static json_t *
show_members(struct cn_reader *reader, uint64_t n, bool is_map, unsigned depth,
             json_t *(*read)(struct cn_reader *reader, unsigned depth))
{
    json_t *out = is_map ? json_object() : json_array();

    for (uint64_t i = 0; i < n && !reader->bad; i++) {
        json_t *first = read(reader, depth + 1);
        json_t *value = is_map ? read(reader, depth + 1) : first;

        if (i >= MEMBERS_MAX) {
            json_decref(first);
            if (is_map)
                json_decref(value);
        } else if (is_map) {
            put_member(out, i, first, value);
        } else {
            json_array_append_new(out, value);
        }
    }
    if (n > MEMBERS_MAX && is_map)
        json_object_set_new(out, "...", show_unsigned(n - MEMBERS_MAX));
    else if (n > MEMBERS_MAX)
        json_array_append_new(out,
                              json_sprintf("... %llu more", (unsigned long long)(n - MEMBERS_MAX)));
    return out;
}

/* --- MessagePack */

static uint64_t
big_endian(struct cn_reader *reader, unsigned bytes)
{
    const unsigned char *at = cn_reader_take(reader, bytes);
    uint64_t value = 0;

    for (unsigned i = 0; at && i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

static json_t *read_msgpack(struct cn_reader *reader, unsigned depth);

/* An extension is a list or a tensor of JSON's kind, around another value. */
static json_t *
read_extension(struct cn_reader *reader, uint64_t len, unsigned depth)
{
    const uint8_t type = cn_read_u8(reader);
    const struct cn_str body = cn_read_bytes(reader, len);
    struct cn_reader inside;

    if (type != 1 && type != 2)
        return show_bytes(body);
    cn_reader_init(&inside, body.ptr, body.len);
    return read_msgpack(&inside, depth + 1);
}

static json_t *
read_sized(struct cn_reader *reader, uint8_t tag, unsigned depth)
{
    float single;
    double whole;
    uint32_t bits;
    uint64_t n;

    switch (tag) {
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return show_bytes(cn_read_bytes(reader, big_endian(reader, 1u << (tag - 0xc4))));
    case 0xc7:
    case 0xc8:
    case 0xc9:
        n = big_endian(reader, 1u << (tag - 0xc7));
        return read_extension(reader, n, depth);
    case 0xca:
        bits = (uint32_t)big_endian(reader, 4);
        memcpy(&single, &bits, sizeof(single));
        return show_double((double)single);
    case 0xcb:
        n = big_endian(reader, 8);
        memcpy(&whole, &n, sizeof(whole));
        return show_double(whole);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        return show_unsigned(big_endian(reader, 1u << (tag - 0xcc)));
    case 0xd0:
        return json_integer((int8_t)big_endian(reader, 1));
    case 0xd1:
        return json_integer((int16_t)big_endian(reader, 2));
    case 0xd2:
        return json_integer((int32_t)big_endian(reader, 4));
    case 0xd3:
        return json_integer((int64_t)big_endian(reader, 8));
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        return read_extension(reader, 1u << (tag - 0xd4), depth);
    case 0xd9:
    case 0xda:
    case 0xdb:
        return show_text(cn_read_bytes(reader, big_endian(reader, 1u << (tag - 0xd9))));
    case 0xdc:
    case 0xdd:
        return show_members(reader, big_endian(reader, tag == 0xdc ? 2 : 4), false, depth,
                            read_msgpack);
    case 0xde:
    case 0xdf:
        return show_members(reader, big_endian(reader, tag == 0xde ? 2 : 4), true, depth,
                            read_msgpack);
    }
    reader->bad = true;
    return json_null();
}

static json_t *
read_msgpack(struct cn_reader *reader, unsigned depth)
{
    const uint8_t tag = cn_read_u8(reader);

    if (reader->bad || depth > DEPTH_MAX) {
        reader->bad = true;
        return json_null();
    }
    if (tag <= 0x7f)
        return json_integer(tag);
    if (tag >= 0xe0)
        return json_integer((int8_t)tag);
    if (tag <= 0x8f)
        return show_members(reader, tag & 15, true, depth, read_msgpack);
    if (tag <= 0x9f)
        return show_members(reader, tag & 15, false, depth, read_msgpack);
    if (tag <= 0xbf)
        return show_text(cn_read_bytes(reader, tag & 31));
    if (tag == 0xc0)
        return json_null();
    if (tag == 0xc2 || tag == 0xc3)
        return json_boolean(tag == 0xc3);
    return read_sized(reader, tag, depth);
}

/* --- Python */

/* {"array": "<f4", "shape": [2, 3], "bytes": 24, "hex": ...} */
static json_t *
read_array(struct cn_reader *reader)
{
    const struct cn_str type = cn_read_bytes(reader, cn_read_u8(reader));
    json_t *shape = json_array(), *out;
    uint8_t rank;

    cn_read_u8(reader); /* the order of the dimensions */
    rank = cn_read_u8(reader);
    for (uint8_t i = 0; i < rank && !reader->bad; i++)
        json_array_append_new(shape, show_unsigned(cn_read_u64(reader)));
    out = show_bytes(cn_read_bytes(reader, cn_read_u64(reader)));
    json_object_set_new(out, "array", show_text(type));
    json_object_set_new(out, "shape", shape);
    return out;
}

static double
read_double(struct cn_reader *reader)
{
    const uint64_t bits = cn_read_u64(reader);
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static json_t *
read_python(struct cn_reader *reader, unsigned depth)
{
    const uint8_t tag = cn_read_u8(reader);
    double real;

    if (reader->bad || depth > DEPTH_MAX) {
        reader->bad = true;
        return json_null();
    }
    switch (tag) {
    case 'N':
        return json_null();
    case 'T':
    case 'F':
        return json_boolean(tag == 'T');
    case 'i':
        return json_integer((json_int_t)cn_read_u64(reader));
    case 'd':
        return show_double(read_double(reader));
    case 'c':
        real = read_double(reader);
        return json_pack("{s:o, s:o}", "real", show_double(real), "imaginary",
                         show_double(read_double(reader)));
    case 's':
        return show_text(cn_read_str32(reader));
    case 'I':
    case 'b':
    case 'B':
    case 'p':
        return show_bytes(cn_read_str32(reader));
    case 'D':
        cn_read_u32(reader);
        return show_members(reader, cn_read_u32(reader), false, depth, read_python);
    case 'l':
    case 't':
    case 'S':
    case 'z':
        return show_members(reader, cn_read_u32(reader), false, depth, read_python);
    case 'm':
        return show_members(reader, cn_read_u32(reader), true, depth, read_python);
    case 'a':
    case 'x':
        return read_array(reader);
    case 'g':
        cn_read_bytes(reader, cn_read_u8(reader));
        return show_bytes(cn_read_str32(reader));
    }
    reader->bad = true;
    return json_null();
}

/* --- tensors */

static json_t *
show_tensor(const struct cn_tensor *tensor)
{
    json_t *out = json_object(), *shape = json_array(), *values = json_array();
    const unsigned each = cn_datatype_bytes(tensor->type);
    const char *word = cn_datatype_word(tensor->type);
    struct cn_reader reader;
    uint32_t bits;
    float single;

    for (uint32_t i = 0; i < tensor->rank; i++)
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    cn_reader_init(&reader, tensor->data.ptr, tensor->data.len);
    for (size_t i = 0; each && i < tensor->data.len / each && i < SHOWN_VALUES; i++) {
        if (tensor->type == CN_DATATYPE_FP32) {
            bits = cn_read_u32(&reader);
            memcpy(&single, &bits, sizeof(single));
            json_array_append_new(values, show_double((double)single));
        } else if (tensor->type == CN_DATATYPE_FP64) {
            json_array_append_new(values, show_double(read_double(&reader)));
        } else if (word[0] == 'I') { /* its sign bits are copied into the missing bytes */
            const unsigned shift = 64 - 8 * each;
            const uint64_t raw = cn_read_number(&reader, each);

            json_array_append_new(values, json_integer((int64_t)(raw << shift) >> shift));
        } else if (word[0] == 'U' || strcmp(word, "BOOL") == 0) {
            json_array_append_new(values, show_unsigned(cn_read_number(&reader, each)));
        }
    }
    json_object_set_new(out, "datatype", json_string(word));
    json_object_set_new(out, "shape", shape);
    json_object_set_new(out, "bytes", json_integer((json_int_t)tensor->data.len));
    json_object_set_new(out, "first", values);
    return out;
}

/* Returns NULL if the bytes are not a set of tensors. */
static json_t *
read_tensors(struct cn_str bytes)
{
    const size_t head = 8; /* magic, version, zero */
    struct cn_tensor *tensors;
    struct cn_reader reader;
    struct cn_arena arena;
    json_t *out = NULL;
    uint32_t n;

    cn_reader_init(&reader, bytes.ptr, bytes.len);
    if (cn_read_u32(&reader) != CN_STATE_TENSORS_MAGIC || bytes.len < CN_STATE_TENSORS_HEAD_BYTES)
        return NULL;
    cn_arena_init(&arena);
    if (cn_tensors_get((struct cn_str){bytes.ptr + head, bytes.len - head}, &arena, &tensors, &n,
                       NULL) == 0) {
        out = json_object();
        for (uint32_t i = 0; i < n; i++)
            put_member(out, i, show_text(tensors[i].name), show_tensor(&tensors[i]));
    }
    cn_arena_fini(&arena);
    return out;
}

static int
append(const char *text, size_t len, void *out)
{
    return cn_buf_append(out, text, len);
}

void
cn_state_text(const char *runtime, struct cn_str bytes, struct cn_buf *out)
{
    const struct cn_str header = CN_STR(PY_HEADER);
    json_t *value = read_tensors(bytes);
    struct cn_reader reader;

    cn_reader_init(&reader, bytes.ptr, bytes.len);
    if (!value && strcmp(runtime, "lua") == 0) {
        value = read_msgpack(&reader, 0);
    } else if (!value && strcmp(runtime, "python") == 0) {
        reader.bad = !cn_str_eq(cn_read_bytes(&reader, header.len), header);
        value = read_python(&reader, 0);
    } else if (!value) {
        value = show_text(bytes);
        cn_reader_take(&reader, bytes.len);
    } else {
        cn_reader_take(&reader, bytes.len);
    }
    if (reader.bad || cn_reader_left(&reader) > 0) {
        json_decref(value);
        value = show_bytes(bytes);
    }
    json_dump_callback(value, append, out, JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(value);
}
