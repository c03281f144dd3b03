-- clocks: the nominal interval of each proxy: that of most rows. Not stored.
-- reads: client
SELECT cluster, instance, max_by(interval_ms, rows) AS interval_ms FROM (
    SELECT cluster, instance, interval_ms, sum(rows) AS rows FROM client GROUP BY cluster, instance, interval_ms)
GROUP BY cluster, instance
