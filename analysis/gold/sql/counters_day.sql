SELECT counter, any_value(kind) AS kind, any_value(role) AS role, any_value(cluster) AS cluster,
    any_value(instance) AS instance, any_value(broker) AS broker, any_value(rule) AS rule,
    any_value(unit_user) AS unit_user, any_value(unit_client_id) AS unit_client_id, any_value(per_used) AS per_used,
    max(window_ms) AS window_ms, max(interval_ms) AS interval_ms,
    min(first_client) AS first_client, max(last_client) AS last_client,
    min(first_client) <> max(last_client) AS is_shared
FROM hours GROUP BY counter
