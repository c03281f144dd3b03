-- sums: what each key used in a quarter of an hour. Not stored.
-- reads: usage
SELECT date, hour, minute(time) DIV 15 * 15 AS minute, key, count(*) AS rows, total(interval_ms) AS active_ms,
    total(bytes_in) AS bytes_in, total(bytes_out) AS bytes_out, total(requests) AS requests,
    total(request_time_ms) AS request_time_ms, total(connections_opened) AS connections_opened,
    total(connections_refused) AS connections_refused, total(accept_waits) AS accept_waits,
    total(accept_wait_ms) AS accept_wait_ms, max(connections) AS connections,
    min(unix_millis(time)) AS begin_ms, max(unix_millis(time) + interval_ms) AS end_ms
FROM usage GROUP BY date, hour, minute(time) DIV 15 * 15, key
