-- Readings of the period before, for limits that were used to a tenth or more in either period.
WITH close AS (
    SELECT cluster, broker, kind, rule, unit_user, unit_client_id FROM main.headroom WHERE max >= 0.1
    UNION
    SELECT cluster, broker, kind, rule, unit_user, unit_client_id
    FROM before.limits JOIN gold_before.readings USING (counter) WHERE max >= 0.1
)
FROM gold_before.readings
WHERE counter IN (
    SELECT counter FROM before.limits b JOIN close c ON b.cluster = c.cluster AND b.broker = c.broker AND b.kind = c.kind
        AND b.rule = c.rule AND b.unit_user IS NOT DISTINCT FROM c.unit_user
        AND b.unit_client_id IS NOT DISTINCT FROM c.unit_client_id)
