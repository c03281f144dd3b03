// A stand-in for a Kafka broker that costs next to nothing: it answers Produce v9, Fetch v12, Metadata v1 and ApiVersions
// with valid frames and stores nothing. An answer follows when the last byte of its request has come, in order. A
// request that it does not know is an error on stderr and the end of the connection.
//
//   stub_broker PORT
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "messages.h"
#include "stream.h"

enum { EVENTS = 256, BACKLOG = 4096, REQUEST_HEAD_BYTES = 14, PEEK_BYTES = 128 };

struct client {
    struct stream stream;
    bool pending; // a request is known and its body still to come
    struct frame answer;
};

static uint16_t port;

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
        fprintf(stderr, "stub_broker: no answer for api key %u version %u\n", key, version);
        return false;
    }
    return true;
}

// Answers every request that is there. False: the client sent something else.
static bool serve(struct client *c) {
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
static bool answer_all(struct client *c) {
    bool was_full;
    do {
        if (!serve(c)) return false;
        was_full = stream_full(&c->stream);
        if (!stream_flush(&c->stream)) return false;
    } while (was_full && !stream_full(&c->stream));
    return true;
}

static void end(struct client *c) {
    close(c->stream.fd);
    free(c);
}

static void attend(int epoll, struct client *c, uint32_t events) {
    bool alive = !(events & (EPOLLERR | EPOLLHUP)) || (events & EPOLLIN);
    if (alive && events & EPOLLIN) alive = stream_read(&c->stream);
    if (alive) alive = answer_all(c);
    if (alive)
        stream_watch(epoll, &c->stream);
    else
        end(c);
}

static void accept_all(int listener, int epoll) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct client *c = calloc(1, sizeof *c);
        if (c == NULL) abort();
        stream_open(&c->stream, fd);
        if (!stream_register(epoll, &c->stream)) end(c);
    }
}

static int listen_on(uint16_t on) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(on), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, BACKLOG)) {
        perror("stub_broker: bind");
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: stub_broker PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    port = (uint16_t)atoi(argv[1]);
    int listener = listen_on(port), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int n = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL)
                accept_all(listener, epoll);
            else
                attend(epoll, events[i].data.ptr, events[i].events);
        }
    }
}
