-- The limits of each rule in this period and in the one before.
WITH now AS (
    SELECT kind, rule, min("limit") AS least_limit, max("limit") AS most_limit FROM main.headroom GROUP BY ALL
), last AS (
    SELECT counter, arg_max("limit", last_ms) AS "limit" FROM gold_before.readings WHERE "limit" > 0 GROUP BY counter
), before AS (
    SELECT kind, rule, min("limit") AS least_limit, max("limit") AS most_limit
    FROM last JOIN before.limits USING (counter) GROUP BY ALL
)
SELECT kind, rule, n.least_limit, n.most_limit, b.least_limit AS least_limit_before, b.most_limit AS most_limit_before
FROM now n FULL JOIN before b USING (kind, rule)
ORDER BY kind, rule
