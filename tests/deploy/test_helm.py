"""The Helm chart, rendered by Helm: as good as the kustomize base, and the same where it is said twice."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
import yaml

from config.settings import Settings
from proxy import __version__
from tests.deploy.manifests import Objects, base, by_name, require_good, require_scraped, validate
from tests.harness.go_tools import go_tool

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(1200)]

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = DEPLOY / "helm" / "sluice"


def rendered(folder: Path, values: dict[str, Any], *, name: str = "sluice", namespace: str = "sluice") -> Objects:
    """Return what Helm makes of the chart. Raises CalledProcessError, with its words in stderr."""
    (folder / "values.yaml").write_text(json.dumps(values))
    command = [str(go_tool("helm")), "template", name, str(CHART), "--namespace", namespace, "--kube-version", "1.30"]
    done = subprocess.run(
        [*command, "--values", str(folder / "values.yaml")], capture_output=True, text=True, check=True
    )
    return by_name(yaml.safe_load_all(done.stdout))


def test_helm_has_nothing_to_say_about_the_chart() -> None:
    done = subprocess.run(
        [str(go_tool("helm")), "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_without_values_is_the_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chart, written = rendered(tmp_path, {}), base(DEPLOY / "kubernetes")
    assert chart.keys() == written.keys()
    settings = require_good(chart, tmp_path / "chart", monkeypatch)
    assert _without_paths(settings) == _without_paths(require_good(written, tmp_path / "base", monkeypatch))
    for objects in (chart, written):
        del objects["ConfigMap", "sluice"], objects["ConfigMap", "sluice-quotas"]
        template = objects["StatefulSet", "sluice"]["spec"]["template"]
        template["metadata"].pop("annotations", None)
        for each in ("args", "env", "image", "imagePullPolicy"):
            template["spec"]["containers"][0].pop(each, None)
    assert chart == written


def _without_paths(found: list[Settings]) -> list[dict[str, Any]]:
    """Return all settings, but for where the folder of a test is in them."""
    left_out = {"owners": {"secret_file"}, "quotas": {"store"}}
    return [each.model_dump(exclude=left_out) for each in found]


def test_kustomize_build_equals_the_base_of_these_tests() -> None:
    done = subprocess.run(
        [str(go_tool("kustomize")), "build", str(DEPLOY / "kubernetes")], capture_output=True, text=True, check=True
    )
    documents = [each for each in yaml.safe_load_all(done.stdout) if each is not None]
    built = by_name(documents)
    assert validate(built) == set()
    expected = base(DEPLOY / "kubernetes")
    hashed = [name for kind, name in built if kind == "ConfigMap" and name not in ("sluice", "sluice-quotas")]
    assert len(hashed) == 1
    assert {(kind, name.replace(hashed[0], "sluice")) for kind, name in built} == expected.keys()
    pod = built["StatefulSet", "sluice"]["spec"]["template"]["spec"]
    assert pod["volumes"][0]["configMap"]["name"] == hashed[0]
    assert pod["containers"][0]["image"] == f"sluice:{__version__}"
    assert {each["metadata"]["namespace"] for each in documents} == {"sluice"}


NODE_PORTS: Final = {
    "replicas": 3,
    "external": {"type": "NodePort", "host": "{instance}.nodes.example.com", "firstNodePort": 30100},
    "brokers": {"first": 100, "count": 4},
}
LOGIN: Final = {"mechanism": "SCRAM-SHA-512", "username": "sluice", "password_file": "/etc/sluice/secrets/password"}
EVERYTHING: Final = {
    "replicas": 3,
    "image": {"repository": "registry.example.com/sluice", "tag": "7"},
    "cluster": {"name": "prod", "bootstrap": ["kafka:9093"], "sasl": LOGIN},
    "listener": {"authentication": "sasl"},
    "external": {
        "type": "LoadBalancer",
        "host": "{instance}.kafka.example.com",
        "annotations": {"external-dns.alpha.kubernetes.io/hostname": "{instance}.kafka.example.com"},
        "listener": {
            "authentication": "sasl",
            "tls": {"certificate": "/etc/sluice/secrets/outside.pem", "key": "/etc/sluice/secrets/outside.key"},
        },
    },
    "config": {
        "limits": {"connections": 1048576},
        "drain": {"delay": "10s", "timeout": "60s"},
        "log": {"level": "debug"},
    },
    "terminationGracePeriodSeconds": 90,
    "quotas": 'quotas:\n- {entity: {user: "1e3"}, producer_byte_rate: 1048576}\n',
    "monitoring": {"serviceMonitor": True, "namespace": "observed"},
}


def test_node_ports_lead_to_each_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = rendered(tmp_path, NODE_PORTS, name="edge", namespace="kafka")
    settings = require_good(objects, tmp_path / "pods", monkeypatch)
    assert [str(each.listeners[1].advertise) for each in settings] == [
        f"edge-{ordinal}.nodes.example.com:{30100 + 5 * ordinal}" for ordinal in range(3)
    ]
    taken = [
        port["nodePort"]
        for (kind, _), each in objects.items()
        if kind == "Service"
        for port in each["spec"]["ports"]
        if "nodePort" in port
    ]
    assert sorted(taken) == list(range(30100, 30115))


def test_chart_with_every_value_set_renders_good_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = trustme.CA().issue_cert(*(f"sluice-{ordinal}.kafka.example.com" for ordinal in range(3)))
    secrets = {
        "password": b"a password\n",
        "outside.pem": b"".join(each.bytes() for each in certificate.cert_chain_pems),
        "outside.key": certificate.private_key_pem.bytes(),
    }
    objects = rendered(tmp_path, EVERYTHING)
    settings = require_good(objects, tmp_path / "pods", monkeypatch, **secrets)
    assert [each.limits.connections for each in settings] == [1048576] * 3
    assert settings[0].cluster.sasl is not None
    assert all(each.authentication == "sasl" for each in settings[0].listeners)
    require_scraped(objects)
    annotations = objects["Service", "sluice-2-external"]["metadata"]["annotations"]
    assert annotations == {"external-dns.alpha.kubernetes.io/hostname": "sluice-2.kafka.example.com"}
    image = objects["StatefulSet", "sluice"]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == "registry.example.com/sluice:7"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": 0}, "replicas"),
        ({"external": {"type": "ClusterIP"}}, "external.type"),
        ({"cluster": {"bootstrap": ["kafka"]}}, "cluster.bootstrap.0"),
        ({"listener": {"bind": ":9093"}}, "listener"),
        ({"config": {"listeners": []}}, "config"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_value_is_refused_by_name(tmp_path: Path, values: dict[str, Any], named: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered(tmp_path, values)
    assert f"- {named}" in refused.value.stderr or f"property {named}" in refused.value.stderr
