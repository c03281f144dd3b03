"""A fault in every callback and every job of the program: whoever met it ends, the neighbours go on, and it is counted.

The list is the program's own (``sabotage.places``): a job that is added without a fault of its own here is missed.
"""

import ast
import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from config.loader import load_settings
from config.usage import UsageFiles
from proxy import worker
from proxy.brokers import cluster
from proxy.control import quotas
from proxy.edge import open_sessions
from proxy.runtime import files as reload
from proxy.runtime import tasks
from proxy.supervisor import Supervisor
from proxy.usage.documents import Document
from proxy.usage.files import FileSink
from tests.harness.fake_broker import FakeBroker, fake_broker
from tests.harness.polling import until
from tests.harness.ports import free_ports
from tests.proxy.front import TIMEOUT_S, answers, client, end_background
from tests.proxy.pki import Pki
from tests.proxy.playbook import list_offsets
from tests.proxy.sabotage import Sabotage, calls, places, sources
from tests.proxy.test_session_faults import SCENES

pytestmark = pytest.mark.asyncio

ELSEWHERE = {
    "watch the quotas of the cluster": "control/test_cluster_store.py::test_failing_look_for_quota_changes_is_repeated",
    "look for a passing change": "control/test_cluster_store.py::test_failing_look_for_quota_changes_is_repeated",
    "alarm": "session/test_throttling.py::test_a_session_that_fails_leaves_the_others_that_are_due_alone",
    "delay queue": "test_containment.py::test_a_delay_queue_that_fails_is_looked_at_again",
    "event loop": "runtime/test_tasks.py::test_loop_error_is_counted_unless_connection_ended",
    "tell the owner of a token": (
        "identity/test_delegation_tokens.py::test_failing_owner_callback_leaves_other_callbacks_told"
    ),
    "ask for delegation tokens": (
        "identity/test_delegation_tokens.py::test_fault_in_token_lookup_leaves_next_lookup_answered"
    ),
    "ask how many partitions topics have": (
        "brokers/test_topic_partitions.py::test_a_question_that_fails_is_answered_with_nothing"
    ),
    "tell how many partitions topics have": (
        "brokers/test_topic_partitions.py::test_failing_lookup_callback_leaves_other_lookups_answered"
    ),
    "render metrics": "test_containment.py::test_a_page_that_fails_is_there_the_next_time",
    "open a broker's port": "edge/test_routes.py::test_a_listener_that_fails_to_open_a_port_keeps_no_other_from_it",
    "drain sessions that are let go": "test_supervisor.py::test_sessions_at_a_closed_port_that_cannot_be_drained_go_on",
    "exchange the demand for limits of the cluster": (
        "owners/test_shared_limits.py::test_fault_in_demand_exchange_is_counted_and_exchange_continues"
    ),
    "open the bootstrap port": "edge/test_owners.py::test_a_bootstrap_port_that_fails_to_open_opens_with_the_owners",
    "take part in the group": "owners/test_member.py::test_a_fault_is_noted_and_membership_goes_on",
    "look at the clock": "owners/test_member.py::test_a_fault_is_noted_and_membership_goes_on",
    "look whether the next instance is alive": "owners/test_member.py::test_a_fault_is_noted_and_membership_goes_on",
    "leave the group": "owners/test_member.py::test_a_fault_is_noted_and_membership_goes_on",
    "have brokers owned by others": "test_worker.py::test_owners_that_cannot_be_told_are_told_later",
    "leave the group of instances": "test_worker.py::test_owners_that_cannot_be_told_are_told_later",
    "tell the owners of brokers": "test_worker.py::test_owners_that_cannot_be_told_are_told_later",
    "look after the workers": "workers/test_faults.py::test_faults_are_noted_and_workers_are_looked_after",
    "start a worker again": "workers/test_faults.py::test_faults_are_noted_and_workers_are_looked_after",
    "hand a port to a worker": "workers/test_faults.py::test_a_port_that_cannot_be_handed_over_is_asked_for_again",
    "receive connections of other workers": (
        "edge/test_shared_listener.py::test_after_a_message_that_cannot_be_read_others_are_received"
    ),
    "answer a call": "workers/test_channel.py::test_an_answer_that_cannot_be_sent_is_noted_where_it_is",
    "serve a worker's calls": "workers/test_faults.py::test_a_worker_whose_calls_cannot_be_served_is_started_again",
    "complete a usage file": "test_containment.py::test_a_usage_file_that_fails_to_be_completed_is_completed_later",
    "name the brokers of bootstrap sessions": (
        "edge/test_listeners.py::test_failed_naming_of_bootstrap_session_is_retried_with_next_broker"
    ),
    "name the broker of a session": (
        "edge/test_listeners.py::test_bootstrap_session_failing_to_be_named_closes_and_others_continue"
    ),
    "look at a session": "edge/test_reaper.py::test_a_session_that_cannot_be_looked_at_is_the_only_one_that_ends",
    "hear whether the supervisor is alive": (
        "runtime/test_tasks.py::test_a_job_that_fails_is_run_again_but_not_at_once"
    ),
    "tell that a worker is alive": "runtime/test_tasks.py::test_a_job_that_fails_is_run_again_but_not_at_once",
    "note the load of brokers": "runtime/test_tasks.py::test_a_job_that_fails_is_run_again_but_not_at_once",
    "sample what clients do": "runtime/test_tasks.py::test_a_job_that_fails_is_run_again_but_not_at_once",
    "end temporary limits": "runtime/test_tasks.py::test_a_job_that_fails_is_run_again_but_not_at_once",
    "make a change": "page/test_actions.py::test_fault_in_a_change_is_answered_and_noted",
    "ask the workers for a page": "workers/test_faults.py::test_page_is_asked_for_after_a_fault",
    "work for several": "page/test_open_pages.py::test_cached_error_is_raised_to_every_request",
    "close connections": "test_supervisor.py::test_sessions_at_a_closed_port_that_cannot_be_drained_go_on",
    "forget clients that are gone": "runtime/test_tasks.py::test_a_job_that_fails_is_run_again_but_not_at_once",
    "line": "session/test_waits.py::test_a_line_that_cannot_be_dissolved_keeps_no_other_from_it",
    "turn": "session/test_waits.py::test_a_session_that_fails_at_its_turn_is_the_only_one_that_ends",
    "a turn": "runtime/test_tasks_call_queue.py::test_failing_queued_call_is_counted_and_next_one_runs",
    "a session's turn": "session/test_waits.py::test_a_session_that_fails_after_others_had_their_turn_ends",
    "let the next pass": "edge/test_arrivals.py::test_handshakes_go_on_after_a_fault",
    "answer a quota request": "edge/test_quota_requests.py::test_failed_quota_request_closes_connection_and_is_counted",
    "receive a connection to the admin port": (
        "admin/test_connections.py::test_fault_in_one_admin_connection_leaves_others_served"
    ),
    "a connection to the admin port is overdue": (
        "admin/test_connections.py::test_fault_in_one_admin_connection_leaves_others_served"
    ),
    "close a large session": "edge/test_memory.py::test_session_that_cannot_be_told_is_cut_off_as_the_others_are",
    "ask a broker who it is": "brokers/test_verification.py::test_fault_in_a_question_ends_one_session_alone",
    "a usage file is due": "test_containment.py::test_a_usage_file_that_fails_to_be_completed_is_completed_later",
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """To print a traceback takes longer than most of what is tested here."""
    with capture_logs():
        yield


# --------------------------------------------------------------------------------------------------- nothing is missed


async def test_only_tasks_asks_the_loop_to_run_something() -> None:
    asks = {"create_task", "ensure_future", "call_later", "call_at", "call_soon", "call_soon_threadsafe"}
    asks |= {"add_reader", "add_writer", "add_signal_handler", "TaskGroup", "run_in_executor"}
    found = {(file, name) for file, tree in sources() for name, _ in calls(tree) if name in asks}
    assert {(file, name) for file, name in found if file != "runtime/tasks.py"} == set()
    assert len(found) == 4


async def test_endless_loops_contain_their_faults_in_every_round() -> None:
    """A loop of its own that sleeps ends with its first fault. Those here are bounded, or contain what they do."""
    loops = ((file, node) for file, tree in sources() for node in ast.walk(tree) if isinstance(node, ast.While))
    called = [(file, {name for name, _ in calls(loop)}) for file, loop in loops]
    found = {file for file, names in called if names & {"sleep", "wait"} and "attempt" not in names}
    # Two have a deadline; every error is another try; two are commands, not the proxy.
    commands = {"demo/command.py", "live/listing.py"}
    assert found == {"edge/open_sessions.py", "edge/sorter.py", "usage/shipping.py"} | commands


async def test_every_contained_place_is_covered_by_a_fault_test() -> None:
    named = places("spawn", "every", "attempt", "later", "on_readable", "on_signal", "contained", "report", "run")
    assert named == JOBS | SCENES.keys() | ENDS.keys() | ELSEWHERE.keys()
    for test in ELSEWHERE.values():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (Path(__file__).parent / file).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------- recurring jobs

JOBS = (places("every", "run") | places("attempt")) - {
    "ask for delegation tokens",
    "load files again",
    "drain sessions",
    "stop the worker",
    "have brokers owned by others",
    "ship the last usage records",
    "close the admin port",
    "close the quota store",
    "forget clients that are gone",
    "sample what clients do",
    "end temporary limits",
    "note the load of brokers",
    "tell that a worker is alive",
    "hear whether the supervisor is alive",
    "exchange the demand for limits of the cluster",
    "ask how many partitions topics have",
    "watch the quotas of the cluster",
    "look for a passing change",
    "name the broker of a session",
    "take part in the group",
    "look at the clock",
    "look whether the next instance is alive",
    "leave the group",
    "leave the group of instances",
    "look after the workers",
    "start a worker again",
}
CONFIG = """\
cluster: {{name: test, bootstrap: ["127.0.0.1:{broker}"], refresh: 50ms, state: brokers.json}}
listeners:
  - {{name: PLAIN, bind: "127.0.0.1:{bind}", advertise: 127.0.0.1, brokers: {{"1": "{port}"}}}}
  - name: SSL
    bind: "127.0.0.1:{secure}"
    advertise: 127.0.0.1
    brokers: {{"1": "{secure_port}"}}
    tls: {{certificate: tls.crt, key: tls.key}}
    cluster: {{bootstrap: ["127.0.0.1:1"], tls: {{ca: ca.pem}}}}
quotas: {{store: {{path: quotas.yaml}}}}
usage: {{interval: 20ms, files: {{directory: usage, rotate_after: 50ms}}}}
admin: {{bind: "127.0.0.1:{admin}"}}
drain: {{delay: 0s, timeout: 1s}}
limits: {{memory: 64GiB}}
"""


@dataclass(frozen=True)
class Program:
    app: Supervisor
    task: asyncio.Task[int]
    port: int
    admin: int

    async def get(self, path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.admin)
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer


@asynccontextmanager
async def program(folder: Path, broker: FakeBroker) -> AsyncIterator[Program]:
    """The whole program, with everything that recurs."""
    at = dict(zip(("bind", "port", "secure", "secure_port", "admin"), free_ports(5), strict=True))
    file = folder / "sluice.yaml"
    file.write_text(CONFIG.format(broker=broker.port, **at))
    (folder / "quotas.yaml").write_text("quotas: []\n")
    loop = asyncio.get_running_loop()
    running_app = Supervisor(load_settings(file), file, "asyncio")
    task = asyncio.ensure_future(running_app.run())
    running = Program(running_app, task, at["port"], at["admin"])
    try:
        await until(lambda: answers(running.port))
        yield running
    finally:
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT_S):
            await task
        await running_app._admin.stop()  # whatever the test did to it: uvloop waits for it when it closes
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            loop.remove_signal_handler(number)
        await end_background()


