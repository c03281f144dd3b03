#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "messages.h"
#include "requests.h"

enum { DRAIN_S = 5, ANSWER_HEAD_BYTES = 8, FETCH_ANSWER_PEEK_BYTES = 13, TURN_MS = 20, SOURCES = 200 };

struct errors {
    uint64_t correlation, size, refused, throttled, lost, overrun, unanswered, not_resumed;
};

struct client {
    struct stream stream;
    uint32_t sent, answered; // correlation ids of the next request and the next answer
    double due_s[MAX_DEPTH]; // when the requests in flight were due, by correlation id
    bool mid_answer;
    bool used_up; // what the connection was opened for is done
};

static struct options options;
static struct errors errors;
static struct client *clients;
static int client_count;
static int epoll;

static bool measuring, sending;
static uint64_t answers;
static double *latencies_s;
static size_t latency_count, latency_room;

// ---------------------------------------------------------------------------------------------------------- requests

// Whether the connection has come to the request that is sent again and again.
static bool is_open(const struct client *c) { return c->answered + 1 >= request_count; }

static uint32_t in_flight(const struct client *c) { return c->sent - c->answered; }

static void send_request(struct client *c, double due_s) {
    struct frame *f = stream_push(&c->stream);
    *f = requests[c->sent < request_count ? c->sent : request_count - 1];
    set_32(f->head.bytes + CORRELATION_OFFSET, c->sent);
    uint64_t number = (uint64_t)(c - clients);
    if (options.rotate) number += (uint64_t)c->sent * (uint64_t)options.connections;
    if (options.client_ids > 1) set_client_id(&f->head, (uint32_t)(number % (uint64_t)options.client_ids));
    c->due_s[c->sent++ % MAX_DEPTH] = due_s;
}

// What comes before the last request is sent one at a time, as clients do.
static void send_all(struct client *c, double t) {
    uint32_t depth = is_open(c) ? (uint32_t)options.depth : 1;
    while (in_flight(c) < depth) send_request(c, t);
}

// ----------------------------------------------------------------------------------------------------------- answers

static void note_latency(double seconds) {
    if (latency_count == latency_room) {
        latency_room = latency_room ? 2 * latency_room : 1 << 16;
        latencies_s = realloc(latencies_s, latency_room * sizeof *latencies_s);
        if (latencies_s == NULL) abort();
    }
    latencies_s[latency_count++] = seconds;
}

static void note_answer(struct client *c, double t) {
    if (measuring) {
        answers++;
        note_latency(t - c->due_s[c->answered % MAX_DEPTH]);
    }
    c->answered++;
    c->mid_answer = false;
    if (options.reconnect && sending)
        c->used_up = true;
    else if (sending && options.rate == 0)
        send_all(c, t);
}

// The size of an answer, of which the first bytes are there.
static uint32_t check_head(const struct client *c, const uint8_t *at) {
    uint32_t frame = get_32(at) + 4;
    if (get_32(at + 4) != c->answered || in_flight(c) == 0) errors.correlation++;
    if (is_open(c) ? frame != answer_bytes : frame < ANSWER_HEAD_BYTES) errors.size++;
    return frame;
}

// How much of an answer check_rest looks at. What there is to say stands at the end of an answer to Produce.
static size_t peek_bytes(const struct client *c) {
    if (!is_open(c)) return ANSWER_HEAD_BYTES;
    return options.fetch && answer_bytes > FETCH_ANSWER_PEEK_BYTES ? FETCH_ANSWER_PEEK_BYTES : answer_bytes;
}

static void check_rest(const struct client *c, const uint8_t *at) {
    if (!is_open(c)) return;
    if (options.resume && measuring && !tls_resumed(c->stream.tls)) errors.not_resumed++;
    uint32_t offset = options.fetch ? FETCH_ANSWER_THROTTLE_OFFSET : answer_bytes - PRODUCE_ANSWER_THROTTLE_FROM_END;
    if (!options.fetch && get_16(at + answer_bytes - PRODUCE_ANSWER_ERROR_FROM_END) != 0) errors.refused++;
    if (get_32(at + offset) != 0) errors.throttled++;
}

static uint64_t failures(void) {
    return errors.correlation + errors.size + errors.refused + errors.throttled + errors.lost + errors.overrun +
           errors.unanswered + errors.not_resumed;
}

