// Kafka's wire primitives, as far as the load generator and the stand-in broker need them: big-endian integers,
// unsigned varints, compact strings. Writing appends to a frame under construction; reading is bounds-checked.
#ifndef SLUICE_BENCH_WIRE_H
#define SLUICE_BENCH_WIRE_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { PRODUCE = 0, FETCH = 1, METADATA = 3, API_VERSIONS = 18 };
enum { PRODUCE_VERSION = 9, FETCH_VERSION = 12, METADATA_VERSION = 2, API_VERSIONS_HIGHEST = 3 };
enum { UNSUPPORTED_VERSION = 35 };

#define TOPIC "bench-topic-0" // so long that an answer to Produce has 64 bytes

// The head of a frame: every byte but its records. The longest is a Fetch request.
#define HEAD_BYTES 256

struct head {
    uint8_t bytes[HEAD_BYTES];
    uint32_t length;
};

static inline void put_bytes(struct head *h, const void *from, uint32_t length) {
    memcpy(h->bytes + h->length, from, length);
    h->length += length;
}

static inline void put_8(struct head *h, uint8_t value) { h->bytes[h->length++] = value; }

static inline void put_16(struct head *h, uint16_t value) {
    value = htobe16(value);
    put_bytes(h, &value, sizeof value);
}

static inline void put_32(struct head *h, uint32_t value) {
    value = htobe32(value);
    put_bytes(h, &value, sizeof value);
}

static inline void put_64(struct head *h, uint64_t value) {
    value = htobe64(value);
    put_bytes(h, &value, sizeof value);
}

static inline void put_varint(struct head *h, uint32_t value) {
    for (; value >= 0x80; value >>= 7) put_8(h, (uint8_t)value | 0x80);
    put_8(h, (uint8_t)value);
}

// Compact lengths are one more than they say; 0 is null.
static inline void put_compact_length(struct head *h, uint32_t length) { put_varint(h, length + 1); }

static inline void put_compact_string(struct head *h, const char *text) {
    put_compact_length(h, (uint32_t)strlen(text));
    put_bytes(h, text, (uint32_t)strlen(text));
}

static inline void put_no_tags(struct head *h) { put_8(h, 0); }

// The size field counts what stands behind it, the records of `body` bytes included.
static inline void set_size(struct head *h, uint32_t body) {
    uint32_t size = htobe32(h->length - 4 + body);
    memcpy(h->bytes, &size, sizeof size);
}

static inline uint16_t get_16(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return be16toh(value);
}

static inline uint32_t get_32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return be32toh(value);
}

static inline void set_32(uint8_t *at, uint32_t value) {
    value = htobe32(value);
    memcpy(at, &value, sizeof value);
}

#endif
