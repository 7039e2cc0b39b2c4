/* handlers/lua/lua_torch.c - torch.load: a handler runs TorchScript modules itself. Worker's
 * thread.
 *
 *   local encoder = torch.load("encoder.pt", { threads = 2 })  -- a file of the model
 *   local y, h = encoder:run { req.inputs.x, state.h }         -- tensors and numbers to tensors
 *   local z = encoder:run("decode", { y })                     -- another of its methods
 *
 * The first torch.load opens libtorch; a handler that never calls it does not pay for it. Results
 * are copied into the VM, so the VM's memory limit holds for them. The limit does not see what a
 * module itself takes.
 *
 * A module is a userdata with a handle of libtorch, and a method is another one that keeps its
 * module alive. Both are closed by close(), by a <close> variable or by the collector. The
 * collector sees only a few bytes, so the number of open modules is limited (MODULES_MAX) and not
 * their size.
 */
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "handlers/lua/lua_priv.h"
#include "handlers/torchlib/torch_abi.h"
#include "handlers/torchlib/torch_library.h"
#include "handlers/torchlib/torch_message.h"

#define MODULE_NAME "torch.module"
/* The most arguments or results of a call. They lie on the C stack, and no real method has as
 * many. */
#define VALUES_MAX 64
/* The collector sees only a few bytes of a module, so it is in no hurry to free one. */
#define MODULES_MAX 64
#define THREADS_MAX 256

/* User values of a module: of messages, methods that were asked for, and the module of a method. */
enum { UV_FILE = 1, UV_METHOD, UV_METHODS, UV_OWNER, UV_COUNT = UV_OWNER };

struct lua_torch {
    const struct ctt_api *api;
    uint32_t n_modules; /* open ones */
    int32_t threads;    /* libtorch has one number for the process */
    char error[CTT_ERROR_BYTES];
};

struct module {
    struct ctt_model *model; /* NULL: closed */
};

_Static_assert(CN_TENSOR_RANK_MAX == CTT_RANK_MAX, "a tensor's dimensions are copied as they are");

static struct lua_torch *
torch_of(lua_State *L)
{
    return lua_rt_of(L)->torch;
}

/* --- errors --- */

static const char *
user_text(lua_State *L, int module, int uv)
{
    lua_getiuservalue(L, module, uv);
    return lua_tostring(L, -1); /* the module keeps it */
}

/* Raises an error with the last line of TorchScript's message; the log gets the whole message. */
static int
raise_failed(lua_State *L, int module, const char *what)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct cn_str cause = cn_torch_cause(rt->torch->error, true);
    const char *file = user_text(L, module, UV_FILE);

    cn_torch_log("torch_error", rt->model, rt->version, rt->torch->error);
    lua_pushlstring(L, cause.ptr ? cause.ptr : "", cause.len);
    return luaL_error(L, "%s of %s: %s", what, file, lua_tostring(L, -1));
}

/* --- arguments and results --- */

/* The value at `index` as an argument; pushes the string that holds a tensor's bytes. */
static void
read_argument(lua_State *L, int index, const char *name, struct ctt_value *out)
{
    struct cn_tensor tensor;

    memset(out, 0, sizeof(*out));
    switch (lua_type(L, index)) {
    case LUA_TBOOLEAN:
        out->kind = CTT_BOOL;
        out->integer = lua_toboolean(L, index);
        lua_pushnil(L);
        return;
    case LUA_TNUMBER:
        out->kind = lua_isinteger(L, index) ? CTT_INT : CTT_FLOAT;
        out->integer = lua_tointeger(L, index);
        out->number = lua_tonumber(L, index);
        lua_pushnil(L);
        return;
    case LUA_TTABLE:
        cn_lua_read_tensor(L, index, "argument", name, &tensor);
        if (tensor.type == CN_DATATYPE_BYTES)
            luaL_error(L, "argument '%s': TorchScript does not support BYTES", name);
        out->kind = CTT_TENSOR;
        out->tensor.data = (void *)(uintptr_t)tensor.data.ptr; /* only read */
        out->tensor.datatype = (int32_t)tensor.type;
        out->tensor.rank = (int32_t)tensor.rank;
        memcpy(out->tensor.dims, tensor.shape, sizeof(tensor.shape));
        return;
    }
    luaL_error(L,
               "argument '%s' is a %s: give a tensor such as req.inputs.x or { datatype = "
               "\"FP32\", shape = {1, 2}, data = {0.5, 1} }, a number or a boolean",
               name, luaL_typename(L, index));
}

