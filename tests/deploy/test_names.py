"""Names in backticks, of the pages and of the docstrings and comments of the program, are names of something."""

from typing import Final

import pytest

from tests.deploy.names import PACKAGES, ROOT, Sources, backticked, prose_of, sources, tracked, unknown
from tests.deploy.test_links import PAGES

pytestmark = pytest.mark.long

ELSEWHERE: Final = {
    "settings of Kafka's clients and brokers": """max.block.ms session.timeout.ms
        create.topic.policy.class.name metadata.recovery.strategy LogAppendTime retryOnQuotaViolation""",
    "tools beside Kafka": "KafkaUser spec.quotas kafka_quota subPath --zk-tls-config-file --members",
    "Java's and Kafka's sources": """AVA.isDerString Admin.abortTransaction Double.toString Matcher.appendReplacement
        Matcher.find String.trim X500Principal.getName java.util.Properties.load org.apache.kafka.common.protocol.Errors
        OAuthBearerClientInitialResponse OAuthBearerSaslServer OAuthBearerUnsecuredJws PlainSaslServer
        ScramExtensions ScramMessages ScramSaslServer escapeLiteralBackReferences
        shouldClientThrottle BrokerJwtValidator""",
    "Spark, Hadoop and table formats": """applyInPandas approx_percentile fs.s3a.create.conditional.enabled
        IncompatibleClassChangeError txnAppId txnVersion CLASSPATH libhdfs""",
    "Python's libraries": "BufferedProtocol Struct.unpack librt.strings kafka_sluice__mypyc",
    "C's, Linux's and other programs": """gss_accept_sec_context rcache tcp_rmem dmesg df compinit --build-arg
        resources.limits process_max_fds process_open_fds""",
    "files of operators": "admin.token proxy.example config.py env.tar.gz",
    "examples of code": "data.startswith self.name self.other",
    "settings that are gone": "kafka.share_groups",
    "made of parts by the program": "throttle_p50_s quotas.applied.yaml",
}
"""Names that the sources do not have, by whose they are."""
EXCEPTIONS: Final = {name for names in ELSEWHERE.values() for name in names.split()}


@pytest.fixture(scope="module")
def found() -> Sources:
    return sources()


def missing(text: str, found: Sources) -> set[str]:
    return {name for each in backticked(text) for name in unknown(each, found)}


@pytest.fixture(scope="module")
def absent(found: Sources) -> dict[str, set[str]]:
    """Page, or module for its docstrings and comments → its names that the sources do not have."""
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    for name in tracked():
        if name.endswith(".py") and name.startswith((*PACKAGES, "deploy/", "bench/")):
            texts[name] = prose_of((ROOT / name).read_text(encoding="utf-8"))
    return {name: missing(text, found) for name, text in texts.items()}


def test_names_in_pages_docstrings_and_comments_are_names_of_the_sources(absent: dict[str, set[str]]) -> None:
    assert {name: wrong - EXCEPTIONS for name, wrong in absent.items() if wrong - EXCEPTIONS} == {}


def test_each_exception_is_needed_by_some_page_or_module(absent: dict[str, set[str]]) -> None:
    assert EXCEPTIONS - {name for names in absent.values() for name in names} == set()


@pytest.mark.parametrize(
    "wrong",
    [
        "proxy/edge/no_such_module.py",
        "session/no_such_module",
        "no_such_module.py",
        "quotas/no_such_folder/",
        "tests/deploy/test_links.py::test_of_nothing",
        "tests/deploy/test_nothing.py::test_links_of_a_page",
        "make no-such-target",
        "quotas.throttle.no_such_function",
        "quotas.no_such_module",
        "analysis.table.schema",
        "throttling.Muted",
        "Bound.no_such_member",
        "NoSuchClass",
        "no_such_function",
        "no_such_function()",
        "a text with no_such_function in it",
        "limits.no_such_setting",
        "sluice_no_such_metric_total",
        "sluice no-such-command",
        "sluice quotas no-such-command",
        "sluice analyze report --no-such-option",
        "--no-such-option",
        "/no/such/endpoint",
        "GET /no/such/endpoint",
    ],
)
def test_name_that_does_not_exist_is_found(wrong: str, found: Sources) -> None:
    assert missing(f"Here `{wrong}` is named.", found) != set()
    assert missing(prose_of(f'"""Here ``{wrong}`` is named."""'), found) != set()
    assert missing(f"```\n`{wrong}`\n```\n", found) == set()


@pytest.mark.parametrize(
    "right",
    [
        *("proxy/edge/tls.py", "session/admission", "tls.py", "quotas/stores/", ".ci/release", "docs/decisions/"),
        *("make demo KEEP=1", "quotas.throttle.excess", "quotas.throttle", "proxy.session.throttling.Throttling.alarm"),
        *("Bound.shut", "FrameSplitter", "walk_requests", "limits.idle", "listeners[].sasl.credentials_per_address"),
        *("sluice_sessions", "sluice quotas explain -c sluice.yaml --client-id app", "sluice …", "--accept-loss"),
        *(
            "tests/deploy/test_links.py::test_every_link_of_a_page_leads_somewhere",
            "kafka_sluice.config",
            "…_throttled",
            "::1",
        ),
        *("sluice check quotas.yaml", "sluice quotas COMMAND -h", "sys.path", "a-rule-of-lint", "team-*"),
    ],
)
def test_name_that_exists_is_not_found_missing(right: str, found: Sources) -> None:
    assert missing(f"Here `{right}` is named.", found) == set()
