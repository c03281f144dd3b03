#include "tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_BYTES = SSL3_RT_MAX_PLAIN_LENGTH, READ_AHEAD_BYTES = 1 << 17, SESSIONS = 256 };

static const char CIPHER[] = "TLS_AES_256_GCM_SHA384"; // what OpenSSL and Java prefer when nobody chooses
static const char GROUP[] = "X25519";
static const char SERVER_NAME[] = "localhost";

// One ticket resumes one connection: OpenSSL's client gives a session of TLS 1.3 up when it is used.
static SSL_SESSION *sessions[SESSIONS];
static int session_count;

static int keep_session(SSL *tls, SSL_SESSION *session) {
    (void)tls;
    if (session_count == SESSIONS) return 0; // OpenSSL frees it
    sessions[session_count++] = session;
    return 1;
}

void tls_forget_sessions(void) {
    while (session_count) SSL_SESSION_free(sessions[--session_count]);
}

static void offer_session(SSL *tls) {
    if (session_count == 0) return;
    SSL_SESSION *session = sessions[--session_count];
    if (!SSL_set_session(tls, session)) abort();
    SSL_SESSION_free(session);
}

static SSL_CTX *make_context(void) {
    SSL_CTX *made = SSL_CTX_new(TLS_client_method());
    if (made == NULL || !SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) ||
        !SSL_CTX_set_ciphersuites(made, CIPHER) || !SSL_CTX_set1_groups_list(made, GROUP)) {
        ERR_print_errors_fp(stderr);
        abort();
    }
    SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(made, 1);
    SSL_CTX_set_default_read_buffer_len(made, READ_AHEAD_BYTES);
    SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(made, keep_session);
    return made;
}

SSL *tls_open(int fd, bool resume) {
    static SSL_CTX *context;
    if (context == NULL) context = make_context();
    SSL *tls = SSL_new(context);
    if (tls == NULL || !SSL_set_fd(tls, fd) || !SSL_set_tlsext_host_name(tls, SERVER_NAME)) abort();
    if (resume) offer_session(tls);
    SSL_set_connect_state(tls);
    return tls;
}

void tls_close(SSL *tls) {
    ERR_clear_error();
    SSL_shutdown(tls);
    SSL_free(tls);
}

// What a call of OpenSSL that moved nothing means, in the words of recv: 0 for an end, else -1 and errno.
static ssize_t outcome(SSL *tls, int returned) {
    switch (SSL_get_error(tls, returned)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default:
        ERR_print_errors_fp(stderr);
        errno = ECONNRESET;
        return -1;
    }
}

ssize_t tls_send(SSL *tls, const struct iovec *parts, int count) {
    static uint8_t record[RECORD_BYTES];
    size_t filled = 0;
    for (int i = 0; i < count && filled < RECORD_BYTES; i++) {
        size_t room = RECORD_BYTES - filled, taken = parts[i].iov_len < room ? parts[i].iov_len : room;
        memcpy(record + filled, parts[i].iov_base, taken);
        filled += taken;
    }
    ERR_clear_error();
    int sent = SSL_write(tls, record, (int)filled);
    return sent > 0 ? sent : outcome(tls, sent);
}

ssize_t tls_receive(SSL *tls, void *into, size_t room) {
    static uint8_t discarded[RECORD_BYTES];
    size_t most = into != NULL || room < RECORD_BYTES ? room : RECORD_BYTES;
    ERR_clear_error();
    int received = SSL_read(tls, into != NULL ? into : discarded, (int)most);
    return received > 0 ? received : outcome(tls, received);
}

// A part of a record is no more to read: the call that found it so awaits the rest.
bool tls_has_more(const SSL *tls) { return SSL_has_pending(tls) && !SSL_want_read(tls); }

bool tls_awaits_read(const SSL *tls) { return SSL_want_read(tls); }

bool tls_resumed(const SSL *tls) { return SSL_session_reused(tls); }
