"""Kubernetes objects as the API server and Sluice would see them, without either."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from config.loader import load_settings
from config.settings import Settings
from proxy.checks.report import check
from tests.proxy.checks.secure import NOW_S, secret

KUBERNETES: Final = (
    "1.25",  # Pod Security and endPort
    str(kubernetes_validate.latest_version()),
)
CUSTOM: Final = {"ServiceMonitor"}
"""Kinds that operators bring: Kubernetes has no schema of them. `require_scraped` looks at this one."""

Object = dict[str, Any]
Objects = dict[tuple[str, str], Object]
"""Objects by kind and name."""


def by_name(documents: Iterable[Any]) -> Objects:
    found = [each for each in documents if each is not None]
    named = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(named) == len(found), "two objects have one name"
    return named


def base(folder: Path) -> Objects:
    """Return what kustomize makes of resources and generated ConfigMaps, but for hashes and the namespace."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    documents = [
        each for name in kustomization["resources"] for each in yaml.safe_load_all((folder / name).read_text())
    ]
    for generator in kustomization.get("configMapGenerator", ()):
        data = {name: (folder / name).read_text() for name in generator["files"]}
        documents.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data}
        )
    return by_name(documents)


def validate(objects: Objects) -> set[str]:
    """Validate all objects against Kubernetes' schemas; return the kinds that have none."""
    without = set()
    for (kind, _), each in objects.items():
        for version in KUBERNETES:
            try:
                kubernetes_validate.validate(each, version, strict=True)
            except kubernetes_validate.SchemaNotFoundError:
                without.add(kind)
    return without


def pod_of(objects: Objects) -> Object:
    [stateful_set] = [each for (kind, _), each in objects.items() if kind == "StatefulSet"]
    pod: Object = stateful_set["spec"]["template"]["spec"]
    return pod


