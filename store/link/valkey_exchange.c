/* store/link/valkey_exchange.c - sends the commands of a trip to the servers that have their keys,
 * and takes the replies. The link's thread.
 *
 * A trip has one round: each server gets its commands at once, all servers at the same time, and
 * the replies are waited for together. If the servers must confirm what they did, each gets WAITAOF
 * or WAIT behind its commands. A second round follows for commands that a server has not done:
 *
 *   MOVED     another server has the slot now: the command goes there
 *   ASK       the slot is moving, and another server has the key already: ASKING goes before it
 *   NOSCRIPT  the server has forgotten the script: SCRIPT LOAD goes before it
 *
 * A caller may begin a trip, do something else while its first round is on its way, and end it
 * later.
 *
 * None of these was done, so sending them again does nothing twice. The bytes of a command stay in
 * the buffer of the server that got it first until the trip is over.
 *
 * A server that fails takes only its own commands with it; the results say which these are. */
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "store/link/link.h"

#define ROUNDS_MAX 5 /* a command that is sent on more often is given back with its error */

/* What a reply is for, if it is not for the command with this number. */
#define REPLY_TO_WAIT UINT32_MAX
#define REPLY_UNUSED (UINT32_MAX - 1)

/* --- collecting commands */

static void
add_command(struct cn_valkey_link *link, struct cn_valkey_server *server, uint32_t n)
{
    if (link->trip_over)
        link->n_commands = 0;
    link->trip_over = false;
    if (link->n_commands == link->cap_commands) {
        link->cap_commands = link->cap_commands ? link->cap_commands * 2 : 64;
        link->commands =
            cn_try_realloc(link->commands, link->cap_commands * sizeof(*link->commands));
        if (!link->commands)
            cn_panic(__FILE__, __LINE__, "not enough memory for a batch's commands");
    }
    if (link->n_commands > 0) {
        struct cn_valkey_command *before = &link->commands[link->n_commands - 1];

        before->end = before->server->out.len;
    }
    link->commands[link->n_commands] =
        (struct cn_valkey_command){.server = server, .at = server->out.len};
    cn_valkey_server_expect(server, link->n_commands++);
    cn_wire_put_command(&server->out, n);
}

void
cn_valkey_command(struct cn_valkey_link *link, uint32_t place, uint32_t n)
{
    struct cn_valkey_server *server = link->options.cluster ? link->cluster.owner[place] : NULL;

    /* If no server has the place's keys, any server will do: it answers that the slot is free. */
    add_command(link, server ? server : link->servers[0], n);
}

void
cn_valkey_command_to(struct cn_valkey_link *link, uint32_t server, uint32_t n)
{
    add_command(link, link->servers[server], n);
}

/* --- one round */

/* Connects to a server of a cluster, unless it has failed a short while ago. */
static void
connect_to(struct cn_valkey_link *link, struct cn_valkey_server *server, uint64_t deadline_us)
{
    const uint64_t now = cn_now_us(), left = deadline_us > now ? deadline_us - now : 0;
    uint64_t until = now + left / 2; /* the others want to be asked, too */

    if (server->retry.failures > 1) {
        if (now < server->retry.next_us)
            return;
        if (now + server->retry.attempt_us < until)
            until = now + server->retry.attempt_us;
    }
    if (cn_valkey_server_connect(server, until, &server->failure) == 0) {
        server->retry = (struct cn_valkey_retry){0};
        memcpy(link->digest, server->digest, sizeof(link->digest));
        return;
    }
    cn_valkey_retry_later(&server->retry, now, link->options.timeout_ms);
    link->cluster.stale = true; /* a replica may be in its place */
}

int
cn_valkey_link_check_all(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    for (uint32_t i = 0; i < link->n_servers; i++) {
        struct cn_valkey_server *server = link->servers[i];

        if (server->wire.fd < 0)
            connect_to(link, server, deadline_us);
        if (server->wire.fd < 0 && server->failure.code != CN_E_STORE_UNREACHABLE) {
            *err = server->failure;
            return err->code;
        }
    }
    return 0;
}

/* Are there commands for the server that were not sent to it yet? */
static bool
has_commands(const struct cn_valkey_server *server)
{
    return server->out.len > server->begin;
}

/* Reads a redirection. Returns the server that is to get the command next, or NULL. */
static struct cn_valkey_server *
redirected(struct cn_valkey_round *round, struct cn_valkey_command *command,
           const redisReply *reply)
{
    struct cn_valkey_link *link = round->link;
    struct cn_redirect redirect;

    if (reply->type != REDIS_REPLY_ERROR || round->last)
        return NULL;
    if (link->script && cn_valkey_is_error(reply, "NOSCRIPT")) {
        command->load = true;
        return command->server;
    }
    if (!link->options.cluster ||
        !cn_hash_slot_redirect(cn_valkey_text(reply), command->server->host, &redirect))
        return NULL;
    link->cluster.stale |= !redirect.ask;
    command->asking = redirect.ask;
    return cn_valkey_link_server(link, redirect.to.host, redirect.to.port);
}

