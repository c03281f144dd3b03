// The requests of one run: made up by messages.h, or recorded ones as a client sent them, from one file of whole
// frames, one behind the other.
//
// Every connection sends them in order, all but the last once and one at a time (ApiVersions and the like), and then the
// last again and again. Nothing of a recorded frame is changed but its correlation id.
#ifndef SLUICE_BENCH_REQUESTS_H
#define SLUICE_BENCH_REQUESTS_H

#include "options.h"

enum { MAX_REQUESTS = 16 };

extern struct frame requests[MAX_REQUESTS]; // but for correlation id and client-id
extern uint32_t request_count;
extern uint32_t answer_bytes; // of every right answer to the last, size field included

// False: the file cannot be read, or is not whole frames.
bool prepare_requests(const struct options *options);

#endif