static void
push_result(lua_State *L, const struct ctt_tensor *result)
{
    struct cn_tensor tensor = {.type = (enum cn_datatype)result->datatype,
                               .rank = (uint32_t)result->rank};
    uint64_t elements = 0;

    if (result->datatype == 0) { /* None */
        lua_pushnil(L);
        return;
    }
    memcpy(tensor.shape, result->dims, sizeof(result->dims[0]) * tensor.rank);
    cn_shape_elements(tensor.shape, tensor.rank, &elements);
    tensor.data = (struct cn_str){result->data, elements * cn_datatype_bytes(tensor.type)};
    cn_lua_push_tensor(L, &tensor);
}

/* --- modules --- */

/* Pushes a module that is not opened yet. Its file and its method are at these indices. */
static struct module *
push_module(lua_State *L, int file, int method)
{
    struct lua_torch *torch = torch_of(L);
    struct module *module;

    file = lua_absindex(L, file);
    method = lua_absindex(L, method);
    if (torch->n_modules >= MODULES_MAX)
        lua_gc(L, LUA_GCCOLLECT);
    if (torch->n_modules >= MODULES_MAX)
        luaL_error(L,
                   "%d TorchScript modules and methods are open: load each once, in load(ctx), "
                   "and close() what is not needed",
                   MODULES_MAX);
    module = lua_newuserdatauv(L, sizeof(*module), UV_COUNT);
    module->model = NULL;
    luaL_setmetatable(L, MODULE_NAME);
    lua_pushvalue(L, file);
    lua_setiuservalue(L, -2, UV_FILE);
    lua_pushvalue(L, method);
    lua_setiuservalue(L, -2, UV_METHOD);
    return module;
}

static struct module *
check_module(lua_State *L)
{
    struct module *module = luaL_checkudata(L, 1, MODULE_NAME);

    if (!module->model)
        luaL_error(L, "the module %s is closed", user_text(L, 1, UV_FILE));
    return module;
}

/* Replaces the module at index 1 by its method with the name at index 2, and removes the name. The
 * method keeps the module alive. When a module without other users is collected, it closes its
 * methods. */
static struct module *
take_method(lua_State *L, struct module *module)
{
    struct lua_torch *torch = torch_of(L);
    struct module *method;

    user_text(L, 1, UV_METHOD);
    if (!lua_rawequal(L, 2, -1)) {
        if (lua_getiuservalue(L, 1, UV_METHODS) != LUA_TTABLE) {
            lua_newtable(L);
            lua_pushvalue(L, -1);
            lua_setiuservalue(L, 1, UV_METHODS);
            lua_replace(L, -2);
        }
        lua_pushvalue(L, 2);
        if (lua_rawget(L, -2) == LUA_TNIL) {
            user_text(L, 1, UV_FILE);
            method = push_module(L, -1, 2);
            if (torch->api->method(module->model, lua_tostring(L, 2), &method->model, torch->error,
                                   sizeof(torch->error)))
                raise_failed(L, 1, lua_tostring(L, 2));
            torch->n_modules++;
            lua_pushvalue(L, 1);
            lua_setiuservalue(L, -2, UV_OWNER);
            lua_pushvalue(L, 2);
            lua_pushvalue(L, -2);
            /* sets UV_METHODS[name]; above that table lie nil, file, method, name, method */
            lua_rawset(L, -6);
        }
        lua_replace(L, 1);
    }
    lua_remove(L, 2);
    return check_module(L);
}

