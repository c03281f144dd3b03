"""The kustomize base: what Kubernetes and Sluice accept, and ports that lead from clients to brokers."""

import tomllib
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.deploy.manifests import base, by_name, require_good, require_scraped, validate

ROOT = Path(__file__).parents[2]
BASE = ROOT / "deploy" / "kubernetes"


def test_kustomize_base_is_valid_for_kubernetes_and_sluice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(require_good(base(BASE), tmp_path, monkeypatch)) == 2


def test_the_component_for_the_operator_of_prometheus_finds_its_service() -> None:
    objects = {**base(BASE), **base(BASE / "prometheus-operator")}
    assert validate(objects) == {"ServiceMonitor"}
    require_scraped(objects)


def test_misspelt_field_of_a_manifest_is_refused() -> None:
    objects = base(BASE)
    objects["StatefulSet", "sluice"]["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        validate(objects)


def test_the_image_is_that_of_this_version() -> None:
    [image] = yaml.safe_load((BASE / "kustomization.yaml").read_text())["images"]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert image["newTag"] == version
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "sluice" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_cron_job_of_ingestion_is_one_for_kubernetes() -> None:
    assert validate(by_name(yaml.safe_load_all((ROOT / "deploy" / "sluice-ingest.yaml").read_text()))) == set()
