-- moments: a row for each 10 s and broker, of the 20 clients of the hour with most bytes; all others together (is_rest)
-- reads: client, usage, keys
--   cluster, broker, user, client_id, is_rest: whose
--   at_s: begin
--   bytes_in, bytes_out, requests, request_time_ms: sums
--   muted_ms: for all kinds
WITH moved AS (
    SELECT date, hour, cluster, user, client_id, sum(CAST(bytes_in AS DOUBLE) + bytes_out) AS bytes
    FROM client WHERE user IS NOT NULL GROUP BY date, hour, cluster, user, client_id),
busiest AS (
    SELECT date, hour, cluster, user, client_id FROM (
        SELECT *, row_number() OVER (PARTITION BY date, hour ORDER BY bytes DESC, cluster, user, client_id) AS place
        FROM moved)
    WHERE place <= 20),
named AS (SELECT date, hour, key, user, client_id FROM keys JOIN busiest USING (cluster, user, client_id))
SELECT /*+ BROADCAST(k), BROADCAST(n) */ u.date, u.hour, cluster, broker, n.user, n.client_id, n.key IS NULL AS is_rest,
    unix_seconds(time) DIV 10 * 10 AS at_s, total(bytes_in) AS bytes_in, total(bytes_out) AS bytes_out,
    total(requests) AS requests, total(request_time_ms) AS request_time_ms, total(muted_ms) AS muted_ms
FROM (SELECT *, {muted_ms} AS muted_ms FROM usage) u
JOIN (SELECT key, cluster, broker FROM keys) k USING (key)
LEFT JOIN named n USING (date, hour, key)
GROUP BY u.date, u.hour, cluster, broker, n.user, n.client_id, n.key IS NULL, unix_seconds(time) DIV 10 * 10
