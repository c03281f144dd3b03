-- What clients used of each cap, and how long it held them.
SELECT cluster, kind, rule, counter, mode, "user", client_id, sum(used) AS used, sum(throttled) AS throttled,
    sum(throttle_ms) AS throttle_ms, sum(muted_ms) AS muted_ms, min(least_limit) AS least_limit,
    max(most_limit) AS most_limit
FROM charged WHERE role = 'cap' GROUP BY ALL ORDER BY kind, rule, used DESC, cluster, counter, "user", client_id, mode
