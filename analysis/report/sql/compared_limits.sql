-- Used over limit in this period and in the one before, for limits used to a tenth or more in either; of several proxy
-- instances, the one with the highest.
WITH now AS (
    SELECT cluster, broker, kind, rule, unit_user, unit_client_id, max(p99) AS p99, arg_max("limit", p99) AS "limit"
    FROM main.headroom GROUP BY ALL
), before AS (
    SELECT cluster, broker, kind, rule, unit_user, unit_client_id, max(p99) AS p99, arg_max("limit", p99) AS "limit"
    FROM before.headroom GROUP BY ALL
)
SELECT n.cluster, n.broker, n.kind, n.rule, n.unit_user, n.unit_client_id, n.p99, b.p99 AS p99_before, n."limit",
    b."limit" AS limit_before
FROM now n JOIN before b ON n.cluster = b.cluster AND n.broker = b.broker AND n.kind = b.kind AND n.rule = b.rule
    AND n.unit_user IS NOT DISTINCT FROM b.unit_user AND n.unit_client_id IS NOT DISTINCT FROM b.unit_client_id
ORDER BY abs(n.p99 - b.p99) DESC, n.cluster, n.broker, n.kind, n.rule, n.unit_user, n.unit_client_id
