-- Connections by address; rows without an address are accept waits of a listener.
WITH tried AS (
    SELECT cluster, instance, listener, ip, mode, exempt, rule, sum(used) AS attempts, sum(throttled) AS refused,
        sum(throttle_ms) AS throttle_ms, sum(muted_ms) AS muted_ms, max(most_limit) AS "limit"
    FROM charged WHERE kind = 'connection' GROUP BY ALL
), waited AS (
    SELECT cluster, instance, listener, ip, mode, exempt, sum(accept_waits) AS waits, sum(accept_wait_ms) AS wait_ms
    FROM client WHERE accept_waits > 0 GROUP BY ALL
)
SELECT coalesce(tried.cluster, waited.cluster) AS cluster, coalesce(tried.instance, waited.instance) AS instance,
    coalesce(tried.listener, waited.listener) AS listener, coalesce(tried.ip, waited.ip) AS ip,
    coalesce(tried.mode, waited.mode) AS mode, coalesce(tried.exempt, waited.exempt) AS exempt, rule,
    coalesce(attempts, 0) AS attempts, coalesce(refused, 0) AS refused, coalesce(throttle_ms, 0) AS throttle_ms,
    coalesce(muted_ms, 0) AS muted_ms, "limit", coalesce(waits, 0) AS waits, coalesce(wait_ms, 0) AS wait_ms
FROM tried
FULL JOIN waited ON tried.cluster = waited.cluster AND tried.instance = waited.instance
    AND tried.listener = waited.listener AND tried.ip IS NOT DISTINCT FROM waited.ip AND tried.mode = waited.mode
    AND tried.exempt = waited.exempt
ORDER BY refused DESC, attempts DESC, cluster, instance, listener, ip, mode