static void
on_server_reply(void *ctx, uint32_t i, const redisReply *reply)
{
    struct cn_valkey_heard *heard = ctx;
    struct cn_valkey_round *round = heard->round;
    struct cn_valkey_server *server = heard->server;
    const uint32_t what = server->replies[server->first_reply + i];
    struct cn_valkey_command *command;

    if (what == REPLY_TO_WAIT)
        cn_valkey_server_take_wait(server, reply);
    if (what == REPLY_TO_WAIT || what == REPLY_UNUSED)
        return;
    command = &round->link->commands[what];
    if ((command->next = redirected(round, command, reply)) != NULL)
        return;
    command->answered = true;
    round->link->speaking = server;
    round->on_reply(round->ctx, what, reply);
}

/* Notes that a server has failed. Without a cluster, cn_valkey_link_ready decides when it is tried
 * again. */
static void
note_failure(struct cn_valkey_link *link, struct cn_valkey_server *server, uint64_t deadline_us)
{
    const uint64_t now = cn_now_us();

    if (!link->options.cluster)
        return;
    cn_valkey_retry_later(&server->retry, now, link->options.timeout_ms);
    if (now >= deadline_us)
        server->retry.failures++; /* the trip's whole time was not enough for it */
    link->cluster.stale = true;
}

/* Collects what the servers have not got yet. */
static void
begin_round(struct cn_valkey_round *round, bool confirm, uint64_t deadline_us)
{
    struct cn_valkey_link *link = round->link;
    uint32_t n = 0;

    for (uint32_t i = 0; i < link->n_servers; i++) {
        struct cn_valkey_server *server = link->servers[i];

        if (!has_commands(server))
            continue;
        if (server->wire.fd < 0 && link->options.cluster)
            connect_to(link, server, deadline_us);
        if (server->wire.fd < 0)
            continue;
        if (confirm && cn_valkey_server_waits(server))
            cn_valkey_server_put_wait(server, deadline_us, REPLY_TO_WAIT);
        round->heard[n] = (struct cn_valkey_heard){round, server};
        round->talks[n] = (struct cn_wire_talk){
            .wire = &server->wire,
            .commands = {server->out.data + server->begin, server->out.len - server->begin},
            .n = server->n_replies - server->first_reply,
            .on_reply = on_server_reply,
            .ctx = &round->heard[n],
            .err = &server->failure};
        if (server->out.failed)
            round->talks[n].rc = cn_fail(&server->failure, CN_E_OUT_OF_MEMORY,
                                         "not enough memory for a command to the state store");
        n++;
    }
    round->n = n;
}

/* Sends what is not sent yet, and takes the replies. */
static void
end_round(struct cn_valkey_round *round, uint64_t deadline_us)
{
    struct cn_valkey_link *link = round->link;

    cn_wire_talk_all(round->talks, round->n, deadline_us);
    for (uint32_t i = 0; i < round->n; i++)
        if (round->talks[i].rc != 0)
            note_failure(link, round->heard[i].server, deadline_us);
    for (uint32_t i = 0; i < link->n_servers; i++) {
        link->servers[i]->begin = link->servers[i]->out.len;
        link->servers[i]->first_reply = link->servers[i]->n_replies;
    }
}

static void
put_words(struct cn_valkey_server *server, const char *first, const char *second, const char *third)
{
    cn_valkey_server_expect(server, REPLY_UNUSED);
    cn_wire_put_command(&server->out, second ? 3 : 1);
    cn_wire_put_word(&server->out, cn_str_from(first));
    if (!second)
        return;
    cn_wire_put_word(&server->out, cn_str_from(second));
    cn_wire_put_word(&server->out, cn_str_from(third));
}

/* Appends a command again, to another server or the same one. */
static void
put_again(struct cn_valkey_link *link, uint32_t i)
{
    struct cn_valkey_command *command = &link->commands[i];
    struct cn_valkey_server *from = command->server, *to = command->next;
    const size_t len = command->end - command->at;
    char *room;

    if (command->load)
        put_words(to, "SCRIPT", "LOAD", link->script);
    if (command->asking)
        put_words(to, "ASKING", NULL, NULL);
    cn_valkey_server_expect(to, i);
    room = cn_buf_reserve(&to->out, len); /* before `from` is read: they may be the same */
    if (room) {
        memcpy(room, from->out.data + command->at, len);
        command->at = to->out.len;
        to->out.len += len;
        command->end = to->out.len;
    }
    command->server = to;
    command->next = NULL;
    command->load = false;
}

/* Appends all commands that are to be sent again. Returns whether there are any. */
static bool
put_redirected(struct cn_valkey_link *link)
{
    bool any = false;

    for (uint32_t i = 0; i < link->n_commands; i++) {
        if (!link->commands[i].next)
            continue;
        put_again(link, i);
        any = true;
    }
    return any;
}

/* --- the trip */

