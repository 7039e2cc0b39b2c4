/* config/model/model_page.c - prints docs/model-config.md. Main thread.
 *
 * The page is joined from tables, so that it cannot differ from what the server does:
 * model_options.def has type, default, range and meaning of each key, which the server itself uses;
 * model_keys.def has the order, the sections, units and examples, which only the page needs. A test
 * compares the two, and another one loads every example. torch_keys.def and onnx_keys.def have the
 * keys of models without a handler, which only the worker reads. */
#include "config/model/model_page.h"

#include <inttypes.h>
#include <string.h>

#include "config/model/model_options_priv.h"
#include "config/model/model_words.h"
#include "core/errors/panic.h"

static const struct {
    const char *key, *harmless, *note;
} without_effect[] = {
#define CN_TORCHSERVE_KEY(key, harmless, note) {key, harmless, note},
#include "config/model/torchserve_keys.def"
#undef CN_TORCHSERVE_KEY
};

static const char head[] =
    "# A model's YAML\n\n"
    "<!-- Printed by `continuo --print-model-page` from config/model/model_options.def and "
    "config/model/model_keys.def. Change those files, not this page. -->\n\n"
    "The settings of a model are a YAML 1.2 map in its archive. The archive's manifest names the "
    "file as `configFile` (`continuo-archiver --config-file`). Every key may be left out. If a "
    "value has the wrong type or is out of range, the registration fails with its line and column. "
    "An unknown key causes a warning, which names the nearest known key if there is one. If a "
    "model is a TorchScript or ONNX file, it is refused for such a misspelt key, because it has no "
    "handler to which the key could belong.\n\n"
    "`a.b` means key `b` in map `a`. A key may also be written with underscores, as in Triton's "
    "configuration: `batch_size`, `sequence.implicit_start`.\n";

static void
put_section(FILE *out, const char *title, const char *text)
{
    fprintf(out, "\n## %s\n\n%s%s", title, text, text[0] ? "\n\n" : "");
    fputs("| key | type | default | range | | example |\n|---|---|---|---|---|---|\n", out);
}

/* One row of a table. `others` are further spellings of the key. */
static void
put_row(FILE *out, const char *path, const char *others, const char *type, const char *default_text,
        const char *range, const char *help, const char *example)
{
    fprintf(out, "| `%s`", path);
    if (others[0])
        fprintf(out, ", also `%s`", others);
    fprintf(out, " | %s | %s | %s | %s | `%s` |\n", type, default_text, range, help, example);
}

/* A row of a key in model_options.def; its type decides how default and range are shown. */
static void
put_option(FILE *out, const char *path, const char *unit, const char *example)
{
    const struct row *option = cn_model_option_find(path);
    char value[32], range[96];

    cn_assert(option); /* model_page_test finds a missing row first */
    switch (option->kind) {
    case KIND_BOOL:
        put_row(out, path, "", "true or false", option->default_value ? "true" : "false", "",
                option->help, example);
        return;
    case KIND_DURABILITY:
        put_row(out, path, "", "word",
                cn_durability_word((enum cn_durability)option->default_value),
                "none, process, power", option->help, example);
        return;
    case KIND_SWAP:
        put_row(out, path, "", "word",
                cn_swap_policy_word((enum cn_swap_policy)option->default_value),
                "pin, migrate, reset, reject", option->help, example);
        return;
    case KIND_EXPIRED:
        put_row(out, path, "", "word",
                cn_on_expired_word((enum cn_on_expired)option->default_value), "refuse, restart",
                option->help, example);
        return;
    case KIND_PARALLEL:
        put_row(out, path, "", "word", "none", "custom", option->help, example);
        return;
    case KIND_SWITCH:
        put_row(out, path, "", "word", option->default_value ? "on" : "off", "on, off",
                option->help, example);
        return;
    case KIND_STORE:
        put_row(out, path, "", "word or URL", CN_STATE_STORE_EMBEDDED, "", option->help, example);
        return;
    case KIND_REPLICAS:
        snprintf(value, sizeof(value), "%" PRIu64, option->default_value);
        snprintf(range, sizeof(range), "%" PRIu64 " to %" PRIu64 ", all", option->min, option->max);
        put_row(out, path, "", "integer or word", value, range, option->help, example);
        return;
    case KIND_WORD:
        put_row(out, path, "", "word", cn_model_words(path)[option->default_value],
                cn_model_words_text(path, ", ", range), option->help, example);
        return;
    case KIND_UINT:
        snprintf(value, sizeof(value), "%" PRIu64, option->default_value);
        if (option->default_value < option->min)
            strcpy(value, "none");
        snprintf(range, sizeof(range), "%" PRIu64 " to %" PRIu64 "%s%s", option->min, option->max,
                 unit[0] ? " " : "", unit);
        put_row(out, path, "", "integer", value, range, option->help, example);
        return;
    }
    cn_unreachable();
}

void
cn_model_config_page(FILE *out)
{
    fputs(head, out);
#define CN_KEY_SECTION(title, text) put_section(out, title, text);
#define CN_KEY(path, unit, example) put_option(out, path, unit, example);
#define CN_KEY_LIST(path, others, type, default_text, range, help, example)                        \
    put_row(out, path, others, type, default_text, range, help, example);
#include "config/model/model_keys.def"
#undef CN_KEY_SECTION
#undef CN_KEY
#undef CN_KEY_LIST
#define CN_MODULE_KEY(key, type, default_text, range, help, example)                               \
    put_row(out, MAP key, "", type, default_text, range, help, example);
    put_section(out, "TorchScript models",
                "These keys count for models that are a TorchScript file without a handler; see "
                "[torch.md](torch.md). Any other key in the map `torch` is refused.");
#define MAP "torch."
#include "config/model/torch_keys.def"
#undef MAP
    put_section(out, "ONNX models",
                "These keys count for models that are an ONNX file without a handler; see "
                "[onnx.md](onnx.md). Any other key in the map `onnx` is refused.");
#define MAP "onnx."
#include "config/model/onnx_keys.def"
#undef MAP
#undef CN_MODULE_KEY
    fputs(
        "\n## TorchServe's keys without effect\n\nThese keys are accepted. They have no effect, or "
        "only "
        "the one that the last column names. If the value is not TorchServe's default, the server "
        "logs a warning.\n\n| key | TorchServe's default | "
        "what happens here |\n|---|---|---|\n",
        out);
    for (size_t i = 0; i < sizeof(without_effect) / sizeof(without_effect[0]); i++)
        fprintf(out, "| `%s` | %s%s%s | %s |\n", without_effect[i].key,
                without_effect[i].harmless[0] ? "`" : "", without_effect[i].harmless,
                without_effect[i].harmless[0] ? "`" : "", without_effect[i].note);
}
