SELECT cluster, instance, broker, listener, user, client_id, ip, mode, exempt, kind, role, rule, counter,
    total(used) AS used, total(requests) AS requests, total(throttled) AS throttled, total(throttle_ms) AS throttle_ms,
    total(muted_ms) AS muted_ms, unit_user, unit_client_id, min(least_limit) AS least_limit,
    max(most_limit) AS most_limit, per_used, max(window_ms) AS window_ms
FROM hours
GROUP BY cluster, instance, broker, listener, user, client_id, ip, mode, exempt, kind, role, rule, counter,
    unit_user, unit_client_id, per_used
