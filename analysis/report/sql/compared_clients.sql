-- Each client in this period and in the one before.
WITH now AS (
    SELECT cluster, "user", client_id, bytes_in + bytes_out AS bytes, requests, muted_ms FROM main.talkers
), before AS (
    SELECT cluster, "user", client_id, bytes_in + bytes_out AS bytes, requests, muted_ms FROM before.talkers
)
SELECT coalesce(n.cluster, b.cluster) AS cluster, coalesce(n."user", b."user") AS "user",
    coalesce(n.client_id, b.client_id) AS client_id,
    CASE WHEN b.cluster IS NULL THEN 'new' WHEN n.cluster IS NULL THEN 'gone' ELSE 'both' END AS seen,
    coalesce(n.bytes, 0) AS bytes, coalesce(b.bytes, 0) AS bytes_before, coalesce(n.requests, 0) AS requests,
    coalesce(b.requests, 0) AS requests_before, coalesce(n.muted_ms, 0) AS muted_ms,
    coalesce(b.muted_ms, 0) AS muted_ms_before
FROM now n FULL JOIN before b ON n.cluster = b.cluster AND n."user" IS NOT DISTINCT FROM b."user"
    AND n.client_id IS NOT DISTINCT FROM b.client_id
ORDER BY abs(coalesce(n.bytes, 0) - coalesce(b.bytes, 0)) DESC, cluster, "user", client_id
