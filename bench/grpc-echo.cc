/* bench/grpc-echo.cc - what gRPC costs in C++: an asynchronous server that answers with what it got.
 *
 * Any method, one call or a stream, with bytes as they are (no protobuf). One completion queue, one
 * thread, as bench/grpc-bench's echo in C. bench/grpc.sh --peers builds it, with Debian's libgrpc++-dev.
 */
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <memory>

struct Call {
    enum { ACCEPTED, READ, WROTE, FINISHED } state = ACCEPTED;
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream{&context};
    grpc::ByteBuffer bytes;
};

static void
ask(grpc::AsyncGenericService *service, grpc::ServerCompletionQueue *queue)
{
    Call *call = new Call;

    service->RequestCall(&call->context, &call->stream, queue, queue, call);
}

static void
go_on(Call *call, bool ok)
{
    switch (call->state) {
    case Call::ACCEPTED:
    case Call::WROTE:
        if (!ok)
            break;
        call->state = Call::READ;
        call->stream.Read(&call->bytes, call);
        return;
    case Call::READ:
        if (ok) {
            call->state = Call::WROTE;
            call->stream.Write(call->bytes, call);
        } else { /* the client has said all */
            call->state = Call::FINISHED;
            call->stream.Finish(grpc::Status::OK, call);
        }
        return;
    case Call::FINISHED:
        break;
    }
    delete call;
}

int
main()
{
    grpc::AsyncGenericService service;
    grpc::ServerBuilder builder;
    int port = 0;

    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterAsyncGenericService(&service);
    builder.SetMaxReceiveMessageSize(-1);
    std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();

    for (int i = 0; i < 64; i++) /* calls that are asked for ahead */
        ask(&service, queue.get());
    std::printf("port %d\n", port);
    std::fflush(stdout);
    for (;;) {
        void *tag;
        bool ok;

        queue->Next(&tag, &ok);
        Call *call = static_cast<Call *>(tag);
        if (call->state == Call::ACCEPTED && ok)
            ask(&service, queue.get());
        go_on(call, ok);
    }
}
