#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FRAMES_AT_ONCE = 16 };

static uint8_t records[MAX_BODY_BYTES];

double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double idle_s;
double awake_s;

int wait_events(int epoll, struct epoll_event *events, int most, int timeout_ms) {
    static double last_event_s, idle_since_s; // the latter 0: not idle
    if (idle_since_s == 0) idle_since_s = now_s();
    int n = epoll_wait(epoll, events, most, 0);
    double after_s = now_s();
    if (n == 0 && after_s - last_event_s > awake_s) {
        n = epoll_wait(epoll, events, most, timeout_ms);
        after_s = now_s();
    }
    if (n > 0) {
        last_event_s = after_s;
        idle_since_s = 0;
    } else {
        idle_s += after_s - idle_since_s;
        idle_since_s = after_s;
    }
    return n;
}

double process_cpu_s(int pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return -1;
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool watch_source(int epoll, struct source *s) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = s};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, s->fd, &event) == 0;
}

void stream_open(struct stream *s, enum role role, int fd) {
    int on = 1;
    memset(s, 0, sizeof *s);
    s->source = (struct source){role, fd};
    s->wants_read = true;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void stream_close(struct stream *s) {
    if (s->tls != NULL) tls_close(s->tls);
    s->tls = NULL;
    close(s->source.fd);
    s->source.fd = -1;
}

void stream_watch(int epoll, struct stream *s) {
    bool write = s->count > 0 && !(s->tls != NULL && tls_awaits_read(s->tls)), read = !stream_full(s);
    if (write == s->wants_write && read == s->wants_read) return;
    struct epoll_event event = {.events = (read ? EPOLLIN : 0) | (write ? EPOLLOUT : 0), .data.ptr = s};
    epoll_ctl(epoll, EPOLL_CTL_MOD, s->source.fd, &event);
    s->wants_write = write;
    s->wants_read = read;
}

struct frame *stream_push(struct stream *s) {
    struct frame *f = &s->queue[(s->first + s->count++) % QUEUE_FRAMES];
    f->head.length = 0;
    f->body = 0;
    f->from = NULL;
    return f;
}

static uint8_t *body(const struct frame *f) { return f->from != NULL ? (uint8_t *)(uintptr_t)f->from : records; }

// Points `parts` at the unsent bytes of the first frames; returns how many parts there are.
static int gather(struct stream *s, struct iovec *parts) {
    int n = 0;
    uint64_t sent = s->sent; // of the first frame only
    for (unsigned i = 0; i < s->count && i < FRAMES_AT_ONCE; i++, sent = 0) {
        struct frame *f = &s->queue[(s->first + i) % QUEUE_FRAMES];
        if (sent < f->head.length) parts[n++] = (struct iovec){f->head.bytes + sent, f->head.length - sent};
        uint64_t of_body = sent > f->head.length ? sent - f->head.length : 0;
        if (of_body < f->body) parts[n++] = (struct iovec){body(f) + of_body, f->body - of_body};
    }
    return n;
}

static void drop_sent(struct stream *s, uint64_t bytes) {
    s->sent += bytes;
    while (s->count) {
        struct frame *f = &s->queue[s->first];
        uint64_t length = (uint64_t)f->head.length + f->body;
        if (s->sent < length) break;
        s->sent -= length;
        s->first = (s->first + 1) % QUEUE_FRAMES;
        s->count--;
    }
}

bool stream_flush(struct stream *s) {
    while (s->count) {
        struct iovec parts[2 * FRAMES_AT_ONCE];
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)gather(s, parts)};
        ssize_t n = s->tls != NULL ? tls_send(s->tls, parts, (int)message.msg_iovlen)
                                   : sendmsg(s->source.fd, &message, MSG_NOSIGNAL);
        if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
        drop_sent(s, (uint64_t)n);
    }
    return true;
}

static ssize_t receive(struct stream *s, void *into, size_t room) {
    return s->tls != NULL ? tls_receive(s->tls, into, room) : recv(s->source.fd, into, room, into ? 0 : MSG_TRUNC);
}

bool stream_read(struct stream *s) {
    ssize_t n;
    if (s->skip > IN_BYTES) { // inside a large body: the kernel throws it away without copying it
        n = receive(s, NULL, s->skip < MAX_BODY_BYTES ? s->skip : MAX_BODY_BYTES);
        if (n > 0) s->skip -= (uint64_t)n;
    } else {
        n = receive(s, s->in + s->in_bytes, IN_BYTES - s->in_bytes);
        if (n > 0) s->in_bytes += (size_t)n;
    }
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
    if (s->skip && s->in_bytes) {
        size_t skipped = s->skip < s->in_bytes ? (size_t)s->skip : s->in_bytes;
        s->skip -= skipped;
        stream_consume(s, skipped);
    }
    return true;
}

void stream_consume(struct stream *s, size_t bytes) {
    s->in_bytes -= bytes;
    memmove(s->in, s->in + bytes, s->in_bytes);
}