@pytest.mark.long
async def test_every_job_goes_on_after_its_fault(tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "AFTER_FAULT_S", 0.01)
    monkeypatch.setattr(worker, "_TIDY_EVERY_S", 0.02)
    monkeypatch.setattr(cluster, "_PROBE_S", 0.02)
    monkeypatch.setattr(open_sessions, "ROUND_S", 0.02)
    monkeypatch.setattr(cluster, "_RETRY_S", 0.02)
    monkeypatch.setattr(reload, "POLL_S", 0.02)
    monkeypatch.setattr(quotas, "POLL_S", 0.02)
    monkeypatch.setenv("WATCHDOG_USEC", "60000")
    sabotage = Sabotage(monkeypatch, *JOBS)
    async with fake_broker() as one, program(tmp_path, one) as running, client(running.port) as neighbour:

        async def all_went_on() -> bool:
            await neighbour.ask(list_offsets(1))
            return sabotage.came_to_an_end >= JOBS

        await until(all_went_on)
        assert {where: sabotage.counted(where) for where in JOBS} == dict.fromkeys(JOBS, 1)
        metrics = (await running.get("/metrics")).decode()
        assert all(f'sluice_internal_errors_total{{where="{where}"}}' in metrics for where in JOBS)


# ----------------------------------------------------------------------------------------------- the end of the program

