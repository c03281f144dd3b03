"""Airflow DAGs of the analysis: usage records each hour; each day the report of the day before, and maintenance.

Workers need Java 17 and the program with its extra `analysis`. A task that is killed loses nothing: it is tried again.
"""

from datetime import datetime, timedelta

from airflow import DAG  # type: ignore[import-not-found]  # is where the DAG runs, and not here
from airflow.operators.bash import BashOperator  # type: ignore[import-not-found]  # as above

WAREHOUSE = "/var/lib/sluice-analysis/warehouse"
BOOTSTRAP = "127.0.0.1:9092"
SETTINGS = {
    "start_date": datetime(2026, 1, 1),  # noqa: DTZ001  Airflow takes it as UTC
    "catchup": False,
    "max_active_runs": 1,
    "default_args": {"retries": 3, "retry_delay": timedelta(minutes=5)},
}


def step(command: str, arguments: str = "") -> BashOperator:
    """Return the task of a command."""
    line = f"sluice analyze {command} --warehouse {WAREHOUSE} {arguments}"
    return BashOperator(task_id=command, bash_command=line.rstrip())


with DAG("sluice_usage", schedule="@hourly", **SETTINGS):
    step("ingest", f"--bootstrap {BOOTSTRAP} --once --no-gold") >> step("gold")

with DAG("sluice_usage_daily", schedule="30 0 * * *", **SETTINGS):
    day = "--from {{ data_interval_start.date() }} --to {{ data_interval_end.date() }}"
    step("report", day) >> step("compact") >> step("expire", "--keep 90d")
