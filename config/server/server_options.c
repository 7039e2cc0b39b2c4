/* config/server/server_options.c - the options of the server: their table, and their values as
 * text. Any thread.
 *
 * One table (server_options.def) says everything about an option; the struct, the flags, the
 * environment names, the YAML keys, --help and the manual page are made from it. Whichever source a
 * value comes from, cn_option_read checks its text and stores it. */
#include "config/server/server_options.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/server/server_options_priv.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/tuning/tuning.h"

/* A row's default is stored as text or as a number, depending on its kind. */
#define STRING_TEXT(d) (d)
#define STRING_NUMBER(d) 0
#define ADDRESS_TEXT(d) (d)
#define ADDRESS_NUMBER(d) 0
#define OPTIONAL_ADDRESS_TEXT(d) (d)
#define OPTIONAL_ADDRESS_NUMBER(d) 0
#define TUNING_TEXT(d) (d)
#define TUNING_NUMBER(d) 0
#define STORE_TEXT(d) (d)
#define STORE_NUMBER(d) 0
#define UINT_TEXT(d) NULL
#define UINT_NUMBER(d) (d)
#define DURABILITY_TEXT(d) NULL
#define DURABILITY_NUMBER(d) (d)
#define LOGLEVEL_TEXT(d) NULL
#define LOGLEVEL_NUMBER(d) (d)
#define BOOL_TEXT(d) NULL
#define BOOL_NUMBER(d) (d)
#define RATE_TEXT(d) NULL
#define RATE_NUMBER(d) (d)
#define WORD_TEXT(d) NULL
#define WORD_NUMBER(d) (d)

const struct cn_option cn_server_options[CN_N_OPTIONS] = {
#define CN_OPTION(field, c_type, kind, flag, yaml_key, default_, min, max, arg, help)              \
    {flag,                                                                                         \
     yaml_key,                                                                                     \
     CN_KIND_##kind,                                                                               \
     offsetof(struct cn_server_config, field),                                                     \
     sizeof(c_type),                                                                               \
     kind##_TEXT(default_),                                                                        \
     kind##_NUMBER(default_),                                                                      \
     min,                                                                                          \
     max,                                                                                          \
     arg,                                                                                          \
     help},
#include "config/server/server_options.def"
#undef CN_OPTION
};

static void *
member(struct cn_server_config *config, const struct cn_option *option)
{
    return (char *)config + option->offset;
}

void
cn_option_set_text(struct cn_server_config *config, const struct cn_option *option,
                   const char *text)
{
    char **at = member(config, option);

    cn_free(*at);
    *at = text ? cn_strdup(text) : NULL;
}

void
cn_option_set_number(struct cn_server_config *config, const struct cn_option *option,
                     uint64_t value)
{
    void *at = member(config, option);

    if (option->kind == CN_KIND_BOOL)
        *(bool *)at = value != 0;
    else if (option->kind == CN_KIND_DURABILITY)
        *(enum cn_durability *)at = (enum cn_durability)value;
    else if (option->bytes == sizeof(uint64_t))
        *(uint64_t *)at = value;
    else
        *(uint32_t *)at = (uint32_t)value;
}

bool
cn_option_is_text(const struct cn_option *option)
{
    return option->kind == CN_KIND_STRING || option->kind == CN_KIND_ADDRESS ||
           option->kind == CN_KIND_OPTIONAL_ADDRESS || option->kind == CN_KIND_TUNING ||
           option->kind == CN_KIND_STORE;
}

/* The word of a number, among the words of `arg`, "text|json". */
static const char *
word_of(const struct cn_option *option, uint64_t number, char out[32])
{
    const char *at = option->arg;

    for (; number > 0 && strchr(at, '|'); number--)
        at = strchr(at, '|') + 1;
    snprintf(out, 32, "%.*s", (int)strcspn(at, "|"), at);
    return out;
}

