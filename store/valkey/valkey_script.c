/* store/valkey/valkey_script.c - the Lua script that runs in the shared store, and the words of its
 * calls. Worker's thread.
 *
 * There is one script, which is loaded into each server and called by its digest. ARGV[1] names
 * what it is to do. It runs alone in the server: nothing happens between two of its commands.
 *
 *   step    KEYS: entries. ARGV: for each entry what the worker saw (the first 26 bytes of a
 *           stamp), and stamp and record. Writes each entry that is as the worker saw it. Returns
 *           for each 1 (it is as the worker wants it), 0 (it is not what the worker saw) or an
 *           error. Nearly all of its time goes into the server's commands, so all entries are
 *           written by one.
 *   small   The same as step, but one command also reads all entries, whole. That is quicker if
 *           they are small.
 *   change  KEYS: the entry, the index and the times of its bucket. ARGV: what the worker saw (""
 *           nothing, "*" anything), stamp and record ("" to remove the entry), the id, "1" if the
 *           entry may be removed where there is no room for the new one, and when the sweeper is to
 *           look at it. Returns 1, 0 or an error. An entry that the worker saw as a tombstone may
 *           be gone: another node has forgotten it.
 *   lease   KEYS: the lease. ARGV: the worker's name, for how many ms it wants the lease, and the
 *           least fencing number that it can use. The server's clock counts. A lease that ends
 *           later than any holder can have asked for is over: the clock was set back, or another
 *           server is the primary now. Returns the fencing number, which rises with each holder; 0
 *           if another worker holds the lease.
 *   due     KEYS: the times and the fence of a bucket. ARGV: the fencing number, the present time,
 *           how many ids are wanted, when these are to be looked at again, and then pairs of a time
 *           and an id that is to be looked at then. Returns the ids whose time has come, or the
 *           fencing number of a later holder of the lease that has been here. */
#include <string.h>

#include "store/valkey/valkey_priv.h"

const char cn_valkey_script[] =
    "-- continuo: sequences, layout 2\n"
    "local what = ARGV[1]\n"
    "local call, sub, byte = redis.call, string.sub, string.byte\n"
    "if what == 'step' or what == 'small' then\n"
    "  local out, writes, written = {}, {}, {}\n"
    "  local all = what == 'small' and call('MGET', unpack(KEYS))\n"
    "  for i, key in ipairs(KEYS) do\n"
    "    local seen, value = ARGV[2 * i], ARGV[2 * i + 1]\n"
    "    local now = all and (all[i] or '') or call('GETRANGE', key, 0, 33)\n"
    "    if sub(now, 1, 26) == seen then\n"
    "      out[i], written[#written + 1] = 1, i\n"
    "      writes[#writes + 1], writes[#writes + 2] = key, value\n"
    "    elseif now ~= '' and sub(now, 27, 34) == sub(value, 27, 34) then\n"
    "      out[i] = 1\n"
    "    else\n"
    "      out[i] = 0\n"
    "    end\n"
    "  end\n"
    "  if #writes > 0 then\n"
    "    local done = redis.pcall('MSET', unpack(writes))\n"
    "    if done.err then for _, i in ipairs(written) do out[i] = done end end\n"
    "  end\n"
    "  return out\n"
    "elseif what == 'change' then\n"
    "  local seen, value, id = ARGV[2], ARGV[3], ARGV[4]\n"
    "  local now = call('GETRANGE', KEYS[1], 0, 33)\n"
    "  if now ~= '' then\n"
    "    if value ~= '' and sub(now, 27) == sub(value, 27, 34) then return 1 end\n"
    "    if seen ~= '*' and sub(now, 1, 26) ~= seen then return 0 end\n"
    "  elseif value ~= '' and seen ~= '' and seen ~= '*' and byte(seen, 2) % 2 == 0 then\n"
    "    return 0\n"
    "  end\n"
    "  if value ~= '' then\n"
    "    local done = redis.pcall('SET', KEYS[1], value)\n"
    "    if done.err then\n"
    "      if ARGV[5] ~= '1' then return done end\n"
    "      value = ''\n"
    "    end\n"
    "  end\n"
    "  if value == '' then\n"
    "    call('DEL', KEYS[1])\n"
    "    call('ZREM', KEYS[2], id)\n"
    "    call('ZREM', KEYS[3], id)\n"
    "    return 1\n"
    "  end\n"
    "  if now == '' then call('ZADD', KEYS[2], 0, id) end\n"
    "  if now == '' or byte(now, 2) ~= byte(value, 2) then\n"
    "    call('ZADD', KEYS[3], ARGV[6], id)\n"
    "  end\n"
    "  return 1\n"
    "elseif what == 'lease' then\n"
    "  local time = call('TIME')\n"
    "  local now = time[1] * 1000 + math.floor(time[2] / 1000)\n"
    "  local lease = call('HMGET', KEYS[1], 'owner', 'until', 'fence')\n"
    "  local till = tonumber(lease[2] or 0)\n"
    "  local over = not lease[1] or now >= till or till > now + 2 * ARGV[3]\n"
    "  if lease[1] ~= ARGV[2] and not over then return 0 end\n"
    "  local fence = tonumber(lease[3] or 0)\n"
    "  if over then fence = fence + 1 end\n"
    "  fence = math.max(fence, tonumber(ARGV[4]))\n"
    "  call('HSET', KEYS[1], 'owner', ARGV[2], 'until', now + ARGV[3], 'fence', fence)\n"
    "  return fence\n"
    "end\n"
    "local fence, known = tonumber(ARGV[2]), tonumber(call('GET', KEYS[2]) or 0)\n"
    "if known > fence then return known end\n"
    "if known < fence then call('SET', KEYS[2], fence) end\n"
    "for i = 6, #ARGV, 2 do call('ZADD', KEYS[1], 'XX', ARGV[i], ARGV[i + 1]) end\n"
    "local ids = call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[3], 'LIMIT', 0, ARGV[4])\n"
    "for _, id in ipairs(ids) do call('ZADD', KEYS[1], 'XX', ARGV[5], id) end\n"
    "return ids\n";

