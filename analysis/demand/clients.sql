-- Clients on brokers, with their use by kind, and the counters that measured it; without exempt clients and addresses.

-- One proxy at a time had a broker if the times of any two proxies overlap by a moment at most, or if they are its owners,
-- one after the other, with one counter: another one may have answered questions meanwhile.
CREATE OR REPLACE TEMP TABLE held AS
SELECT cluster, broker, instance, min(begin_ms) AS begin_ms, max(end_ms) AS end_ms, 2 * max(interval_ms) AS moment_ms
FROM client WHERE "user" IS NOT NULL GROUP BY cluster, broker, instance, begin_ms // 86_400_000;

CREATE OR REPLACE TEMP TABLE several AS
SELECT DISTINCT cluster, broker FROM held a JOIN held b USING (cluster, broker)
WHERE a.instance <> b.instance AND least(a.end_ms, b.end_ms) - greatest(a.begin_ms, b.begin_ms) > a.moment_ms
EXCEPT SELECT cluster, broker FROM charged WHERE broker >= 0 GROUP BY cluster, broker, counter HAVING count(DISTINCT instance) > 1;

-- Second 0 of a proxy begins with an interval of its own, and within a second of the period's begin.
CREATE OR REPLACE TEMP TABLE origins AS
SELECT cluster, instance, first_ms - CAST(ceil((first_ms - min(first_ms) OVER ()) / 1000) AS BIGINT) * 1000 AS origin_ms
FROM (SELECT cluster, instance, min(begin_ms) AS first_ms FROM client GROUP BY ALL);

CREATE OR REPLACE TEMP TABLE charged_here AS
SELECT cluster, instance, broker, "user", client_id, kind, role, mode, rule, counter,
    sum(used) AS used, sum(requests) AS requests, sum(throttled) AS throttled, sum(muted_ms) AS muted_ms,
    any_value(per_used) AS per_used, min(coalesce(least_limit, 'inf')) AS least_limit,
    max(coalesce(most_limit, 'inf')) AS most_limit
FROM charged
WHERE NOT exempt AND "user" IS NOT NULL AND role <> 'shadow' AND kind IN (FROM replayed)
GROUP BY ALL;

CREATE OR REPLACE TEMP TABLE clients AS
SELECT row_number() OVER (ORDER BY cluster, instance, broker, "user", client_id) - 1 AS client, *
FROM (SELECT DISTINCT cluster, instance, broker, "user", client_id FROM charged_here)
JOIN origins USING (cluster, instance)
LEFT JOIN (SELECT cluster, broker, true AS several FROM several) USING (cluster, broker);

ALTER TABLE clients ADD COLUMN owner VARCHAR;
UPDATE clients SET owner = CASE WHEN several THEN instance ELSE '' END;

CREATE OR REPLACE TEMP TABLE used AS
SELECT client, kind,
    coalesce(sum(used * per_used) FILTER (role = 'quota'), 0) AS used,
    coalesce(sum(requests) FILTER (role = 'quota'), 0) AS requests,
    coalesce(sum(throttled) FILTER (mode = 'enforce'), 0) AS throttled,
    coalesce(sum(muted_ms) FILTER (mode = 'enforce'), 0) AS muted_ms,
    coalesce(sum(muted_ms) FILTER (mode = 'enforce' AND role = 'cap'), 0) AS cap_muted_ms,
    coalesce(min(least_limit) FILTER (role = 'quota'), 'inf') AS least_limit,
    coalesce(max(most_limit) FILTER (role = 'quota'), 'inf') AS most_limit,
    min(coalesce(rule, '')) FILTER (role = 'quota') AS first_rule,
    max(coalesce(rule, '')) FILTER (role = 'quota') AS last_rule,
    CAST(bool_or(role = 'cap') AS INT) AS capped
FROM charged_here JOIN clients USING (cluster, instance, broker, "user", client_id)
GROUP BY client, kind;

CREATE OR REPLACE TEMP TABLE numbered AS
SELECT counter, row_number() OVER (ORDER BY counter) - 1 AS number
FROM (SELECT DISTINCT counter FROM charged_here WHERE role = 'quota');

CREATE OR REPLACE TEMP TABLE links AS
SELECT DISTINCT client, kind, number
FROM charged_here JOIN clients USING (cluster, instance, broker, "user", client_id) JOIN numbered USING (counter)
WHERE role = 'quota';
