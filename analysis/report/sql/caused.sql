-- Muted time of each client on each counter, laid to the use of it: by named clients, by the others (is_rest), and by itself.
-- For each victim and counter, caused_ms adds up to muted_ms.
WITH names AS (
    SELECT counter, any_value(cluster) AS cluster, any_value(broker) AS broker, any_value(rule) AS rule
    FROM counters WHERE counter IN (SELECT counter FROM shared) GROUP BY counter
)
SELECT s.counter, s.kind, n.cluster, n.broker, n.rule, s."user", s.client_id, s.is_rest, max(s.clients) AS clients,
    NOT s.is_rest AND s."user" IS NOT DISTINCT FROM s.victim_user
        AND s.client_id IS NOT DISTINCT FROM s.victim_client_id AS is_itself,
    s.victim_user, s.victim_client_id, sum(s.caused_ms) AS caused_ms, any_value(s.muted_ms) AS muted_ms,
    bool_or(s.victim_is_own) AS victim_is_own
FROM shared s JOIN names n ON n.counter = s.counter
GROUP BY s.counter, s.kind, n.cluster, n.broker, n.rule, s."user", s.client_id, s.is_rest, s.victim_user, s.victim_client_id
ORDER BY caused_ms DESC, s.counter, s."user", s.client_id, s.victim_user, s.victim_client_id
