-- charged: a row for each client on a broker of a proxy, by mode, kind, role, rule and counter
-- reads: charges, rules, keys
--   cluster, instance, broker, listener, user, client_id, ip, mode, exempt: as in client; the broker is −1 for all
--     brokers together (mutations)
--   kind: produce, fetch, request, mutation or connection
--   role: quota (the rule that won), cap (held besides it) or shadow (measured, and held nobody)
--   rule: as usage records name it; null if no limit was in force
--   counter: its number
--   used: bytes, µs of threads, partitions or connections
--   requests, throttled, throttle_ms, muted_ms: sums; the time of throttles as told, and as held
--   least_limit, most_limit: in force, null for none
--   per_used: units of the limit times seconds for one of used
--   window_ms: the window of enforcement
--   unit_user, unit_client_id: as in counters
WITH summed AS (
    SELECT date, hour, line, total(used) AS used, total(requests) AS requests,
        total(IF(used > 0, requests, 0)) AS requests_with_use,
        total(throttled) AS throttled, total(throttle_ms) AS throttle_ms, total(muted_ms) AS muted_ms,
        min(limit) AS least_limit, max(limit) AS most_limit
    FROM charges GROUP BY date, hour, line)
SELECT date, hour, cluster, instance, r.broker, listener, user, client_id, ip, mode, exempt, kind, role, rule, counter,
    total(used) AS used, total(IF(is_longest, requests, requests_with_use)) AS requests,
    total(IF(is_longest, throttled, 0)) AS throttled,
    total(IF(is_longest, throttle_ms, 0)) AS throttle_ms, total(IF(is_longest, muted_ms, 0)) AS muted_ms,
    unit_user, unit_client_id,
    min(coalesce(cap_limit, least_limit)) AS least_limit, max(coalesce(cap_limit, most_limit)) AS most_limit,
    per_used, max(window_ms) AS window_ms
FROM summed JOIN rules r USING (line) JOIN keys USING (key) WHERE used > 0 OR is_longest
GROUP BY date, hour, cluster, instance, r.broker, listener, user, client_id, ip, mode, exempt, kind, role, rule, counter,
    unit_user, unit_client_id, per_used
