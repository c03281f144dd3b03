-- users: a row for each cluster, user, exempt and hour
-- reads: client
--   cluster, user, exempt
--   bytes_in, bytes_out, requests: sums
--   begin_ms, end_ms: of the first and the last interval
SELECT date, hour, cluster, user, exempt, total(bytes_in) AS bytes_in, total(bytes_out) AS bytes_out,
    total(requests) AS requests, min(begin_ms) AS begin_ms, max(end_ms) AS end_ms
FROM client GROUP BY date, hour, cluster, user, exempt
