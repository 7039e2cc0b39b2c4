/* handlers/lua/lua_names.c - what beginners get wrong with names: functions that the server never
 * calls, libraries that the sandbox does not have, and a state that is nil. Worker's thread. */
#include <string.h>

#include "core/log/log.h"
#include "handlers/lua/lua_priv.h"
#include "proto/handler_names.h"

/* The key at the top if it is a string whose value, above it, is a function. Pops the value. */
static struct cn_str
function_name(lua_State *L)
{
    struct cn_str name = {NULL, 0};

    if (lua_type(L, -2) == LUA_TSTRING && lua_isfunction(L, -1))
        name.ptr = lua_tolstring(L, -2, &name.len);
    lua_pop(L, 1);
    return name;
}

void
cn_lua_check_names(lua_State *L, int module)
{
    struct lua_rt *rt = lua_rt_of(L);
    uint32_t present = 0;

    for (lua_pushnil(L); lua_next(L, module);)
        present |= cn_handler_name_bit(function_name(L), CN_HANDLER_IN_LUA);
    for (lua_pushnil(L); lua_next(L, module);) {
        struct cn_str name = function_name(L);
        bool certain;
        const char *meant = cn_handler_name_meant(name, present, CN_HANDLER_IN_LUA, &certain);
        char text[400], quoted[440];

        if (!meant)
            continue;
        snprintf(text, sizeof text, "%.80s: %.80s is never called: the server calls %s", rt->file,
                 name.ptr, meant);
        if (certain)
            luaL_error(L, "%s", text);
        snprintf(rt->base.warning, sizeof rt->base.warning, "%s", text);
        cn_log(CN_LOG_WARN, "event=handler_warning model=%s version=%s text=%s", rt->model,
               rt->version, cn_log_quote(text, strlen(text), quoted, sizeof quoted));
    }
}

/* --- hints --- */

static const char no_file[] =
    "handlers run in a sandbox without it; settings come from the model's YAML (load(ctx): "
    "ctx.config), data from a Lua file of the model by require";
static const char no_code[] = "handlers run in a sandbox without it; require runs Lua files of the "
                              "model";
static const char no_process[] =
    "handlers run in a sandbox that has only os.time, os.clock, os.date and os.difftime; settings "
    "come from the model's YAML (load(ctx): ctx.config)";

/* How Lua names the value that was nil, and what to do. */
static const struct {
    const char *what, *hint;
} hints[] = {
    {"(global 'io')", no_file},        {"(global 'debug')", no_code},
    {"(global 'package')", no_code},   {"(global 'dofile')", no_code},
    {"(global 'loadfile')", no_code},  {"(field 'execute')", no_process},
    {"(field 'getenv')", no_process},  {"(field 'exit')", no_process},
    {"(field 'remove')", no_process},  {"(field 'rename')", no_process},
    {"(field 'tmpname')", no_process},
};

/* Is the nil value the state of a model that keeps none? It is the first parameter of step, however
 * it is called there, or the field `state` of a batch's item. */
static bool
is_missing_state(lua_State *L, const char *message)
{
    struct lua_rt *rt = lua_rt_of(L);
    char what[100] = "(field 'state')";

    if (rt->stateful || rt->tensor_state)
        return false;
    if (rt->mode == LUA_MODE_STEP) {
        const char *name;

        lua_rawgeti(L, LUA_REGISTRYINDEX, rt->fn_run);
        name = lua_getlocal(L, NULL, 1);
        snprintf(what, sizeof what, "(local '%.80s')", name ? name : "state");
        lua_pop(L, 1);
    }
    return strstr(message, what) != NULL || strstr(message, "(local 'state')") != NULL;
}

void
cn_lua_add_hint(lua_State *L)
{
    const char *message = lua_tostring(L, 1), *hint = NULL;
    size_t first = strcspn(message, "\n");

    if (!strstr(message, "a nil value ("))
        return;
    for (size_t i = 0; i < sizeof hints / sizeof hints[0] && !hint; i++)
        if (strstr(message, hints[i].what))
            hint = hints[i].hint;
    if (!hint && is_missing_state(L, message))
        hint = "this model is not stateful, so it has no state; sequenceBatching: true in the "
               "model's YAML makes it stateful";
    if (!hint)
        return;
    lua_pushlstring(L, message, first);
    lua_pushfstring(L, "%s: %s%s", lua_tostring(L, -1), hint, message + first);
    lua_replace(L, 1);
    lua_pop(L, 1);
}
