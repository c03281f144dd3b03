-- Usage and throttles by rule: quotas, caps, limits in shadow; rule null: no limit was in force.
SELECT kind, role, rule, exempt, mode, sum(used) AS used, sum(requests) AS requests, sum(throttled) AS throttled,
    sum(throttle_ms) AS throttle_ms, sum(muted_ms) AS muted_ms, min(least_limit) AS least_limit,
    max(most_limit) AS most_limit, count(DISTINCT hash("user", client_id, ip)) AS clients
FROM charged
WHERE used > 0 OR throttled > 0 OR throttle_ms > 0 OR muted_ms > 0
GROUP BY kind, role, rule, exempt, mode
ORDER BY kind, role, muted_ms DESC, used DESC, rule, exempt, mode
