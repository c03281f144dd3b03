-- Totals of each client over all brokers.
WITH moved AS (
    SELECT cluster, "user", client_id, sum(bytes_in) AS bytes_in, sum(bytes_out) AS bytes_out,
        sum(requests) AS requests, sum(request_time_ms) AS request_time_ms, sum(active_ms) AS active_ms,
        sum(connections_opened) AS connections_opened, sum(connections_refused) AS connections_refused, sum(rows) AS rows
    FROM client GROUP BY ALL
), held AS (
    SELECT cluster, "user", client_id, sum(throttled) AS throttled, sum(throttle_ms) AS throttle_ms, sum(muted_ms) AS muted_ms
    FROM charged WHERE role <> 'shadow' AND kind <> 'connection' AND (throttled > 0 OR throttle_ms > 0 OR muted_ms > 0)
    GROUP BY ALL
)
SELECT moved.*, coalesce(held.throttled, 0) AS throttled, coalesce(held.throttle_ms, 0) AS throttle_ms,
    coalesce(held.muted_ms, 0) AS muted_ms
FROM moved
LEFT JOIN held ON held.cluster = moved.cluster AND held."user" IS NOT DISTINCT FROM moved."user"
    AND held.client_id IS NOT DISTINCT FROM moved.client_id
ORDER BY bytes_in + bytes_out DESC, moved.cluster, moved."user", moved.client_id