void
cn_valkey_call(struct cn_valkey_store *vs, unsigned bucket, uint32_t n_keys, uint32_t n_args)
{
    cn_valkey_command(&vs->link, bucket, 3 + n_keys + n_args);
    cn_valkey_word(&vs->link, CN_STR("EVALSHA"));
    cn_valkey_word(&vs->link, cn_str_from(vs->link.digest));
    cn_valkey_number_word(vs, n_keys);
}

/* Appends a word of two parts. */
static void
put_key(struct cn_valkey_store *vs, unsigned bucket, struct cn_str kind, struct cn_str id)
{
    static const char digits[] = "0123456789abcdef";
    const char tail[] = {digits[bucket >> 4], digits[bucket & 15], '}'};
    struct cn_buf *out = cn_valkey_out(&vs->link);

    cn_buf_puts(out, "$");
    cn_buf_put_uint(out, vs->head.len + sizeof(tail) + kind.len + id.len);
    cn_buf_puts(out, "\r\n");
    cn_buf_append_str(out, cn_buf_str(&vs->head));
    cn_buf_append(out, tail, sizeof(tail));
    cn_buf_append_str(out, kind);
    cn_buf_append_str(out, id);
    cn_buf_puts(out, "\r\n");
}

void
cn_valkey_entry_word(struct cn_valkey_store *vs, unsigned bucket, struct cn_str id)
{
    put_key(vs, bucket, CN_STR(":"), id);
}

void
cn_valkey_key_word(struct cn_valkey_store *vs, unsigned bucket, struct cn_str kind)
{
    put_key(vs, bucket, kind, CN_STR(""));
}

/* FNV-1a: the bucket of an id must be the same on every node, now and later. */
unsigned
cn_valkey_bucket(struct cn_str id)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < id.len; i++)
        hash = (hash ^ (unsigned char)id.ptr[i]) * 16777619u;
    return (hash ^ hash >> 16) % CN_VALKEY_BUCKETS;
}

void
cn_valkey_number_word(struct cn_valkey_store *vs, uint64_t number)
{
    char text[24];
    char *at = text + sizeof(text);

    do
        *--at = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    cn_valkey_word(&vs->link, (struct cn_str){at, (size_t)(text + sizeof(text) - at)});
}
