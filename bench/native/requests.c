#include "requests.h"

#include <stdio.h>

#include "messages.h"

enum { FILE_BYTES = 1 << 20, HEAD_END = 12 }; // the head of a recorded frame ends with the correlation id

struct frame requests[MAX_REQUESTS];
uint32_t request_count, answer_bytes;

static uint8_t file[FILE_BYTES];

static bool load_recorded(const char *path) {
    FILE *from = fopen(path, "rb");
    if (from == NULL) return false;
    size_t length = fread(file, 1, sizeof file, from), at = 0;
    fclose(from);
    while (at < length) {
        if (request_count == MAX_REQUESTS || length - at < HEAD_END) return false;
        size_t frame = (size_t)get_32(file + at) + 4;
        if (frame < HEAD_END || frame > length - at) return false;
        struct frame *f = &requests[request_count++];
        *f = (struct frame){.body = (uint32_t)(frame - HEAD_END), .from = file + at + HEAD_END};
        put_bytes(&f->head, file + at, HEAD_END);
        at += frame;
    }
    return request_count > 0;
}

static void make_fetch(uint32_t records) {
    struct head answer = {.length = 0};
    put_fetch_request(&requests[0].head, records);
    put_fetch_answer(&answer, 0, records);
    answer_bytes = answer.length + records + TAIL_BYTES;
}

static void make_produce(uint32_t bytes) {
    struct head answer = {.length = 0}, trial = {.length = 0};
    put_produce_request(&trial, bytes > 100 ? bytes - 100 : 0); // for the size of the length
    uint32_t records = bytes > trial.length + TAIL_BYTES ? bytes - trial.length - TAIL_BYTES : 0;
    put_produce_request(&requests[0].head, records);
    requests[0].body = records + TAIL_BYTES;
    put_produce_answer(&answer, 0);
    answer_bytes = answer.length;
}

bool prepare_requests(const struct options *options) {
    request_count = 0;
    if (options->frames != NULL) {
        answer_bytes = options->answer;
        return load_recorded(options->frames);
    }
    requests[0] = (struct frame){.body = 0};
    request_count = 1;
    if (options->fetch)
        make_fetch(options->bytes);
    else
        make_produce(options->bytes);
    return true;
}
