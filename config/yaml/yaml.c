/* config/yaml/yaml.c - turns libyaml's events into a tree with positions. Any thread; no other file
 * includes yaml.h.
 *
 * libyaml reports events: a scalar, the beginning or end of a list or map, an alias. The lists and
 * maps whose end has not come are on an explicit stack (struct open_node), so a hostile document
 * costs bounded memory and no recursion. In a map, scalars are in turn a key and a value; a key is
 * kept in the open map until its value comes. When a list or map ends, its items are copied into
 * the document's arena, and keys are checked for duplicates.
 *
 * Aliases may stand for single values only. Aliases of lists and maps would be convenient, but they
 * are how a document of nine lines becomes one of a billion values.
 *
 * Everything that the tree holds is in one arena, so a document is freed at once, also after an
 * error. */
#include "config/yaml/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>
#include <yaml.h>

#include "config/yaml/yaml_scalar.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "core/text/utf8.h"

#define DEPTH_MAX 64
#define NODES_MAX 100000
#define ANCHORS_MAX 100
#define BYTES_MAX (4u << 20)
#define TAG_PREFIX "tag:yaml.org,2002:"

struct cn_yaml_doc {
    struct cn_arena arena;
    char *name;
    struct cn_yaml *root;
};

/* A list or map whose end has not come yet. */
struct open_node {
    struct cn_yaml *node;
    struct cn_yaml **items;
    size_t n_items, cap;
    bool has_key; /* for a map: `key` has the key whose value comes next */
    struct cn_str key;
    unsigned key_line, key_column;
};

struct builder {
    struct cn_yaml_doc *doc;
    yaml_parser_t parser;
    struct open_node stack[DEPTH_MAX];
    unsigned depth;
    struct {
        struct cn_str name;
        const struct cn_yaml *scalar;
    } anchors[ANCHORS_MAX];
    unsigned n_anchors;
    uint32_t n_nodes;
    bool done; /* the first document has ended */
    struct cn_error *err;
};

static int
fail_at(struct builder *b, yaml_mark_t mark, const char *what)
{
    return cn_fail(b->err, CN_E_CONFIG, "%s:%zu:%zu: %s", b->doc->name, mark.line + 1,
                   mark.column + 1, what);
}

static struct cn_yaml *
node_new(struct builder *b, enum cn_yaml_kind kind, yaml_mark_t mark)
{
    struct cn_yaml *node = cn_arena_alloc(&b->doc->arena, sizeof(*node));

    *node = (struct cn_yaml){
        .kind = kind, .line = (unsigned)mark.line + 1, .column = (unsigned)mark.column + 1};
    return node;
}

/* Adds a finished value to the list or map that is open, or makes it the root. */
static int
place(struct builder *b, struct cn_yaml *node, yaml_mark_t mark)
{
    struct open_node *open;

    if (++b->n_nodes > NODES_MAX)
        return fail_at(b, mark, "the document has more than 100000 values");
    if (b->depth == 0) {
        b->doc->root = node;
        return 0;
    }
    open = &b->stack[b->depth - 1];
    if (open->n_items == open->cap) {
        size_t cap = open->cap ? open->cap * 2 : 8;
        struct cn_yaml **items = cn_try_realloc(open->items, cap * sizeof(struct cn_yaml *));
        if (items == NULL)
            return cn_fail(b->err, CN_E_OUT_OF_MEMORY,
                           "%s: out of memory while reading the document", b->doc->name);
        open->items = items;
        open->cap = cap;
    }
    if (open->node->kind == CN_YAML_MAP) {
        node->key = open->key;
        node->key_line = open->key_line;
        node->key_column = open->key_column;
        open->has_key = false;
    }
    open->items[open->n_items++] = node;
    return 0;
}

static bool
awaits_key(const struct builder *b)
{
    return b->depth > 0 && b->stack[b->depth - 1].node->kind == CN_YAML_MAP &&
           !b->stack[b->depth - 1].has_key;
}

/* Notes an anchor. A later one of the same name counts from there on, so the search begins at the
 * newest. */
static int
note_anchor(struct builder *b, const char *name, const struct cn_yaml *scalar, yaml_mark_t mark)
{
    if (b->n_anchors == ANCHORS_MAX)
        return fail_at(b, mark, "the document has more than 100 anchors (&name)");
    b->anchors[b->n_anchors].name =
        cn_arena_str(&b->doc->arena, (struct cn_str){name, strlen(name)});
    b->anchors[b->n_anchors++].scalar = scalar;
    return 0;
}

