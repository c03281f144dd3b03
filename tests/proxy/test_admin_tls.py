"""TLS of the admin port: who is served, who is known by a certificate, and how instances ask each other."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from config.loader import load_settings
from config.settings import Admin, AdminAccess
from proxy.admin.access import Access
from proxy.admin.server import AdminServer
from proxy.admin.tls import AdminTls, tls_of
from proxy.admin_port import admin_server
from proxy.checks.health import AdminLogin, ask, context_of_others, get, login_of
from proxy.cli import cli
from proxy.owners.asking import Asking
from proxy.owners.messages import Signing
from proxy.runtime.http_get import BadAnswerError
from tests.harness.polling import until
from tests.harness.ports import free_port
from tests.proxy.pki import Pki
from tests.proxy.test_admin_port import CONFIG, program
from tests.proxy.test_supervisor import CONFIG as OF_PROGRAM
from tests.proxy.test_supervisor import running

pytestmark = pytest.mark.asyncio


class Served:
    """An admin port with TLS."""

    def __init__(self, folder: Path, access: tuple[AdminAccess, ...] = (), **options: object) -> None:
        self.pki, self.port = Pki(folder), free_port()
        self.admin = Admin(tls=self.pki.settings(**options), ca=self.pki.ca_file, access=access)
        found = tls_of(self.admin)
        assert found is not None
        self.tls: AdminTls = found
        file = folder / "sluice.yaml"
        file.write_text(CONFIG.format(port=self.port))
        of_server = Access(self.admin, self.tls)
        self.server: AdminServer = admin_server(load_settings(file), program(), of_server, self.tls)

    def client(self, context: ssl.SSLContext) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            f"https://127.0.0.1:{self.port}", connector=aiohttp.TCPConnector(ssl=context, force_close=True)
        )


@asynccontextmanager
async def serving(folder: Path, access: tuple[AdminAccess, ...] = (), **options: object) -> AsyncIterator[Served]:
    served = Served(folder, access, **options)
    await served.server.start()
    try:
        yield served
    finally:
        await served.server.stop()


async def test_port_is_served_over_tls_and_not_in_cleartext(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        async with served.client(served.pki.client()) as client, client.get("/livez") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /livez HTTP/1.0\r\n\r\n")
        assert b"200" not in await reader.read()
        writer.close()
        await until(lambda: not served.server._connections._open)


async def test_new_certificate_is_served_once_it_is_loaded(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        before = served.tls.expires_at_s
        served.pki.issue("127.0.0.1", "renewed.test")
        await served.tls.load()
        assert served.tls.expires_at_s >= before
        _, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=served.pki.client())
        names = writer.get_extra_info("peercert")["subjectAltName"]
        assert ("DNS", "renewed.test") in names
        writer.close()
        served.pki.key.write_text("broken")
        with capture_logs() as logs:
            await served.tls.load()
        assert logs[0]["event"] == "certificate of the admin port not loaded, the old one stays in force"
        async with served.client(served.pki.client()) as client, client.get("/livez") as answer:
            assert answer.status == 200


async def test_subject_of_a_certificate_says_who_may_what(tmp_path: Path) -> None:
    rules = "RULE:^.*CN=([a-z]+).*$/$1/"
    access = (AdminAccess(name="ops", subject="alice"), AdminAccess(name="prometheus", subject="bob", may=("read",)))
    options = {"client_authentication": "requested", "principal_mapping_rules": rules}
    async with serving(tmp_path, access, **options) as served:
        for user, read, change in (("alice", 200, 200), ("bob", 200, 403), ("eve", 401, 401), (None, 401, 401)):
            async with served.client(served.pki.client(user)) as client:
                async with client.get("/metrics") as answer:
                    assert answer.status == read, user
                with capture_logs() as logs:
                    async with client.post("/connections/close", data={"user": "x"}) as answer:
                        assert answer.status == change, user
                assert change != 200 or logs[0]["who"] == "ops"
                async with client.post("/mode", data="off", headers={"Origin": "https://evil.example"}) as answer:
                    # A browser shows its certificate to pages of others, too.
                    assert answer.status == (403 if read == 200 else 401)
                async with client.get("/livez") as answer:
                    assert answer.status == 200


async def test_page_shows_forms_to_who_shows_a_certificate(tmp_path: Path) -> None:
    access = (AdminAccess(name="ops", subject="alice"),)
    rules = "RULE:^.*CN=([a-z]+).*$/$1/"
    options = {"client_authentication": "required", "principal_mapping_rules": rules}
    async with serving(tmp_path, access, **options) as served:
        async with served.client(served.pki.client("alice")) as client, client.get("/quotas") as answer:
            assert "Switch the mode" in await answer.text()
        async with served.client(served.pki.client()) as client:
            with pytest.raises(aiohttp.ClientError):
                await client.get("/livez")


async def test_instances_ask_each_other_over_tls_and_verify_it(tmp_path: Path) -> None:
    async with serving(tmp_path, client_authentication="required") as served:
        member: Any = SimpleNamespace(
            instance="a",
            boot=1,
            member_id="a-1",
            signing=Signing(b"secret", "group"),
            map=SimpleNamespace(ids={"b": "b-1"}),
        )
        asking = Asking(member, lambda: served.tls.of_others)
        answer = await asking.get("b", ("127.0.0.1", served.port), "/api/v1/owners", 5.0, 10_000)
        assert answer.status == 200
        (tmp_path / "other").mkdir()
        of_stranger = context_of_others(served.admin.model_copy(update={"ca": Pki(tmp_path / "other").ca_file}))
        with pytest.raises(BadAnswerError, match="TLS: self-signed certificate in certificate chain"):
            await Asking(member, lambda: of_stranger).get("b", ("127.0.0.1", served.port), "/livez", 5.0, 100)


async def test_health_of_a_configuration_trusts_its_own_certificate_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, client_authentication="required") as served:
        url = f"https://127.0.0.1:{served.port}"
        assert await asyncio.to_thread(ask, url, "/readyz", login_of(served.admin)) == (True, "ready")
        well, said = await asyncio.to_thread(ask, url, "/readyz", AdminLogin())
        assert not well
        assert "TLS: " in said


async def test_commands_verify_a_url_by_the_authorities_of_an_option(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    async with serving(tmp_path) as served:
        url = f"https://127.0.0.1:{served.port}"

        async def run(*arguments: str) -> tuple[int, str]:
            done = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
            return done.exit_code, done.output

        ca = ("--ca", str(served.pki.ca_file))
        assert await run("health", "--url", url, *ca) == (0, "ready\n")
        asking = ("top", "--once", "--admin", url)
        assert (await run(*asking, *ca))[0] == 0
        for given, said in (
            ((), "TLS: "),
            (("--ca", str(tmp_path / "empty.pem")), f"--ca {tmp_path}/empty.pem: "),
            (("--ca", "no.pem"), "--ca no.pem: No such file or directory"),
            (("--token-file", "no.token"), "--token-file: "),
        ):
            status, output = await run(*asking, *given)
            assert status == 1
            assert said in output
        (tmp_path / "quotas.yaml").write_text("quotas: []\n")
        lint = ("quotas", "lint", "--file", str(tmp_path / "quotas.yaml"), "--admin", url)
        assert (await run(*lint, *ca))[0] == 0
        assert "TLS: " in (await run(*lint))[1]


async def test_silent_handshakes_of_another_address_leave_probes_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        peers = [
            await asyncio.open_connection("127.0.0.1", served.port, local_addr=("127.0.0.2", 0)) for _ in range(100)
        ]
        for _ in range(5):
            async with served.client(served.pki.client()) as client, client.get("/livez") as answer:
                assert answer.status == 200
        for _, writer in peers:
            writer.close()
        await until(lambda: not served.server._connections._open)


async def test_program_serves_its_admin_port_over_tls_and_loads_new_files(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    files = f", tls: {{{{certificate: {pki.certificate}, key: {pki.key}}}}}}}}}\n"
    text = OF_PROGRAM.replace('{admin}"}}\n', '{admin}"' + files)
    async with running(tmp_path, None, text=text) as started:
        url, admin = f"https://127.0.0.1:{started.admin}", load_settings(started.config).admin

        async def is_live() -> bool:
            return (await asyncio.to_thread(ask, url, "/livez", login_of(admin)))[0]

        await until(is_live)
        pki.issue("127.0.0.1", "renewed.test")
        await started.app._reload()
        assert await is_live(), "trusted is the new one"
        metrics = await asyncio.to_thread(get, url, "/metrics", login=login_of(admin))
        assert b'sluice_certificate_expiry_timestamp_seconds{listener="admin port"}' in metrics.body
