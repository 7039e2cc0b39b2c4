/* ctl/seq_show.c - sequences for people: a table of many, and all facts of one.
 *
 * Times are shown as spans ("5 min ago"), because an operator wants to know whether a sequence is
 * alive, and need not compare clocks. Two figures are enough for that. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "ctl/columns.h"
#include "ctl/json_out.h"
#include "ctl/seq.h"

/* Prints a span of time as "850 ms", "12 s", "5 min", "3 h" or "2 d": two figures are enough to see
 * what goes on. */
static void
put_span(struct cn_buf *out, uint64_t ms)
{
    static const struct {
        uint64_t from, ms;
        const char *unit;
    } units[] = {{172800000, 86400000, "d"},
                 {7200000, 3600000, "h"},
                 {120000, 60000, "min"},
                 {1000, 1000, "s"},
                 {0, 1, "ms"}};
    size_t i = 0;

    while (ms < units[i].from)
        i++;
    cn_buf_printf(out, "%" PRIu64 " %s", ms / units[i].ms, units[i].unit);
}

static const char *
text_of(const json_t *from, const char *key)
{
    const char *text = json_string_value(json_object_get(from, key));

    return text ? text : "-";
}

static bool
number_of(const json_t *from, const char *key, uint64_t *out)
{
    json_t *value = json_object_get(from, key);

    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

enum kind { TEXT, NUMBER, BYTES, SPAN };

/* Adds a member of the JSON object as a cell: "-" if it is missing or null. */
static void
put_value(struct cn_buf *out, const json_t *from, const char *key, enum kind kind)
{
    uint64_t value;

    if (kind == TEXT)
        cn_ctl_put_plain(out, text_of(from, key));
    else if (!number_of(from, key, &value))
        cn_buf_puts(out, "-");
    else if (kind == BYTES && value < 1000)
        cn_buf_printf(out, "%" PRIu64 " B", value);
    else if (kind == BYTES)
        cn_ctl_put_bytes(out, value);
    else if (kind == SPAN)
        put_span(out, value);
    else
        cn_buf_printf(out, "%" PRIu64, value);
}

static const struct {
    const char *head, *key;
    enum kind kind;
    char align;
} columns[] = {
    {"SEQUENCE", "sequence", TEXT, 'l'}, {"STATE", "state", TEXT, 'l'},
    {"STEP", "step", NUMBER, 'r'},       {"SIZE", "stateBytes", BYTES, 'r'},
    {"IDLE", "idleMSec", SPAN, 'r'},     {"BACKLOG", "backlog", NUMBER, 'r'},
    {"WORKER", "worker", NUMBER, 'r'},   {"EXPIRES", "expires", TEXT, 'l'},
    {"REASON", "reason", TEXT, 'l'},
};
#define N_COLUMNS (sizeof columns / sizeof columns[0])

void
cn_ctl_seq_list(const json_t *list, struct cn_buf *out)
{
    char align[N_COLUMNS + 1] = "";
    struct cn_ctl_table table;
    struct cn_buf cell;
    json_t *sequence;
    size_t i, k;

    for (i = 0; i < N_COLUMNS; i++)
        align[i] = columns[i].align;
    cn_buf_init(&cell, 0);
    cn_ctl_table_init(&table, align);
    for (i = 0; i < N_COLUMNS; i++)
        cn_ctl_table_add(&table, "%s", columns[i].head);
    json_array_foreach(list, k, sequence)
    {
        for (i = 0; i < N_COLUMNS; i++) {
            cn_buf_reset(&cell);
            put_value(&cell, sequence, columns[i].key, columns[i].kind);
            cn_ctl_table_add(&table, "%.*s", CN_STR_ARG(cn_buf_str(&cell)));
        }
    }
    cn_ctl_table_print(&table, out);
    cn_ctl_table_fini(&table);
    cn_buf_fini(&cell);
}

/* Returns a text that explains the reason for which a sequence was closed. */
static const char *
reason_words(const char *reason)
{
    static const struct {
        const char *reason, *words;
    } all[] = {
        {"ended", "its client or its handler ended it"},
        {"idle", "no step arrived for sequenceMaxIdleMSec"},
        {"lifetime", "it had been open for sequenceTimeoutMSec"},
        {"evicted", "it was closed to make room for others"},
        {"cancelled", "it was cancelled"},
        {"deleted", "an operator deleted or replaced it"},
        {"unloaded", "its model was unregistered"},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].reason, reason) == 0)
            return all[i].words;
    return "";
}

void
cn_ctl_seq_show(const json_t *value, struct cn_buf *out)
{
    static const struct {
        const char *label, *key;
        enum kind kind;
    } lines[] = {
        {"sequence", "sequence", TEXT},
        {"model", "modelName", TEXT},
        {"version", "modelVersion", TEXT},
        {"state", "state", TEXT},
        {"closed", "closed", TEXT},
        {"reason", "reason", TEXT},
        {"forgotten", "forgotten", TEXT},
        {"generation", "generation", NUMBER},
        {"step", "step", NUMBER},
        {"opened", "opened", TEXT},
        {"last step", "lastStep", TEXT},
        {"idle", "idleMSec", SPAN},
        {"state size", "stateBytes", BYTES},
        {"worker", "worker", NUMBER},
        {"backlog", "backlog", NUMBER},
        {"idle left", "idleLeftMSec", SPAN},
        {"total left", "totalLeftMSec", SPAN},
        {"expires", "expires", TEXT},
    };
    const char *reason;

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (!json_object_get(value, lines[i].key)) /* open and closed ones have other members */
            continue;
        cn_buf_printf(out, "%-12s ", lines[i].label);
        put_value(out, value, lines[i].key, lines[i].kind);
        reason = strcmp(lines[i].key, "reason") == 0 ? reason_words(text_of(value, "reason")) : "";
        if (*reason)
            cn_buf_printf(out, ": %s", reason);
        cn_buf_puts(out, "\n");
    }
    if (json_object_get(value, "stateValue")) {
        cn_buf_puts(out, "state value:\n");
        cn_ctl_json_print(json_incref(json_object_get(value, "stateValue")), false, out);
    }
}