/* An alias is a copy of the scalar with a position of its own, for messages. */
static int
on_alias(struct builder *b, const yaml_event_t *event)
{
    struct cn_str name = cn_str_from((const char *)event->data.alias.anchor);
    unsigned i = b->n_anchors;
    struct cn_yaml *node;

    if (awaits_key(b))
        return fail_at(b, event->start_mark, "a key cannot be an alias");
    while (i > 0 && !cn_str_eq(b->anchors[i - 1].name, name))
        i--;
    if (i == 0)
        return fail_at(b, event->start_mark,
                       "an alias (*name) may only stand for a single value whose anchor (&name) "
                       "comes before it; write the value out");
    node = node_new(b, CN_YAML_NULL, event->start_mark);
    *node = *b->anchors[i - 1].scalar;
    node->line = (unsigned)event->start_mark.line + 1;
    node->column = (unsigned)event->start_mark.column + 1;
    return place(b, node, event->start_mark);
}

/* A scalar is the next key of the open map if that waits for one, otherwise a value.
 * `plain_implicit` is libyaml's word for unquoted. */
static int
on_scalar(struct builder *b, const yaml_event_t *event)
{
    const char *tag = (const char *)event->data.scalar.tag;
    struct cn_str text = {NULL, event->data.scalar.length};
    char *copy = cn_arena_try_alloc(&b->doc->arena, text.len + 1);
    struct cn_yaml *node;

    if (copy == NULL)
        return cn_fail(b->err, CN_E_OUT_OF_MEMORY, "%s: out of memory while reading the document",
                       b->doc->name);
    memcpy(copy, event->data.scalar.value, text.len);
    copy[text.len] = '\0';
    text.ptr = copy;
    if (awaits_key(b)) {
        struct open_node *open = &b->stack[b->depth - 1];
        open->has_key = true;
        open->key = text;
        open->key_line = (unsigned)event->start_mark.line + 1;
        open->key_column = (unsigned)event->start_mark.column + 1;
        return 0;
    }
    node = node_new(b, CN_YAML_STRING, event->start_mark);
    node->text = text;
    if (event->data.scalar.plain_implicit)
        cn_yaml_resolve(node);
    else if (tag != NULL && strcmp(tag, "!") != 0 && strcmp(tag, TAG_PREFIX "str") != 0)
        return fail_at(b, event->start_mark, "a value may have no tag except !!str");
    if (event->data.scalar.anchor &&
        note_anchor(b, (const char *)event->data.scalar.anchor, node, event->start_mark) != 0)
        return CN_E_CONFIG;
    return place(b, node, event->start_mark);
}

static int
on_open(struct builder *b, enum cn_yaml_kind kind, const char *tag, yaml_mark_t mark)
{
    if (awaits_key(b))
        return fail_at(b, mark, "a key must be a single word, not a list or map");
    if (tag != NULL && strcmp(tag, kind == CN_YAML_MAP ? TAG_PREFIX "map" : TAG_PREFIX "seq") != 0)
        return fail_at(b, mark, "a list or map may have no tag");
    if (b->depth == DEPTH_MAX)
        return fail_at(b, mark, "lists and maps are nested deeper than 64 levels");
    b->stack[b->depth++] = (struct open_node){.node = node_new(b, kind, mark)};
    return 0;
}

static int
compare_keys(const void *left, const void *right)
{
    const struct cn_yaml *a = *(struct cn_yaml *const *)left, *b = *(struct cn_yaml *const *)right;
    size_t common = a->key.len < b->key.len ? a->key.len : b->key.len;
    int order = common ? memcmp(a->key.ptr, b->key.ptr, common) : 0;

    if (order == 0)
        order = (a->key.len > b->key.len) - (a->key.len < b->key.len);
    if (order == 0)
        order = (a->key_line > b->key_line) - (a->key_line < b->key_line);
    if (order == 0)
        order = (a->key_column > b->key_column) - (a->key_column < b->key_column);
    return order;
}

/* Looks for duplicate keys by sorting `items`, which the caller has copied, so that a large map
 * stays cheap to check. */
static int
check_unique(struct builder *b, struct cn_yaml **items, size_t n)
{
    char key[CN_YAML_SHOWN_MAX];

    qsort(items, n, sizeof(struct cn_yaml *), compare_keys);
    for (size_t i = 1; i < n; i++) {
        if (cn_str_eq(items[i - 1]->key, items[i]->key))
            return cn_fail(b->err, CN_E_CONFIG, "%s:%u:%u: duplicate key %s (first at line %u)",
                           b->doc->name, items[i]->key_line, items[i]->key_column,
                           cn_yaml_shown(items[i]->key, key), items[i - 1]->key_line);
    }
    return 0;
}

