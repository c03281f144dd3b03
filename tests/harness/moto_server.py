"""Moto's server of S3: ``python moto_server.py HOST PORT``, by a Python that has moto (``object_store``).

Not moto's own command: in it http.server and werkzeug both say "100 Continue", and AWS's SDK takes the second for the
answer to an upload.
"""

import sys
from importlib import import_module

if __name__ == "__main__":
    # Modules of moto's own environment, which no checker of ours sees.
    app = import_module("moto.moto_server.werkzeug_app")
    handler = type("Handler", (app.MotoRequestHandler,), {"handle_expect_100": lambda _: True})
    served = app.DomainDispatcherApplication(app.create_backend_app)
    host, port = sys.argv[1:]
    import_module("werkzeug.serving").run_simple(host, int(port), served, threaded=True, request_handler=handler)
