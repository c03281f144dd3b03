// The requests and answers of the benchmark: Produce v9 and Fetch v12 with one partition, Metadata v2 and ApiVersions.
//
// Where records stand in a message, the head ends before them; the bytes behind them are tag sections without tags,
// that is zeros, and so are the records: a body of records + TAIL_BYTES zero bytes completes the frame.
#ifndef SLUICE_BENCH_MESSAGES_H
#define SLUICE_BENCH_MESSAGES_H

#include "wire.h"

enum { TAIL_BYTES = 3, CORRELATION_OFFSET = 8, CLIENT_ID_OFFSET = 14, CLIENT_ID_BYTES = 12, MAX_CLIENT_IDS = 1000000 };
enum { FETCH_MAX_BYTES_OFFSET = 12, FETCH_ANSWER_THROTTLE_OFFSET = 9, PRODUCE_ANSWER_THROTTLE_FROM_END = 5 };
// In every version since 9, of one partition without an error; no right answer is shorter.
enum { PRODUCE_ANSWER_ERROR_FROM_END = 35, PRODUCE_ANSWER_BYTES = 50 };

void set_client_id(struct head *request, uint32_t number); // "bench-000000" and so on
void put_produce_request(struct head *h, uint32_t records);
void put_fetch_request(struct head *h, uint32_t records);

void put_produce_answer(struct head *h, uint32_t correlation);
void put_fetch_answer(struct head *h, uint32_t correlation, uint32_t records);
void put_metadata_answer(struct head *h, uint32_t correlation, uint16_t port);
void put_api_versions_answer(struct head *h, uint32_t correlation, uint16_t version);

#endif
