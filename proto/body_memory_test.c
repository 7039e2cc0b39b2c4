/* proto/body_memory_test.c - both ends of body memory, in one process. */
#include "proto/body_memory.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "core/test_support.h"

#define HALF (1u << 20)

struct pair {
    struct cn_body_memory *server, *worker;
    int fd; /* a third look at the memory */
};

static int
set_up(void **state)
{
    struct pair *pair = cn_alloc(sizeof(*pair));
    struct cn_error err;
    int fd;

    assert_int_equal(cn_body_memory_create(HALF, &pair->server, &fd, &err), 0);
    pair->fd = dup(fd);
    assert_int_equal(cn_body_memory_open(fd, HALF, &pair->worker, &err), 0);
    *state = pair;
    return 0;
}

static int
tear_down(void **state)
{
    struct pair *pair = *state;

    cn_body_memory_free(pair->server);
    cn_body_memory_free(pair->worker);
    close(pair->fd);
    cn_free(pair);
    return 0;
}

static char *
body_of(size_t bytes, char filled_with)
{
    char *body = cn_alloc(bytes);

    memset(body, filled_with, bytes);
    return body;
}

/* Puts a body of `bytes` times `c`. */
static bool
put(struct cn_body_memory *memory, size_t bytes, char c, struct cn_body_place *place)
{
    char *body = body_of(bytes, c);
    bool placed = cn_body_memory_put(memory, (struct cn_str){body, bytes}, place);

    cn_free(body);
    return placed;
}

