/* Tests what a Lua handler sees of a request, and what its answers become. */
#include "handlers/lua/test_lua.h"

/* A request has what the client sent. Names of headers may be spelled in any way. */
static void
request_shows_what_was_sent(void **state)
{
    struct cn_runtime *rt = must_open(
        "return { step = function(state, req)\n"
        "  local r = req.parts.extra\n"
        "  local keep = last last = req\n"
        "  if keep then return select(2, pcall(function() return keep.body end)) end\n"
        "  return table.concat({ req.body, r.data, r.content_type, #req.parts, req.parts[1].name,\n"
        "    req.headers['x_PROBE'], tostring(req.headers.none), req.sequence_id, req.request_id,\n"
        "    tostring(req.start), tostring(req['end']), tostring(req.end_), req.step,\n"
        "    tostring(req.cancelled), req.deadline, tostring(req.nothing) }, ' ')\n"
        "end }");
    struct fake fake = {0};
    struct cn_item *items[1] = {&fake.item};

    (void)state;
    fake_body(&fake, "a\0b", 3);
    fake.parts[1] = (struct cn_part){CN_STR("extra"), CN_STR("x/y"), CN_STR("more")};
    fake.headers[0] = (struct cn_header){CN_STR("X-Probe"), CN_STR("yes")};
    fake.row.n_parts = 2;
    fake.row.n_headers = 1;
    fake.row.flags |= CN_ROW_END;
    fake.item.step = 4;
    fake.item.stop = CN_STOP_GONE;
    rt->ops->run(rt, items, 1);
    assert_int_equal(fake.item.reply.body.data[1], 0);
    fake.item.reply.body.data[1] = '-';
    assert_string_equal(fake_text(&fake),
                        "a-b more x/y 2 body yes nil seq-1 req-1 true true true 4 "
                        "true inf nil");
    fake_end(rt, &fake);
    assert_string_equal(
        fake_step(rt, &fake, ""),
        "handler.lua:4: this request has ended: keep what you need from it in the state");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* In JSON, integers stay integers and null is a value. Invalid JSON is the client's mistake. */
static void
json_keeps_types(void **state)
{
    (void)state;
    assert_string_equal(
        reply_of("return { json = req.json }",
                 "{\"b\":[1,2.0,9007199254740993,null,[],{}],\"a\":\"\\u0000\xc3\xa4\"}"),
        "{\"a\":\"\\u0000\xc3\xa4\",\"b\":[1,2.0,9007199254740993,null,[],{}]}");
    assert_string_equal(
        reply_of("return { json = { x = req.json.x == continuo.null, "
                 "t = math.type(req.json.y), l = {1, 2}, e = continuo.json.array() } }",
                 "{\"x\":null,\"y\":7}"),
        "{\"e\":[],\"l\":[1,2],\"t\":\"integer\",\"x\":true}");
    assert_non_null(strstr(reply_of("return req.json.x", "{\"x\":"),
                           "bad_request/400 the request's body is not valid JSON: line 1"));
    assert_non_null(strstr(reply_of("return req.text", "\xff"), "bad_request/400"));
    assert_non_null(strstr(reply_of("return { json = { a = { 1, 0/0 } } }", ""),
                           "reply.json.a[2]: nan is not a JSON number"));
    assert_non_null(strstr(reply_of("return { json = { 1, nil, 3 } }", ""), "only string keys"));
    assert_non_null(strstr(reply_of("return { json = print }", ""),
                           "reply.json: a function cannot be part of JSON"));
    assert_non_null(strstr(reply_of("local t = {} t.t = t return { json = t }", ""), "nested too"));
    assert_string_equal(reply_of("return tostring(select(2, continuo.json.decode('[')))", ""),
                        "line 1, column 1: ']' expected near end of file");
    assert_string_equal(
        reply_of("return continuo.json.encode({ a = 0.1, b = 1e300, c = 1e15 })", ""),
        "{\"a\":0.1,\"b\":1e+300,\"c\":1e+15}");
}

/* A reply table sets status, headers, content type and the end of the sequence. A misspelled key is
 * an error. */
static void
reply_table_sets_everything(void **state)
{
    struct cn_runtime *rt = must_open(
        "return { step = function(state, req)\n"
        "  req:send('one ') req:send(2)\n"
        "  return { text = 'x', status = 201, headers = { ['x-a'] = 'b' }, end_sequence = true }\n"
        "end }");
    struct fake fake = {0};
    struct cn_item *items[1] = {&fake.item};

    (void)state;
    fake_body(&fake, "", 0);
    rt->ops->run(rt, items, 1);
    assert_string_equal(fake_text(&fake), "one |2|x");
    assert_int_equal(fake.item.reply.status, 201);
    assert_true(fake.item.reply.end_sequence);
    assert_int_equal(fake.item.reply.n_headers, 1);
    assert_memory_equal(fake.item.reply.headers.data, "\3\0x-a\1\0\0\0b", 10);
    assert_memory_equal(fake.item.reply.content_type.data, "text/plain", 10);
    fake_end(rt, &fake);
    fake_drop(rt, &fake);
    rt->ops->close(rt);

    assert_non_null(strstr(reply_of("return { txet = 'x' }", ""), "unknown key 'txet' in a reply"));
    assert_non_null(strstr(reply_of("return { text = 'x', body = 'y' }", ""), "one of json, text"));
    assert_non_null(strstr(reply_of("return { text = 'x', status = 99 }", ""), "200 to 599"));
    assert_non_null(strstr(reply_of("return { headers = { ['a b'] = 'x' } }", ""), "'a b'"));
    assert_non_null(strstr(reply_of("return { headers = { a = 'x\\r\\ny' } }", ""), "control"));
    assert_non_null(strstr(reply_of("return { headers = { ['Content_Length'] = 1 } }", ""),
                           "is set by the server"));
    assert_non_null(strstr(reply_of("return ('x'):rep(100001)", ""), "answerMaxBytes"));
    assert_non_null(strstr(reply_of("for i = 1, 3 do req:send(('x'):rep(40000)) end return ''", ""),
                           "answerMaxBytes"));
    assert_string_equal(reply_of("return true", ""), "true");
    assert_non_null(
        strstr(reply_of("return { json = { continuo.array({1}, 'i8') } }", ""),
               "reply.json[1]: a continuo.array cannot be part of JSON; use its :table()"));
    assert_string_equal(reply_of("return 1.5", ""), "1.5");
    assert_non_null(strstr(reply_of("req:reply(1) return 2", ""), "also returned a reply"));
    assert_non_null(strstr(reply_of("req:reply(1) req:reply(2)", ""), "already answered"));
}

/* Whether a sequence ends must be a boolean, because 0 and null are true in Lua. */
static void
flags_of_a_reply_are_booleans(void **state)
{
    (void)state;
    assert_string_equal(
        reply_of("return { text = 'x', end_sequence = req.json }", "null"),
        "handler_failed/0 Prediction failed: reply.end_sequence must be true or false, got null");
    assert_string_equal(
        reply_of("return { text = 'x', stop_streams = 0 }", ""),
        "handler_failed/0 Prediction failed: reply.stop_streams must be true or false, got 0");
    assert_string_equal(reply_of("return { text = 'x', end_sequence = false }", ""), "x");
    assert_string_equal(reply_of("return { text = 'x', end_sequence = nil }", ""), "x");
}

/* Returns whether two steps answer with the same bytes. */
static bool
same_outputs(const char *one, const char *other)
{
    const char *outputs[2] = {one, other};
    struct cn_buf bodies[2];
    struct fake fake = {0};
    struct cn_item *item = &fake.item;
    char source[600];
    bool same;

    for (int i = 0; i < 2; i++) {
        struct cn_runtime *rt;

        snprintf(source, sizeof(source),
                 "return { step = function() return { outputs = { Y = %s } } end }", outputs[i]);
        rt = must_open(source);
        fake_body(&fake, "", 0);
        rt->ops->run(rt, &item, 1);
        assert_string_equal(item->reply.error_code ? fake_text(&fake) : "", "");
        cn_buf_init(&bodies[i], 0);
        cn_buf_append_str(&bodies[i], cn_buf_str(&item->reply.body));
        fake_end(rt, &fake);
        fake_drop(rt, &fake);
        rt->ops->close(rt);
    }
    assert_int_not_equal(bodies[0].len, 0);
    same = cn_str_eq(cn_buf_str(&bodies[0]), cn_buf_str(&bodies[1]));
    cn_buf_fini(&bodies[0]);
    cn_buf_fini(&bodies[1]);
    return same;
}

/* An output has the values that the handler gave, or it is an error. Bytes of another type are not
 * reinterpreted. */
static void
outputs_are_what_was_given(void **state)
{
#define FAILED "handler_failed/0 Prediction failed: "
    (void)state;
    assert_false(
        same_outputs("{ datatype = 'FP32', data = {1} }", "{ datatype = 'FP32', data = {2} }"));
    assert_true(same_outputs("{ datatype = 'FP32', data = continuo.array({1, 2, -3}, 'i16') }",
                             "{ datatype = 'FP32', data = {1, 2, -3} }"));
    assert_true(same_outputs("{ datatype = 'FP32', data = continuo.array({0.5, 2}, 'f64') }",
                             "{ datatype = 'FP32', data = {0.5, 2} }"));
    assert_true(same_outputs("{ datatype = 'FP16', data = continuo.array({0, 15360}, 'u16') }",
                             "{ datatype = 'FP16', data = '\\0\\0\\0\\x3c' }"));
    assert_true(same_outputs("{ datatype = 'BOOL', data = {1, 0, true} }",
                             "{ datatype = 'BOOL', data = {true, false, true} }"));
    assert_true(same_outputs("{ datatype = 'UINT64', data = {-1} }",
                             "{ datatype = 'UINT64', data = ('\\xff'):rep(8) }"));
#define REPLY(type, data)                                                                          \
    reply_of("return { outputs = { Y = { datatype = '" type "', data = " data " } } }", "")
    assert_string_equal(REPLY("UINT8", "{ 255, 256 }"),
                        FAILED "output 'Y': element 2 is 256, which does not fit into UINT8");
    assert_string_equal(REPLY("UINT32", "{ -1 }"),
                        FAILED "output 'Y': element 1 is -1, which does not fit into UINT32");
    assert_string_equal(REPLY("INT16", "{ -32768, 32767, 32768 }"),
                        FAILED "output 'Y': element 3 is 32768, which does not fit into INT16");
    assert_string_equal(REPLY("INT8", "continuo.array({ 200 }, 'u8')"),
                        FAILED "output 'Y': element 1 is 200, which does not fit into INT8");
    assert_string_equal(REPLY("INT32", "continuo.array({ 1.5 }, 'f32')"),
                        FAILED "output 'Y': element 1 is number 1.5, not INT32");
    assert_string_equal(REPLY("BOOL", "{ 2 }"),
                        FAILED "output 'Y': element 1 is number 2, not BOOL");
    assert_string_equal(REPLY("FP32", "req"), FAILED
                        "output 'Y' needs data: bytes, a continuo.array or a table of values");
    assert_string_equal(REPLY("BYTES", "'text'"),
                        FAILED "output 'Y': the bytes of strings need a shape such as {1, 2}; or "
                               "give the strings: data = {\"text\"}");
}

/* Numbers that are packed in bytes are read without copies, and their range is checked. */
static void
arrays_read_bytes(void **state)
{
    (void)state;
    assert_string_equal(
        reply_of("local a = continuo.array('\\1\\0\\xff\\xff\\3\\0', 'i16')\n"
                 "return table.concat({ #a, a[1], a[2], a:sum(), a:mean(), a:max(), "
                 "a:min(), a:energy(), #a:slice(2), a:slice(-1)[1], "
                 "tostring(a[4]), #a:slice(3, 2), a:table()[3] }, ' ')",
                 ""),
        "3 1 -1 3 1.0 3 -1 11.0 2 3 nil 0 3");
    assert_string_equal(reply_of("local a = continuo.array({ 1.5, -2 }, 'f32')\n"
                                 "return a:sum() .. ' ' .. #a:bytes() .. ' ' .. a:rms()",
                                 ""),
                        "-0.5 8 1.7677669529664");
    assert_non_null(strstr(reply_of("continuo.array('abc', 'f32')", ""),
                           "bad_request/400 3 bytes are not a multiple of the size of f32"));
    assert_non_null(strstr(reply_of("continuo.array(setmetatable({ 1, 2, 3 }, { __len = function() "
                                    "return 1 << 61 end }), 'f64')",
                                    ""),
                           "a table of 2305843009213693952 elements: an array may have 0 to"));
    assert_non_null(
        strstr(reply_of("continuo.stack(setmetatable({ req, req }, { __len = function() "
                        "return 1 << 61 end }), 'x')",
                        ""),
               "2305843009213693952 items"));
    assert_non_null(strstr(reply_of("continuo.array({ 70000 }, 'i16')", ""),
                           "element 1 is 70000, which does not fit into i16"));
    assert_string_equal(reply_of("return continuo.unpack('<i4', continuo.pack('<i4', -7))", ""),
                        "-7");
}

/* If making a reply fails, nothing of it is left in the reply that is made instead. */
static void
a_failed_reply_leaves_nothing(void **state)
{
    struct cn_runtime *rt = must_open(
        "return { step = function(state, req)\n"
        "  for _, bad in ipairs { { text = 'x', nope = 1 }, { status = 404, nope = 1 },\n"
        "      { headers = { a = 'b' }, nope = 1 }, { content_type = 'c', nope = 1 },\n"
        "      { end_sequence = true, nope = 1 }, { stop_streams = true, nope = 1 } } do\n"
        "    for key, value in pairs(bad) do\n" /* pairs may have any order */
        "      assert(not pcall(req.reply, req, setmetatable({ json = print }, {})))\n"
        "      assert(not pcall(req.reply, req, { [key] = value, json = print }))\n"
        "    end\n"
        "    assert(not pcall(req.reply, req, bad))\n"
        "  end\n"
        "  req:reply { json = { 1 } }\n"
        "end }");
    struct fake fake = {0};
    struct cn_item *items[1] = {&fake.item};

    (void)state;
    fake_body(&fake, "", 0);
    rt->ops->run(rt, items, 1);
    assert_string_equal(fake_text(&fake), "[1]");
    assert_int_equal(fake.item.reply.status, 0);
    assert_int_equal(fake.item.reply.n_headers, 0);
    assert_int_equal(fake.item.reply.headers.len, 0);
    assert_false(fake.item.reply.end_sequence || fake.item.reply.stop_streams);
    assert_memory_equal(fake.item.reply.content_type.data, "application/json", 16);
    fake_end(rt, &fake);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* A key that the handler has put among the headers does not disturb a look-up. */
static void
headers_may_be_changed(void **state)
{
    (void)state;
    assert_string_equal(reply_of("req.headers[1] = 'x' req.headers[{}] = 'y'\n"
                                 "return tostring(req.headers['No-Such'])",
                                 ""),
                        "nil");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_shows_what_was_sent),
        cmocka_unit_test(json_keeps_types),
        cmocka_unit_test(reply_table_sets_everything),
        cmocka_unit_test(flags_of_a_reply_are_booleans),
        cmocka_unit_test(outputs_are_what_was_given),
        cmocka_unit_test(arrays_read_bytes),
        cmocka_unit_test(a_failed_reply_leaves_nothing),
        cmocka_unit_test(headers_may_be_changed),
    };

    return cmocka_run_group_tests(tests, test_lua_setup, test_lua_teardown);
}
