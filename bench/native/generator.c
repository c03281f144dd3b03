// The two sides of a proxy under load, in one process and one loop: a stand-in broker, always there, and the clients of
// one run after the other, as the lines on stdin say (load.h). Each line is answered by one line of JSON on stdout. It
// ends with its stdin.
//
//   generator PORT      where the broker listens, on 127.0.0.1
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "broker.h"
#include "load.h"

enum { EVENTS = 256, LINE_BYTES = 1024 };

static char line[LINE_BYTES];
static size_t line_bytes;

static void read_line(void) {
    ssize_t n = read(STDIN_FILENO, line + line_bytes, LINE_BYTES - 1 - line_bytes);
    if (n <= 0) exit(0);
    line_bytes += (size_t)n;
    line[line_bytes] = '\0';
}

void turn(int epoll, int timeout_ms) {
    struct epoll_event events[EVENTS];
    int n = wait_events(epoll, events, EVENTS, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct source *source = events[i].data.ptr;
        switch (source->role) {
        case COMMANDS: read_line(); break;
        case LISTENER: broker_accept(epoll); break;
        case TICKER: load_pace(); break;
        case BROKER_END: broker_attend(epoll, source, events[i].events); break;
        case CLIENT_END: load_attend(source, events[i].events); break;
        }
    }
}

int main(int argc, char **argv) {
    static struct source commands = {COMMANDS, STDIN_FILENO};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (argc != 2) {
        fprintf(stderr, "usage: generator PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    if (!broker_listen(epoll, (uint16_t)atoi(argv[1])) || !watch_source(epoll, &commands)) {
        perror("generator");
        return 1;
    }
    for (;;) {
        turn(epoll, -1);
        if (line_bytes && line[line_bytes - 1] == '\n') {
            line_bytes = 0;
            load_run(epoll, line);
        }
    }
}
