#include "replay.h"

#include <stdio.h>

enum { FILE_BYTES = 1 << 20, REQUEST_HEAD_BYTES = 12 }; // the head ends with the correlation id

static uint8_t file[FILE_BYTES];

uint32_t replay_load(const char *path, struct frame *frames) {
    FILE *from = fopen(path, "rb");
    if (from == NULL) return 0;
    size_t length = fread(file, 1, sizeof file, from), at = 0;
    fclose(from);
    uint32_t count = 0;
    while (at < length) {
        if (count == MAX_RECORDED || length - at < REQUEST_HEAD_BYTES) return 0;
        size_t frame = (size_t)get_32(file + at) + 4;
        if (frame < REQUEST_HEAD_BYTES || frame > length - at) return 0;
        struct frame *f = &frames[count++];
        *f = (struct frame){.body = (uint32_t)(frame - REQUEST_HEAD_BYTES), .from = file + at + REQUEST_HEAD_BYTES};
        put_bytes(&f->head, file + at, REQUEST_HEAD_BYTES);
        at += frame;
    }
    return count;
}
