#include "broker.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "messages.h"

enum { BACKLOG = 4096, REQUEST_HEAD_BYTES = 14, PEEK_BYTES = 128 };

struct broker_end {
    struct stream stream;
    bool pending; // a request is known and its body still to come
    struct frame answer;
};

static uint16_t port;
static struct source listener = {.role = LISTENER};

static size_t at_most(size_t value, size_t most) { return value < most ? value : most; }

// Writes the answer to the request at `at`, of which `seen` bytes are there. False: it is nothing that we know.
static bool prepare(const uint8_t *at, size_t seen, struct frame *answer) {
    uint16_t key = get_16(at + 4), version = get_16(at + 6);
    uint32_t correlation = get_32(at + 8);
    uint16_t client_id_bytes = get_16(at + 12);
    size_t body = REQUEST_HEAD_BYTES + (client_id_bytes == UINT16_MAX ? 0 : client_id_bytes) + 1; // no header tags
    answer->head.length = 0;
    answer->body = 0;
    if (key == PRODUCE && version == PRODUCE_VERSION) {
        put_produce_answer(&answer->head, correlation);
    } else if (key == FETCH && version == FETCH_VERSION && seen >= body + FETCH_MAX_BYTES_OFFSET + 4) {
        uint32_t records = get_32(at + body + FETCH_MAX_BYTES_OFFSET);
        if (records > MAX_BODY_BYTES - TAIL_BYTES) return false;
        put_fetch_answer(&answer->head, correlation, records);
        answer->body = records + TAIL_BYTES;
    } else if (key == METADATA && version == METADATA_VERSION) {
        put_metadata_answer(&answer->head, correlation, port);
    } else if (key == API_VERSIONS) {
        put_api_versions_answer(&answer->head, correlation, version);
    } else {
        fprintf(stderr, "broker: no answer for api key %u version %u\n", key, version);
        return false;
    }
    return true;
}

// Answers every request that is there. False: the client sent something else.
static bool serve(struct broker_end *c) {
    struct stream *s = &c->stream;
    size_t taken = 0;
    while (!stream_full(s)) {
        if (c->pending) {
            if (s->skip) break;
            *stream_push(s) = c->answer;
            c->pending = false;
        }
        const uint8_t *at = s->in + taken;
        size_t left = s->in_bytes - taken;
        if (left < REQUEST_HEAD_BYTES) break;
        size_t frame = (size_t)get_32(at) + 4, seen = at_most(frame, PEEK_BYTES);
        if (frame < REQUEST_HEAD_BYTES || frame > INT32_MAX) return false;
        if (left < seen) break;
        if (!prepare(at, seen, &c->answer)) return false;
        size_t present = at_most(frame, left);
        s->skip = frame - present;
        taken += present;
        c->pending = true;
    }
    stream_consume(s, taken);
    return true;
}

// Serves and sends for as long as sending makes room for more answers. False: the connection is over.
static bool answer_all(struct broker_end *c) {
    bool was_full;
    do {
        if (!serve(c)) return false;
        was_full = stream_full(&c->stream);
        if (!stream_flush(&c->stream)) return false;
    } while (was_full && !stream_full(&c->stream));
    return true;
}

// With a reset: a proxy that closed its side would else keep the port for a minute, and search the longer for a free one
// the more connections it has had.
static void end(struct broker_end *c) {
    struct linger reset = {.l_onoff = 1};
    setsockopt(c->stream.source.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(c->stream.source.fd);
    free(c);
}

void broker_attend(int epoll, struct source *source, uint32_t events) {
    struct broker_end *c = (struct broker_end *)source;
    bool alive = !(events & (EPOLLERR | EPOLLHUP)) || (events & EPOLLIN);
    if (alive && events & EPOLLIN) alive = stream_read(&c->stream);
    if (alive) alive = answer_all(c);
    if (alive)
        stream_watch(epoll, &c->stream);
    else
        end(c);
}

void broker_accept(int epoll) {
    int fd;
    while ((fd = accept4(listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct broker_end *c = calloc(1, sizeof *c);
        if (c == NULL) abort();
        stream_open(&c->stream, BROKER_END, fd);
        if (!watch_source(epoll, &c->stream.source)) end(c);
    }
}

bool broker_listen(int epoll, uint16_t on) {
    int yes = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(on), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    port = on;
    listener.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    return bind(listener.fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener.fd, BACKLOG) == 0 &&
           watch_source(epoll, &listener);
}
