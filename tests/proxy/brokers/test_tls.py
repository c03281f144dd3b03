import re
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from structlog.testing import capture_logs

from config.cluster import BrokerTls as BrokerTlsSettings
from proxy.brokers.tls import BrokerTls, broker_context


def settings(folder: Path, authority: trustme.CA) -> BrokerTlsSettings:
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return BrokerTlsSettings(ca=folder / "ca.pem", **own_certificate(folder, authority))


def own_certificate(folder: Path, authority: trustme.CA) -> dict[str, Path]:
    own = authority.issue_cert("sluice.example")
    own.cert_chain_pems[0].write_to_path(folder / "own.pem")
    own.private_key_pem.write_to_path(folder / "own.key")
    return {"certificate": folder / "own.pem", "key": folder / "own.key"}


@pytest.mark.asyncio
async def test_files_that_are_loaded_again_make_a_new_context(tmp_path: Path) -> None:
    tls = BrokerTls(settings(tmp_path, trustme.CA(organization_name="first")))
    first = tls.context
    settings(tmp_path, trustme.CA(organization_name="second"))
    await tls.load()
    assert tls.context is not first
    assert ["second" in str(authority) for authority in tls.context.get_ca_certs()] == [True]
    assert {path.name for path in tls.files} == {"ca.pem", "own.pem", "own.key"}


@pytest.mark.asyncio
async def test_broken_files_leave_the_old_context_in_force(tmp_path: Path) -> None:
    tls = BrokerTls(settings(tmp_path, trustme.CA()))
    first = tls.context
    good = (tmp_path / "ca.pem").read_bytes()
    with capture_logs() as logs:
        (tmp_path / "ca.pem").write_text("no PEM")
        await tls.load()
        (tmp_path / "ca.pem").unlink()
        await tls.load()
        assert tls.context is first
        (tmp_path / "ca.pem").write_bytes(good)
        await tls.load()
        assert tls.context is not first
    assert [(line["log_level"], line.get("error", "")) for line in logs] == [
        ("error", f"tls.ca {tmp_path / 'ca.pem'}: holds no certificate in PEM form"),
        ("error", f"tls.ca {tmp_path / 'ca.pem'}: no such file or directory"),
        ("info", ""),
    ]


def test_unloadable_tls_file_is_reported_with_setting_and_path(tmp_path: Path) -> None:
    authority = trustme.CA()
    good = settings(tmp_path, authority)
    (tmp_path / "other").mkdir()
    other = own_certificate(tmp_path / "other", authority)
    encrypted = tmp_path / "encrypted.key"
    secret = load_pem_private_key((tmp_path / "own.key").read_bytes(), None)
    form = BestAvailableEncryption(b"canary")
    encrypted.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, form))
    missing, wrong = tmp_path / "missing.pem", tmp_path / "wrong.pem"
    wrong.write_text("wrong")
    for changed, said in [
        ({"ca": missing}, f"tls.ca {missing}: no such file or directory"),
        ({"ca": wrong}, f"tls.ca {wrong}: holds no certificate in PEM form"),
        ({"certificate": missing}, f"tls.certificate {missing}: no such file or directory"),
        ({"key": missing}, f"tls.key {missing}: no such file or directory"),
        ({"key": other["key"]}, f"tls.key {other['key']}: does not belong to the certificate"),
        ({"key": encrypted}, f"tls.key {encrypted}: is encrypted: write it without a password"),
        ({"certificate": wrong}, f"tls.certificate {wrong}, "),
    ]:
        with pytest.raises(OSError, match=re.escape(said)):
            broker_context(good.model_copy(update=changed))


def test_host_names_are_verified_unless_told_otherwise(tmp_path: Path) -> None:
    assert broker_context(BrokerTlsSettings()).check_hostname
    assert not broker_context(BrokerTlsSettings(verify_hostname=False)).check_hostname
