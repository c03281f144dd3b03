-- Documents of each boot and hour that are stored, and that are missing by their numbers (0, 1, 2 …). Those before the
-- first one stored are missing only if that was the boot's first ever: otherwise they were stored, and expired.
-- A gap is even over the time between the documents around it.
WITH numbered AS (
    SELECT d.* EXCLUDE (date, hour), lag(d.seq) OVER boot AS before, coalesce(lag(d.end_ms) OVER boot, d.begin_ms) AS since_ms,
        coalesce(max(d.dropped) OVER (boot ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), e.dropped) AS dropped_before,
        coalesce(e.seq, CASE WHEN NOT bool_or(d.is_first) OVER all_of THEN min(d.seq) OVER all_of - 1 END) AS earlier
    FROM documents d
    LEFT JOIN earlier_boots e ON e.cluster = d.cluster AND e.instance = d.instance AND e.boot = d.boot
    WINDOW boot AS (PARTITION BY d.cluster, d.instance, d.boot ORDER BY d.seq),
        all_of AS (PARTITION BY d.cluster, d.instance, d.boot)
), counted AS (
    SELECT *, CASE WHEN before IS NOT NULL THEN seq - before - 1 WHEN earlier IS NOT NULL THEN seq - earlier - 1 ELSE seq END AS missing,
        greatest(dropped - coalesce(dropped_before, CASE WHEN earlier IS NULL THEN 0 ELSE dropped END), 0) AS newly_dropped
    FROM numbered
), hours AS (
    SELECT cluster, instance, boot, begin_ms // 3600000 AS hour, 1 AS documents, 0::DOUBLE AS missing, newly_dropped AS dropped,
        late::INT AS late, rows, rows_of_others, rows_of_nobody
    FROM counted
    UNION ALL
    SELECT cluster, instance, boot, hour, 0,
        floor(missing * CASE WHEN begin_ms > since_ms
            THEN least(((hour + 1) * 3600000 - since_ms) / (begin_ms - since_ms), 1) ELSE 1 END)
        - floor(missing * CASE WHEN begin_ms > since_ms
            THEN greatest((hour * 3600000 - since_ms) / (begin_ms - since_ms), 0) ELSE 0 END),
        0, 0, 0, 0, 0
    FROM (
        SELECT *, unnest(range(since_ms // 3600000, begin_ms // 3600000 + 1)) AS hour FROM counted WHERE missing > 0)
)
SELECT cluster, instance, boot, to_timestamp(hour * 3600) AS hour, sum(documents) AS documents,
    sum(missing)::BIGINT AS missing, sum(dropped) AS dropped, sum(late) AS late, sum(rows) AS rows,
    sum(rows_of_others) AS rows_of_others, sum(rows_of_nobody) AS rows_of_nobody,
    (sum(documents) + sum(missing))::BIGINT AS expected, sum(missing) / (sum(documents) + sum(missing)) AS share_missing
FROM hours
WHERE hour * 3600000 >= getvariable('since_ms') AND hour * 3600000 < getvariable('until_ms')
GROUP BY cluster, instance, boot, hour
HAVING sum(documents) + sum(missing) > 0
ORDER BY cluster, instance, boot, hour
