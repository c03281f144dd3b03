// A stand-in for a Kafka broker that costs next to nothing: it answers Produce v9, Fetch v12, Metadata v2 and ApiVersions
// with valid frames and stores nothing. An answer follows when the last byte of its request has come, in order. A
// request that it does not know is an error on stderr and the end of the connection.
#ifndef SLUICE_BENCH_BROKER_H
#define SLUICE_BENCH_BROKER_H

#include "stream.h"

bool broker_listen(int epoll, uint16_t port);
void broker_accept(int epoll);
void broker_attend(int epoll, struct source *end, uint32_t events);

#endif
