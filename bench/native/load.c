// The load generator: Kafka requests on many connections at once, and one line of JSON about the answers.
//
//   load [NAME=VALUE ...]
//     port=N            where to connect, on 127.0.0.1 (required)
//     api=produce|fetch what to send (produce)
//     bytes=N           the size of a produce request, or of the records of a fetch answer (512)
//     connections=N     (1)
//     depth=N           requests in flight on each connection (1)
//     rate=N            requests per second of all connections, evenly spaced; without it, each answer is followed by
//                       the next request at once
//     client_ids=N      distinct client-ids: connection i uses number i mod N (1)
//     rotate=1          every request of a connection names another client-id
//     warmup=S, seconds=S
//     watch=PID,PID     processes whose CPU time is read at both ends of the measured time
//     hold=1            one request on each connection, then "ready", and the end when stdin ends
//
// With a rate, latency counts from the moment a request was due, not from when it could be sent. An answer with the
// wrong correlation id or size, one that tells a throttle, or a lost connection is counted and makes the exit status 1.
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "messages.h"
#include "stream.h"

enum { EVENTS = 256, MAX_WATCHED = 16, MAX_DEPTH = QUEUE_FRAMES, DRAIN_S = 5, ANSWER_PEEK_BYTES = 64 };

static struct {
    int port, connections, depth, client_ids, rotate, hold, watched;
    int watch[MAX_WATCHED];
    uint32_t bytes;
    bool fetch;
    double rate, warmup, seconds;
} options = {.connections = 1, .depth = 1, .client_ids = 1, .bytes = 512, .warmup = 0.5, .seconds = 2};

static struct {
    uint64_t correlation, size, throttled, lost, overrun, unanswered;
} errors;

struct connection {
    struct stream stream;
    uint32_t sent, answered; // correlation ids of the next request and the next answer
    double due_s[MAX_DEPTH]; // when the requests in flight were due, by correlation id
    bool mid_answer;
};

static struct connection *connections;
static struct frame request; // what is sent, but for correlation id and client-id
static uint32_t answer_bytes; // of every right answer, size field included
static int epoll;

static bool measuring, sending;
static uint64_t answers;
static double *latencies_s;
static size_t latency_count, latency_room;

// ---------------------------------------------------------------------------------------------------------- messages

static void prepare_messages(void) {
    struct head answer = {.length = 0};
    uint32_t records = options.bytes;
    if (options.fetch) {
        put_fetch_request(&request.head, records);
        put_fetch_answer(&answer, 0, records);
        answer_bytes = answer.length + records + TAIL_BYTES;
        return;
    }
    struct head trial = {.length = 0};
    put_produce_request(&trial, records > HEAD_BYTES ? records - HEAD_BYTES : 0); // a length of the right length
    records = records > trial.length + TAIL_BYTES ? records - trial.length - TAIL_BYTES : 0;
    put_produce_request(&request.head, records);
    request.body = records + TAIL_BYTES;
    put_produce_answer(&answer, 0);
    answer_bytes = answer.length;
}

static uint32_t in_flight(const struct connection *c) { return c->sent - c->answered; }

