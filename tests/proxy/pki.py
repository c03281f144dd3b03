"""Authorities and certificates for tests, and clients that show and trust them."""

import ssl
from pathlib import Path

import trustme

from config.listener import ClientTls


class Pki:
    """One authority, in files below ``folder``, and what it issues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.ca_file)
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.issue("127.0.0.1", "*.kafka.test")

    def issue(self, *names: str) -> None:
        """Put a new certificate and its key where the listener reads them."""
        issued = self.ca.issue_cert(*names)
        self.certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(self.key)

    def settings(self, **options: object) -> ClientTls:
        files = {"certificate": self.certificate, "key": self.key}
        if options.get("client_authentication", "none") != "none":
            files["client_ca"] = self.ca_file
        return ClientTls.model_validate(files | options)

    def client(self, user: str | None = None, ca: trustme.CA | None = None) -> ssl.SSLContext:
        """Return the context of a client; with ``user`` it shows a certificate with that common name, by ``ca``."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if user is not None:
            path = self.folder / "client.pem"
            issued = (ca or self.ca).issue_cert("client.example", common_name=user)
            issued.private_key_and_cert_chain_pem.write_to_path(path)
            context.load_cert_chain(str(path))
        return context
