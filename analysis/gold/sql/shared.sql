-- shared: a row for each counter, client that used it, and client that was muted by it (victims are causes, too); all
--   other clients are one (is_rest)
-- reads: charges, rules, keys, muted
--   counter, kind, user, client_id, is_rest, victim_user, victim_client_id: the cause, and the victim
--   caused_ms: muted time of the victim, by the share of the cause in the use of the same 10 s, or of the last
--     before with any use (muted clients use nothing): for each victim these add up to its muted time
--   clients: how many clients the row is of, at most at once; 0: no use was recorded
-- A client has a row of its own if its share reaches 5 % in any moment, and at most 20 have: the work is no square of
-- the clients. A victim's own part is always a row.
WITH held AS (
    SELECT line, counter, kind, is_longest, user, client_id FROM rules JOIN keys USING (key)
    LEFT SEMI JOIN muted USING (counter) WHERE role <> 'shadow' AND rules.kind <> 'connection'),
used AS (
    SELECT /*+ BROADCAST(held) */ date, hour, counter, kind, struct(user, client_id) AS who, unix_seconds(time) DIV 10 AS moment,
        sum(CAST(used AS DOUBLE)) AS used, sum(IF(is_longest, muted_ms, 0)) AS muted_ms
    FROM charges JOIN held USING (line)
    LEFT SEMI JOIN (SELECT DISTINCT date, hour, counter FROM muted) USING (date, hour, counter)
    GROUP BY date, hour, counter, kind, user, client_id, moment),
laid AS (
    SELECT date, hour, counter, kind, who, used_at, sum(used) AS used, sum(muted_ms) AS muted_ms
    FROM (
        SELECT *, max(IF(used > 0, moment, NULL)) OVER (PARTITION BY date, hour, counter ORDER BY moment) AS used_at
        FROM used)
    GROUP BY date, hour, counter, kind, who, used_at),
shares AS (
    SELECT *, coalesce(try_divide(used, sum(used) OVER at_once), 0) AS share,
        sum(muted_ms) OVER at_once AS muted_by_all_ms
    FROM laid WINDOW at_once AS (PARTITION BY date, hour, counter, used_at)),
sums AS (
    SELECT *, max(IF(muted_by_all_ms > 0, share, 0)) OVER by_who >= 0.05 AS matters,
        sum(share * muted_by_all_ms) OVER by_who AS caused_ms
    FROM shares WINDOW by_who AS (PARTITION BY date, hour, counter, who)),
told AS (
    SELECT *, matters AND dense_rank() OVER (
        PARTITION BY date, hour, counter ORDER BY matters DESC, caused_ms DESC, who) <= 20 AS is_named
    FROM sums),
victims AS (
    SELECT *, IF(is_named, 0, share) AS own,
        collect_list(IF(is_named AND share > 0, struct(who, 1L AS clients, share), NULL)) OVER at_once AS named,
        coalesce(sum(IF(is_named, 0, share)) OVER at_once, 0) AS rest,
        count_if(NOT is_named AND share > 0) OVER at_once AS clients
    FROM told WINDOW at_once AS (PARTITION BY date, hour, counter, used_at))
SELECT date, hour, counter, kind, part.who.user, part.who.client_id, part.who IS NULL AS is_rest,
    max(part.clients) AS clients, who.user AS victim_user, who.client_id AS victim_client_id,
    sum(muted_ms * part.share) AS caused_ms
FROM victims LATERAL VIEW explode(concat(named, array(
    struct(IF(own > 0, who, NULL) AS who, 1L AS clients, own AS share),
    struct(NULL AS who, clients - IF(own > 0, 1, 0) AS clients,
        IF(used_at IS NULL, 1, rest - own) AS share)))) AS part
WHERE muted_ms > 0 AND part.share > 0
GROUP BY date, hour, counter, kind, part.who, who
