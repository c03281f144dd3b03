// What one run of the load is told, by one line of NAME=VALUE words (the head of load.h lists them).
#ifndef SLUICE_BENCH_OPTIONS_H
#define SLUICE_BENCH_OPTIONS_H

#include "stream.h"

enum { MAX_WATCHED = 16, MAX_DEPTH = QUEUE_FRAMES };

struct options {
    int port, connections, depth, client_ids, rotate, tls, reconnect, resume, hold, watched;
    int watch[MAX_WATCHED];
    uint32_t bytes, answer;
    const char *frames; // within the line; NULL: none
    bool fetch;
    double rate, awake, warmup, seconds;
};

// False: a word is unknown, or a value out of range. `line` is used up.
bool parse_options(char *line, struct options *options);

#endif
