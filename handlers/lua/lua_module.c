/* handlers/lua/lua_module.c - finds the files of a model that its handler loads: the handler
 * itself, the modules that it requires, and the path of any other file. Worker's thread.
 *
 * Names are relative to the model's folder and cannot leave it. `require` keeps what a file has
 * returned in a table of its own, which is its upvalue, and not in package.loaded: the package
 * library would look for files elsewhere too, and is not opened. A name has `false` in that table
 * while its file runs, so that two files that require each other get an error instead of running
 * for ever.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "handlers/lua/lua_priv.h"

#define SOURCE_MAX_BYTES (16u << 20)

/* True for a name that stays within the model, such as "lib.fft" or "lib/fft": it is neither
 * absolute nor has it "..". */
static bool
is_module_name(const char *name)
{
    if (*name == '\0' || *name == '/' || strstr(name, "..") || strlen(name) > 200)
        return false;
    return name[strspn(
               name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./")] == '\0';
}

/* Returns where the source begins: after a byte order mark, and after a first line that is meant
 * for a shell (#!). The program `lua` skips both as well. */
static const char *
source_of(const char *bytes, size_t *len)
{
    const char *from = bytes, *end = bytes + *len;

    if (*len >= 3 && memcmp(from, "\xef\xbb\xbf", 3) == 0)
        from += 3;
    if (from < end && *from == '#')
        while (from < end && *from != '\n')
            from++;
    *len = (size_t)(end - from);
    return from;
}

/* Compiles the file at `path` under the chunk name `name`: the chunk is on the stack then. False
 * and nothing pushed when there is no such file. Raises on other troubles. */
static bool
load_path(lua_State *L, const char *path, const char *name)
{
    struct stat info;
    size_t len;
    const char *source;
    FILE *file;
    char *bytes;

    if (stat(path, &info) < 0 || !S_ISREG(info.st_mode))
        return false;
    if ((uint64_t)info.st_size > SOURCE_MAX_BYTES)
        luaL_error(L, "%s is larger than %d MiB", name, (int)(SOURCE_MAX_BYTES >> 20));
    /* The bytes are memory of the VM, so that Lua frees them if an error is raised. */
    bytes = lua_newuserdatauv(L, (size_t)info.st_size + 1, 0);
    file = fopen(path, "rbe");
    if (!file)
        luaL_error(L, "cannot read %s: %s", name, strerror(errno));
    len = fread(bytes, 1, (size_t)info.st_size, file);
    fclose(file);
    lua_pushfstring(L, "@%s", name);
    source = source_of(bytes, &len);
    if (luaL_loadbufferx(L, source, len, lua_tostring(L, -1), "t") != LUA_OK)
        lua_error(L);
    lua_replace(L, -3); /* the bytes */
    lua_pop(L, 1);      /* the name */
    return true;
}

/* The path of DIR/name, which need not be there. Raises where the name leads out of it. */
static const char *
push_path(lua_State *L, const char *name)
{
    if (!is_module_name(name))
        luaL_error(L, "'%s' is not the name of a file in the model", name);
    return lua_pushfstring(L, "%s/%s", lua_rt_of(L)->dir, name);
}

void
cn_lua_push_model_path(lua_State *L, const char *name)
{
    struct stat info;

    if (stat(push_path(L, name), &info) < 0 || !S_ISREG(info.st_mode))
        luaL_error(L, "the model has no file %s: put it into the archive (--extra-files)", name);
}

void
cn_lua_load_file(lua_State *L, const char *name)
{
    push_path(L, name);
    if (!load_path(L, lua_tostring(L, -1), name))
        luaL_error(L, "the model has no file %s", name);
    lua_remove(L, -2);
}

/* Tries DIR/<stem><suffix>; the chunk is pushed when it is there. */
static bool
load_module(lua_State *L, const char *stem, const char *suffix)
{
    int top = lua_gettop(L);

    lua_pushfstring(L, "%s%s", stem, suffix);
    lua_pushfstring(L, "%s/%s", lua_rt_of(L)->dir, lua_tostring(L, -1));
    if (!load_path(L, lua_tostring(L, -1), lua_tostring(L, -2))) {
        lua_settop(L, top);
        return false;
    }
    lua_replace(L, top + 1);
    lua_settop(L, top + 1);
    return true;
}

/* require(name); upvalue: the table of what was loaded, false while loading. */
static int
require(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1), *stem;

    lua_settop(L, 1);
    lua_pushvalue(L, 1);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) {
        if (lua_type(L, -1) == LUA_TBOOLEAN && !lua_toboolean(L, -1))
            return luaL_error(L, "require '%s': the modules require each other in a circle", name);
        return 1;
    }
    if (!is_module_name(name))
        return luaL_error(L, "require '%s': only .lua files of the model can be required", name);
    stem = luaL_gsub(L, name, ".", "/");
    if (!load_module(L, stem, ".lua") && !load_module(L, stem, "/init.lua"))
        return luaL_error(L, "require '%s': the model has neither %s.lua nor %s/init.lua", name,
                          stem, stem);
    lua_pushvalue(L, 1);
    lua_pushboolean(L, 0);
    lua_rawset(L, lua_upvalueindex(1));

    lua_pushvalue(L, 1);
    if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
        lua_pushvalue(L, 1);
        /* it is not being loaded any more, so the next attempt gives the same error */
        lua_pushnil(L);
        lua_rawset(L, lua_upvalueindex(1));
        return lua_error(L);
    }
    if (!lua_toboolean(L, -1)) {
        lua_pop(L, 1);
        lua_pushboolean(L, 1);
    }
    lua_pushvalue(L, 1);
    lua_pushvalue(L, -2);
    lua_rawset(L, lua_upvalueindex(1));
    return 1;
}

void
cn_lua_open_require(lua_State *L)
{
    lua_newtable(L);
    lua_pushcclosure(L, require, 1);
}
