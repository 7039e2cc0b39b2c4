/* grpc/reflection.c - lets tools such as grpcurl ask the server for its services and messages. On
 * the call's loop.
 *
 * The build makes a FileDescriptorSet of each .proto file and embeds it. To find the file that
 * defines a symbol, this file reads the descriptors with cn_rpc_next_field(): only the names in
 * them matter, and unpacking them with protobuf-c would need a lot of memory. The numbers of the
 * fields come from google/protobuf/descriptor.proto.
 */
#include "grpc/reflection.h"

#include <grpc/reflection/v1/reflection.pb-c.h>

#include "core/errors/panic.h"
#include "grpc/error_status.h"
#include "grpc/protobuf_message.h"
#include "grpc/services.h"

#define SERVICES_MAX 8

/* Numbers of fields in google/protobuf/descriptor.proto. */
enum { SET_FILE = 1 };
enum { FILE_PACKAGE = 2, FILE_MESSAGE = 4, FILE_ENUM = 5, FILE_SERVICE = 6 };
enum { ANY_NAME = 1 };
enum { MESSAGE_NESTED = 3, MESSAGE_ENUM = 4 };
enum { SERVICE_METHOD = 2 };

static const struct {
    struct cn_str name, set; /* a FileDescriptorSet of one file */
} files[] = {
#define FILE(name, bytes, len) {{name, sizeof(name) - 1}, {bytes, len}},
#include <cn_messages_descriptors.inc>
#undef FILE
};
#define N_FILES (sizeof(files) / sizeof(files[0]))

/* --- descriptors */

/* Returns the first field of that number, or an empty text. */
static struct cn_str
find_field(struct cn_str bytes, uint32_t number)
{
    struct cn_rpc_field field;

    while (cn_rpc_next_field(&bytes, &field) > 0)
        if (field.number == number && field.has_bytes)
            return field.bytes;
    return (struct cn_str){NULL, 0};
}

static struct cn_str
file_of(size_t i)
{
    return find_field(files[i].set, SET_FILE);
}

/* Takes `name` and the dot after it off the front of `symbol`. */
static bool
take_name(struct cn_str *symbol, struct cn_str name)
{
    if (symbol->len < name.len || (name.len && memcmp(symbol->ptr, name.ptr, name.len) != 0))
        return false;
    if (symbol->len == name.len) {
        *symbol = (struct cn_str){NULL, 0};
        return true;
    }
    if (name.len == 0) /* no package */
        return true;
    if (symbol->ptr[name.len] != '.')
        return false;
    *symbol = (struct cn_str){symbol->ptr + name.len + 1, symbol->len - name.len - 1};
    return true;
}

/* Does a message, enumeration or service, whose name is in field 1, define `symbol`, by itself or
 * by a member in one of the fields `first` and `second`? Messages may contain messages; our own
 * files nest only a few. */
static bool
defines(struct cn_str bytes, struct cn_str symbol, uint32_t first, uint32_t second)
{
    struct cn_rpc_field field;

    if (!take_name(&symbol, find_field(bytes, ANY_NAME)))
        return false;
    if (symbol.len == 0)
        return true;
    while (cn_rpc_next_field(&bytes, &field) > 0) {
        if (!field.has_bytes || field.number == ANY_NAME)
            continue;
        if (field.number == first && first == MESSAGE_NESTED
                ? defines(field.bytes, symbol, first, second)
                : (field.number == first || field.number == second) &&
                      cn_str_eq(find_field(field.bytes, ANY_NAME), symbol))
            return true;
    }
    return false;
}

static bool
file_defines(struct cn_str file, struct cn_str symbol)
{
    struct cn_rpc_field field;

    if (!take_name(&symbol, find_field(file, FILE_PACKAGE)) || symbol.len == 0)
        return false;
    while (cn_rpc_next_field(&file, &field) > 0) {
        if ((field.number == FILE_MESSAGE &&
             defines(field.bytes, symbol, MESSAGE_NESTED, MESSAGE_ENUM)) ||
            (field.number == FILE_ENUM && defines(field.bytes, symbol, 0, 0)) ||
            (field.number == FILE_SERVICE && defines(field.bytes, symbol, SERVICE_METHOD, 0)))
            return true;
    }
    return false;
}

struct cn_str
cn_rpc_descriptor_of_symbol(struct cn_str symbol)
{
    size_t i;

    for (i = 0; i < N_FILES; i++)
        if (file_defines(file_of(i), symbol))
            return file_of(i);
    return (struct cn_str){NULL, 0};
}

struct cn_str
cn_rpc_descriptor_of_file(struct cn_str name)
{
    size_t i;

    for (i = 0; i < N_FILES; i++)
        if (cn_str_eq(files[i].name, name))
            return file_of(i);
    return (struct cn_str){NULL, 0};
}

/* --- answers */

/* The generated names of a message's variants, which alone would fill a line. */
#define REQUEST_CASE(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define RESPONSE_CASE(name)                                                                        \
    GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name

typedef Grpc__Reflection__V1__ServerReflectionRequest request_t;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_t;

static void
send(struct cn_grpc_call *call, response_t *response, struct cn_arena *arena)
{
    struct cn_grpc_outgoing out = {.head = cn_rpc_pack(&response->base, arena)};

    cn_grpc_call_send(call, &out);
}

static void
send_error(struct cn_grpc_call *call, response_t *response, const char *what, const char *name,
           struct cn_arena *arena)
{
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;

    error.error_code = cn_error_info(CN_E_NOT_FOUND)->grpc_status;
    error.error_message = cn_arena_printf(arena, "the %s %s does not exist", what, name);
    response->message_response_case = RESPONSE_CASE(ERROR_RESPONSE);
    response->error_response = &error;
    send(call, response, arena);
}