def require_restricted(pod: Object) -> None:
    """Assert what the profile Restricted of Pod Security asks of a pod."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not any("hostPort" in port for port in container["ports"])
    assert all(each.keys() & {"configMap", "secret"} for each in pod["volumes"])


class Started:
    """A pod with its files in a folder, as Sluice finds them below /etc/sluice."""

    def __init__(self, objects: Objects, pod_name: str, folder: Path, secrets: dict[str, bytes]) -> None:
        pod = pod_of(objects)
        [container] = pod["containers"]
        volumes = {each["name"]: each for each in pod["volumes"]}
        for mount in container["volumeMounts"]:
            place = folder / Path(mount["mountPath"]).relative_to("/etc/sluice")
            place.mkdir(parents=True)
            volume = volumes[mount["name"]]
            if "configMap" in volume:
                for name, text in objects["ConfigMap", volume["configMap"]["name"]]["data"].items():
                    (place / name).write_text(text.replace("/etc/sluice", str(folder)))
            else:
                for name, content in secrets.items():
                    secret(place / name, content)
        command, option, path = container["args"]
        assert (command, option) == ("run", "-c")
        self.path = folder / Path(path.replace("$(POD_NAME)", pod_name)).relative_to("/etc/sluice")
        self._pod_name = pod_name

    def checked(self, monkeypatch: pytest.MonkeyPatch) -> Settings:
        """Return the settings, with which `sluice check` must find nothing wrong."""
        with monkeypatch.context() as at_pod:
            at_pod.setattr("socket.gethostname", lambda: self._pod_name)
            report = check(self.path, NOW_S)
            assert (report.problems, report.warnings) == ([], [])
            assert report.quotas > 0
            return load_settings(self.path)


def pods(objects: Objects) -> Iterator[str]:
    for (kind, name), each in objects.items():
        if kind == "StatefulSet":
            yield from (f"{name}-{ordinal}" for ordinal in range(each["spec"]["replicas"]))


def require_led(objects: Objects, pod_name: str, settings: Settings) -> None:
    """Assert that each advertised address leads to the port that this pod binds for it, and nothing else does."""
    services = [
        each["spec"]
        for (kind, _), each in objects.items()
        if kind == "Service" and each["spec"]["selector"] == {"statefulset.kubernetes.io/pod-name": pod_name}
    ]
    advertised: dict[int, int] = {settings.admin.bind.port: settings.admin.bind.port}
    for listener in settings.listeners:
        assert pod_name in listener.advertise.host
        assert listener.brokers is not None
        advertised[listener.bind.port] = listener.advertise.port or listener.bind.port
        for each in listener.brokers.ranges:
            advertised.update(zip(each.bound, each.advertised, strict=True))
    ports = [port for service in services for port in service["ports"]]
    led = {port["targetPort"]: port.get("nodePort", port["port"]) for port in ports}
    assert led == advertised
    assert all(service["publishNotReadyAddresses"] for service in services)
    assert settings.listeners[0].advertise.host.split(".")[0] == pod_name, "others ask there for the admin port"
    assert ("Service", pod_name) in objects


def require_open(objects: Objects, settings: Settings) -> None:
    """Assert that NetworkPolicy lets clients in at just the ports of the listeners, and only some at the admin port."""
    [policy] = [each["spec"] for (kind, _), each in objects.items() if kind == "NetworkPolicy"]
    everybody, some = policy["ingress"]
    assert "from" not in everybody
    let_in = {
        port for each in everybody["ports"] for port in range(each["port"], each.get("endPort", each["port"]) + 1)
    }
    bound = {listener.bind.port for listener in settings.listeners}
    bound |= {
        port
        for listener in settings.listeners
        if listener.brokers
        for each in listener.brokers.ranges
        for port in each.bound
    }
    assert let_in == bound
    assert [each["port"] for each in some["ports"]] == [settings.admin.bind.port]
    assert some["from"]


def require_scraped(objects: Objects) -> None:
    """Assert that ServiceMonitor selects one Service, and a port of it."""
    [monitor] = [each["spec"] for (kind, _), each in objects.items() if kind == "ServiceMonitor"]
    wanted = monitor["selector"]["matchLabels"].items()
    [service] = [
        each
        for (kind, _), each in objects.items()
        if kind == "Service" and wanted <= each["metadata"]["labels"].items()
    ]
    assert {each["port"] for each in monitor["endpoints"]} <= {each["name"] for each in service["spec"]["ports"]}
    assert service["metadata"]["labels"][monitor["jobLabel"]] == "sluice", "deploy/alerts.yml asks for this job"


def require_good(objects: Objects, folder: Path, monkeypatch: pytest.MonkeyPatch, **secrets: bytes) -> list[Settings]:
    """Assert all that can be said offline of a deployment; return the settings of its pods."""
    assert validate(objects) <= CUSTOM
    pod = pod_of(objects)
    require_restricted(pod)
    files = {"owners.secret": b"0123456789abcdef0123456789abcdef\n", **secrets}
    found = []
    for name in pods(objects):
        settings = Started(objects, name, folder / name, files).checked(monkeypatch)
        require_led(objects, name, settings)
        require_open(objects, settings)
        assert settings.owners is not None
        assert settings.owners.group is not None
        drain = settings.drain
        assert pod["terminationGracePeriodSeconds"] > drain.delay_s + drain.timeout_s + 5
        found.append(settings)
    _require_selected(objects)
    return found


def _require_selected(objects: Objects) -> None:
    """Assert that all selectors of pods are met by the pods' labels."""
    [stateful_set] = [each for (kind, _), each in objects.items() if kind == "StatefulSet"]
    labels = stateful_set["spec"]["template"]["metadata"]["labels"].items()
    for (kind, name), each in objects.items():
        spec = each.get("spec", {})
        selector = {
            "Service": spec.get("selector"),
            "StatefulSet": spec.get("selector"),
            "PodDisruptionBudget": spec.get("selector"),
            "NetworkPolicy": spec.get("podSelector"),
        }.get(kind)
        if selector is not None and not any(key.startswith("statefulset.") for key in selector):
            assert selector.get("matchLabels", selector).items() <= labels, (kind, name)
    assert ("Service", stateful_set["spec"]["serviceName"]) in objects