static void take_answers(struct client *c) {
    struct stream *s = &c->stream;
    size_t taken = 0;
    double t = now_s();
    for (;;) {
        if (c->mid_answer) {
            if (s->skip) break;
            note_answer(c, t);
        }
        const uint8_t *at = s->in + taken;
        size_t left = s->in_bytes - taken;
        if (left < ANSWER_HEAD_BYTES) break;
        uint32_t frame = check_head(c, at);
        if (!failures() && left < peek_bytes(c)) break;
        if (!failures()) check_rest(c, at);
        if (failures()) return;
        size_t present = left < frame ? left : frame;
        s->skip = frame - present;
        taken += present;
        c->mid_answer = true;
    }
    stream_consume(s, taken);
}

// -------------------------------------------------------------------------------------------------------- connections

// A connection that ended keeps its pair of ports for a minute, and looking for a free one among many is slow: from one
// address after the other, none becomes scarce.
static bool bind_source(int fd) {
    static uint32_t next;
    struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + next++ % SOURCES)};
    int yes = 1;
    return setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes) == 0 &&
           bind(fd, (struct sockaddr *)&source, sizeof source) == 0;
}

static bool open_client(struct client *c) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)options.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || !bind_source(fd) || connect(fd, (struct sockaddr *)&address, sizeof address)) {
        if (fd >= 0) close(fd);
        return false;
    }
    stream_open(&c->stream, CLIENT_END, fd);
    if (options.tls) c->stream.tls = tls_open(fd, options.resume);
    if (!watch_source(epoll, &c->stream.source)) abort();
    return true;
}

static bool open_all(void) {
    clients = calloc((size_t)options.connections, sizeof *clients);
    if (clients == NULL) abort();
    for (client_count = 0; client_count < options.connections; client_count++) {
        if (open_client(&clients[client_count])) continue;
        printf("{\"error\": \"connection %d of %d to port %d: %s\"}\n", client_count + 1, options.connections,
               options.port, strerror(errno));
        return false;
    }
    return true;
}

static void close_all(void) {
    for (int i = 0; i < client_count; i++) stream_close(&clients[i].stream);
    free(clients);
    clients = NULL;
    client_count = 0;
    tls_forget_sessions();
}

static bool reopen(struct client *c, double t) {
    stream_close(&c->stream);
    if (!open_client(c)) {
        perror("another connection");
        return false;
    }
    c->used_up = false;
    send_request(c, t);
    return true;
}

void load_attend(struct source *source, uint32_t events) {
    struct client *c = (struct client *)source;
    bool alive = true;
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
        do {
            alive = stream_read(&c->stream);
            take_answers(c);
        } while (alive && !failures() && stream_has_more(&c->stream));
    }
    if (c->used_up) alive = reopen(c, now_s());
    if (alive) alive = stream_flush(&c->stream);
    if (!alive) errors.lost++;
    stream_watch(epoll, &c->stream);
}

static void begin(struct client *c) {
    send_all(c, now_s());
    if (!stream_flush(&c->stream)) errors.lost++;
    stream_watch(epoll, &c->stream);
}

// --------------------------------------------------------------------------------------------------------- the pacing

static struct source ticker = {TICKER, -1};
static double first_due_s;
static uint64_t paced;

static void start_pacing(void) {
    long period_ns = (long)(1e9 / options.rate);
    struct itimerspec every = {.it_interval = {period_ns / 1000000000, period_ns % 1000000000}};
    every.it_value = every.it_interval;
    ticker.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    timerfd_settime(ticker.fd, 0, &every, NULL);
    if (!watch_source(epoll, &ticker)) abort();
    paced = 0;
    first_due_s = now_s() + 1 / options.rate;
}

static void stop_pacing(void) {
    if (ticker.fd >= 0) close(ticker.fd);
    ticker.fd = -1;
}

// Sends what has become due, one connection after the other.
void load_pace(void) {
    uint64_t ticks;
    if (read(ticker.fd, &ticks, sizeof ticks) != sizeof ticks || !sending) return;
    for (double t = now_s();; paced++) {
        double due_s = first_due_s + (double)paced / options.rate;
        if (due_s > t) return;
        struct client *c = &clients[paced % (uint64_t)client_count];
        if (in_flight(c) == MAX_DEPTH) { // answers come more slowly than requests: no latency to speak of
            errors.overrun++;
            return;
        }
        send_request(c, due_s);
        if (!stream_flush(&c->stream)) errors.lost++;
        stream_watch(epoll, &c->stream);
    }
}

