import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from protocol.errors import Cause
from proxy.admin.metrics import Renderer
from proxy.admin.series import SeriesLimits, divide
from proxy.edge.stats import LAG_BUCKETS_S, Stats, ThrottleTotals
from proxy.owners.membership import MemberState, Status
from proxy.snapshot import ProcessState, Snapshot
from proxy.usage.latencies import BOUNDS_MS, FOLDED_BROKER, Times
from proxy.usage.meter import ClientNames, ClientState, Traffic
from proxy.usage.shipping import Shipping
from quotas.connections import AcceptRate, IpRate
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from tests.proxy.snapshots import EMPTY, MUTATIONS, PRODUCE, rendered, shows

DOCUMENTED = re.compile(r"^\| ((?:`sluice_\w+`(?:, )?)+) \|([^|]*)\| (\w+)", re.MULTILINE)
"""Names, labels, and the first word of the meaning."""
LABELS_OF = {"entity": ("kind", "user", "client_id", "broker"), "client": ("listener", "user", "client_id")}
"""What the page abbreviates."""
LABELS = {
    *("kind", "user", "client_id", "broker", "rule", "direction", "listener", "outcome", "api", "side", "cause"),
    *("mechanism", "error", "where", "mode", "ip", "version", "build", "python", "loop", "le", "worker"),
}

FETCH = PRODUCE._replace(kind=QuotaKind.CONSUMER_BYTE_RATE, client_id="", user="alice", entity=Entity(user="alice"))
SHIPPING = Shipping()
SHIPPING.shipped_rows, SHIPPING.dropped_rows, SHIPPING.error = 70, 30, "topic sluice-usage: away"
SHADOWED = MUTATIONS._replace(client_id="trial", limit=None, shadow_limit=5.0)
OF_OTHER_UNITS = [PRODUCE._replace(kind=QuotaKind.REQUEST_PERCENTAGE, shadow_limit=5.0)]
EVERYTHING = replace(
    shows(
        PRODUCE,
        FETCH,
        PRODUCE._replace(client_id="more", broker=-1, shadow_limit=500.0),
        SHADOWED,
        MUTATIONS,
        *OF_OTHER_UNITS,
    ),
    mode="shadow",
    state_file={"loaded": 1, "written": 2},
    memory_bytes=96_000_000,
    memory_limit_bytes=100_000_000,
    owners=Status("one", 1, MemberState.MEMBER, 7, {1: "one", 2: "two"}, 0.5, 2, 1, None),
    workers=[ProcessState(up=True, restarts=0, cpu_s=1.5), ProcessState(up=False, restarts=2, cpu_s=0.5)],
    quotas_stand_in="static",
    clients=[
        ClientState(ClientNames("PLAIN", "alice", "app"), Traffic(700, 300, 9, 2, 500, 200), 1, is_throttled=True),
    ],
    latencies={(0, 1): Times((3, *[0] * (len(BOUNDS_MS) - 1), 1), 40_000), (1, FOLDED_BROKER): Times((0,) * 15, 0)},
    response_errors={(36, 58): 3, (10, -2): 1},
    proxy_latencies={(0, 1): Times((2, 0, 2, *[0] * (len(BOUNDS_MS) - 2)), 7)},
    accept_rates=[AcceptRate("", 12.0, 50.0), AcceptRate("PLAIN", 12.0, 20.0), AcceptRate("INTERNAL", 3.0, None)],
    accept_throttles={"PLAIN": ThrottleTotals(3, 1500)},
    ip_rates=[
        IpRate("10.0.0.1", 1, Entity(ip=Default.DEFAULT), 5.0, 4.5),
        IpRate("10.0.0.2", 1, Entity(ip="10.0.0.2"), 50.0, 1.0),
        IpRate("2001:db8::/64", None, Entity(ip=Default.DEFAULT), 5.0, 2.0),
        IpRate("2001:db8::/64", None, Entity(ip=Default.DEFAULT), 5.0, 3.0),
    ],
    ip_throttles={"PLAIN": ThrottleTotals(7, 6500)},
    authentications={("SASL", "PLAIN", "failed"): 2},
    unseen_users=["alice"],
    shared_logins={("SASL", "CUSTOM", "no_credential"): 3},
    gssapi_unread={("SASL", "no_key"): 1, ("SASL", "refused"): 0},
    rejected={("client", Cause.BAD_HEADER): 3},
    certificate_expiry_s={"TLS": 1_800_000_000.0},
    certificate_reloads={("TLS", "failed"): 1},
    reloads={"ok": 2, "failed": 1},
    reload_error="quotas.yaml:3:1: quotas: not a list",
    shipping=SHIPPING,
    ready=False,
    internal_errors={"throttle over": 2},
    info={"version": "0.1.0", "build": "compiled", "python": "3.11.7", "loop": "uvloop"},
)


