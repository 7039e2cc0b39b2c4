/* handlers/lua/values/lua_state_priv.h - extension types of MessagePack in the states of Lua
 * handlers. */
#ifndef CN_HANDLERS_LUA_VALUES_LUA_STATE_PRIV_H
#define CN_HANDLERS_LUA_VALUES_LUA_STATE_PRIV_H

#include "handlers/lua/lua_priv.h"

#define EXT_JSON_LIST 1
#define EXT_TENSOR 2

#endif
