SELECT cluster, instance, broker, listener, user, client_id, ip, mode, exempt, interval_ms, window_ms, sample_ms,
    controller_window_ms, total(rows) AS rows, total(active_ms) AS active_ms, total(bytes_in) AS bytes_in,
    total(bytes_out) AS bytes_out, total(requests) AS requests, total(request_time_ms) AS request_time_ms,
    total(connections_opened) AS connections_opened, total(connections_refused) AS connections_refused,
    total(accept_waits) AS accept_waits, total(accept_wait_ms) AS accept_wait_ms, max(connections) AS connections,
    min(begin_ms) AS begin_ms, max(end_ms) AS end_ms
FROM hours
GROUP BY cluster, instance, broker, listener, user, client_id, ip, mode, exempt, interval_ms, window_ms, sample_ms,
    controller_window_ms