// ----------------------------------------------------------------------------------------------------------- the run

static bool all_answered(void) {
    for (int i = 0; i < client_count; i++)
        if (in_flight(&clients[i])) return false;
    return true;
}

static bool all_used(void) {
    for (int i = 0; i < client_count; i++)
        if (clients[i].answered < request_count) return false;
    return true;
}

static bool never(void) { return false; }

static void turn_until(double end_s, bool (*enough)(void)) {
    while (now_s() < end_s && !failures() && !enough()) turn(epoll, TURN_MS);
}

static void read_cpu(double *cpu_s) {
    for (int i = 0; i < options.watched; i++) cpu_s[i] = process_cpu_s(options.watch[i]);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile_us(double fraction) {
    return latency_count ? latencies_s[(size_t)(fraction * (double)(latency_count - 1))] * 1e6 : 0;
}

static void print_errors(void) {
    printf("\"errors\": {\"correlation\": %lu, \"size\": %lu, \"refused\": %lu, \"throttled\": %lu, \"lost\": %lu, "
           "\"overrun\": %lu, \"unanswered\": %lu, \"not_resumed\": %lu}",
           errors.correlation, errors.size, errors.refused, errors.throttled, errors.lost, errors.overrun,
           errors.unanswered, errors.not_resumed);
}

static void report(double elapsed_s, double waited_s, const double *cpu_before, const double *cpu_after) {
    const struct frame *last = &requests[request_count - 1];
    qsort(latencies_s, latency_count, sizeof *latencies_s, ascending);
    printf("{\"requests\": %lu, \"seconds\": %.6f, \"idle_s\": %.6f, \"request_bytes\": %u, \"answer_bytes\": %u, ",
           answers, elapsed_s, waited_s, last->head.length + last->body, answer_bytes);
    printf("\"latency_us\": {\"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f}, \"watched_cpu_s\": [",
           percentile_us(.5), percentile_us(.99), percentile_us(.999));
    for (int i = 0; i < options.watched; i++) printf("%s%.6f", i ? ", " : "", cpu_after[i] - cpu_before[i]);
    printf("], ");
    print_errors();
    printf("}\n");
}

static void measure(void) {
    double before[MAX_WATCHED], after[MAX_WATCHED];
    sending = true;
    if (options.rate > 0)
        start_pacing();
    else
        for (int i = 0; i < client_count; i++) begin(&clients[i]);
    turn_until(now_s() + DRAIN_S, all_used); // what connections cost is no part of what requests cost
    turn_until(now_s() + options.warmup, never);

    measuring = true;
    read_cpu(before);
    double start_s = now_s(), idle_before_s = idle_s;
    turn_until(start_s + options.seconds, never);
    double elapsed_s = now_s() - start_s, waited_s = idle_s - idle_before_s;
    read_cpu(after);

    measuring = sending = false;
    turn_until(now_s() + DRAIN_S, all_answered);
    stop_pacing();
    if (!failures() && !all_answered()) errors.unanswered++;
    report(elapsed_s, waited_s, before, after);
}

static void use_each_once(void) {
    for (int i = 0; i < client_count; i++) begin(&clients[i]);
    turn_until(now_s() + DRAIN_S, all_answered);
    if (!failures() && !all_answered()) errors.unanswered++;
    printf("{\"held\": %d, ", client_count);
    print_errors();
    printf("}\n");
}

// ---------------------------------------------------------------------------------------------------------- commands

void load_run(int with_epoll, char *line) {
    epoll = with_epoll;
    close_all();
    errors = (struct errors){0};
    answers = 0;
    latency_count = 0;
    if (!parse_options(line, &options)) {
        puts("{\"error\": \"an option is missing, unknown or out of range (the head of load.h lists them)\"}");
    } else if (options.port) {
        awake_s = options.awake;
        if (!prepare_requests(&options))
            printf("{\"error\": \"%s is no file of whole requests\"}\n", options.frames);
        else if (!open_all())
            close_all();
        else if (options.hold)
            use_each_once();
        else
            measure();
        if (!options.hold) close_all();
    } else {
        puts("{\"held\": 0}");
    }
    fflush(stdout);
}
