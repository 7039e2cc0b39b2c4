/* archiver/test_support.h - a scratch folder, and zips and tars made byte by byte, for this
 * folder's tests: a library would refuse to write what an attacker writes. */
#ifndef CN_ARCHIVER_TEST_SUPPORT_H
#define CN_ARCHIVER_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "archiver/archive/archive.h"
#include "core/memory/buf.h"

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (strstr(text, part) == NULL)                                                            \
            fail_msg("\"%s\" is not in \"%s\"", part, text);                                       \
    } while (0)

static char scratch[64]; /* made anew for each test */

static inline int
make_scratch(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/cn-archiver-test-XXXXXX");
    return mkdtemp(scratch) == NULL;
}

static inline int
remove_scratch(void **state)
{
    (void)state;
    cn_archive_remove_dir(scratch);
    return 0;
}

/* A path in the scratch folder; one of four buffers, used in turn. */
static inline const char *
in_scratch(const char *name)
{
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", scratch, name);
    return path;
}

static inline void
write_bytes(const char *name, const void *bytes, size_t len)
{
    FILE *file = fopen(in_scratch(name), "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static inline void
write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

static inline bool
is_there(const char *name)
{
    return access(in_scratch(name), F_OK) == 0;
}

static inline void
put_u16(struct cn_buf *out, unsigned value)
{
    unsigned char bytes[2] = {(unsigned char)value, (unsigned char)(value >> 8)};
    cn_buf_append(out, bytes, 2);
}

static inline void
put_u32(struct cn_buf *out, uint32_t value)
{
    put_u16(out, value & 0xffff);
    put_u16(out, value >> 16);
}

static inline uint32_t
crc32_of(const char *bytes, size_t len)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < len; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* Stored entries; PKWARE's APPNOTE 4.3.7 and 4.3.12. */
struct zip {
    struct cn_buf body, directory;
    unsigned n;
    uint32_t
        claimed; /* not 0: of the next entries, deflated in one plain block (RFC 1951, 3.2.4) */
};

static inline void
zip_add(struct zip *zip, struct cn_str name, const char *content, unsigned mode)
{
    uint32_t len = (uint32_t)strlen(content), crc = crc32_of(content, len);
    uint32_t at = (uint32_t)zip->body.len;

    for (int central = 0; central < 2; central++) {
        struct cn_buf *out = central ? &zip->directory : &zip->body;

        put_u32(out, central ? 0x02014b50 : 0x04034b50);
        if (central)
            put_u16(out, 3 << 8 | 20); /* made by Unix: the mode counts */
        put_u16(out, 20);
        put_u16(out, 0x800); /* names are UTF-8 */
        put_u16(out, zip->claimed ? 8 : 0);
        put_u32(out, 0x00210000);
        put_u32(out, crc);
        put_u32(out, zip->claimed ? len + 5 : len);
        put_u32(out, zip->claimed ? zip->claimed : len);
        put_u16(out, (unsigned)name.len);
        put_u16(out, 0);
        if (central) {
            put_u16(out, 0);
            put_u16(out, 0);
            put_u16(out, 0);
            put_u32(out, (uint32_t)mode << 16);
            put_u32(out, at);
        }
        cn_buf_append_str(out, name);
        if (!central && zip->claimed) {
            cn_buf_append(out, "\1", 1);
            put_u16(out, len);
            put_u16(out, ~len & 0xffff);
        }
        if (!central)
            cn_buf_append(out, content, len);
    }
    zip->n++;
}

static inline void
zip_file(struct zip *zip, const char *name, const char *content)
{
    zip_add(zip, cn_str_from(name), content, 0100644);
}

/* Into the scratch folder; empties `zip`. */
static inline void
zip_write(struct zip *zip, const char *name)
{
    uint32_t at = (uint32_t)zip->body.len, len = (uint32_t)zip->directory.len;

    if (len > 0)
        cn_buf_append_str(&zip->body, cn_buf_str(&zip->directory));
    put_u32(&zip->body, 0x06054b50);
    put_u32(&zip->body, 0);
    put_u16(&zip->body, zip->n);
    put_u16(&zip->body, zip->n);
    put_u32(&zip->body, len);
    put_u32(&zip->body, at);
    put_u16(&zip->body, 0);
    write_bytes(name, zip->body.data, zip->body.len);
    cn_buf_fini(&zip->body);
    cn_buf_fini(&zip->directory);
    memset(zip, 0, sizeof(*zip));
}

/* POSIX ustar header and content. `claimed`: the size that the header says. */
static inline void
tar_add(struct cn_buf *out, const char *name, char type, const char *link, const char *content,
        size_t claimed)
{
    unsigned char header[512] = {0}, padding[512] = {0};
    unsigned sum = 0;
    size_t len = strlen(content);

    snprintf((char *)header, 100, "%s", name);
    memcpy(header + 100, "0000644\0000000000\0000000000", 24);
    snprintf((char *)header + 124, 12, "%011zo", claimed);
    memcpy(header + 136, "00000000000", 12);
    memset(header + 148, ' ', 8);
    header[156] = (unsigned char)type;
    snprintf((char *)header + 157, 100, "%s", link);
    memcpy(header + 257, "ustar\00000", 8);
    memcpy(header + 329, "0000001\0000000003", 16);
    for (size_t i = 0; i < sizeof(header); i++)
        sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
    cn_buf_append(out, header, sizeof(header));
    cn_buf_append(out, content, len);
    cn_buf_append(out, padding, (512 - len % 512) % 512);
}

static inline void
tar_write(struct cn_buf *tar, const char *name)
{
    unsigned char end[1024] = {0};

    cn_buf_append(tar, end, sizeof(end));
    write_bytes(name, tar->data, tar->len);
    cn_buf_fini(tar);
}

#define MANIFEST_TEXT                                                                              \
    "{\"runtime\": \"lua\", \"model\": {\"modelName\": \"m\", \"handler\": \"handler.lua\", "      \
    "\"modelVersion\": \"1.0\"}}"

#endif
