-- Traffic by step of the page's plot: the eight clients with most bytes, and all others (place -1).
WITH busiest AS (
    SELECT cluster, "user", client_id, row_number() OVER (ORDER BY bytes DESC, cluster, "user", client_id) - 1 AS place
    FROM (
        SELECT cluster, "user", client_id, sum(bytes_in + bytes_out) AS bytes FROM moments WHERE NOT is_rest GROUP BY ALL)
    QUALIFY place < 8
)
SELECT coalesce(place, -1) AS place, any_value(b.cluster) AS cluster, any_value(b."user") AS "user",
    any_value(b.client_id) AS client_id, at_s // getvariable('step_s') * getvariable('step_s') AS at_s,
    sum(bytes_in) AS bytes_in, sum(bytes_out) AS bytes_out, sum(requests) AS requests
FROM moments m
LEFT JOIN busiest b ON b.cluster = m.cluster AND b."user" IS NOT DISTINCT FROM m."user"
    AND b.client_id IS NOT DISTINCT FROM m.client_id AND NOT m.is_rest
GROUP BY coalesce(place, -1), at_s // getvariable('step_s') * getvariable('step_s')
ORDER BY at_s, place