static void
assert_body(struct cn_str text, size_t bytes, char c)
{
    assert_int_equal(text.len, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (text.ptr[i] != c)
            fail_msg("byte %zu is %d and not %d", i, text.ptr[i], c);
}

static void
bodies_pass_in_both_directions_and_are_aligned(void **state)
{
    struct pair *pair = *state;
    struct cn_body_place there[2], back;
    struct cn_str text;

    assert_true(put(pair->server, 100001, 'a', &there[0]));
    assert_true(put(pair->server, 70000, 'b', &there[1]));
    assert_true(put(pair->worker, 90000, 'c', &back));
    assert_true(cn_body_memory_find(pair->worker, &there[1], &text));
    assert_body(text, 70000, 'b');
    assert_int_equal((uintptr_t)text.ptr % CN_BODY_ALIGNMENT, 0);
    assert_true(cn_body_memory_has(pair->worker, text.ptr));
    assert_false(cn_body_memory_has(pair->server, text.ptr));
    assert_true(cn_body_memory_find(pair->worker, &there[0], &text));
    assert_body(text, 100001, 'a');
    assert_true(cn_body_memory_find(pair->server, &back, &text));
    assert_body(text, 90000, 'c');
}

static void
a_place_is_used_again_when_its_body_is_read_and_not_before(void **state)
{
    struct pair *pair = *state;
    struct cn_body_place first, second, third;
    struct cn_str text;

    assert_true(put(pair->server, HALF / 2, 'a', &first));
    assert_true(put(pair->server, HALF / 2, 'b', &second));
    assert_false(put(pair->server, 65536, 'c', &third));
    assert_true(cn_body_memory_find(pair->worker, &first, &text));
    assert_false(put(pair->server, 65536, 'c', &third));
    cn_body_memory_release(pair->worker, text.ptr);
    assert_true(put(pair->server, 65536, 'c', &third));
    assert_int_equal(third.at, 0);
    assert_true(cn_body_memory_find(pair->worker, &second, &text));
    assert_body(text, HALF / 2, 'b');
    /* What the first body left behind it is a place, too, and larger bodies have none. */
    assert_false(put(pair->server, HALF / 2, 'd', &first));
    assert_true(put(pair->server, HALF / 2 - 65536, 'd', &first));
    assert_int_equal(first.at, 65536);
}

static void
a_release_counts_once_and_for_its_own_body_only(void **state)
{
    struct pair *pair = *state;
    struct cn_body_place first, second, none;
    struct cn_str text;

    assert_true(put(pair->server, HALF, 'a', &first));
    assert_true(cn_body_memory_find(pair->worker, &first, &text));
    cn_body_memory_release(pair->worker, text.ptr + 1); /* where no body begins */
    cn_body_memory_release(pair->worker, NULL);
    assert_false(put(pair->server, 65536, 'b', &none));
    cn_body_memory_release(pair->worker, text.ptr);
    assert_true(put(pair->server, HALF, 'b', &second));
    assert_int_equal(second.slot, first.slot);
    assert_int_not_equal(second.number, first.number);
    cn_body_memory_release(pair->worker, text.ptr); /* the body before */
    assert_false(put(pair->server, 65536, 'c', &none));
}

static void
there_are_only_so_many_slots(void **state)
{
    struct pair *pair = *state;
    struct cn_body_place places[CN_BODY_SLOTS], more;
    struct cn_str text;

    for (unsigned i = 0; i < CN_BODY_SLOTS; i++)
        assert_true(put(pair->worker, 64, (char)i, &places[i]));
    assert_false(put(pair->worker, 64, 'x', &more));
    for (unsigned i = 0; i < CN_BODY_SLOTS; i++) {
        assert_true(cn_body_memory_find(pair->server, &places[i], &text));
        assert_body(text, 64, (char)i);
        cn_body_memory_release(pair->server, text.ptr);
    }
    assert_true(put(pair->worker, 64, 'x', &more));
}

/* A buffer with memory from a half: its body is put without a copy, and takes no more than its
 * size. */
static void
a_body_is_written_where_it_is_read(void **state)
{
    struct pair *pair = *state;
    struct cn_body_place place, behind;
    struct cn_str text;
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_buf_set_allocator(&buf, cn_body_memory_allocator(pair->worker));
    for (int i = 0; i < 300000; i++)
        cn_buf_append(&buf, "w", 1);
    assert_true(buf.from_allocator && buf.cap > 400000);
    assert_true(cn_body_memory_is_written(pair->worker, buf.data));
    assert_false(cn_body_memory_is_written(pair->worker, buf.data + 1));
    assert_false(put(pair->worker, HALF - 400000, 'x', &behind)); /* its room is not free */
    assert_true(cn_body_memory_put(pair->worker, cn_buf_str(&buf), &place));
    assert_false(cn_body_memory_is_written(pair->worker, buf.data));
    cn_buf_disown(&buf);
    assert_int_equal(place.bytes, 300000);
    assert_true(cn_body_memory_find(pair->server, &place, &text));
    assert_body(text, 300000, 'w');
    assert_true(put(pair->worker, 70000, 'x', &behind)); /* in what it did not need */
    assert_body(text, 300000, 'w');
    cn_buf_fini(&buf);
    assert_null(cn_body_memory_allocator(NULL));
}

static void
room_that_is_given_back_is_free(void **state)
{
    struct pair *pair = *state;
    struct cn_body_place place, first;
    struct cn_buf bufs[2];
    char *body = body_of(HALF / 2, 'a');

    assert_true(put(pair->worker, 65536, 'x', &first));
    for (int i = 0; i < 100; i++) {
        for (int b = 0; b < 2; b++) {
            cn_buf_init(&bufs[b], 0);
            cn_buf_set_allocator(&bufs[b], cn_body_memory_allocator(pair->worker));
            cn_buf_append(&bufs[b], body, HALF / 2);
        }
        assert_true(bufs[0].from_allocator);
        assert_false(bufs[1].from_allocator); /* there is room for one */
        cn_buf_reset(&bufs[0]);
        cn_buf_append(&bufs[0], body, HALF / 4);
        assert_true(bufs[0].from_allocator);
        for (int b = 0; b < 2; b++)
            cn_buf_fini(&bufs[b]);
    }
    assert_true(put(pair->worker, HALF - 65536, 'y', &place));
    cn_free(body);
}

static void
a_place_that_is_none_is_refused(void **state)
{
    struct pair *pair = *state;
    struct cn_str text;
    const struct cn_body_place wrong[] = {
        {CN_BODY_SLOTS, 1, 0, 64}, {UINT32_MAX, 1, 0, 64},     {0, 0, 0, 64},
        {0, 1, HALF, 1},           {0, 1, HALF - 1, 2},        {0, 1, 0, HALF + 1},
        {0, 1, UINT64_MAX, 1},     {0, 1, UINT64_MAX - 1, 64}, {0, 1, 1, UINT32_MAX},
    };
    const struct cn_body_place last = {0, 1, HALF - 1, 1}, again = {0, 2, 0, 64};

    for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_false(cn_body_memory_find(pair->server, &wrong[i], &text));
    assert_true(cn_body_memory_find(pair->server, &last, &text));
    assert_int_equal(text.len, 1);
    assert_false(cn_body_memory_find(pair->server, &again, &text)); /* the slot is in use */
}

static int64_t
pages_of(const struct pair *pair)
{
    struct stat about;

    assert_int_equal(fstat(pair->fd, &about), 0);
    return about.st_blocks;
}

static void
an_unused_half_goes_back_to_the_system(void **state)
{
    struct pair *pair = *state;
    struct cn_body_place place;
    struct cn_str text;
    int64_t before = pages_of(pair);

    assert_true(put(pair->server, HALF, 'a', &place));
    assert_true(pages_of(pair) >= before + HALF / 512);
    assert_true(cn_body_memory_find(pair->worker, &place, &text));
    for (int i = 0; i < 3; i++)
        cn_body_memory_trim(pair->server);
    assert_body(text, HALF, 'a'); /* it is not read yet, so it stays */
    cn_body_memory_release(pair->worker, text.ptr);
    assert_true(put(pair->server, HALF, 'b', &place));
    assert_true(cn_body_memory_find(pair->worker, &place, &text));
    cn_body_memory_release(pair->worker, text.ptr);
    assert_true(cn_body_memory_trim(pair->server)); /* it was used since the last call */
    assert_true(pages_of(pair) >= before + HALF / 512);
    assert_false(cn_body_memory_trim(pair->server));
    assert_true(pages_of(pair) < before + HALF / 512);
    assert_true(put(pair->server, 65536, 'c', &place));
    assert_true(cn_body_memory_find(pair->worker, &place, &text));
    assert_body(text, 65536, 'c');
    /* The other end has put nothing, but a body has passed. */
    assert_true(cn_body_memory_trim(pair->worker));
    assert_false(cn_body_memory_trim(pair->worker));
}

static void
the_size_is_checked_and_cannot_be_changed(void **state)
{
    struct pair *pair = *state;
    struct cn_body_memory *memory;
    struct cn_error err;

    assert_int_equal(ftruncate(pair->fd, 4096), -1);
    assert_int_equal(ftruncate(pair->fd, 16 << 20), -1);
    assert_int_equal(cn_body_memory_open(dup(pair->fd), 2 * HALF, &memory, &err), CN_E_PROTOCOL);
    assert_int_equal(cn_body_memory_open(dup(pair->fd), UINT64_MAX, &memory, &err), CN_E_PROTOCOL);
    assert_int_equal(cn_body_memory_open(-1, HALF, &memory, &err), CN_E_PROTOCOL);
    assert_null(memory);
    cn_body_memory_free(NULL);
    assert_false(cn_body_memory_has(NULL, "x"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bodies_pass_in_both_directions_and_are_aligned, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_place_is_used_again_when_its_body_is_read_and_not_before,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_release_counts_once_and_for_its_own_body_only, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(there_are_only_so_many_slots, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_body_is_written_where_it_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(room_that_is_given_back_is_free, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_place_that_is_none_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unused_half_goes_back_to_the_system, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_size_is_checked_and_cannot_be_changed, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
