-- The trend of each counter's daily p99: Theil-Sen, the median of the slopes between any two days.
WITH days AS (
    SELECT counter, datediff('day', DATE '1970-01-01', date) AS day, p99 FROM headroom_days WHERE length_ms >= 43200000
), slopes AS (
    SELECT a.counter, count(*) AS pairs, median((b.p99 - a.p99) / (b.day - a.day)) AS slope,
        count(*) FILTER (b.p99 > a.p99) AS rise, count(*) FILTER (b.p99 < a.p99) AS fall
    FROM days a JOIN days b ON a.counter = b.counter AND a.day < b.day
    GROUP BY a.counter
), lines AS (
    SELECT d.counter, count(*) AS days, any_value(slope) AS slope,
        median(d.p99 - s.slope * d.day) + any_value(s.slope) * max(d.day) AS now,
        any_value(rise / pairs) AS rising, any_value(fall / pairs) AS falling
    FROM days d JOIN slopes s ON s.counter = d.counter
    GROUP BY d.counter
)
SELECT l.counter, h.kind, h.broker, h.instance, h.rule, h.unit_user, h.unit_client_id, l.days, l.slope, l.now,
    CASE WHEN l.slope > 0 AND l.days >= 5 THEN greatest((1 - l.now) / l.slope, 0) END AS days_left,
    CASE
        WHEN l.days < 5 THEN 'not enough data'
        WHEN l.now >= 1 THEN 'at its limit'
        WHEN l.rising >= 0.75 THEN CASE WHEN (1 - l.now) / l.slope > 365 THEN 'far' ELSE 'rising' END
        WHEN l.falling >= 0.75 THEN 'falling'
        WHEN abs(l.slope) * 365 < 1 - l.now THEN 'level'
        ELSE 'unclear'
    END AS verdict
FROM lines l JOIN headroom h ON h.counter = l.counter
ORDER BY days_left NULLS LAST, l.now DESC, l.counter
