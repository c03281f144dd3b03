-- The other clients of one client's counters, with the muted time that each caused for the other.
WITH others AS (
    SELECT counter, "user", client_id, sum(used) AS used, sum(muted_ms) AS muted_ms
    FROM everybody WHERE NOT is_own AND role <> 'shadow' GROUP BY ALL
), by_them AS (
    SELECT counter, "user", client_id, sum(caused_ms) AS caused_ms FROM caused WHERE victim_is_own GROUP BY ALL
), by_us AS (
    SELECT counter, victim_user AS "user", victim_client_id AS client_id, sum(caused_ms) AS caused_ms
    FROM caused WHERE NOT victim_is_own GROUP BY ALL
)
SELECT o.counter, l.kind, l.broker, l.rule, o."user", o.client_id, o.used, o.muted_ms,
    coalesce(t.caused_ms, 0) AS caused_ms, coalesce(u.caused_ms, 0) AS caused_by_client_ms
FROM others o JOIN limits l ON l.counter = o.counter
LEFT JOIN by_them t ON t.counter = o.counter AND t."user" IS NOT DISTINCT FROM o."user"
    AND t.client_id IS NOT DISTINCT FROM o.client_id
LEFT JOIN by_us u ON u.counter = o.counter AND u."user" IS NOT DISTINCT FROM o."user"
    AND u.client_id IS NOT DISTINCT FROM o.client_id
ORDER BY caused_ms DESC, o.used DESC, o.counter, o."user", o.client_id
