"""The page for operators on the admin port: HTML from the state API, live with server-sent events.

It asks ``state`` and shows; it knows no worker, no session and no store.
"""
