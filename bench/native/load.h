// The clients: Kafka requests on many connections at once, and one line of JSON about the answers.
//
// A run is one line of NAME=VALUE words:
//     port=N            where to connect, on 127.0.0.1; without it, nothing is done but to end a hold
//     api=produce|fetch what to send (produce)
//     bytes=N           the size of a produce request, or of the records of a fetch answer (512)
//     frames=PATH       recorded requests to send, as requests.h says, in the place of `api` and `bytes`; the last of them
//                       a Produce >= 9 of one partition
//     answer=N          with frames: the size of an answer to the last
//     connections=N     (1)
//     depth=N           requests in flight on each connection (1)
//     rate=N            requests per second of all connections, evenly spaced; without it, each answer is followed by
//                       the next request at once
//     client_ids=N      distinct client-ids: connection i uses number i mod N (1)
//     rotate=1          every request of a connection names another client-id
//     tls=1             TLS to `port`, as tls.h says
//     reconnect=1       every request on a connection of its own: connect, handshake, request, answer, close
//     resume=1          with tls and reconnect: handshakes resume the session of a connection before
//     awake=S           how long the generator stays awake after an event before it sleeps (0.001)
//     warmup=S, seconds=S  from when every connection has had an answer
//     watch=PID,PID     processes whose CPU time is read at both ends of the measured time
//     hold=1            one request on each connection; they stay open until the next line
//
// With a rate, latency counts from the moment a request was due, not from when it could be sent. An answer with the
// wrong correlation id or size, one that tells an error or a throttle, a lost connection, and a full handshake where one was to
// resume end the run and are counted in `errors`.
#ifndef SLUICE_BENCH_LOAD_H
#define SLUICE_BENCH_LOAD_H

#include "stream.h"

void load_run(int epoll, char *line);
void load_attend(struct source *client, uint32_t events);
void load_pace(void);

void turn(int epoll, int timeout_ms); // attends to what epoll reports, clients and broker alike (generator.c)

#endif