/* module:run([method,] arguments) -> results */
static int
module_run(lua_State *L)
{
    struct lua_torch *torch = torch_of(L);
    struct module *module = check_module(L);
    struct ctt_value arguments[VALUES_MAX];
    struct ctt_tensor results[VALUES_MAX];
    uint32_t n_results = 0;
    lua_Integer n;

    if (lua_type(L, 2) == LUA_TSTRING) {
        lua_settop(L, 3);
        module = take_method(L, module);
    }
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    n = luaL_len(L, 2);
    if (n < 0 || n > VALUES_MAX)
        return luaL_error(L, "%I arguments: a call may have up to %d", n, VALUES_MAX);
    luaL_checkstack(L, 2 * VALUES_MAX + LUA_MINSTACK, "arguments");
    for (lua_Integer i = 0; i < n; i++) {
        char name[8] = {(char)('0' + (i + 1) / 10), (char)('0' + (i + 1) % 10)};

        lua_geti(L, 2, i + 1);
        read_argument(L, lua_gettop(L), name[0] == '0' ? name + 1 : name, &arguments[i]);
    }
    check_module(L); /* again, because metamethods of an argument may have closed the module */
    if (torch->api->run(module->model, arguments, (uint32_t)n, results, VALUES_MAX, &n_results,
                        NULL, torch->error, sizeof(torch->error)))
        return raise_failed(L, 1, user_text(L, 1, UV_METHOD));
    lua_settop(L, 1);
    luaL_checkstack(L, VALUES_MAX + LUA_MINSTACK, "results");
    for (uint32_t i = 0; i < n_results; i++)
        push_result(L, &results[i]);
    return (int)n_results;
}

/* module:set(attribute, value) */
static int
module_set(lua_State *L)
{
    struct lua_torch *torch = torch_of(L);
    struct module *module = check_module(L);
    const char *name = luaL_checkstring(L, 2);
    struct ctt_value value;

    luaL_checkany(L, 3);
    read_argument(L, 3, name, &value);
    check_module(L); /* again, as above */
    if (torch->api->set_attribute(module->model, name, &value, torch->error, sizeof(torch->error)))
        return raise_failed(L, 1, name);
    return 0;
}

/* module:get(attribute) -> a tensor */
static int
module_get(lua_State *L)
{
    struct lua_torch *torch = torch_of(L);
    struct module *module = check_module(L);
    const char *name = luaL_checkstring(L, 2);
    struct ctt_tensor tensor;

    if (torch->api->get_attribute(module->model, name, &tensor, torch->error, sizeof(torch->error)))
        return raise_failed(L, 1, name);
    push_result(L, &tensor);
    return 1;
}

/* module:schema() -> "forward(Tensor x, Tensor h) -> (Tensor, Tensor)" */
static int
module_schema(lua_State *L)
{
    lua_pushstring(L, torch_of(L)->api->schema(check_module(L)->model));
    return 1;
}

/* module:close(), __gc and __close. Also closes those methods of the module that are not collected
 * yet. */
static int
module_close(lua_State *L)
{
    struct module *module = luaL_checkudata(L, 1, MODULE_NAME);
    struct lua_torch *torch = torch_of(L);

    if (!module->model)
        return 0;
    torch->api->unload(module->model);
    torch->n_modules--;
    module->model = NULL;
    if (lua_getiuservalue(L, 1, UV_METHODS) != LUA_TTABLE)
        return 0;
    lua_pushnil(L);
    while (lua_next(L, -2)) {
        struct module *method = lua_touserdata(L, -1);

        if (method->model) {
            torch->api->unload(method->model);
            torch->n_modules--;
            method->model = NULL;
        }
        lua_pop(L, 1);
    }
    return 0;
}

static int
module_text(lua_State *L)
{
    struct module *module = luaL_checkudata(L, 1, MODULE_NAME);

    lua_pushfstring(L, "%s %s", module->model ? "TorchScript" : "closed TorchScript",
                    user_text(L, 1, UV_FILE));
    return 1;
}

/* --- torch.load --- */

static bool
is_device(const char *name)
{
    if (strcmp(name, "cpu") == 0 || strcmp(name, "cuda") == 0)
        return true;
    return strncmp(name, "cuda:", 5) == 0 && name[5] && strlen(name) < 9 &&
           name[5 + strspn(name + 5, "0123456789")] == '\0';
}

