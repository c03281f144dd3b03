-- Muted time of each client of a shared counter, attributed to the other clients of it.
SELECT s.counter, l.kind, l.cluster, l.broker, l.rule, s."user", s.client_id, s.victim_user, s.victim_client_id,
    sum(s.caused_ms) AS caused_ms, sum(s.muted_ms) AS muted_ms, coalesce(bool_or(s.victim_is_own), false) AS victim_is_own
FROM shared s JOIN limits l ON l.counter = s.counter
GROUP BY s.counter, l.kind, l.cluster, l.broker, l.rule, s."user", s.client_id, s.victim_user, s.victim_client_id
ORDER BY caused_ms DESC, s.counter, s."user", s.client_id, s.victim_user, s.victim_client_id