/* The number of a word; -1: it is not among them. */
static int
word_number(const struct cn_option *option, const char *text)
{
    char word[32];

    for (uint64_t i = 0; i <= option->max; i++)
        if (strcmp(text, word_of(option, i, word)) == 0)
            return (int)i;
    return -1;
}

#define RATE_DIGITS 6
#define RATE_ONE 1000000

/* Writes a number of millionths as "0.01". */
static const char *
rate_text(uint64_t millionths, char out[32])
{
    size_t len = (size_t)snprintf(out, 32, "%" PRIu64 ".%06" PRIu64, millionths / RATE_ONE,
                                  millionths % RATE_ONE);

    while (out[len - 1] == '0')
        len--;
    out[out[len - 1] == '.' ? len - 1 : len] = '\0';
    return out;
}

/* Reads "0.01" as a number of millionths; -1: it is not a number from 0 to 1, or has more digits.
 */
static int64_t
rate_number(const char *text)
{
    int64_t value = (text[0] - '0') * (int64_t)RATE_ONE, unit = RATE_ONE;

    if ((text[0] != '0' && text[0] != '1') || (text[1] != '\0' && text[1] != '.'))
        return -1;
    text += text[1] == '.' ? 2 : 1;
    for (; *text >= '0' && *text <= '9' && unit > 1; text++) {
        unit /= 10;
        value += (*text - '0') * unit;
    }
    return *text == '\0' && value <= RATE_ONE ? value : -1;
}

static const char *
number_text(const struct cn_option *option, uint64_t value, char out[32])
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};

    if (option->kind == CN_KIND_BOOL)
        return value ? "true" : "false";
    if (option->kind == CN_KIND_DURABILITY)
        return cn_durability_word((enum cn_durability)value);
    if (option->kind == CN_KIND_LOGLEVEL)
        return levels[value < 4 ? value : 3];
    if (option->kind == CN_KIND_WORD)
        return word_of(option, value, out);
    if (option->kind == CN_KIND_RATE)
        return rate_text(value, out);
    snprintf(out, 32, "%" PRIu64, value);
    return out;
}

const char *
cn_option_text(const struct cn_option *option, const struct cn_server_config *config, char out[32])
{
    const void *at = (const char *)config + option->offset;

    if (cn_option_is_text(option))
        return *(char *const *)at;
    if (option->kind == CN_KIND_BOOL)
        return number_text(option, *(const bool *)at, out);
    if (option->kind == CN_KIND_DURABILITY)
        return number_text(option, (uint64_t) * (const enum cn_durability *)at, out);
    if (option->bytes == sizeof(uint64_t))
        return number_text(option, *(const uint64_t *)at, out);
    return number_text(option, *(const uint32_t *)at, out);
}

const char *
cn_option_default_text(const struct cn_option *option, char out[32])
{
    return cn_option_is_text(option) ? option->default_text
                                     : number_text(option, option->default_number, out);
}

const char *
cn_option_env_name(const char *flag, char out[64])
{
    size_t at = strlen(ENV_PREFIX);

    strcpy(out, ENV_PREFIX);
    for (; *flag != '\0' && at < 63; flag++)
        out[at++] = (char)(*flag == '-' ? '_' : *flag >= 'a' && *flag <= 'z' ? *flag - 32 : *flag);
    out[at] = '\0';
    return out;
}

const char *
cn_option_expected(const struct cn_option *option, char out[96])
{
    switch (option->kind) {
    case CN_KIND_DURABILITY:
        return "none, process or power";
    case CN_KIND_LOGLEVEL:
        return "error, warn, info or debug";
    case CN_KIND_BOOL:
        return "true or false";
    case CN_KIND_WORD:
        snprintf(out, 96, "one of %s", option->arg);
        return out;
    case CN_KIND_RATE:
        snprintf(out, 96, "a number from 0 to 1 with at most %d decimals", RATE_DIGITS);
        return out;
    case CN_KIND_STRING:
    case CN_KIND_ADDRESS:
    case CN_KIND_OPTIONAL_ADDRESS:
    case CN_KIND_TUNING:
    case CN_KIND_STORE:
        return "a string";
    case CN_KIND_UINT:
        snprintf(out, 96, "an integer from %" PRIu64 " to %" PRIu64, option->min, option->max);
        return out;
    }
    cn_unreachable();
}