/* A list or map is complete: its items move to the arena, and it becomes a value of the one around
 * it. */
static int
on_close(struct builder *b, yaml_mark_t mark)
{
    struct open_node open = b->stack[--b->depth];
    int rc = 0;

    b->stack[b->depth].items = NULL;
    if (open.n_items > 0) {
        struct cn_yaml **items =
            cn_arena_try_alloc(&b->doc->arena, open.n_items * sizeof(struct cn_yaml *));
        if (items == NULL) {
            rc = cn_fail(b->err, CN_E_OUT_OF_MEMORY, "%s: out of memory while reading the document",
                         b->doc->name);
        } else {
            memcpy(items, open.items, open.n_items * sizeof(struct cn_yaml *));
            open.node->items = items;
            open.node->n_items = (uint32_t)open.n_items;
            if (open.node->kind == CN_YAML_MAP)
                rc = check_unique(b, open.items, open.n_items);
        }
    }
    cn_free(open.items);
    return rc ? rc : place(b, open.node, mark);
}

static int
on_event(struct builder *b, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return b->done ? fail_at(b, event->start_mark,
                                 "the file has a second document; only one is allowed")
                       : 0;
    case YAML_DOCUMENT_END_EVENT:
        b->done = true;
        return 0;
    case YAML_ALIAS_EVENT:
        return on_alias(b, event);
    case YAML_SCALAR_EVENT:
        return on_scalar(b, event);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(b, CN_YAML_LIST, (const char *)event->data.sequence_start.tag,
                       event->start_mark);
    case YAML_MAPPING_START_EVENT:
        return on_open(b, CN_YAML_MAP, (const char *)event->data.mapping_start.tag,
                       event->start_mark);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return on_close(b, event->start_mark);
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
        return 0;
    }
    return 0;
}

/* What to do about an error whose words are those of the grammar; "": they say it themselves. */
static const char *
advice(const char *problem)
{
    static const struct {
        const char *problem, *advice;
    } known[] = {
        {"found character that cannot start any token",
         "; write spaces instead of a tab, and quotes around a value that begins with such a "
         "character"},
        {"mapping values are not allowed in this context",
         "; the keys of one map must begin in the same column"},
        {"did not find expected key", "; the keys of one map must begin in the same column"},
        {"could not find expected ':'", "; a key is followed by a colon and a space"},
        {"did not find expected ',' or ']'", "; a list that begins with [ ends with ]"},
        {"did not find expected ',' or '}'", "; a map that begins with { ends with }"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(problem, known[i].problem) == 0)
            return known[i].advice;
    return "";
}

/* libyaml's error as ours, with the position if libyaml knows it. */
static int
parser_error(struct builder *b)
{
    const yaml_parser_t *parser = &b->parser;
    const char *problem = parser->problem ? parser->problem : "not YAML";

    if (parser->error == YAML_MEMORY_ERROR)
        return cn_fail(b->err, CN_E_OUT_OF_MEMORY, "%s: out of memory while reading the document",
                       b->doc->name);
    if (parser->error == YAML_READER_ERROR)
        return cn_fail(b->err, CN_E_CONFIG, "%s: byte %zu: %s", b->doc->name,
                       parser->problem_offset, problem);
    if (parser->context != NULL)
        return cn_fail(b->err, CN_E_CONFIG, "%s:%zu:%zu: %s, %s%s", b->doc->name,
                       parser->problem_mark.line + 1, parser->problem_mark.column + 1, problem,
                       parser->context, advice(problem));
    return cn_fail(b->err, CN_E_CONFIG, "%s:%zu:%zu: %s%s", b->doc->name,
                   parser->problem_mark.line + 1, parser->problem_mark.column + 1, problem,
                   advice(problem));
}

static int
build(struct builder *b)
{
    for (bool more = true; more;) {
        yaml_event_t event;
        int rc;

        if (!yaml_parser_parse(&b->parser, &event))
            return parser_error(b);
        more = event.type != YAML_STREAM_END_EVENT;
        rc = on_event(b, &event);
        yaml_event_delete(&event);
        if (rc != 0)
            return rc;
    }
    /* An empty document, or one with comments only, is an empty map, so that callers need no
     * special case. */
    if (b->doc->root == NULL || (b->doc->root->kind == CN_YAML_NULL && b->doc->root->text.len == 0))
        b->doc->root = node_new(b, CN_YAML_MAP, (yaml_mark_t){0, 0, 0});
    return 0;
}

int
cn_yaml_parse(const char *name, struct cn_str bytes, struct cn_yaml_doc **out, struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    struct builder *b;
    int rc;

    if (bytes.len > BYTES_MAX)
        return cn_fail(err, CN_E_CONFIG, "%s: %zu bytes; at most %u are allowed", name, bytes.len,
                       BYTES_MAX);
    doc = cn_alloc(sizeof(*doc));
    cn_arena_init(&doc->arena);
    doc->name = cn_strdup(name);
    b = cn_alloc(sizeof(*b));
    b->doc = doc;
    b->err = err;
    if (!yaml_parser_initialize(&b->parser)) {
        rc = cn_fail(err, CN_E_OUT_OF_MEMORY, "%s: out of memory while reading the document", name);
        goto free_builder;
    }
    yaml_parser_set_encoding(&b->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&b->parser, (const unsigned char *)(bytes.len ? bytes.ptr : ""),
                                 bytes.len);
    rc = build(b);
    for (unsigned i = 0; i < b->depth; i++)
        cn_free(b->stack[i].items);
    yaml_parser_delete(&b->parser);
free_builder:
    cn_free(b);
    if (rc == 0)
        *out = doc;
    else
        cn_yaml_destroy(doc);
    return rc;
}

int
cn_yaml_parse_file(const char *path, struct cn_yaml_doc **out, struct cn_error *err)
{
    return cn_yaml_parse_file_as(path, path, out, err);
}

/* Reads at most a little more than the limit, so that a huge file, or a device, is refused without
 * being read to its end. */
int
cn_yaml_parse_file_as(const char *path, const char *name, struct cn_yaml_doc **out,
                      struct cn_error *err)
{
    struct cn_buf buf;
    int rc, fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return cn_fail_sys(err, CN_E_CONFIG, errno, "cannot read %s", path);
    cn_buf_init(&buf, BYTES_MAX + 65536u);
    for (;;) {
        char *room = cn_buf_reserve(&buf, 32768);
        ssize_t got = room && buf.len <= BYTES_MAX ? read(fd, room, 32768) : 0;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            rc = cn_fail_sys(err, CN_E_CONFIG, errno, "cannot read %s", path);
            goto close_file;
        }
        if (got == 0)
            break;
        buf.len += (size_t)got;
    }
    rc = buf.failed ? cn_fail(err, CN_E_OUT_OF_MEMORY,
                              "%s: out of memory while reading the document", name)
                    : cn_yaml_parse(name, cn_buf_str(&buf), out, err);
close_file:
    cn_buf_fini(&buf);
    close(fd);
    return rc;
}

