-- documents: a row for each document
-- reads: documents
--   cluster, instance, boot, seq: whose
--   begin_ms, end_ms: of its interval
--   dropped: the proxy's count of dropped documents
--   rows, rows_of_others, rows_of_nobody: how many; of clients beyond the limit, and without a client
--   late: of an hour before the newest one of earlier batches
--   is_first: nothing of its boot was stored before
SELECT * FROM documents
