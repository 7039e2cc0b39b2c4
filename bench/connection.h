/* bench/connection.h - one keep-alive HTTP/1.1 connection or one WebSocket stream, with one step in
 * flight.
 *
 * A step should cost little here: the request is formatted once, its changing parts have a fixed
 * length and are overwritten in place, and a step needs one send and one recv. A stream carries one
 * sequence (docs/streams.md); its handshake is the request that is formatted.
 */
#ifndef CN_BENCH_CONNECTION_H
#define CN_BENCH_CONNECTION_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEQUENCE_DIGITS 9 /* digits after the prefix of a sequence id */
#define RETRY_DIGITS 3    /* after an error the sequence starts anew under the next id */

struct connection {
    int fd;       /* -1: not connected */
    bool waiting; /* a request is in flight */
    bool stalled; /* its answer took over a second; counted once */
    uint64_t sent_us, due_us;
    uint32_t sequence; /* the sequence of the request in flight */
    uint64_t turn;     /* number of requests started; chooses the next sequence */
    uint32_t ahead;    /* with --random: the sequence of the next request, chosen one step ahead */
    uint64_t backlog;  /* with --rate: arrivals that wait for this connection */
    uint64_t arrivals_started; /* with --rate: gives the due time of the next one */
    char *request;             /* this connection's copy of the template */
    size_t received;
    size_t taken; /* a stream: how many of the received bytes were looked at */
    char answer[4096];
};

/* How steps reach the server. */
enum wire { WIRE_HTTP, WIRE_STREAM_PLAIN, WIRE_STREAM_JSON };

/* The bytes of a request, and where its changing parts are. For a stream it is the handshake. */
struct request_template {
    enum wire wire;
    char bytes[1024];
    size_t len, sequence_at, retry_at;
    size_t digit_at; /* the step's number, one digit; not for a stream */
    size_t start_at; /* v2: the value of sequence_start, five bytes; 0: there is none */
};

/* A complete answer, pointing into the connection's buffer. */
struct answer {
    int status;
    const char *body;
    size_t body_len;
    bool closes; /* the server said Connection: close */
};

/* A template for /predictions and for the v2 protocol's infer in JSON, where the sequence's id is a
 * number that begins with a hash of the prefix. Both return -1 if the request does not fit. */
int request_template_init_v2(struct request_template *t, const char *host, const char *model,
                             const char *prefix);
int request_template_init(struct request_template *t, const char *host, const char *path,
                          const char *header, const char *prefix);

/* Makes a template for the handshake of a stream, which has the subprotocol of `wire`. Returns -1
 * if it does not fit. */
int request_template_init_stream(struct request_template *t, const char *host, const char *model,
                                 const char *prefix, enum wire wire);

/* Connects, opens the stream of the sequence if steps go over streams, and then makes the socket
 * non-blocking. Returns 0, or -1 with errno set; EPROTO means that the server has refused the
 * stream. */
int connection_open(struct connection *c, const struct sockaddr_in *address,
                    const struct request_template *t, uint32_t sequence, uint32_t retry);
void connection_close(struct connection *c);
/* Sends the digit `number` as the next step of a sequence. `first` says whether it is the first one
 * of the sequence. Returns 0, or -1 with errno set. */
int connection_send(struct connection *c, const struct request_template *t, uint32_t sequence,
                    uint32_t retry, char number, bool first);
/* For an answer of the v2 protocol: makes out->body the text of the first tensor's "data". An
 * answer without one stays as it is. */
void answer_find_data(struct answer *out);
/* Reads what has arrived. Returns 1 if `out` is complete, 0 if more must come, or -1 with `*why` if
 * the connection is closed or the bytes are not as they should be. */
int connection_receive(struct connection *c, const struct request_template *t, struct answer *out,
                       const char **why);

#endif
