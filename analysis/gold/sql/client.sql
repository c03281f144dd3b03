-- client: a row for each client on a broker of a proxy, by mode, interval and window
-- reads: sums, keys
--   cluster, instance, broker, listener, user, client_id, ip: the client; user and client_id are null for nobody yet (a
--     refused connection), ip for clients without one
--   mode, exempt
--   rows: number of rows
--   active_ms: summed length of their intervals
--   begin_ms, end_ms: begin of the first one, end of the last one
--   bytes_in, bytes_out, requests, request_time_ms, connections_opened, connections_refused: sums
--   accept_waits, accept_wait_ms: of connections that a listener held up, without a client
--   connections: the most at one time
--   interval_ms: nominal length of an interval, in whole seconds
--   window_ms, sample_ms, controller_window_ms: the windows of enforcement
SELECT date, hour, cluster, instance, broker, listener, user, client_id, ip, mode, exempt, nominal_ms AS interval_ms,
    samples * sample_ms AS window_ms, sample_ms, controller_samples * controller_sample_ms AS controller_window_ms,
    total(rows) AS rows, total(active_ms) AS active_ms, total(bytes_in) AS bytes_in, total(bytes_out) AS bytes_out,
    total(requests) AS requests, total(request_time_ms) AS request_time_ms,
    total(connections_opened) AS connections_opened, total(connections_refused) AS connections_refused,
    total(accept_waits) AS accept_waits, total(accept_wait_ms) AS accept_wait_ms, max(connections) AS connections,
    min(begin_ms) AS begin_ms, max(end_ms) AS end_ms
FROM sums JOIN keys USING (key)
GROUP BY date, hour, cluster, instance, broker, listener, user, client_id, ip, mode, exempt, nominal_ms,
    samples * sample_ms, sample_ms, controller_samples * controller_sample_ms