static void send_request(struct connection *c, double due_s) {
    struct frame *f = stream_push(&c->stream);
    *f = request;
    set_32(f->head.bytes + CORRELATION_OFFSET, c->sent);
    uint64_t number = (uint64_t)(c - connections);
    if (options.rotate) number += (uint64_t)c->sent * (uint64_t)options.connections;
    if (options.client_ids > 1) set_client_id(&f->head, (uint32_t)(number % (uint64_t)options.client_ids));
    c->due_s[c->sent++ % MAX_DEPTH] = due_s;
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

static void note_answer(struct connection *c, double t) {
    if (measuring) {
        answers++;
        note_latency(t - c->due_s[c->answered % MAX_DEPTH]);
    }
    c->answered++;
    c->mid_answer = false;
    if (sending && options.rate == 0) send_request(c, t);
}

static void check_answer(const struct connection *c, const uint8_t *at) {
    uint32_t frame = get_32(at) + 4;
    if (get_32(at + 4) != c->answered || in_flight(c) == 0) errors.correlation++;
    if (frame != answer_bytes) {
        errors.size++;
        return;
    }
    uint32_t offset = options.fetch ? FETCH_ANSWER_THROTTLE_OFFSET : answer_bytes - PRODUCE_ANSWER_THROTTLE_FROM_END;
    if (get_32(at + offset) != 0) errors.throttled++;
}

static uint64_t failures(void) {
    return errors.correlation + errors.size + errors.throttled + errors.lost + errors.overrun + errors.unanswered;
}

static void take_answers(struct connection *c) {
    struct stream *s = &c->stream;
    size_t taken = 0, peek = answer_bytes < ANSWER_PEEK_BYTES ? answer_bytes : ANSWER_PEEK_BYTES;
    double t = now_s();
    for (;;) {
        if (c->mid_answer) {
            if (s->skip) break;
            note_answer(c, t);
        }
        size_t left = s->in_bytes - taken;
        if (left < peek) break;
        check_answer(c, s->in + taken);
        if (failures()) return;
        size_t present = left < answer_bytes ? left : answer_bytes;
        s->skip = answer_bytes - present;
        taken += present;
        c->mid_answer = true;
    }
    stream_consume(s, taken);
}

static void attend(struct connection *c, uint32_t events) {
    bool alive = true;
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
        alive = stream_read(&c->stream);
        take_answers(c);
    }
    if (alive) alive = stream_flush(&c->stream);
    if (!alive) errors.lost++;
    stream_watch(epoll, &c->stream);
}

// -------------------------------------------------------------------------------------------------------- connections

static void connect_all(void) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)options.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    connections = calloc((size_t)options.connections, sizeof *connections);
    if (connections == NULL) abort();
    for (int i = 0; i < options.connections; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
            fprintf(stderr, "load: connection %d of %d to port %d: %s\n", i + 1, options.connections, options.port,
                    strerror(errno));
            exit(1);
        }
        stream_open(&connections[i].stream, fd);
        if (!stream_register(epoll, &connections[i].stream)) abort();
    }
}

static void fill(struct connection *c, int depth) {
    double t = now_s();
    while (in_flight(c) < (uint32_t)depth) send_request(c, t);
    if (!stream_flush(&c->stream)) errors.lost++;
    stream_watch(epoll, &c->stream);
}

// --------------------------------------------------------------------------------------------------------- the pacing

static int ticker = -1;
static double first_due_s;
static uint64_t paced;

static void start_pacing(void) {
    long period_ns = (long)(1e9 / options.rate);
    struct itimerspec every = {.it_interval = {period_ns / 1000000000, period_ns % 1000000000}};
    every.it_value = every.it_interval;
    ticker = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    timerfd_settime(ticker, 0, &every, NULL);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll, EPOLL_CTL_ADD, ticker, &event);
    first_due_s = now_s() + 1 / options.rate;
}

// Sends what has become due, one connection after the other.
static void pace(void) {
    uint64_t ticks;
    if (read(ticker, &ticks, sizeof ticks) != sizeof ticks || !sending) return;
    for (double t = now_s();; paced++) {
        double due_s = first_due_s + (double)paced / options.rate;
        if (due_s > t) return;
        struct connection *c = &connections[paced % (uint64_t)options.connections];
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
    for (int i = 0; i < options.connections; i++)
        if (in_flight(&connections[i])) return false;
    return true;
}

static void turn_until(double end_s, bool until_answered) {
    struct epoll_event events[EVENTS];
    while (now_s() < end_s && !failures()) {
        if (until_answered && all_answered()) return;
        int n = epoll_wait(epoll, events, EVENTS, 20);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL)
                pace();
            else
                attend(events[i].data.ptr, events[i].events);
        }
    }
}

