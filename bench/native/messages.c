#include "messages.h"

static void put_request_header(struct head *h, uint16_t key, uint16_t version) {
    put_32(h, 0); // size
    put_16(h, key);
    put_16(h, version);
    put_32(h, 0); // correlation id
    put_16(h, CLIENT_ID_BYTES);
    put_bytes(h, "bench-000000", CLIENT_ID_BYTES);
    put_no_tags(h);
}

void set_client_id(struct head *request, uint32_t number) {
    for (int i = CLIENT_ID_BYTES - 1; i >= CLIENT_ID_BYTES - 6; i--, number /= 10)
        request->bytes[CLIENT_ID_OFFSET + i] = (uint8_t)('0' + number % 10);
}

void put_produce_request(struct head *h, uint32_t records) {
    put_request_header(h, PRODUCE, PRODUCE_VERSION);
    put_varint(h, 0);   // transactional_id: null
    put_16(h, 1);       // acks
    put_32(h, 30000);   // timeout_ms
    put_compact_length(h, 1); // topics
    put_compact_string(h, TOPIC);
    put_compact_length(h, 1); // partitions
    put_32(h, 0);       // index
    put_compact_length(h, records);
    set_size(h, records + TAIL_BYTES);
}

void put_fetch_request(struct head *h, uint32_t records) {
    put_request_header(h, FETCH, FETCH_VERSION);
    put_32(h, (uint32_t)-1); // replica_id
    put_32(h, 500);          // max_wait_ms
    put_32(h, 1);            // min_bytes
    put_32(h, records);      // max_bytes: the stand-in answers with as many
    put_8(h, 0);             // isolation_level
    put_32(h, 0);            // session_id
    put_32(h, (uint32_t)-1); // session_epoch: no session
    put_compact_length(h, 1); // topics
    put_compact_string(h, TOPIC);
    put_compact_length(h, 1); // partitions
    put_32(h, 0);            // partition
    put_32(h, (uint32_t)-1); // current_leader_epoch
    put_64(h, 0);            // fetch_offset
    put_32(h, (uint32_t)-1); // last_fetched_epoch
    put_64(h, (uint64_t)-1); // log_start_offset
    put_32(h, records);      // partition_max_bytes
    put_no_tags(h);          // partition
    put_no_tags(h);          // topic
    put_compact_length(h, 0); // forgotten_topics_data
    put_compact_string(h, ""); // rack_id
    put_no_tags(h);
    set_size(h, 0);
}

static void put_answer_header(struct head *h, uint32_t correlation, bool flexible) {
    put_32(h, 0); // size
    put_32(h, correlation);
    if (flexible) put_no_tags(h);
}

void put_produce_answer(struct head *h, uint32_t correlation) {
    put_answer_header(h, correlation, true);
    put_compact_length(h, 1); // responses
    put_compact_string(h, TOPIC);
    put_compact_length(h, 1); // partition_responses
    put_32(h, 0);            // index
    put_16(h, 0);            // error_code
    put_64(h, 0);            // base_offset
    put_64(h, (uint64_t)-1); // log_append_time_ms
    put_64(h, 0);            // log_start_offset
    put_compact_length(h, 0); // record_errors
    put_varint(h, 0);        // error_message: null
    put_no_tags(h);          // partition
    put_no_tags(h);          // topic
    put_32(h, 0);            // throttle_time_ms
    put_no_tags(h);
    set_size(h, 0);
}

void put_fetch_answer(struct head *h, uint32_t correlation, uint32_t records) {
    put_answer_header(h, correlation, true);
    put_32(h, 0);            // throttle_time_ms
    put_16(h, 0);            // error_code
    put_32(h, 0);            // session_id
    put_compact_length(h, 1); // responses
    put_compact_string(h, TOPIC);
    put_compact_length(h, 1); // partitions
    put_32(h, 0);            // partition_index
    put_16(h, 0);            // error_code
    put_64(h, 1000);         // high_watermark
    put_64(h, 1000);         // last_stable_offset
    put_64(h, 0);            // log_start_offset
    put_varint(h, 0);        // aborted_transactions: null
    put_32(h, (uint32_t)-1); // preferred_read_replica
    put_compact_length(h, records);
    set_size(h, records + TAIL_BYTES);
}

void put_metadata_answer(struct head *h, uint32_t correlation, uint16_t port) {
    static const char host[] = "127.0.0.1", cluster_id[] = "bench";
    put_answer_header(h, correlation, false);
    put_32(h, 1);      // brokers
    put_32(h, 0);      // node_id
    put_16(h, sizeof host - 1);
    put_bytes(h, host, sizeof host - 1);
    put_32(h, port);
    put_16(h, UINT16_MAX); // rack: null
    put_16(h, sizeof cluster_id - 1);
    put_bytes(h, cluster_id, sizeof cluster_id - 1);
    put_32(h, 0);      // controller_id
    put_32(h, 0);      // topics
    set_size(h, 0);
}

static void put_api(struct head *h, uint16_t key, uint16_t lowest, uint16_t highest, bool flexible) {
    put_16(h, key);
    put_16(h, lowest);
    put_16(h, highest);
    if (flexible) put_no_tags(h);
}

void put_api_versions_answer(struct head *h, uint32_t correlation, uint16_t version) {
    bool known = version <= API_VERSIONS_HIGHEST, flexible = known && version >= 3;
    put_answer_header(h, correlation, false); // v0 in every version (KIP-511)
    put_16(h, known ? 0 : UNSUPPORTED_VERSION);
    if (flexible)
        put_compact_length(h, 4);
    else
        put_32(h, 4);
    put_api(h, PRODUCE, PRODUCE_VERSION, PRODUCE_VERSION, flexible);
    put_api(h, FETCH, FETCH_VERSION, FETCH_VERSION, flexible);
    put_api(h, METADATA, METADATA_VERSION, METADATA_VERSION, flexible);
    put_api(h, API_VERSIONS, 0, API_VERSIONS_HIGHEST, flexible);
    if (known && version >= 1) put_32(h, 0); // throttle_time_ms
    if (flexible) put_no_tags(h);
    set_size(h, 0);
}
