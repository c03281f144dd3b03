// One non-blocking connection that carries frames: a head of some bytes, then records that nobody looks at.
//
// Incoming records are thrown away inside the kernel (MSG_TRUNC) and outgoing ones are gathered from one shared blob,
// so that large frames cost the generator far less than the proxy between its two ends.
#ifndef SLUICE_BENCH_STREAM_H
#define SLUICE_BENCH_STREAM_H

#include <stddef.h>

#include "tls.h"
#include "wire.h"

enum { IN_BYTES = 8192, QUEUE_FRAMES = 64, MAX_BODY_BYTES = 8 << 20 };

struct frame {
    struct head head;
    uint32_t body;       // bytes behind the head
    const uint8_t *from; // where they are; NULL: records that nobody looks at
};

// What epoll reports on. The first member of everything that is registered there.
enum role { COMMANDS, LISTENER, TICKER, BROKER_END, CLIENT_END };

struct source {
    enum role role;
    int fd;
};

struct stream {
    struct source source;
    struct ssl_st *tls; // NULL: plain
    bool wants_write; // as epoll has been told
    bool wants_read;
    uint8_t in[IN_BYTES];
    size_t in_bytes;
    uint64_t skip; // bytes of the incoming frame that are not looked at and still to come
    struct frame queue[QUEUE_FRAMES];
    unsigned first, count; // frames that are not sent yet
    uint64_t sent;         // bytes of the first of them that are
};

struct epoll_event;

double now_s(void);
extern double idle_s;  // how long wait_events has found nothing to do
extern double awake_s; // how long it asks again after an event before it sleeps

// As epoll_wait, but it asks again and again for a while after the last event before it sleeps. Else a proxy would pay
// for waking us with each of its writes, and a slow one, whose peers sleep more, would pay more often: on a network
// it would pay for neither.
int wait_events(int epoll, struct epoll_event *events, int most, int timeout_ms);
double process_cpu_s(int pid); // user and system time of all threads, ended ones too; negative: no such process

bool watch_source(int epoll, struct source *s); // for reading

void stream_open(struct stream *s, enum role role, int fd); // takes a connected socket
void stream_close(struct stream *s);
void stream_watch(int epoll, struct stream *s); // tells epoll what the stream waits for now

static inline bool stream_full(const struct stream *s) { return s->count == QUEUE_FRAMES; }
struct frame *stream_push(struct stream *s); // an empty frame at the end of the queue, which must not be full
bool stream_flush(struct stream *s);         // false: the connection is lost

// Reads once and throws away what belongs to `skip`. False: the connection is lost or at its end.
bool stream_read(struct stream *s);
static inline bool stream_has_more(const struct stream *s) { return s->tls != NULL && tls_has_more(s->tls); }
void stream_consume(struct stream *s, size_t bytes); // takes bytes from the front of `in`

#endif