/* Finds out what came of a command.
 *
 * A lost command may or may not have been done: the connection broke before its reply or its
 * confirmation. An unconfirmed one was done, but too few replicas, or no disk, have it. The caller
 * must treat both as unknown. */
static enum cn_valkey_result
judge(const struct cn_valkey_command *command, bool confirm, struct cn_error *err)
{
    struct cn_valkey_server *server = command->server;

    if (command->answered && (!confirm || !cn_valkey_server_waits(server)))
        return CN_COMMAND_DONE;
    if (!command->answered || !server->confirmed.said || server->wire.fd < 0) {
        *err = server->failure;
        if (!err->code)
            cn_fail(err, CN_E_STORE_UNREACHABLE, "there is no connection to the state store");
        return CN_COMMAND_LOST;
    }
    return cn_valkey_server_check_wait(server, err) == 0 ? CN_COMMAND_DONE : CN_COMMAND_UNCONFIRMED;
}

static int
judge_all(struct cn_valkey_link *link, bool confirm, struct cn_error *err)
{
    struct cn_error why = {0};
    int rc = 0;

    link->may_retry = true;
    for (uint32_t i = 0; i < link->n_commands; i++) {
        struct cn_valkey_command *command = &link->commands[i];

        command->result = judge(command, confirm, &why);
        if (command->result == CN_COMMAND_DONE)
            continue;
        if (rc == 0)
            *err = why;
        rc = rc ? rc : why.code;
        /* One that was down before is not waited for again. */
        if (command->server->retry.failures > 1)
            link->may_retry = false;
    }
    /* The replicas may follow another primary now. */
    for (uint32_t i = 0; i < link->n_commands && rc != 0; i++) {
        if (link->commands[i].result != CN_COMMAND_UNCONFIRMED)
            continue;
        cn_wire_drop(&link->commands[i].server->wire);
        link->cluster.stale = true;
    }
    return rc;
}

/* Notes where the last command ends, and collects the first round. */
static void
begin_trip(struct cn_valkey_link *link, struct cn_valkey_round *round, bool confirm,
           cn_valkey_reply_fn on_reply, void *ctx, uint64_t deadline_us)
{
    round->link = link;
    round->on_reply = on_reply;
    round->ctx = ctx;
    round->last = false;
    if (link->n_commands > 0) {
        struct cn_valkey_command *last = &link->commands[link->n_commands - 1];

        last->end = last->server->out.len;
    }
    begin_round(round, confirm, deadline_us);
}

void
cn_valkey_talk_begin(struct cn_valkey_link *link, bool confirm, cn_valkey_reply_fn on_reply,
                     void *ctx, uint64_t deadline_us)
{
    cn_assert(!link->begun);
    link->begun = cn_alloc(sizeof(*link->begun));
    begin_trip(link, link->begun, confirm, on_reply, ctx, deadline_us);
    cn_wire_talk_some(link->begun->talks, link->begun->n);
}

bool
cn_valkey_talk_decided(struct cn_valkey_link *link)
{
    return cn_wire_talk_some(link->begun->talks, link->begun->n);
}

uint32_t
cn_valkey_talk_watch(const struct cn_valkey_link *link, struct pollfd *watched, uint32_t max)
{
    const struct cn_valkey_round *round = link->begun;
    uint32_t n = 0;

    for (uint32_t i = 0; i < round->n && n < max; i++) {
        const struct cn_wire_talk *talk = &round->talks[i];

        if (talk->rc == 0 && talk->taken < talk->n)
            watched[n++] = (struct pollfd){
                .fd = talk->wire->fd,
                .events = talk->sent < talk->commands.len ? POLLIN | POLLOUT : POLLIN};
    }
    return n;
}

int
cn_valkey_talk(struct cn_valkey_link *link, bool confirm, cn_valkey_reply_fn on_reply, void *ctx,
               uint64_t deadline_us, struct cn_error *err)
{
    struct cn_valkey_round own, *round = link->begun ? link->begun : &own;
    int rc;

    if (!link->begun)
        begin_trip(link, &own, confirm, on_reply, ctx, deadline_us);
    end_round(round, deadline_us);
    for (uint32_t n = 2; put_redirected(link); n++) {
        round->last = n == ROUNDS_MAX;
        begin_round(round, confirm, deadline_us);
        end_round(round, deadline_us);
    }
    cn_free(link->begun);
    link->begun = NULL;
    rc = judge_all(link, confirm, err);
    for (uint32_t i = 0; i < link->n_servers; i++)
        cn_valkey_server_clear(link->servers[i]);
    link->trip_over = true;
    /* The wait was in vain, and further calls should not wait at once again. */
    if (rc != 0 && !link->options.cluster && cn_now_us() >= deadline_us) {
        link->failed_us = cn_now_us();
        link->failure = *err;
    }
    return rc;
}

enum cn_valkey_result
cn_valkey_result_of(const struct cn_valkey_link *link, uint32_t i)
{
    cn_assert(i < link->n_commands);
    return link->commands[i].result;
}
