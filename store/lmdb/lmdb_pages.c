/* store/lmdb/lmdb_pages.c - reads pages of an LMDB file that may be damaged, and the nodes in them.
 *
 * The rule of this file: every number that is read may be any number, so none is used as an offset,
 * a length or a page number before it was compared with the page or the file. Two functions carry
 * that: cn_lmdb_page_take accepts a page number only once and only in range, and
 * cn_lmdb_page_is_sound checks a page as a whole, so that what cn_lmdb_node_at returns of a sound
 * page lies within it. The fuzz target of lmdb_check.c checks that. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/lmdb/lmdb_check_priv.h"

#define NODE_BYTES 8u
#define PROBLEMS_SHOWN 4

const char *const cn_lmdb_db_names[] = {"the list of free pages", "the main database",
                                        "the database of pieces"};

void
cn_lmdb_problem(struct walk *walk, const char *fmt, ...)
{
    struct cn_lmdb_report *report = walk->report;
    char text[200];
    va_list args;

    if (walk->receiver || report->problems++ >= PROBLEMS_SHOWN)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    cn_buf_printf(&report->text, "%s%s", report->text.len ? "; " : "", text);
}

bool
cn_lmdb_page_take(struct walk *walk, uint64_t page)
{
    if (page < 2 || page > walk->meta.last || page >= walk->n_pages) {
        cn_lmdb_problem(walk, "%s names page %" PRIu64 ", which is not there",
                        cn_lmdb_db_names[walk->which], page);
        return false;
    }
    if (cn_lmdb_bit_get(walk->seen, page)) {
        cn_lmdb_problem(walk, "page %" PRIu64 " is in use twice", page);
        return false;
    }
    if (cn_lmdb_bit_get(walk->free, page)) {
        cn_lmdb_problem(walk, "page %" PRIu64 " is in use and free", page);
        walk->overlaps = true;
        return false;
    }
    cn_lmdb_bit_set(walk->seen, page);
    return true;
}

bool
cn_lmdb_read_at(struct walk *walk, char *out, size_t len, uint64_t at)
{
    while (len > 0) {
        ssize_t n = pread(walk->fd, out, len, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        out += n;
        len -= (size_t)n;
        at += (uint64_t)n;
    }
    return true;
}

bool
cn_lmdb_page_read(struct walk *walk, uint64_t page, unsigned kind, char *out)
{
    if (!cn_lmdb_read_at(walk, out, walk->meta.page_bytes, page * walk->meta.page_bytes)) {
        cn_lmdb_problem(walk, "page %" PRIu64 " cannot be read", page);
        return false;
    }
    if (get64(out) != page || (get16(out + 10) & PAGE_KINDS) != kind) {
        cn_lmdb_problem(walk, "page %" PRIu64 " is overwritten", page);
        return false;
    }
    return true;
}

struct node
cn_lmdb_node_at(const struct walk *walk, const char *page, unsigned i, bool leaf)
{
    const size_t end = walk->meta.page_bytes, at = get16(page + HEADER_BYTES + 2 * (size_t)i);
    struct node node = {0};
    const char *head = page + at;
    size_t bytes;

    if (at % 2 != 0 || at < get16(page + 14) || at + NODE_BYTES > end)
        return node;
    node.flags = get16(head + 4);
    node.key = (struct cn_str){head + NODE_BYTES, get16(head + 6)};
    node.value_bytes = get32(head);
    bytes = NODE_BYTES + node.key.len;
    if (!leaf)
        node.child = node.value_bytes | (uint64_t)node.flags << 32;
    else if (node.flags & NODE_BIG)
        bytes += 8;
    else if (node.value_bytes > end)
        return node;
    else
        bytes += node.value_bytes;
    if (at + bytes > end)
        return node;
    if (leaf && node.flags & NODE_BIG)
        node.child = get64(node.key.ptr + node.key.len);
    else if (leaf)
        node.value = (struct cn_str){node.key.ptr + node.key.len, node.value_bytes};
    node.bytes = (bytes + 1) & ~(size_t)1;
    return node;
}

bool
cn_lmdb_page_is_sound(const struct walk *walk, const char *page, bool leaf)
{
    const unsigned lower = get16(page + 12), upper = get16(page + 14);
    size_t used = 0;

    if (lower < HEADER_BYTES + 2 || lower % 2 != 0 || lower > upper ||
        upper > walk->meta.page_bytes)
        return false;
    for (unsigned i = 0; i < cn_lmdb_node_count(page); i++) {
        const struct node node = cn_lmdb_node_at(walk, page, i, leaf);

        if (node.bytes == 0)
            return false;
        used += node.bytes;
    }
    return used == walk->meta.page_bytes - upper;
}

static int
key_compare(const struct walk *walk, struct cn_str a, struct cn_str b)
{
    int order;

    if (walk->which == DB_FREE && a.len == 8 && b.len == 8)
        return (get64(a.ptr) > get64(b.ptr)) - (get64(a.ptr) < get64(b.ptr));
    order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

bool
cn_lmdb_keys_are_in_order(const struct walk *walk, const char *page, bool leaf,
                          const struct bounds *bounds)
{
    struct cn_str before = bounds->low;
    bool may_equal = true;

    for (unsigned i = leaf ? 0 : 1; i < cn_lmdb_node_count(page); i++) {
        const struct cn_str key = cn_lmdb_node_at(walk, page, i, leaf).key;
        const int order = before.ptr ? key_compare(walk, before, key) : -1;

        if (order > 0 || (order == 0 && !may_equal) ||
            (bounds->high.ptr && key_compare(walk, key, bounds->high) >= 0))
            return false;
        before = key;
        may_equal = false;
    }
    return true;
}

bool
cn_lmdb_big_read(struct walk *walk, const struct node *node)
{
    const uint64_t size = walk->meta.page_bytes;
    const uint64_t pages = (HEADER_BYTES - 1 + node->value_bytes) / size + 1;
    char head[HEADER_BYTES];

    if (!cn_lmdb_page_take(walk, node->child))
        return false;
    if (!cn_lmdb_read_at(walk, head, sizeof(head), node->child * size) ||
        get64(head) != node->child || (get16(head + 10) & PAGE_KINDS) != PAGE_OVERFLOW ||
        get32(head + 12) < pages || get32(head + 12) > walk->n_pages - node->child) {
        cn_lmdb_problem(walk, "overflow page %" PRIu64 " is overwritten or not there", node->child);
        return false;
    }
    for (uint64_t i = 1; i < get32(head + 12); i++)
        if (!cn_lmdb_page_take(walk, node->child + i))
            return false;
    cn_buf_reset(&walk->big);
    if (!cn_buf_reserve(&walk->big, node->value_bytes + 1)) {
        walk->failed = walk->stopped = true;
        return false;
    }
    walk->big.len = node->value_bytes;
    if (cn_lmdb_read_at(walk, walk->big.data, node->value_bytes, node->child * size + HEADER_BYTES))
        return true;
    cn_lmdb_problem(walk, "page %" PRIu64 " cannot be read", node->child);
    return false;
}
