-- counters: a row for each counter, but those of limits in shadow
-- reads: charged, clocks
--   counter, kind, role, cluster, instance, broker, rule, per_used: as in charged
--   unit_user: a user, group:NAME, ip:ADDRESS, or null where it plays no role
--   unit_client_id: a client-id, PREFIX*, or null where it plays no role
--   window_ms: the window of enforcement
--   interval_ms: nominal; of several proxies, the longest
--   first_client, last_client: the least and the greatest
--   is_shared: more than one client was charged
SELECT *, first_client <> last_client AS is_shared FROM (
    SELECT date, hour, counter, any_value(kind) AS kind, any_value(role) AS role, any_value(cluster) AS cluster,
        any_value(instance) AS instance, any_value(broker) AS broker, any_value(rule) AS rule,
        any_value(unit_user) AS unit_user, any_value(unit_client_id) AS unit_client_id,
        any_value(per_used) AS per_used, max(window_ms) AS window_ms, max(interval_ms) AS interval_ms,
        min(struct(user, client_id)) AS first_client, max(struct(user, client_id)) AS last_client
    FROM charged JOIN clocks USING (cluster, instance) WHERE role <> 'shadow' GROUP BY date, hour, counter)
