-- muted: a row for each recorded interval with a mute
-- reads: charges, rules, keys
--   cluster, instance, broker, listener, user, client_id, ip, mode, kind, role, counter, rule: as in charged
--   limit: at the time
--   begin_ms, end_ms: of the interval
--   used: in the unit of charged
--   bytes: the same for produce and fetch
--   throttled, throttle_ms, muted_ms: as in charged
SELECT date, hour, cluster, instance, r.broker, listener, user, client_id, ip, mode, kind, role, counter, rule,
    unix_millis(time) AS begin_ms, unix_millis(time) + interval_ms AS end_ms, used,
    IF(kind IN ({bytes}), used, NULL) AS bytes, throttled, throttle_ms, muted_ms,
    coalesce(cap_limit, limit) AS limit
FROM charges JOIN rules r USING (line) JOIN keys USING (key) WHERE muted_ms > 0 AND is_longest