/* Reads the option whose key and value are at the top of the stack. Its texts stay in the table. */
static void
read_option(lua_State *L, struct ctt_options *options)
{
    static const char *const names[] = {"device", "method", "submodule", "threads", "fusion", NULL};
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    int at = 0;

    while (names[at] && strcmp(names[at], key) != 0)
        at++;
    if (!names[at])
        luaL_error(L,
                   "torch.load: unknown option %s; the options are device, method, submodule, "
                   "threads and fusion",
                   key);
    if (at < 3 && lua_type(L, -1) != LUA_TSTRING)
        luaL_error(L, "torch.load: %s must be a string, got %s", key, luaL_typename(L, -1));
    switch (at) {
    case 0:
        options->device = lua_tostring(L, -1);
        if (!is_device(options->device))
            luaL_error(L, "torch.load: device must be \"cpu\", \"cuda\" or \"cuda:1\", got \"%s\"",
                       options->device);
        if (strcmp(options->device, "cuda") == 0)
            options->device = "cuda:0";
        return;
    case 1:
        options->method = lua_tostring(L, -1);
        return;
    case 2:
        options->submodule = lua_tostring(L, -1);
        return;
    case 3:
        if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1 || lua_tointeger(L, -1) > THREADS_MAX)
            luaL_error(L, "torch.load: threads must be an integer from 1 to %d", THREADS_MAX);
        options->threads = (int32_t)lua_tointeger(L, -1);
        return;
    default:
        if (!lua_isboolean(L, -1))
            luaL_error(L, "torch.load: fusion must be true or false");
        options->fusion = lua_toboolean(L, -1);
        return;
    }
}

/* Opens the library at the first call. */
static struct lua_torch *
open_torch(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    const struct ctt_api *api;
    struct cn_error err;

    if (rt->torch)
        return rt->torch;
    if (cn_torch_library_open(rt->torch_library, &api, &err))
        luaL_error(L, "%s", err.message);
    rt->torch = cn_alloc(sizeof(*rt->torch));
    rt->torch->api = api;
    api->seed(cn_torch_new_seed()); /* otherwise each worker would draw the same random numbers */
    rt->torch->n_modules = 0;
    rt->torch->threads = 1;
    return rt->torch;
}

/* torch.load(file [, options]) -> a module */
static int
torch_load(lua_State *L)
{
    struct ctt_options options = {.device = "cpu", .submodule = "", .method = "forward"};
    const char *file = luaL_checkstring(L, 1);
    struct lua_torch *torch;
    struct module *module;
    struct cn_str cause;

    lua_settop(L, 2);
    if (!lua_isnil(L, 2)) {
        luaL_checktype(L, 2, LUA_TTABLE);
        lua_pushnil(L);
        while (lua_next(L, 2)) {
            read_option(L, &options);
            lua_pop(L, 1);
        }
    }
    cn_lua_push_model_path(L, file);
    options.file = lua_tostring(L, -1);
    torch = open_torch(L);
    if (!options.threads)
        options.threads = torch->threads;
    lua_pushstring(L, options.method);
    module = push_module(L, 1, -1);
    if (torch->api->load(&options, &module->model, torch->error, sizeof(torch->error))) {
        cn_torch_log("torch_load_failed", lua_rt_of(L)->model, lua_rt_of(L)->version, torch->error);
        cause = cn_torch_cause(torch->error, false);
        lua_pushlstring(L, cause.ptr ? cause.ptr : "", cause.len);
        return luaL_error(L, "libtorch %s cannot load %s: %s", torch->api->version, file,
                          lua_tostring(L, -1));
    }
    torch->n_modules++;
    torch->threads = options.threads;
    if (strcmp(options.device, "cpu") != 0) /* the last one is shown */
        snprintf(lua_rt_of(L)->base.device, sizeof(lua_rt_of(L)->base.device), "%s",
                 options.device);
    return 1;
}

void
cn_lua_close_torch(struct lua_rt *rt)
{
    cn_free(rt->torch);
    rt->torch = NULL;
}

void
cn_lua_open_torch(lua_State *L)
{
    static const luaL_Reg functions[] = {{"load", torch_load}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"run", module_run},     {"get", module_get},
                                       {"set", module_set},     {"schema", module_schema},
                                       {"close", module_close}, {NULL, NULL}};

    luaL_newmetatable(L, MODULE_NAME);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, module_close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, module_close);
    lua_setfield(L, -2, "__close");
    lua_pushcfunction(L, module_text);
    lua_setfield(L, -2, "__tostring");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    lua_setglobal(L, "torch");
}
