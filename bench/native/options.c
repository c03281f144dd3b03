#include "options.h"

#include <stdlib.h>

#include "messages.h"

static const struct options DEFAULTS = {
    .connections = 1, .depth = 1, .client_ids = 1, .bytes = 512, .awake = 1e-3, .warmup = 0.5, .seconds = 2};

static void parse_watch(char *list, struct options *o) {
    char *rest = NULL;
    for (char *pid = strtok_r(list, ",", &rest); pid != NULL && o->watched < MAX_WATCHED;
         pid = strtok_r(NULL, ",", &rest))
        o->watch[o->watched++] = atoi(pid);
}

static bool parse(char *word, struct options *o) {
    char *value = strchr(word, '=');
    if (value == NULL) return false;
    *value++ = '\0';
    if (!strcmp(word, "port")) o->port = atoi(value);
    else if (!strcmp(word, "api") && (!strcmp(value, "produce") || !strcmp(value, "fetch"))) o->fetch = *value == 'f';
    else if (!strcmp(word, "bytes")) o->bytes = (uint32_t)atol(value);
    else if (!strcmp(word, "frames")) o->frames = value;
    else if (!strcmp(word, "answer")) o->answer = (uint32_t)atol(value);
    else if (!strcmp(word, "awake")) o->awake = atof(value);
    else if (!strcmp(word, "connections")) o->connections = atoi(value);
    else if (!strcmp(word, "depth")) o->depth = atoi(value);
    else if (!strcmp(word, "rate")) o->rate = atof(value);
    else if (!strcmp(word, "client_ids")) o->client_ids = atoi(value);
    else if (!strcmp(word, "rotate")) o->rotate = atoi(value);
    else if (!strcmp(word, "tls")) o->tls = atoi(value);
    else if (!strcmp(word, "reconnect")) o->reconnect = atoi(value);
    else if (!strcmp(word, "resume")) o->resume = atoi(value);
    else if (!strcmp(word, "warmup")) o->warmup = atof(value);
    else if (!strcmp(word, "seconds")) o->seconds = atof(value);
    else if (!strcmp(word, "watch")) parse_watch(value, o);
    else if (!strcmp(word, "hold")) o->hold = atoi(value);
    else return false;
    return true;
}

static bool within(long value, long least, long most) { return value >= least && value <= most; }

// What is replayed is sent as it was recorded, on connections that stay.
static bool is_sound_replay(const struct options *o) {
    if (o->frames == NULL) return o->answer == 0;
    return within(o->answer, PRODUCE_ANSWER_BYTES, IN_BYTES / 2) && !o->fetch && o->client_ids == 1 && o->rate == 0 &&
           !o->reconnect && !o->hold;
}

static bool are_sound(const struct options *o) {
    return within(o->port, 0, 65535) && within(o->connections, 1, 100000) && within(o->depth, 1, MAX_DEPTH) &&
           within(o->client_ids, 1, MAX_CLIENT_IDS) && within(o->bytes, 0, MAX_BODY_BYTES - TAIL_BYTES) &&
           o->rate >= 0 && o->seconds > 0 && (!o->reconnect || (o->depth == 1 && o->rate == 0)) &&
           o->awake >= 0 && (!o->resume || (o->tls && o->reconnect)) && is_sound_replay(o);
}

bool parse_options(char *line, struct options *options) {
    *options = DEFAULTS;
    char *rest = NULL;
    for (char *word = strtok_r(line, " \n", &rest); word != NULL; word = strtok_r(NULL, " \n", &rest))
        if (!parse(word, options)) return false;
    return are_sound(options);
}
