-- users: a row for each cluster, user, exempt and quarter of an hour
-- reads: sums, keys
--   cluster, user, exempt
--   minute: the begin in its hour, 0, 15, 30 or 45: days of some time zones begin there
--   bytes_in, bytes_out, requests: sums
--   begin_ms, end_ms: of the first and the last interval
SELECT date, hour, minute, cluster, user, exempt, total(bytes_in) AS bytes_in, total(bytes_out) AS bytes_out,
    total(requests) AS requests, min(begin_ms) AS begin_ms, max(end_ms) AS end_ms
FROM sums JOIN keys USING (key) GROUP BY date, hour, minute, cluster, user, exempt