static void
send_file(struct cn_grpc_call *call, response_t *response, struct cn_str file, const char *what,
          const char *name, struct cn_arena *arena)
{
    Grpc__Reflection__V1__FileDescriptorResponse list =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    ProtobufCBinaryData bytes = {file.len, (uint8_t *)(uintptr_t)file.ptr};

    if (file.len == 0) {
        send_error(call, response, what, name, arena);
        return;
    }
    list.n_file_descriptor_proto = 1;
    list.file_descriptor_proto = &bytes;
    response->message_response_case = RESPONSE_CASE(FILE_DESCRIPTOR_RESPONSE);
    response->file_descriptor_response = &list;
    send(call, response, arena);
}

static void
send_services(struct cn_grpc_call *call, response_t *response, struct cn_arena *arena)
{
    const struct cn_grpc_method *method = cn_grpc_server_methods(cn_grpc_call_server(call));
    Grpc__Reflection__V1__ListServiceResponse list =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    Grpc__Reflection__V1__ServiceResponse services[SERVICES_MAX], *pointers[SERVICES_MAX];
    struct cn_str last = {NULL, 0};

    for (; method->path; method++) { /* methods of one service stand together */
        struct cn_str name = {method->path + 1, strcspn(method->path + 1, "/")};
        size_t n = list.n_service;

        if (cn_str_eq(name, last))
            continue;
        cn_assert(n < SERVICES_MAX);
        last = name;
        services[n] =
            (Grpc__Reflection__V1__ServiceResponse)GRPC__REFLECTION__V1__SERVICE_RESPONSE__INIT;
        services[n].name = cn_arena_strndup(arena, name.ptr, name.len);
        pointers[n] = &services[n];
        list.n_service++;
    }
    list.service = pointers;
    response->message_response_case = RESPONSE_CASE(LIST_SERVICES_RESPONSE);
    response->list_services_response = &list;
    send(call, response, arena);
}

/* Answers that a type has no extensions: proto3 files have none. */
static void
send_no_extensions(struct cn_grpc_call *call, response_t *response, char *type,
                   struct cn_arena *arena)
{
    Grpc__Reflection__V1__ExtensionNumberResponse numbers =
        GRPC__REFLECTION__V1__EXTENSION_NUMBER_RESPONSE__INIT;

    if (cn_rpc_descriptor_of_symbol(cn_str_from(type)).len == 0) {
        send_error(call, response, "type", type, arena);
        return;
    }
    numbers.base_type_name = type;
    response->message_response_case = RESPONSE_CASE(ALL_EXTENSION_NUMBERS_RESPONSE);
    response->all_extension_numbers_response = &numbers;
    send(call, response, arena);
}

static void
answer(struct cn_grpc_call *call, request_t *request, struct cn_arena *arena)
{
    response_t response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    struct cn_error err;

    response.valid_host = request->host;
    response.original_request = request;
    switch (request->message_request_case) {
    case REQUEST_CASE(FILE_BY_FILENAME):
        send_file(call, &response,
                  cn_rpc_descriptor_of_file(cn_str_from(request->file_by_filename)), "file",
                  request->file_by_filename, arena);
        return;
    case REQUEST_CASE(FILE_CONTAINING_SYMBOL):
        send_file(call, &response,
                  cn_rpc_descriptor_of_symbol(cn_str_from(request->file_containing_symbol)),
                  "symbol", request->file_containing_symbol, arena);
        return;
    case REQUEST_CASE(FILE_CONTAINING_EXTENSION):
        send_error(call, &response, "extension of",
                   request->file_containing_extension->containing_type, arena);
        return;
    case REQUEST_CASE(ALL_EXTENSION_NUMBERS_OF_TYPE):
        send_no_extensions(call, &response, request->all_extension_numbers_of_type, arena);
        return;
    case REQUEST_CASE(LIST_SERVICES):
        send_services(call, &response, arena);
        return;
    default:
        cn_fail(&err, CN_E_BAD_REQUEST, "the request is empty; set one message_request");
        cn_rpc_fail(call, err.code, err.message, 0);
    }
}

/* Answers one question. Each message has an arena of its own, because such a call may live long. */
void
cn_rpc_reflection_message(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    size_t len = cn_grpc_message_bytes(message);
    struct cn_error err = {0};
    struct cn_arena arena;
    request_t *request = NULL;
    char *bytes;

    cn_arena_init(&arena);
    bytes = cn_arena_try_alloc(&arena, len ? len : 1);
    if (!bytes) {
        cn_fail(&err, CN_E_OUT_OF_MEMORY, "not enough memory for a message of %zu bytes", len);
    } else {
        cn_grpc_message_copy(message, bytes);
        request = cn_rpc_unpack(&grpc__reflection__v1__server_reflection_request__descriptor,
                                &arena, (struct cn_str){bytes, len}, &err);
    }
    if (request)
        answer(call, request, &arena);
    else
        cn_rpc_fail(call, err.code, err.message, 0);
    cn_arena_fini(&arena);
}

/* Asks for the next question once the last answer has been taken. */
void
cn_rpc_reflection_sent(struct cn_grpc_call *call, void *owner, size_t bytes)
{
    (void)owner;
    (void)bytes;
    if (!cn_grpc_call_is_gone(call))
        cn_grpc_call_read(call);
}

void
cn_rpc_reflection_half_close(struct cn_grpc_call *call)
{
    cn_grpc_call_finish(call, NULL, &(struct cn_grpc_status){0});
}

void
cn_rpc_reflection_drain(struct cn_grpc_call *call)
{
    cn_rpc_fail(call, CN_E_DRAINING, "the server is stopping", 0);
}
