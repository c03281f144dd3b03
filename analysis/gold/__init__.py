"""Gold: small tables that Spark makes of rows, once, and that reports read by SQL, without Spark.

``making.make(spark, warehouse)`` makes what is due. This docstring is the contract with those who read.

**Where.** ``WAREHOUSE/gold/<name>_hour/date=YYYY-MM-DD/hour=HH/*.parquet`` for each UTC hour (HH is 00 to 23),
made again when the hour gets more batches. ``WAREHOUSE/gold/<name>_day/date=YYYY-MM-DD/*.parquet`` for
days that are over (all but the newest): the same columns, added up over the hours or put one after the other.
``WAREHOUSE/gold/made/date=YYYY-MM-DD.json`` says what exists:
``{"hours": {"13": ["batch", …]}, "day": ["13", …] or null}``: the batches of the rows that an hour was made of (the
names of ``usage/date=…/hour=…/batch=…``), and the hours that the day was made of. A day table is right while ``day``
lists all the hours. For whole UTC days that have one, read ``_day``; for all else the hours.

All tables of an hour or a day exist, if only as a file without rows. Keys are never null but where said.
``who`` is cluster, instance, broker (INT), listener, user (null: of nobody, an address or a refused connection),
client_id (null likewise), ip (null: of a client).

    client      who, mode, exempt, interval_ms (nominal: whole seconds), window_ms, sample_ms, controller_window_ms
                -> rows, active_ms, begin_ms, end_ms (Unix time; min, max), bytes_in, bytes_out, requests,
                request_time_ms, connections (max), connections_opened, connections_refused, accept_waits,
                accept_wait_ms
    charged     who, mode, exempt, kind, role, rule (null: none), counter (BIGINT)
                -> used, requests, throttled, throttle_ms, muted_ms, least_limit, most_limit (null: no limit), per_used,
                window_ms
                Kinds, roles, units and counters are those of ``analysis.charges``.
    counters    counter -> kind, role, cluster, instance, broker, rule, unit_user, unit_client_id, per_used,
                window_ms, interval_ms (nominal), is_shared (more than one client was charged to it),
                first_client, last_client (STRUCT of user, client_id: the least and the greatest)
                unit_user: the user, ``group:NAME``, ``ip:ADDRESS`` or null (plays no role); unit_client_id: the
                client-id, ``PREFIX*`` or null. Without a rule, each client on a broker has a counter of its own.
    readings    counter -> values ARRAY<FLOAT>, counts ARRAY<INT>, over, busy, used_intervals, max, most_window,
                limit, last_ms
                Of each interval (nominal, by the clock) the use of the window that ends with it, over what the
                limit allows in a window. ``values`` are those above 0, ascending, each once, rounded to 256 an
                octave, or to 1/1024 where that is coarser (below 0.25; never to 0); ``counts`` how many intervals
                had each; ``busy`` is their sum, and all other intervals of a period are 0. ``over``: intervals
                above 1 (before rounding); ``max`` likewise exact. ``used_intervals``: those in which anything was
                used. ``most_window``: the most that was used in any window, in the limit's unit times seconds;
                ``limit``: the last one; null (or 0), and then there are no values: none was in force. Add up a
                period: all counts of equal values. Limits in shadow have no readings.
    muted       who, mode, kind, role, counter, rule, begin_ms, end_ms
                -> used, bytes (null unless the kind counts bytes), throttled, throttle_ms, muted_ms, limit
                A row for each recorded interval with a mute.
    moments     cluster, broker, user, client_id, is_rest, at_s (a multiple of 10)
                -> bytes_in, bytes_out, requests, request_time_ms, muted_ms
                The 20 clients of the hour with most bytes; ``is_rest``: all others together (user, client_id null).
    shared      counter, kind, user, client_id, victim_user, victim_client_id -> caused_ms, muted_ms
                Of counters that several clients are charged to: the victim's muted time, laid to the others by their
                share in what was used in the same 10 s (shares from 5 %). ``muted_ms``: of the victim in these 10 s.
    users       hour (INT), cluster, user, exempt -> bytes_in, bytes_out, requests, and begin_ms, end_ms
                By UTC hour also in ``users_day``: exact in any time zone.
    documents   hour (INT), cluster, instance, boot, seq -> begin_ms, end_ms, dropped (the proxy's count so far), rows,
                rows_of_others, rows_of_nobody, late (came after documents of a later hour had been stored), is_first
                (nothing of its boot was stored before: numbers below it, from 0 on, are missing)

``WAREHOUSE/rejected/batch=…/*.parquet``: topic, partition, offset, file, line (null where it has none), fault,
size, value (BINARY, the first 64 KiB).
"""
