SELECT counter, kind, user, client_id, is_rest, victim_user, victim_client_id, max(clients) AS clients,
    sum(caused_ms) AS caused_ms
FROM hours GROUP BY counter, kind, user, client_id, is_rest, victim_user, victim_client_id
