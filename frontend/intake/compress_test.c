/* frontend/intake/compress_test.c - tests that what is sent compressed comes back as it was, in
 * bounded steps. */
#include "frontend/intake/compress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "core/memory/mem.h"

static enum cn_coding
choose(const char *value)
{
    struct cn_header headers[2] = {{CN_STR("accept"), CN_STR("gzip")},
                                   {CN_STR("Accept-Encoding"), cn_str_from(value)}};

    return cn_coding_choose(headers, 2);
}

/* The coding with the highest q is chosen, and the first one among equals. Unknown or malformed
 * codings do not count. */
static void
client_chooses(void **state)
{
    (void)state;
    assert_int_equal(cn_coding_choose(NULL, 0), CN_CODING_IDENTITY);
    assert_int_equal(choose("gzip, deflate"), CN_CODING_GZIP);
    assert_int_equal(choose("deflate,gzip"), CN_CODING_DEFLATE);
    assert_int_equal(choose("deflate;q=0.5, GZIP ; q=0.501"), CN_CODING_GZIP);
    assert_int_equal(choose("identity, gzip;q=0.9"), CN_CODING_IDENTITY);
    assert_int_equal(choose("br, *, zstd"), CN_CODING_IDENTITY);
    assert_int_equal(choose("gzip;q=0"), CN_CODING_IDENTITY);
    assert_int_equal(choose("gzip;q=0.000, deflate;q=0.001"), CN_CODING_DEFLATE);
    assert_int_equal(choose("gzip;q=1.001, deflate;q=x, gzip;level=1, gzip;q="),
                     CN_CODING_IDENTITY);
    assert_int_equal(choose(",,;,gzip"), CN_CODING_GZIP);
    assert_int_equal(choose(""), CN_CODING_IDENTITY);
}

/* Compresses and inflates the body. Sets *steps to the number of reads that it took. */
static void
round_trip(enum cn_coding coding, const char *body, size_t len, size_t room, unsigned *steps)
{
    struct cn_compressor *compressor = cn_compressor_create(coding, (struct cn_str){body, len});
    size_t cap = len + len / 10 + 65536, got = 0, n;
    char *packed = cn_alloc(cap), *back = cn_alloc(len + 1);
    z_stream in = {0};

    assert_non_null(compressor);
    *steps = 0;
    while ((n = cn_compressor_read(compressor, packed + got, room))) {
        assert_true(n <= room);
        got += n;
        assert_true(got + room <= cap);
        ++*steps;
    }
    cn_compressor_destroy(compressor);
    assert_int_equal(inflateInit2(&in, coding == CN_CODING_GZIP ? 15 + 16 : 15), Z_OK);
    in.next_in = (Bytef *)packed;
    in.avail_in = (uInt)got;
    in.next_out = (Bytef *)back;
    in.avail_out = (uInt)len + 1;
    assert_int_equal(inflate(&in, Z_FINISH), Z_STREAM_END);
    assert_int_equal(in.total_out, len);
    assert_memory_equal(back, body, len);
    inflateEnd(&in);
    cn_free(packed);
    cn_free(back);
}

/* Even a body that shrinks to almost nothing must not be compressed in one step. */
static void
answers_come_back_whole(void **state)
{
    size_t len = 5 * CN_COMPRESS_STEP_BYTES + 17;
    char *body = cn_alloc(len);
    unsigned steps;

    (void)state;
    memset(body, 'x', len);
    round_trip(CN_CODING_GZIP, body, len, 16384, &steps);
    assert_true(steps >= 6);
    for (size_t i = 0; i < len; i++)
        body[i] = (char)(i * 2654435761u >> 13);
    round_trip(CN_CODING_GZIP, body, len, 1000, &steps);
    round_trip(CN_CODING_DEFLATE, body, len, 65536, &steps);
    round_trip(CN_CODING_DEFLATE, body, 1, 7, &steps);
    round_trip(CN_CODING_GZIP, body, 0, 64, &steps);
    cn_free(body);
    cn_compressor_destroy(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_chooses),
        cmocka_unit_test(answers_come_back_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
