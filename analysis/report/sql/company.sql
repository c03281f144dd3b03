-- The other clients of one client's counters, with the muted time that each caused for the other. Null: its part is in the
-- row of all others (is_rest), or there is none.
WITH others AS (
    SELECT counter, "user", client_id, false AS is_rest, 1 AS clients, sum(used) AS used, sum(muted_ms) AS muted_ms
    FROM everybody WHERE NOT is_own AND role <> 'shadow' GROUP BY ALL
    UNION ALL
    SELECT counter, NULL, NULL, true, max(clients), NULL, NULL FROM caused WHERE is_rest AND victim_is_own GROUP BY counter
), by_them AS (
    SELECT counter, "user", client_id, is_rest, sum(caused_ms) AS caused_ms FROM caused WHERE victim_is_own GROUP BY ALL
), by_us AS (
    SELECT counter, victim_user AS "user", victim_client_id AS client_id, sum(caused_ms) AS caused_ms
    FROM caused WHERE NOT victim_is_own GROUP BY ALL
)
SELECT o.counter, l.kind, l.broker, l.rule, o."user", o.client_id, o.is_rest, o.clients, o.used, o.muted_ms,
    t.caused_ms, u.caused_ms AS caused_by_client_ms
FROM others o JOIN limits l ON l.counter = o.counter
LEFT JOIN by_them t ON t.counter = o.counter AND t."user" IS NOT DISTINCT FROM o."user"
    AND t.client_id IS NOT DISTINCT FROM o.client_id AND t.is_rest = o.is_rest
LEFT JOIN by_us u ON u.counter = o.counter AND u."user" IS NOT DISTINCT FROM o."user"
    AND u.client_id IS NOT DISTINCT FROM o.client_id AND NOT o.is_rest
ORDER BY t.caused_ms DESC NULLS LAST, o.used DESC NULLS LAST, o.counter, o."user", o.client_id