ENDS = {
    "stop": signal.SIGTERM,
    "load files again": signal.SIGHUP,
    "turn the mode": signal.SIGUSR1,
    "finish requests in flight": signal.SIGTERM,
    "close a listener": signal.SIGTERM,
    "drain sessions": signal.SIGTERM,
    "drain a session": signal.SIGTERM,
    "stop the worker": signal.SIGTERM,
    "cut a session off": signal.SIGTERM,
    "ship the last usage records": signal.SIGTERM,
    "close the admin port": signal.SIGTERM,
    "close the quota store": signal.SIGTERM,
}


@pytest.mark.long
@pytest.mark.parametrize("where", ENDS)
async def test_program_exits_with_0_despite_fault_during_stop(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async with fake_broker() as one, program(tmp_path, one) as running, client(running.port) as stuck:
        await stuck.ask(list_offsets(1))
        one.silent = where in ("cut a session off", "finish requests in flight")
        stuck.writer.write(list_offsets(2))
        sabotage = Sabotage(monkeypatch, where)
        os.kill(os.getpid(), ENDS[where])
        if where in ("stop", "load files again", "turn the mode"):  # a signal that was lost is sent again
            await until(lambda: sabotage.met)
            os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT_S):
            assert await running.task == 0
        assert (sabotage.met, sabotage.counted(where)) == (True, 1)


