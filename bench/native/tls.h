// TLS for the client's end of a stream: always version 1.3, one cipher and one group, so that every proxy is asked for
// the same. The handshake takes place inside the first send and receive. Certificates are not verified: what that costs,
// it costs the client.
#ifndef SLUICE_BENCH_TLS_H
#define SLUICE_BENCH_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

struct ssl_st; // OpenSSL's SSL

// `resume` offers the session of a ticket that came before, where one is left.
struct ssl_st *tls_open(int fd, bool resume);
void tls_close(struct ssl_st *tls); // says so to the other side; the descriptor stays open
void tls_forget_sessions(void);

// As sendmsg and recv, errors included (EAGAIN: try again when epoll says so). One record at a time.
ssize_t tls_send(struct ssl_st *tls, const struct iovec *parts, int count);
ssize_t tls_receive(struct ssl_st *tls, void *into, size_t room); // `into` NULL: thrown away

bool tls_has_more(const struct ssl_st *tls); // bytes that were read from the socket and that epoll does not know of
bool tls_awaits_read(const struct ssl_st *tls); // the last call could not go on without something to read
bool tls_resumed(const struct ssl_st *tls);

#endif
