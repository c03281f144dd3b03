"""``sluice quotas describe``: the quotas that are configured, in the words of kafka-configs."""

from typing import Any

import click

from proxy.manage.target import open_target, target_options
from proxy.runtime.clock import now_ms
from quotas.stores.edit import number


@click.command()
@target_options
def command(**target: Any) -> None:
    """Print the quotas that are configured."""
    store = open_target(**target)
    try:
        policy = store.load(now_ms()).policy
    finally:
        store.close()
    for entity, limits in policy.limits.items():
        click.echo(f"{entity.describe()}: {', '.join(f'{kind}={number(limit)}' for kind, limit in limits.items())}")
