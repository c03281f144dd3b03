-- Sums of each client on each broker of each proxy; nobody is who had no user yet, or is an address.
SELECT cluster, instance, broker, listener, "user", client_id, ip, mode, exempt, sum(rows) AS rows,
    sum(active_ms) AS active_ms, min(begin_ms) AS begin_ms, max(end_ms) AS end_ms, sum(bytes_in) AS bytes_in,
    sum(bytes_out) AS bytes_out, sum(requests) AS requests, sum(request_time_ms) AS request_time_ms,
    max(connections) AS connections, sum(connections_opened) AS connections_opened,
    sum(connections_refused) AS connections_refused
FROM client GROUP BY ALL ORDER BY ALL