# ------------------------------------------------------------------------------------------------------ what is left


async def test_a_page_that_fails_is_there_the_next_time(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_broker() as one, program(tmp_path, one) as running:
        sabotage = Sabotage(monkeypatch, "render metrics")
        assert b" 500 " in await running.get("/metrics")
        assert b" 200 OK" in await running.get("/livez")
        assert sabotage.counted("render metrics") == 1
        # Nobody waits for the one that failed any more.
        await until(lambda: _is_there(running))


async def _is_there(running: Program) -> bool:
    return b" 200 OK" in await running.get("/metrics")


async def test_a_delay_queue_that_fails_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "AFTER_FAULT_S", 0.0)
    sabotage, released = Sabotage(monkeypatch, "delay queue"), asyncio.Event()
    worker._release_later(0.0, released.set)
    async with asyncio.timeout(TIMEOUT_S):
        await released.wait()
    assert sabotage.counted("delay queue") == 1


async def test_a_usage_file_that_fails_to_be_completed_is_completed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheres = ("a usage file is due", "complete a usage file")
    sabotage = Sabotage(monkeypatch, *wheres)
    sink = FileSink(UsageFiles(directory=tmp_path).model_copy(update={"rotate_s": 0.0}), "one", "boot")

    async def both_met() -> bool:
        await sink.write(Document(0, 1, b"{}"))
        return sabotage.met

    await until(both_met)
    await sink.write(Document(0, 1, b"{}"))
    await until(lambda: sink._file is None)  # complete, whatever failed before
    assert [sabotage.counted(where) for where in wheres] == [1, 1]
    await sink.close()
