import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from proxy.identity.certificates.distinguished_name import rfc2253
from tests.proxy.identity.certificates import attribute, certificate, name, tlv

CN, O, UID, EMAIL = "550403", "55040a", "0992268993f22c640101", "2a864886f70d010901"  # noqa: E741  the attribute's name


def subject_of(oid: str, tag: int, content: bytes) -> str:
    return rfc2253(certificate(name([attribute(oid, tlv(tag, content))])))


# Every expected value is what Java 17's X500Principal.getName() gives.
@pytest.mark.parametrize(
    ("content", "written"),
    [
        (b"svc", "svc"),
        (b"Org, Inc.", "Org\\, Inc."),
        (b'a+b=c;d<e>f#g"h\\i', 'a\\+b\\=c\\;d\\<e\\>f\\#g\\"h\\\\i'),
        (b"  a b  ", "\\ \\ a b\\ \\ "),
        (b"   ", "\\ \\ \\ "),
        (b"\r a \n\r", "\\\r\\ a \n\\\r"),
        (b"a\0b", "a\\00b"),
        (b"", ""),
        ("grüße😀".encode(), "grüße😀"),
        (b"gr\xfc\xdfe", "gr\ufffd\ufffde"),
        (b"a\xed\xa0\x80b\xed\xa0c", "a\ufffdb\ufffdc"),
        (b"\xe0\x80\xf0\x9f\x98", "\ufffd\ufffd\ufffd"),
        (b"CN=admin,O=x", "CN\\=admin\\,O\\=x"),
    ],
)
def test_subject_strings_are_escaped_as_in_rfc2253(content: bytes, written: str) -> None:
    assert subject_of(CN, 0x0C, content) == f"CN={written}"


@pytest.mark.parametrize(
    ("tag", "written"),
    [
        (0x0C, "CN=A\\00B"),
        (0x13, "CN=A\\00B"),
        (0x14, "CN=A\\00B"),
        (0x16, "CN=A\\00B"),
        (0x1B, "CN=A\\00B"),
        (0x1E, "CN=A\\00B"),
        (0x1C, "CN=#1c03410042"),
        (0x12, "CN=#1203410042"),
        (0x1A, "CN=#1a03410042"),
        (0x04, "CN=#0403410042"),
        (0x03, "CN=#0303410042"),
    ],
)
def test_non_string_value_types_are_written_in_hex(tag: int, written: str) -> None:
    assert subject_of(CN, tag, b"A\0B") == written


@pytest.mark.parametrize(
    ("oid", "written"),
    [
        ("550403", "CN=x"),
        ("550406", "C=x"),
        ("550407", "L=x"),
        ("550408", "ST=x"),
        ("550409", "STREET=x"),
        ("55040a", "O=x"),
        ("55040b", "OU=x"),
        ("0992268993f22c640101", "UID=x"),
        ("0992268993f22c640119", "DC=x"),
        ("2a864886f70d010901", "1.2.840.113549.1.9.1=#0c0178"),
        ("55040c", "2.5.4.12=#0c0178"),
        ("00", "0.0=#0c0178"),
        ("7f", "2.47=#0c0178"),
        ("8837", "2.999=#0c0178"),
        ("88ffffffffff7f", "2.39582418599855=#0c0178"),
    ],
)
def test_known_attributes_are_named_and_others_written_by_oid(oid: str, written: str) -> None:
    assert subject_of(oid, 0x0C, b"x") == written


def test_the_last_part_comes_first_and_values_of_one_part_keep_their_order() -> None:
    parts = [
        [attribute(O, tlv(0x0C, b"x"))],
        [attribute(UID, tlv(0x0C, b"b")), attribute(CN, tlv(0x0C, b"a")), attribute(EMAIL, tlv(0x16, b"m"))],
    ]
    assert rfc2253(certificate(name(*parts))) == "UID=b+CN=a+1.2.840.113549.1.9.1=#16016d,O=x"


