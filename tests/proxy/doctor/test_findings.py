from proxy.doctor.findings import DoctorFindings


def test_finding_lines_show_status_check_text_and_fix() -> None:
    found = DoctorFindings()
    found.ok("tcp", "there")
    found.warn("certificate", "soon", "renew it")
    found.skip("login", "nobody")
    assert found.first_failure is None
    found.fail("tls", "bad", "mend it")
    assert found.first_failure is not None
    assert [str(finding) for finding in found.all] == [
        "ok    tcp          there",
        "FAIL  tls          bad: mend it",
        "warn  certificate  soon: renew it",
        "skip  login        nobody",
    ]
    assert found.as_data() == {
        "ok": False,
        "first_failure": "tls",
        "findings": [
            {"status": "ok", "check": "tcp", "text": "there", "fix": ""},
            {"status": "FAIL", "check": "tls", "text": "bad", "fix": "mend it"},
            {"status": "warn", "check": "certificate", "text": "soon", "fix": "renew it"},
            {"status": "skip", "check": "login", "text": "nobody", "fix": ""},
        ],
    }


def test_the_first_failure_is_named_in_the_end() -> None:
    found = DoctorFindings()
    found.ok("tcp", "there")
    assert (found.summary(), found.as_data()["first_failure"]) == ("", None)
    found.warn("certificate", "soon", "renew it")
    assert found.summary() == ""
    found.fail("tls", "bad", "mend it")
    found.fail("brokers", "away", "look for them")
    assert found.summary() == "Fix tls first: bad: mend it"


def test_control_characters_in_findings_are_replaced() -> None:
    found = DoctorFindings()
    found.fail("login", "no\x1b[2J\r\nentry \u202e", "a\tb")
    assert str(found.all[0]) == "FAIL  login        no?[2J entry ?: a b"


def test_an_error_that_knows_its_own_fix_is_not_given_another() -> None:
    found = DoctorFindings()
    found.broken("tls", "no handshake", "has expired: renew it", "look around")
    found.broken("tls", "no handshake", "no answer in time", "look around")
    assert [(finding.text, finding.fix) for finding in found.all] == [
        ("no handshake: has expired", "renew it"),
        ("no handshake: no answer in time", "look around"),
    ]
