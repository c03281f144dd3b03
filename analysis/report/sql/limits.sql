-- The names of each counter with a rule, once for the period.
SELECT counter, names.*, window_ms
FROM (
    SELECT counter, max(window_ms) AS window_ms, any_value({
        kind: kind, role: role, cluster: cluster, instance: instance, broker: broker, rule: rule,
        unit_user: unit_user, unit_client_id: unit_client_id}) AS names
    FROM counters WHERE rule IS NOT NULL GROUP BY counter)
ORDER BY counter
