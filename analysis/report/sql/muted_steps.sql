-- Muted share of each step of the page's plots, by client, broker and rule, for the 20 muted longest.
WITH held AS (
    SELECT cluster, "user", client_id, broker, kind, rule, begin_ms, end_ms, muted_ms
    FROM muted WHERE role <> 'shadow' AND kind <> 'connection'
), most AS (
    SELECT cluster, "user", client_id, broker, kind, rule, sum(muted_ms) AS in_all_ms
    FROM held GROUP BY ALL ORDER BY in_all_ms DESC, cluster, "user", client_id, broker, kind, rule LIMIT 20
)
SELECT h.cluster, h."user", h.client_id, h.broker, h.kind, h.rule, any_value(in_all_ms) AS in_all_ms,
    begin_ms // (getvariable('step_s') * 1000) * getvariable('step_s') AS at_s,
    least(sum(h.muted_ms) / (getvariable('step_s') * 1000), 1) AS share
FROM held h JOIN most m ON m.cluster = h.cluster AND m."user" IS NOT DISTINCT FROM h."user"
    AND m.client_id IS NOT DISTINCT FROM h.client_id AND m.broker = h.broker AND m.kind = h.kind
    AND m.rule IS NOT DISTINCT FROM h.rule
GROUP BY h.cluster, h."user", h.client_id, h.broker, h.kind, h.rule, at_s
ORDER BY in_all_ms DESC, h.cluster, h."user", h.client_id, h.broker, h.kind, h.rule, at_s