def test_empty_subject_and_version_1_certificate_are_read() -> None:
    assert rfc2253(certificate(name())) == ""
    assert rfc2253(certificate(name([attribute(CN, tlv(0x0C, b"x"))]), version=b"")) == "CN=x"


def test_a_real_certificate_with_many_names_beside_its_subject() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "x" * 300), x509.NameAttribute(NameOID.COMMON_NAME, "svc")]
    )
    others = [x509.DNSName("admin"), x509.IPAddress(ipaddress.ip_address("::1")), x509.DirectoryName(x509.Name([]))]
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    built = (
        x509.CertificateBuilder(x509.Name([]), subject, key.public_key(), 1, begin, begin + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(others * 50), critical=False)
        .sign(key, hashes.SHA256())
    )
    assert rfc2253(built.public_bytes(serialization.Encoding.DER)) == f"CN=svc,O={'x' * 300}"


WHOLE = certificate(name([attribute(CN, tlv(0x0C, b"svc"))]))


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (b"", "the value at byte 0 is not DER"),
        (b"\x31\x00", "the certificate at byte 0 has tag 0x31 instead of 0x30"),
        (b"\x30\x00", "the value at byte 2 is not DER"),
        (b"\x3f\x00", "the value at byte 0 is not DER"),
        (b"\x30\x80\x00\x00", "the value at byte 0 is not DER"),
        (b"\x30\x85\x00\x00\x00\x00\x00", "the value at byte 0 is not DER"),
        (b"\x30\x82\x01", "the value at byte 0 is not DER"),
        (b"\x30\x81\x00", "the value at byte 0 is not DER"),
        (b"\x30\x82\x00\x80" + bytes(128), "the value at byte 0 is not DER"),
        (b"\x30\x05\x00", "the value at byte 0 is not DER"),
        (certificate(tlv(0x31)), "the subject at byte 18 has tag 0x31 instead of 0x30"),
        (certificate(tlv(0x30, tlv(0x30))), "a part of the subject at byte 20 has tag 0x30 instead of 0x31"),
        (certificate(name([tlv(0x31)])), "an attribute at byte 22 has tag 0x31 instead of 0x30"),
        (certificate(name([tlv(0x30)])), "the attribute at byte 22 is 0 values instead of type and value"),
        (certificate(name([tlv(0x30, tlv(0x05), tlv(0x0C))])), "an object identifier at byte 24 has tag 0x05"),
        (certificate(name([attribute("", tlv(0x0C))])), "the value at byte 24 is not DER"),
        (certificate(name([attribute("5584", tlv(0x0C))])), "the value at byte 24 is not DER"),
        (certificate(name([attribute("5580", tlv(0x0C))])), "the value at byte 24 is not DER"),
        (certificate(name([attribute("ff" * 1024 + "7f", tlv(0x0C))])), "the value at byte 34 is not DER"),
    ],
)
def test_malformed_certificate_is_refused_with_byte_position(broken: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{complaint}"):
        rfc2253(broken)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_subject_or_a_value_error(data: bytes) -> None:
    for broken in (data, certificate(data), certificate(tlv(0x30, data)), certificate(tlv(0x30, tlv(0x31, data)))):
        try:
            rfc2253(broken)
        except ValueError:
            continue


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_certificate_with_changed_byte_gives_subject_or_value_error(position: int, byte: int) -> None:
    changed = bytearray(WHOLE)
    changed[position] = byte
    try:
        rfc2253(bytes(changed))
    except ValueError:
        return


@given(st.lists(st.text(), min_size=1, max_size=4), st.lists(st.text(), min_size=1, max_size=4))
def test_two_subjects_of_unicode_never_share_a_name(first: list[str], second: list[str]) -> None:
    def written(values: list[str]) -> str:
        return rfc2253(certificate(name(*([attribute(CN, tlv(0x0C, value.encode()))] for value in values))))

    assert (written(first) == written(second)) == (first == second)
