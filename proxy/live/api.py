"""Asks the admin port of a running proxy for its state."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click

from config.problems import ConfigError, InvalidValue, without_secrets
from proxy.checks.health import AdminLogin, admin_url, get, login_of
from proxy.live.options import DEFAULT_URL

Item = Mapping[str, Any]

_EXIT_CONFIG: Final = 2


class ApiError(click.ClickException):
    """The proxy does not answer the question; the message says why, and what to do."""


class Api:
    """The state API of the proxy at ``url``; ``all_instances``: of all instances."""

    def __init__(self, url: str, *, all_instances: bool = False, login: AdminLogin = AdminLogin()) -> None:  # noqa: B008  immutable
        self._login = login
        self.url = without_secrets(url.rstrip("/"))
        self.all_instances = all_instances
        self._url = url

    def get(self, name: str, **parameters: object) -> Any:
        """Return the answer of ``/api/v1/{name}``; parameters that are None are left out. Raises ApiError."""
        given = {key: value for key, value in parameters.items() if value is not None}
        try:
            answer = get(self._url, f"/api/v1/{name}?{urlencode(given)}", login=self._login)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error
            raise ApiError(f"{self.url} does not answer: {why}; give --admin URL or --config FILE") from None
        except ValueError as error:
            raise ApiError(f"--admin: {error}") from None
        if answer.status == 404:
            raise ApiError(f"{self.url} has no /api/v1/{name}: is it the admin port of a Sluice of this version?")
        try:
            data = json.loads(answer.body)
        except ValueError:
            data = None
        if answer.status != 200 or data is None:
            said = data.get("error") if isinstance(data, dict) else None
            raise ApiError(f"{self.url}: {said or f'/api/v1/{name} answers {answer.status}'}")
        return data

    def list(self, name: str, **parameters: object) -> Any:
        """Return a list, of all instances if that is wanted; otherwise as ``get``."""
        return self.get(name, **parameters, all=1 if self.all_instances else None)


def instance_errors(answer: Item) -> Iterator[str]:
    """Yield which instances have not answered, and why."""
    for each in answer.get("instances", ()):
        if each["error"]:
            yield f"instance {each['instance']}: {each['error']}"


def open_api(
    config_path: Path | None, admin: str | None, token_file: Path | None, ca: Path | None, *, all_instances: bool
) -> Api:
    """Return the API at ``admin``, else of the configuration's admin port, else at DEFAULT_URL."""
    login = AdminLogin()
    try:
        if config_path is not None:
            from config.loader import load_settings

            of_file = load_settings(config_path).admin
            admin, login = admin or admin_url(of_file), login_of(of_file)
        return Api(admin or DEFAULT_URL, all_instances=all_instances, login=login.given(token_file, ca))
    except OSError as error:
        raise ApiError(f"admin.tls: {error}") from None
    except ConfigError as error:
        click.echo(error, err=True)
        sys.exit(_EXIT_CONFIG)
    except InvalidValue as error:
        raise ApiError(error.message) from None
