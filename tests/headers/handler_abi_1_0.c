/* tests/headers/handler_abi_1_0.c - the layout that libraries of handlers were built with for ABI
 * 1.0. It is compiled and never run: check.sh fails if a member has moved or is gone. A new member
 * at the end of a struct, with a higher minor number, changes none of these lines.
 *
 * A library has these offsets in its code, so no server of ABI 1 may have others. */
#include <stddef.h>

#include "continuo/handler.h"

#define AT(type, member, offset)                                                                   \
    _Static_assert(offsetof(struct type, member) == (offset), #type "." #member " has moved")
/* The n-th pointer behind the two numbers with which both structs begin. */
#define FUNCTION(n, member) AT(continuo_api, member, 8 + (n) * sizeof(void *))
#define CALLBACK(n, member) AT(continuo_handler, member, 16 + (n) * sizeof(void *))
#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has another size")

_Static_assert(CONTINUO_HANDLER_ABI_MAJOR == 1, "a new MAJOR number needs a file of its own");

#if UINTPTR_MAX == UINT64_MAX

AT(continuo_handler, abi, 0);
AT(continuo_handler, size, 4);
AT(continuo_handler, state_schema, 8);
AT(continuo_handler, state_bytes, 12);
CALLBACK(0, load);
CALLBACK(1, unload);
CALLBACK(2, run);
CALLBACK(3, close);
CALLBACK(4, migrate);
CALLBACK(5, create);
CALLBACK(6, destroy);
CALLBACK(7, save);
CALLBACK(8, restore);
CALLBACK(9, describe);

AT(continuo_api, abi, 0);
AT(continuo_api, size, 4);
FUNCTION(0, model_name);
FUNCTION(1, model_version);
FUNCTION(2, model_dir);
FUNCTION(3, worker);
FUNCTION(4, set_data);
FUNCTION(5, data);
FUNCTION(6, load_error);
FUNCTION(7, log);
FUNCTION(8, config_string);
FUNCTION(9, config_int);
FUNCTION(10, config_double);
FUNCTION(11, config_bool);
FUNCTION(12, state);
FUNCTION(13, object);
FUNCTION(14, part_count);
FUNCTION(15, part_at);
FUNCTION(16, part);
FUNCTION(17, body);
FUNCTION(18, header);
FUNCTION(19, sequence_id);
FUNCTION(20, request_id);
FUNCTION(21, is_start);
FUNCTION(22, is_end);
FUNCTION(23, is_cancelled);
FUNCTION(24, step);
FUNCTION(25, seconds_left);
FUNCTION(26, json_int);
FUNCTION(27, json_double);
FUNCTION(28, json_string);
FUNCTION(29, reply);
FUNCTION(30, replyf);
FUNCTION(31, send);
FUNCTION(32, set_status);
FUNCTION(33, set_header);
FUNCTION(34, set_content_type);
FUNCTION(35, end_sequence);
FUNCTION(36, fail);
FUNCTION(37, write);
FUNCTION(38, more);
FUNCTION(39, stream);
FUNCTION(40, stop_reason);
FUNCTION(41, stop_streams);
FUNCTION(42, from_version);
FUNCTION(43, tensor_count);
FUNCTION(44, tensor_at);
FUNCTION(45, tensor);
FUNCTION(46, reply_tensors);
FUNCTION(47, metric);
FUNCTION(48, respond);
FUNCTION(49, defer);
FUNCTION(50, finish);
FUNCTION(51, after);
FUNCTION(52, stack);
FUNCTION(53, reply_stack);

/* The worker and a library pass these to each other as they are, so they may not even grow. */
SIZE(continuo_bytes, 16);
AT(continuo_bytes, data, 0);
AT(continuo_bytes, len, 8);
SIZE(continuo_part, 48);
AT(continuo_part, name, 0);
AT(continuo_part, content_type, 16);
AT(continuo_part, data, 32);
SIZE(continuo_dimension, 16);
AT(continuo_dimension, name, 0);
AT(continuo_dimension, value, 8);
/* The functions that take this one are told its size. */
AT(continuo_tensor, name, 0);
AT(continuo_tensor, datatype, 16);
AT(continuo_tensor, rank, 24);
AT(continuo_tensor, shape, 32);
AT(continuo_tensor, data, 40);
AT(continuo_model, api, 0);
AT(continuo_item, api, 0);
AT(continuo_writer, api, 0);

#endif