static int
set_tuning(struct cn_server_config *config, const struct cn_option *option, const char *where,
           const char *text, struct cn_error *err)
{
    struct cn_error inner;
    uint64_t bits;

    if (cn_tuning_parse(text, &bits, &inner) != 0)
        return cn_fail(err, CN_E_CONFIG, "%s: %s", where, inner.message);
    cn_option_set_text(config, option, text);
    return 0;
}

static int
set_store(struct cn_server_config *config, const struct cn_option *option, const char *where,
          const char *text, struct cn_error *err)
{
    struct cn_state_store_url url;
    struct cn_error inner;

    if (cn_state_store_url_parse(cn_str_from(text), &url, &inner) != 0)
        return cn_fail(err, CN_E_CONFIG, "%s: %s", where, inner.message);
    cn_option_set_text(config, option, text);
    return 0;
}

int
cn_option_read(struct cn_server_config *config, const struct cn_option *option, const char *where,
               const char *text, struct cn_error *err)
{
    char shown[CN_YAML_SHOWN_MAX], expected[96], *end;
    struct cn_error inner = {0};
    struct cn_address address;
    unsigned long long number = 0;
    int word = -1;

    switch (option->kind) {
    case CN_KIND_ADDRESS:
    case CN_KIND_OPTIONAL_ADDRESS:
        if ((option->kind == CN_KIND_ADDRESS || strcmp(text, "none") != 0) &&
            cn_address_parse(text, 0, &address, &inner) != 0)
            return cn_fail(err, CN_E_CONFIG, "%s: %s%s", where, inner.message,
                           option->kind == CN_KIND_ADDRESS ? "" : ", or none");
        cn_option_set_text(config, option, text);
        return 0;
    case CN_KIND_TUNING:
        return set_tuning(config, option, where, text, err);
    case CN_KIND_STORE:
        return set_store(config, option, where, text, err);
    case CN_KIND_STRING:
        if (text[0] == '\0')
            return cn_fail(err, CN_E_CONFIG, "%s is empty; give a %s", where, option->arg);
        cn_option_set_text(config, option, text);
        return 0;
    case CN_KIND_DURABILITY:
        word = cn_durability_parse(cn_str_from(text));
        break;
    case CN_KIND_LOGLEVEL:
        word = cn_log_level_parse(text);
        break;
    case CN_KIND_BOOL:
        word = strcmp(text, "true") == 0 ? 1 : strcmp(text, "false") == 0 ? 0 : -1;
        break;
    case CN_KIND_WORD:
        word = word_number(option, text);
        break;
    case CN_KIND_RATE:
        word = (int)rate_number(text);
        break;
    case CN_KIND_UINT:
        errno = 0;
        number = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
        if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 &&
            number >= option->min && number <= option->max)
            word = 0;
        break;
    }
    if (word < 0)
        return cn_fail(err, CN_E_CONFIG, "%s: expected %s, found \"%s\"", where,
                       cn_option_expected(option, expected),
                       cn_yaml_shown(cn_str_from(text), shown));
    cn_option_set_number(config, option, option->kind == CN_KIND_UINT ? number : (uint64_t)word);
    return 0;
}

int
cn_option_set(struct cn_server_config *config, const struct cn_option *option,
              enum cn_config_source source, const char *where, const char *text,
              struct cn_error *err)
{
    int rc = cn_option_read(config, option, where, text, err);

    if (rc == 0)
        config->sources[option - cn_server_options] = source;
    return rc;
}
