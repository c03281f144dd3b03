-- The most used by each counter within any window of $window_ms. If the window was another one while recorded, the most
-- of as many recorded windows as cover it: an upper bound.
SELECT coalesce(most_window, 'inf') * ceil(ceil($window_ms / interval_ms) / greatest(round(window_ms / interval_ms), 1))
    AS surge, coalesce(used_s, 0) AS active_s
FROM numbered
LEFT JOIN (SELECT counter, max(most_window) AS most_window, sum(used_s) AS used_s FROM readings GROUP BY ALL)
    USING (counter)
LEFT JOIN (SELECT counter, min(window_ms) AS window_ms, max(interval_ms) AS interval_ms FROM counters GROUP BY ALL)
    USING (counter)
ORDER BY number
