-- readings: a row for each counter that was used
-- reads: recent, recent_rules, recent_keys, clocks; analysis/gold/readings.py makes the rest
--   counter
--   values: used over limit above 0, ascending, each once; rounded to 256 an octave, and below 0.25 to 1/1024
--   seconds: for how many seconds it had each
--   busy_s: their sum, and that of the seconds without a limit
--   over_s: seconds above 1
--   used_s: seconds of intervals with use
--   max: the greatest
--   most_window: the most used in any window
--   limit: the last
--   last_ms: the last second with a value
WITH read_from AS (
    SELECT /*+ BROADCAST(clocks) */ line, counter, window_ms, per_used, cap_limit,
        clocks.interval_ms DIV 1000 AS interval_s
    FROM recent_rules JOIN recent_keys USING (key) JOIN clocks USING (cluster, instance) WHERE role <> 'shadow')
-- One row a second and limit, however many clients share a counter: a task has all rows of it in memory.
SELECT counter, at_s, interval_s, window_s, per_used, limit, total(used) AS used
FROM (
    SELECT /*+ REPARTITION({tasks}, counter), BROADCAST(read_from) */
        counter, unix_seconds(time) DIV interval_s * interval_s AS at_s, interval_s,
        CAST(greatest(round(window_ms / (interval_s * 1000)), 1) AS BIGINT) * interval_s AS window_s,
        per_used, used, coalesce(cap_limit, limit) AS limit
    FROM recent JOIN read_from USING (line)
    WHERE used > 0)
GROUP BY counter, at_s, interval_s, window_s, per_used, limit
