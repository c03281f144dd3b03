"""A real key distribution centre, MIT's krb5kdc, on loopback.

with Kdc() as kdc:
    keys = kdc.keytab("kafka/localhost")
    ... BrokerListener(…, kdc.broker_properties(keys)) with kdc.java_options ... Produce(…, security=kdc.login("alice"))
"""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from proxy.identity.kerberos.keytab import principals
from tests.harness.clients.tasks import Security
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.process import Program
from tests.harness.wire import Address

REALM: Final = "SLUICE.TEST"
START_TIMEOUT_S: Final = 15.0
TOOL_TIMEOUT_S: Final = 30.0
# Not on the path of a user that is not root.
TOOL_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


class KdcError(Exception):
    """A tool of Kerberos that is not there, or did not do what it was asked; carries what it said."""


class Kdc:
    """One realm with a database of its own, as a context manager; gone, keys too, at its end.

    Names are looked up nowhere: a client asks for the service at the host it was given, as it was written.
    """

    def __init__(self, realm: str = REALM) -> None:
        self.realm = realm
        self.address = Address(LOOPBACK, free_port())
        self._folder: Path | None = None
        self._program: Program | None = None
        self._known: set[str] = set()

    @property
    def config(self) -> Path:
        """The krb5.conf of clients and services."""
        return self._place() / "krb5.conf"

    @property
    def java_options(self) -> tuple[str, ...]:
        """For the JVM of a broker."""
        return (f"-Djava.security.krb5.conf={self.config}",)

    def broker_properties(self, keytab: Path) -> dict[str, str]:
        """Of a listener that takes GSSAPI, as the first principal of `keytab`, `kafka/<host that clients know>`."""
        principal = principals(keytab)[0]
        module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        return {
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "gssapi.sasl.jaas.config": f'{module} keyTab="{keytab}" principal="{principal}";',
        }

    def login(self, user: str, keytab: Path | None = None) -> Security:
        """How a client logs in as `user`, with its key of now or that of `keytab`."""
        return Security(
            protocol="SASL_PLAINTEXT",
            mechanism="GSSAPI",
            username=user,
            keytab=str(keytab or self.keytab(user)),
            krb5_conf=str(self.config),
        )

    def keytab(self, *names: str, file: str | None = None) -> Path:
        """A file with the keys of these principals. Those that are new are made; the keys of others stay."""
        path = self._place() / f"{file or names[0].replace('/', '_')}.keytab"
        fresh = path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        self._administer(
            *(f"addprinc -randkey {name}" for name in names if name not in self._known),
            *(f"ktadd -norandkey -k {fresh} {name}" for name in names),
        )
        self._known.update(names)
        fresh.replace(path)
        return path

    def change_key(self, principal: str) -> None:
        """Give the principal another key: what was written to keytabs before is of no use for new tickets."""
        self._administer(f"cpw -randkey {principal}")

    def start(self) -> None:
        """Until it takes connections."""
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-kdc-"))
        try:
            self.config.write_text(self._configuration(), encoding="utf-8")
            self._run("kdb5_util", "create", "-s", "-P", "master key of a test")
            command = [_tool("krb5kdc"), "-n", "-P", str(self._folder / "pid")]
            environment = self._administrator()
            self._program = Program("krb5kdc", command, self._folder / "kdc.log", environment=environment)
            self._program.wait_until(self._takes_connections, "listening port", START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._program is not None:
            self._program.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _administer(self, *queries: str) -> None:
        said = self._run("kadmin.local", given="\n".join(queries) + "\n")
        failed = [line for line in said.splitlines() if " while " in line]
        if failed:
            raise KdcError("; ".join(failed))

    def _run(self, tool: str, *arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [_tool(tool), "-r", self.realm, *arguments],
            env={**os.environ, **self._administrator()},
            input=given,
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        said = done.stdout + done.stderr
        if done.returncode != 0:
            raise KdcError(f"{tool} {' '.join(arguments)} ended with status {done.returncode}:\n{said}")
        return said

    def _administrator(self) -> dict[str, str]:
        return {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.config)}

    def _takes_connections(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.address.host, self.address.port)) == 0

    def _configuration(self) -> str:
        """For clients, services and the KDC itself."""
        folder = self._place()
        return f"""\
[libdefaults]
    default_realm = {self.realm}
    dns_lookup_realm = false
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[kdcdefaults]
    kdc_listen = {self.address}
    kdc_tcp_listen = {self.address}
[logging]
    kdc = STDERR
[realms]
    {self.realm} = {{
        kdc = {self.address}
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/acl
        supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
    }}
"""

    def _place(self) -> Path:
        if self._folder is None:
            raise RuntimeError("the KDC has not been started")
        return self._folder

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _tool(name: str) -> str:
    found = shutil.which(name, path=TOOL_PATH)
    if found is None:
        raise KdcError(f"{name} is not installed: run `make setup`")
    return found
