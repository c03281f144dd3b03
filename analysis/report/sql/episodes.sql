-- Muted intervals of a client on a broker by one rule, with gaps no longer than gap_ms (the window of enforcement).
WITH held AS (
    SELECT * FROM muted WHERE role <> 'shadow' AND kind <> 'connection'
), begun AS (
    SELECT *, coalesce(begin_ms - max(end_ms) OVER (
            PARTITION BY cluster, broker, "user", client_id, kind, rule, mode ORDER BY begin_ms, end_ms
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) > getvariable('gap_ms'), true) AS begins
    FROM held
), numbered AS (
    SELECT *, count_if(begins) OVER (
        PARTITION BY cluster, broker, "user", client_id, kind, rule, mode ORDER BY begin_ms, end_ms
        ROWS UNBOUNDED PRECEDING) AS episode
    FROM begun
)
SELECT cluster, broker, "user", client_id, kind, rule, mode, to_timestamp(min(begin_ms) / 1000) AS begin,
    to_timestamp(max(end_ms) / 1000) AS "end", sum(muted_ms) AS muted_ms, sum(throttled) AS throttled,
    sum(throttle_ms) AS throttle_ms, sum(bytes) AS bytes, min("limit") AS "limit",
    count(DISTINCT instance) AS instances, list(DISTINCT counter ORDER BY counter) AS counters
FROM numbered
GROUP BY cluster, broker, "user", client_id, kind, rule, mode, episode
ORDER BY muted_ms DESC, begin, cluster, broker, "user", client_id, kind, rule, mode
