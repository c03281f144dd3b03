// Recorded requests, as a client sent them: one file of whole frames, one behind the other.
//
// All but the last open a connection (ApiVersions and the like), once and one at a time; the last is sent again and
// again. Nothing of a frame is changed but its correlation id.
#ifndef SLUICE_BENCH_REPLAY_H
#define SLUICE_BENCH_REPLAY_H

#include "stream.h"

enum { MAX_RECORDED = 16 };

// Into `frames`, of which there is room for MAX_RECORDED; they stay valid until the next call. How many there are;
// 0: the file cannot be read, or is not whole frames.
uint32_t replay_load(const char *path, struct frame *frames);

#endif