static void read_cpu(double *cpu_s) {
    for (int i = 0; i < options.watched; i++) cpu_s[i] = process_cpu_s(options.watch[i]);
    cpu_s[options.watched] = process_cpu_s(getpid());
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile_us(double fraction) {
    return latency_count ? latencies_s[(size_t)(fraction * (double)(latency_count - 1))] * 1e6 : 0;
}

static void report(double elapsed_s, const double *cpu_before, const double *cpu_after) {
    qsort(latencies_s, latency_count, sizeof *latencies_s, ascending);
    printf("{\"requests\": %lu, \"seconds\": %.6f, \"request_bytes\": %u, \"answer_bytes\": %u, ", answers, elapsed_s,
           request.head.length + request.body, answer_bytes);
    printf("\"latency_us\": {\"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f}, ", percentile_us(.5), percentile_us(.99),
           percentile_us(.999));
    printf("\"generator_cpu_s\": %.6f, \"watched_cpu_s\": [",
           cpu_after[options.watched] - cpu_before[options.watched]);
    for (int i = 0; i < options.watched; i++) printf("%s%.6f", i ? ", " : "", cpu_after[i] - cpu_before[i]);
    printf("], \"errors\": {\"correlation\": %lu, \"size\": %lu, \"throttled\": %lu, \"lost\": %lu, \"overrun\": %lu, "
           "\"unanswered\": %lu}}\n",
           errors.correlation, errors.size, errors.throttled, errors.lost, errors.overrun, errors.unanswered);
}

static void measure(void) {
    double before[MAX_WATCHED + 1], after[MAX_WATCHED + 1];
    sending = true;
    if (options.rate > 0)
        start_pacing();
    else
        for (int i = 0; i < options.connections; i++) fill(&connections[i], options.depth);
    turn_until(now_s() + options.warmup, false);

    measuring = true;
    read_cpu(before);
    double start_s = now_s();
    turn_until(start_s + options.seconds, false);
    double elapsed_s = now_s() - start_s;
    read_cpu(after);

    measuring = sending = false;
    turn_until(now_s() + DRAIN_S, true);
    if (!failures() && !all_answered()) errors.unanswered++;
    report(elapsed_s, before, after);
}

static void hold(void) {
    char ignored[64];
    for (int i = 0; i < options.connections; i++) fill(&connections[i], 1);
    turn_until(now_s() + DRAIN_S, true);
    if (failures() || !all_answered()) {
        fprintf(stderr, "load: not every connection was answered\n");
        exit(1);
    }
    puts("ready");
    fflush(stdout);
    while (read(STDIN_FILENO, ignored, sizeof ignored) > 0) continue;
}

// ----------------------------------------------------------------------------------------------------------- options

static void parse_watch(char *list) {
    for (char *pid = strtok(list, ","); pid != NULL && options.watched < MAX_WATCHED; pid = strtok(NULL, ","))
        options.watch[options.watched++] = atoi(pid);
}

static bool parse(char *argument) {
    char *value = strchr(argument, '=');
    if (value == NULL) return false;
    *value++ = '\0';
    if (!strcmp(argument, "port")) options.port = atoi(value);
    else if (!strcmp(argument, "api") && (!strcmp(value, "produce") || !strcmp(value, "fetch"))) options.fetch = *value == 'f';
    else if (!strcmp(argument, "bytes")) options.bytes = (uint32_t)atol(value);
    else if (!strcmp(argument, "connections")) options.connections = atoi(value);
    else if (!strcmp(argument, "depth")) options.depth = atoi(value);
    else if (!strcmp(argument, "rate")) options.rate = atof(value);
    else if (!strcmp(argument, "client_ids")) options.client_ids = atoi(value);
    else if (!strcmp(argument, "rotate")) options.rotate = atoi(value);
    else if (!strcmp(argument, "warmup")) options.warmup = atof(value);
    else if (!strcmp(argument, "seconds")) options.seconds = atof(value);
    else if (!strcmp(argument, "watch")) parse_watch(value);
    else if (!strcmp(argument, "hold")) options.hold = atoi(value);
    else return false;
    return true;
}

static bool within(long value, long least, long most) { return value >= least && value <= most; }

static bool options_are_sound(void) {
    return within(options.port, 1, 65535) && within(options.connections, 1, 100000) &&
           within(options.depth, 1, MAX_DEPTH) && within(options.client_ids, 1, MAX_CLIENT_IDS) &&
           within(options.bytes, 0, MAX_BODY_BYTES - TAIL_BYTES) && options.rate >= 0 && options.seconds > 0;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!parse(argv[i])) {
            fprintf(stderr, "load: cannot read %s (the head of load.c lists the options)\n", argv[i]);
            return 2;
        }
    }
    if (!options_are_sound()) {
        fprintf(stderr, "load: an option is missing or out of range (the head of load.c lists them)\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    prepare_messages();
    connect_all();
    if (options.hold)
        hold();
    else
        measure();
    return failures() != 0;
}
