/* proto/wire.h - bounds-checked reading and writing of little-endian fields.
 *
 * A reader turns sticky `bad` on the first field that does not fit; what it
 * returns after that is zero or empty, so parsers check once at the end.
 */
#ifndef CN_PROTO_WIRE_H
#define CN_PROTO_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/buf.h"
#include "core/str.h"

struct cn_reader {
    const unsigned char *at, *end;
    bool bad;
};

void cn_reader_init(struct cn_reader *reader, const void *bytes, size_t len);
size_t cn_reader_left(const struct cn_reader *reader);
uint8_t cn_read_u8(struct cn_reader *reader);
uint16_t cn_read_u16(struct cn_reader *reader);
uint32_t cn_read_u32(struct cn_reader *reader);
uint64_t cn_read_u64(struct cn_reader *reader);
/* Borrowed from the reader's bytes. */
struct cn_str cn_read_bytes(struct cn_reader *reader, size_t len);
/* Length (u32 or u16), then bytes. */
struct cn_str cn_read_str32(struct cn_reader *reader);
struct cn_str cn_read_str16(struct cn_reader *reader);

/* Failures stick in buf->failed. */
void cn_write_u8(struct cn_buf *buf, uint8_t value);
void cn_write_u16(struct cn_buf *buf, uint16_t value);
void cn_write_u32(struct cn_buf *buf, uint32_t value);
void cn_write_u64(struct cn_buf *buf, uint64_t value);
void cn_write_str32(struct cn_buf *buf, struct cn_str text);
/* Longer than 65,535 bytes: buf->failed. */
void cn_write_str16(struct cn_buf *buf, struct cn_str text);
/* Overwrites 4 bytes at `offset`, which must have been written before. */
void cn_patch_u32(struct cn_buf *buf, size_t offset, uint32_t value);

#endif