def render(snapshot: Snapshot, most: int = 2000) -> str:
    return rendered(Renderer(SeriesLimits(most, most, most, most, 100)), snapshot).decode()


def samples(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Return the values of one metric by its label values, in the order of the labels' names."""
    return {
        tuple(sample.labels[key] for key in sorted(sample.labels)): sample.value
        for sample in samples(text)
        if sample.name == name
    }


def test_entity_with_quota_has_limit_usage_and_throttle_series() -> None:
    text = render(shows(PRODUCE))
    whose = {"kind": "producer_byte_rate", "user": "", "client_id": "greedy", "broker": "1"}
    shown = {sample.name: sample for sample in samples(text) if "client_id" in sample.labels}
    rule = {"rule": "client-id=greedy"}
    assert shown.pop("sluice_quota_limit_bytes_per_second").labels == whose | rule
    assert shown.pop("sluice_quota_bytes_total").labels == {
        "direction": "produce",
        "user": "",
        "client_id": "greedy",
        "broker": "1",
    }
    assert all(sample.labels == whose for sample in shown.values())
    assert {name: sample.value for name, sample in shown.items()} == {
        "sluice_quota_usage_bytes_per_second": 500.0,
        "sluice_quota_usage_ratio": 0.5,
        "sluice_quota_throttle_seconds_total": 1.5,
        "sluice_quota_throttled_responses_total": 2.0,
    }
    assert values(text, "sluice_quota_limit_bytes_per_second") == {
        ("1", "greedy", "producer_byte_rate", "client-id=greedy", ""): 1000.0
    }
    assert values(text, "sluice_quota_bytes_total") == {("1", "greedy", "produce", ""): 5000.0}


def test_the_rule_is_the_quota_that_won_and_not_the_client() -> None:
    text = render(shows(PRODUCE._replace(entity=Entity(client_id=Default.DEFAULT))))
    assert 'rule="client-id=<default>"' in text


def test_bytes_of_consumers_are_fetched() -> None:
    assert values(render(shows(FETCH)), "sluice_quota_bytes_total") == {("1", "", "fetch", "alice"): 5000.0}


def test_a_kind_of_another_unit_has_no_bytes() -> None:
    text = render(shows(PRODUCE._replace(kind=QuotaKind.REQUEST_PERCENTAGE)))
    assert values(text, "sluice_quota_usage_ratio") == {("1", "greedy", "request_percentage", ""): 0.5}
    assert not values(text, "sluice_quota_limit_bytes_per_second")
    assert not values(text, "sluice_quota_usage_bytes_per_second")
    assert not values(text, "sluice_quota_bytes_total")


def test_folded_clients_have_summed_usage_and_no_limit() -> None:
    text = render(shows(PRODUCE, PRODUCE._replace(client_id="b", rate=900.0)), most=0)
    other = ("sum", "other", "producer_byte_rate", "other")
    assert values(text, "sluice_quota_usage_bytes_per_second") == {other: 1400.0}
    assert values(text, "sluice_quota_usage_ratio") == {other: 0.9}
    assert not values(text, "sluice_quota_limit_bytes_per_second")
    assert values(text, "sluice_quota_entities_folded") == {(): 2.0}


def test_a_counter_stays_when_its_entity_is_idle_and_its_gauges_go() -> None:
    renderer = Renderer(divide(20_000))
    rendered(renderer, shows(PRODUCE))
    text = rendered(renderer, EMPTY).decode()
    assert values(text, "sluice_quota_bytes_total") == {("1", "greedy", "produce", ""): 5000.0}
    assert not values(text, "sluice_quota_usage_bytes_per_second")
    assert not values(text, "sluice_quota_limit_bytes_per_second")


@pytest.mark.parametrize(
    "client_id",
    [
        "a\nb",
        'say "hi"',
        "back\\slash",
        "\\n",
        "größe 漢字 🎈",
        "\x00\x1b[31m\r\t",
        "a,b}{c=",
        "\u2028",
        "#",
        " ",
        "-1",
    ],
)
def test_any_client_id_is_read_back_as_it_was(client_id: str) -> None:
    text = render(shows(PRODUCE._replace(client_id=client_id, entity=Entity(client_id=client_id))))
    assert ("1", client_id, "produce", "") in values(text, "sluice_quota_bytes_total")


@pytest.mark.parametrize("client_id", ["\udc80", "a\ud800", "x" * 32_767, "\udfff" * 32_767])
def test_a_client_id_that_cannot_be_a_label_becomes_one(client_id: str) -> None:
    text = render(shows(PRODUCE._replace(client_id=client_id, entity=Entity(client_id=client_id))))
    ((_, shown, _, _),) = values(text, "sluice_quota_bytes_total")
    assert 0 < len(shown) <= 128
    assert len(text) < 24_000


def test_series_are_never_there_twice() -> None:
    usage = [PRODUCE._replace(client_id=name) for name in ("\udc80", "\\udc80", "other", "b")]
    usage += [one._replace(user="other") for one in usage]
    text = render(shows(*usage))
    keys = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(keys) == len(set(keys))


def test_clients_beyond_label_limit_are_folded_and_counted() -> None:
    text = render(shows(*(PRODUCE._replace(client_id=f"c{number}") for number in range(25))), most=20)
    assert len(values(text, "sluice_quota_bytes_total")) == 21
    assert values(text, "sluice_quota_entities_folded") == {(): 5.0}


def test_a_bootstrap_connection_has_no_node_id() -> None:
    assert 'broker="bootstrap"' in render(shows(PRODUCE._replace(broker=-1)))


def test_requests_by_the_names_of_the_apis_and_from_zero_on() -> None:
    requests = [0] * 128
    requests[0], requests[1] = 7, 9
    counts = values(render(replace(EMPTY, requests=tuple(requests))), "sluice_requests_total")
    assert counts["Produce",] == 7.0
    assert counts["Fetch",] == 9.0
    assert counts["Metadata",] == 0.0


def test_clients_with_and_without_a_quota_by_what_they_sent_and_got() -> None:
    app = ClientNames("PLAIN", "alice", "app")
    clients = [
        ClientState(app, Traffic(700, 300, 9, 2), 1),
        ClientState(app, Traffic(1, 1, 1), 2, is_throttled=True),
        ClientState(ClientNames("PLAIN", "", "x" * 256), Traffic()),
    ]
    text = render(replace(EMPTY, clients=clients), most=1)
    assert values(text, "sluice_client_bytes_total") == {
        ("app", "in", "PLAIN", "alice"): 701.0,
        ("app", "out", "PLAIN", "alice"): 301.0,
        ("other", "in", "PLAIN", "other"): 0.0,
        ("other", "out", "PLAIN", "other"): 0.0,
    }
    for name, value in (("requests_total", 10), ("connections_opened_total", 2), ("connections", 3), ("muted", 1)):
        of_app = values(text, f"sluice_client_{name}")["app", "PLAIN", "alice"]
        assert of_app == value
    assert values(text, "sluice_clients_folded") == {(): 1.0}


def test_quota_mode_metric_is_one_for_current_mode_only() -> None:
    assert values(render(EVERYTHING), "sluice_quota_mode") == {("enforce",): 0.0, ("shadow",): 1.0, ("off",): 0.0}


def test_lines_of_the_log_that_were_not_written_by_cause() -> None:
    text = render(replace(EMPTY, log_dropped={"unread": 3, "unwritten": 2, "repeated": 0}))
    assert values(text, "sluice_log_dropped_total") == {("unread",): 3.0, ("unwritten",): 2.0, ("repeated",): 0.0}


def test_authentications_by_listener_mechanism_and_outcome() -> None:
    assert values(render(EVERYTHING), "sluice_authentications_total") == {("SASL", "PLAIN", "failed"): 2.0}


def test_gssapi_tokens_that_showed_no_user_by_cause_from_zero_on() -> None:
    counts = values(render(EVERYTHING), "sluice_gssapi_unread_total")
    assert counts == {("no_key", "SASL"): 1.0, ("refused", "SASL"): 0.0}


def test_certificate_expiry_and_reloads_are_shown_per_listener() -> None:
    text = render(EVERYTHING)
    assert values(text, "sluice_certificate_expiry_timestamp_seconds") == {("TLS",): 1.8e9}
    assert values(text, "sluice_certificate_reloads_total") == {("TLS", "ok"): 0.0, ("TLS", "failed"): 1.0}


def test_usage_records_shipped_and_dropped_and_nothing_where_there_are_none() -> None:
    text = render(EVERYTHING)
    assert values(text, "sluice_usage_rows_total") == {("shipped",): 70.0, ("dropped",): 30.0}
    assert values(text, "sluice_usage_error_info") == {("topic sluice-usage: away",): 1.0}
    assert "sluice_usage" not in render(EMPTY)


def test_a_token_bucket_shows_what_it_has_left_and_how_much_of_it_is_used() -> None:
    for tokens, ratio in ((33.0, 0.0), (0.0, 1.0), (-3.0, 36 / 33)):
        text = render(shows(MUTATIONS._replace(tokens=tokens)))
        whose = (MUTATIONS.kind.value, "", "admin", "all")
        assert sorted(whose) == sorted(next(iter(values(text, "sluice_quota_tokens"))))
        assert list(values(text, "sluice_quota_tokens").values()) == [tokens]
        assert list(values(text, "sluice_quota_usage_ratio").values()) == [ratio]
        assert list(values(text, "sluice_quota_usage_mutations_per_second").values()) == [2.5]
    assert not values(render(shows(PRODUCE)), "sluice_quota_tokens")


def test_folded_token_buckets_show_lowest_token_count() -> None:
    many = [MUTATIONS._replace(client_id=f"admin-{tokens}", tokens=float(tokens)) for tokens in (5, -7, 9)]
    assert list(values(render(shows(*many), most=0), "sluice_quota_tokens").values()) == [-7.0]


def test_readiness_and_what_went_wrong_inside() -> None:
    assert [values(render(each), "sluice_ready") for each in (EMPTY, EVERYTHING)] == [{(): 1.0}, {(): 0.0}]
    assert values(render(EVERYTHING), "sluice_internal_errors_total") == {("throttle over",): 2.0}


def test_rejected_frames_by_side_and_cause_from_zero_on() -> None:
    counts = values(render(EVERYTHING), "sluice_frames_rejected_total")
    assert counts.pop(("bad_header", "client")) == 3.0
    assert set(counts.values()) == {0.0}
    assert len(counts) == 2 * len(Cause) - 1


def test_the_error_of_the_last_load_is_there_while_it_lasts() -> None:
    text = render(EVERYTHING)
    assert values(text, "sluice_quota_reload_error_info") == {("quotas.yaml:3:1: quotas: not a list",): 1.0}
    assert values(text, "sluice_quota_reloads_total") == {("ok",): 2.0, ("failed",): 1.0}
    assert not values(render(EMPTY), "sluice_quota_reload_error_info")
    assert values(render(EMPTY), "sluice_quota_reloads_total") == {("ok",): 1.0, ("failed",): 0.0}


def test_before_the_first_load_there_is_no_time_of_it() -> None:
    assert not values(render(replace(EMPTY, quotas_loaded_at_s=0.0)), "sluice_quota_loaded_timestamp_seconds")
    assert values(render(EMPTY), "sluice_quota_loaded_timestamp_seconds") == {(): 1.7e9}


def test_staleness_metric_shows_seconds_since_last_good_load() -> None:
    assert values(render(EMPTY), "sluice_quota_staleness_seconds") == {(): 0.0}
    assert values(render(replace(EMPTY, quotas_staleness_s=2.5)), "sluice_quota_staleness_seconds") == {(): 2.5}


def test_stand_in_metric_is_present_only_while_quotas_are_unknown() -> None:
    assert values(render(EMPTY), "sluice_quota_stand_in") == {}
    shown = render(replace(EMPTY, quotas_stand_in="unlimited"))
    assert values(shown, "sluice_quota_stand_in") == {("unlimited",): 1.0}


def test_broker_and_proxy_times_are_histograms_by_api_and_broker() -> None:
    text = render(EVERYTHING)
    buckets = values(text, "sluice_request_broker_seconds_bucket")
    assert buckets["Produce", "1", "0.001"] == buckets["Produce", "1", "30.0"] == 3.0
    assert buckets["Produce", "1", "+Inf"] == 4.0
    held = values(text, "sluice_request_proxy_seconds_bucket")
    assert (held["Produce", "1", "0.001"], held["Produce", "1", "0.005"]) == (2.0, 4.0)
    assert values(text, "sluice_request_proxy_seconds_sum") == {("Produce", "1"): 0.007}
    assert values(text, "sluice_request_broker_seconds_sum") == {("Fetch", "other"): 0.0, ("Produce", "1"): 40.0}


def test_lag_is_a_histogram() -> None:
    stats = Stats()
    for lag_s in (0.0005, 0.0015, 0.04, 60.0):
        stats.observe_lag(lag_s)
    text = render(replace(EMPTY, lag_counts=tuple(stats.lag_counts), lag_sum_s=stats.lag_sum_s))
    buckets = values(text, "sluice_event_loop_lag_seconds_bucket")
    assert [buckets[str(bound),] for bound in LAG_BUCKETS_S] == [1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3]
    assert buckets["+Inf",] == 4
    assert values(text, "sluice_event_loop_lag_seconds_count") == {(): 4.0}
    assert values(text, "sluice_event_loop_lag_seconds_sum") == {(): pytest.approx(60.042)}


def test_broker_session_queue_and_build_metrics_are_rendered() -> None:
    snapshot = replace(
        EVERYTHING,
        brokers={5: False, 1: True},
        sessions={"PLAIN": 4},
        connections={("PLAIN", "accepted"): 6, ("PLAIN", "refused_limit"): 1},
        delay_queue={QuotaKind.PRODUCER_BYTE_RATE: 2},
        quotas_configured=3,
    )
    text = render(snapshot)
    assert values(text, "sluice_broker_reachable") == {("1",): 1.0, ("5",): 0.0}
    assert values(text, "sluice_sessions") == {("PLAIN",): 4.0}
    assert values(text, "sluice_connections_total") == {("PLAIN", "accepted"): 6.0, ("PLAIN", "refused_limit"): 1.0}
    assert values(text, "sluice_connections_limit") == {(): 10_000.0}
    assert values(text, "sluice_delay_queue_size") == {("producer_byte_rate",): 2.0}
    assert values(text, "sluice_quotas_configured") == {(): 3.0}
    assert values(text, "sluice_build_info") == {("compiled", "uvloop", "3.11.7", "0.1.0"): 1.0}


def test_the_process_is_measured_too() -> None:
    assert values(render(EMPTY), "process_cpu_seconds_total")


def test_connection_rates_of_the_proxy_its_listeners_and_what_they_made_wait() -> None:
    text = render(EVERYTHING)
    assert values(text, "sluice_accept_rate") == {(): 12.0}
    assert values(text, "sluice_accept_rate_limit") == {(): 50.0}
    assert values(text, "sluice_listener_accept_rate") == {("PLAIN",): 12.0, ("INTERNAL",): 3.0}
    assert values(text, "sluice_listener_accept_rate_limit") == {("PLAIN",): 20.0}
    assert values(text, "sluice_accept_throttles_total") == {("PLAIN",): 3.0, ("INTERNAL",): 0.0}
    assert values(text, "sluice_accept_throttle_seconds_total") == {("PLAIN",): 1.5, ("INTERNAL",): 0.0}
    assert values(text, "sluice_ip_accept_throttles_total") == {("PLAIN",): 7.0, ("INTERNAL",): 0.0}
    assert values(text, "sluice_ip_accept_throttle_seconds_total") == {("PLAIN",): 6.5, ("INTERNAL",): 0.0}


def test_addresses_with_quota_by_name_are_shown_before_busiest() -> None:
    text = render(EVERYTHING, most=2)
    assert values(text, "sluice_ip_accept_rate") == {("1", "10.0.0.2"): 1.0, ("", "2001:db8::/64"): 5.0}
    assert values(text, "sluice_ip_accept_rate_limit") == {
        ("10.0.0.2", "ip=10.0.0.2"): 50.0,
        ("2001:db8::/64", "ip=<default>"): 5.0,
    }
    assert values(text, "sluice_ip_accept_rates_left_out") == {(): 1.0}


def test_metrics_page_documents_exactly_the_rendered_families() -> None:
    families = {family.name: family for family in text_string_to_metric_families(render(EVERYTHING))}
    rendered = {
        (
            family.name + "_total" * (family.type == "counter"),
            family.type,
            frozenset(key for sample in family.samples for key in sample.labels) - {"le"},
        )
        for family in families.values()
        if family.name.startswith("sluice_")
    }
    page = Path(__file__).parents[3] / "docs" / "metrics.md"
    documented = set()
    for names, labels, first_word in DOCUMENTED.findall(page.read_text(encoding="utf-8")):
        words = re.findall(r"\w+", labels)
        of_row = frozenset(label for word in words for label in LABELS_OF.get(word, (word,)))
        for name in re.findall(r"\w+", names):
            kind = "counter" if name.endswith("_total") else "histogram" if first_word == "Histogram" else "gauge"
            documented.add((name, kind, of_row))
    assert documented == rendered


def test_the_labels_are_the_words_that_the_design_knows() -> None:
    used = {key for sample in samples(render(EVERYTHING)) if sample.name.startswith("sluice_") for key in sample.labels}
    assert used <= LABELS


def test_limits_in_shadow_have_families_of_their_own() -> None:
    """What was never applied is in no family of what was."""
    proposed = PRODUCE._replace(shadow_limit=250.0, shadow_throttled_total=7, shadow_throttle_ms_total=9000)
    in_shadow = PRODUCE._replace(
        client_id="new", limit=None, shadow_limit=100.0, throttled_total=0, throttle_ms_total=0
    )
    text = render(shows(proposed, in_shadow, PRODUCE._replace(client_id="plain")))
    kind = "producer_byte_rate"
    assert values(text, "sluice_quota_limit_bytes_per_second") == {
        ("1", "greedy", kind, "client-id=greedy", ""): 1000.0,
        ("1", "plain", kind, "client-id=greedy", ""): 1000.0,
    }
    assert set(values(text, "sluice_quota_usage_ratio").values()) == {0.5}
    assert len(values(text, "sluice_quota_usage_ratio")) == 2
    assert values(text, "sluice_shadow_limit_bytes_per_second") == {
        ("1", "greedy", kind, "client-id=greedy", ""): 250.0,
        ("1", "new", kind, "client-id=greedy", ""): 100.0,
    }
    assert values(text, "sluice_shadow_throttled_responses_total") == {
        ("1", "greedy", kind, ""): 7.0,
        ("1", "new", kind, ""): 0.0,
    }
    assert values(text, "sluice_shadow_throttle_seconds_total")["1", "greedy", kind, ""] == 9.0
    assert values(text, "sluice_quota_throttle_seconds_total")["1", "new", kind, ""] == 0.0


@pytest.mark.integration
def test_promtool_has_nothing_to_say() -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is missing; on Debian, type: apt-get install prometheus"
    text = rendered(Renderer(divide(20_000)), EVERYTHING)
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
