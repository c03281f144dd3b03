"""Five seconds before Spark starts: address, TLS, login, topic. Spark would need half a minute, and a page of Java.

Each failure is one line that says what to do. What only Java can do (a keystore in its own form, Kerberos) is left to
the JVM's source, which asks the same brokers.
"""

import asyncio
import logging
import socket
import ssl
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka import errors as kafka
from aiokafka.conn import create_conn

from analysis.errors import AnalysisError, AwayError
from analysis.sources.connection import Connection, Unsupported
from analysis.sources.listener import protocol_of
from analysis.sources.python_kafka import partitions_of

TIMEOUT_S: Final = 5.0
_REFUSED_LOGIN: Final = (
    kafka.AuthenticationFailedError,
    kafka.for_code(58),  # SASL_AUTHENTICATION_FAILED, with the broker's words
    kafka.IllegalSaslStateError,
)
_MEANING: Final = {
    "PLAINTEXT": "no TLS, no login",
    "SSL": "TLS, no login",
    "SASL_PLAINTEXT": "a login, no TLS",
    "SASL_SSL": "a login within TLS",
}


def check(connection: Connection, topic: str, *, python: bool) -> None:
    """Ask the brokers for the topic. Raises AnalysisError: within TIMEOUT_S, and as long again to find out why.

    Where the source need not be ``python``, properties that only Java understands are believed.
    """
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs what is raised as well
    asyncio.run(_within(_Preflight(connection, topic, python=python)))


class _Preflight:
    def __init__(self, connection: Connection, topic: str, *, python: bool) -> None:
        self.step = ""
        """What is under way, for when time is up."""
        self._connection = connection
        self._topic = topic
        self._python = python
        self._asked: tuple[str, int] | None = None
        """Whom more was said to than that somebody listens there."""
        self._addresses = [_address(each) for each in connection.bootstrap.split(",") if each.strip()]
        if not self._addresses:
            raise AnalysisError("--bootstrap names no broker: give host:port, several with commas")

    async def run(self) -> None:
        host, port = await self._reachable()
        try:
            options = self._connection.for_aiokafka()
        except Unsupported:
            if self._python:
                raise
            self._asked = host, port
            await self.difference()
            return
        self._asked = host, port
        await self._log_in(host, port, options)
        await self._look_at_topic(options)

    async def difference(self) -> None:
        """Raise AnalysisError where a listener speaks otherwise than it was spoken to: that explains any failure."""
        if self._asked is None:
            return
        spoken, found = self._connection.protocol, await protocol_of(*self._asked)
        if found is not None and found != spoken:
            host, port = self._asked
            raise AnalysisError(
                f"{host}:{port} is a {found} listener ({_MEANING[found]}), and security.protocol is {spoken} "
                f"({_MEANING[spoken]}): set it to {found} in --kafka-config, or name a {spoken} listener in --bootstrap"
            )

    async def _reachable(self) -> tuple[str, int]:
        """Return the first address that somebody listens at."""
        failures = []
        for host, port in self._addresses:
            self.step = f"connecting to {host}:{port}: is a firewall between?"
            try:
                _, writer = await asyncio.open_connection(host, port)
            except socket.gaierror:
                failures.append(f"{host} is no known host")
            except OSError as error:
                failures.append(f"{host}:{port}: {_why(error)}")
            else:
                writer.close()
                return host, port
        raise AwayError(f"no broker can be reached: {'; '.join(failures)}: check --bootstrap")

    async def _log_in(self, host: str, port: int, options: dict[str, Any]) -> None:
        at = f"{host}:{port}"
        protocol = self._connection.protocol
        self.step = f"{at} answers nothing to {protocol}: is security.protocol right (--kafka-config)?"
        names = ("client_id", "security_protocol", "ssl_context")
        chosen = {name: value for name, value in options.items() if name in names or name.startswith("sasl_")}
        try:
            opened = await create_conn(host, port, **chosen)
        except ssl.SSLCertVerificationError as error:
            raise AnalysisError(
                f"{at}: TLS: {error.verify_message}: see ssl.truststore.location in --kafka-config"
            ) from None
        except ssl.SSLError as error:
            raise AnalysisError(
                f"{at}: TLS fails ({error.reason}): is that a listener for TLS? see security.protocol"
            ) from None
        except kafka.UnsupportedSaslMechanismError as error:
            raise AnalysisError(
                f"{at} does not offer {self._connection.mechanism}: see sasl.mechanism ({error})"
            ) from None
        except _REFUSED_LOGIN:
            raise AnalysisError(f"{at} refuses the login: see the name and password in sasl.jaas.config") from None
        except (kafka.KafkaError, OSError, ValueError):
            raise AnalysisError(
                f"{at} closes the connection: it does not speak {protocol}; see security.protocol in --kafka-config"
            ) from None
        opened.close()

    async def _look_at_topic(self, options: dict[str, Any]) -> None:
        """Find the topic, and ask the leaders of its partitions for offsets, as reading will."""
        consumer = AIOKafkaConsumer(**options, isolation_level="read_committed")
        # Whoever may not ask is answered which versions there are, and nothing else.
        self.step = (
            f"brokers do not answer to {self._connection.protocol} what topics they have: does that listener want "
            "another security.protocol, with a login (--kafka-config)?"
        )
        try:
            await consumer.start()
            self.step = (
                "brokers do not answer for the topic at the addresses that they advertise: see advertised.listeners"
            )
            partitions = await partitions_of(consumer, self._topic)
            if not partitions:
                raise AnalysisError(
                    f"topic {self._topic} is not there, or this login may not see it: "
                    "--topic is usage.topic.name of sluice.yaml, and the proxy makes it"
                )
            await consumer.end_offsets(partitions)
        except kafka.TopicAuthorizationFailedError:
            raise AnalysisError(
                f"topic {self._topic}: this login may not read it: it needs READ and DESCRIBE"
            ) from None
        except (kafka.KafkaError, OSError, NotImplementedError) as error:
            raise AnalysisError(f"{self.step} ({error})") from None
        finally:
            await consumer.stop()


async def _within(preflight: _Preflight) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await preflight.run()
    except TimeoutError:
        await preflight.difference()
        raise AwayError(f"no answer within {TIMEOUT_S:g} s: {preflight.step}") from None
    except AnalysisError:
        await preflight.difference()
        raise


def _address(written: str) -> tuple[str, int]:
    host, _, port = written.strip().rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise AnalysisError(f"--bootstrap: {written.strip()!r} is not host:port")
    return host.strip("[]"), int(port)


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