void
cn_yaml_destroy(struct cn_yaml_doc *doc)
{
    if (doc == NULL)
        return;
    cn_arena_fini(&doc->arena);
    cn_free(doc->name);
    cn_free(doc);
}

const struct cn_yaml *
cn_yaml_root(const struct cn_yaml_doc *doc)
{
    return doc->root;
}

const char *
cn_yaml_name(const struct cn_yaml_doc *doc)
{
    return doc->name;
}

const struct cn_yaml *
cn_yaml_get(const struct cn_yaml *map, const char *key)
{
    struct cn_str wanted = cn_str_from(key);

    if (map == NULL || map->kind != CN_YAML_MAP)
        return NULL;
    for (uint32_t i = 0; i < map->n_items; i++) {
        if (cn_str_eq(map->items[i]->key, wanted))
            return map->items[i];
    }
    return NULL;
}

const char *
cn_yaml_kind_word(enum cn_yaml_kind kind)
{
    switch (kind) {
    case CN_YAML_NULL:
        return "nothing";
    case CN_YAML_BOOL:
        return "true or false";
    case CN_YAML_INT:
        return "an integer";
    case CN_YAML_FLOAT:
        return "a number";
    case CN_YAML_STRING:
        return "a string";
    case CN_YAML_LIST:
        return "a list";
    case CN_YAML_MAP:
        return "a map";
    }
    return "something else";
}

const char *
cn_yaml_shown(struct cn_str text, char out[CN_YAML_SHOWN_MAX])
{
    size_t n = cn_utf8_cut(text, CN_YAML_SHOWN_MAX - 4);

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        out[i] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    strcpy(out + n, n < text.len ? "..." : "");
    return out;
}

int
cn_yaml_refuse(const char *name, const struct cn_yaml *at, const char *what, const char *expected,
               struct cn_error *err)
{
    char shown[CN_YAML_SHOWN_MAX];

    return cn_fail(err, CN_E_CONFIG, "%s:%u:%u: %s: expected %s, found %s %s", name, at->line,
                   at->column, what, expected, cn_yaml_kind_word(at->kind),
                   cn_yaml_shown(at->text, shown));
}
