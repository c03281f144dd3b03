"""The settings of one instance: ``{instance}`` is replaced, and the addresses of all instances are filled in."""

from collections.abc import Iterator, Mapping

from config.brokers import Endpoint
from config.listener import Listener
from config.owners import FixedInstance, FixedOwners
from config.problems import InvalidValue, InvalidValues, Steps, suggestion
from config.settings import Settings
from config.units import INSTANCE, AdvertisedAddress, parse_host, parse_host_template


def at_instance(settings: Settings, host_name: str) -> Settings:
    """Return the settings as they are at this instance, whose name is that of the host if it has no other.

    Raises InvalidValues.
    """
    owners, wrong = settings.owners, InvalidValues()
    if owners is None:
        for at in _templates(settings.listeners):
            wrong.add(
                at, f"contains {INSTANCE}, and there is no section owners", "write the name itself, or add owners"
            )
        wrong.raise_if_any()
        return settings
    instance = owners.instance or host_name
    fixed = None if owners.fixed is None else _fixed(wrong, owners.fixed, settings.listeners, owners.instance, instance)
    wrong.raise_if_any()
    with wrong.at("owners", "instance"):
        listeners = tuple(_of(listener, instance) for listener in settings.listeners)
    wrong.raise_if_any()
    owners = owners.model_copy(update={"instance": instance, "fixed": fixed})
    return settings.model_copy(update={"listeners": listeners, "owners": owners})


def _fixed(
    wrong: InvalidValues, fixed: FixedOwners, listeners: tuple[Listener, ...], written: str | None, instance: str
) -> FixedOwners:
    """Return the owners with all addresses; ``written`` is ``owners.instance``."""
    named = fixed.instances
    if instance not in named:
        known = suggestion(instance, list(named))
        whose = "owners.instance" if written is not None else "the host name, as owners.instance is not given"
        wrong.add(("owners", "fixed"), f"does not have this instance, {instance} ({whose})", f"add it; {known}")
    filled = {name: _filled(wrong, name, each, listeners, instance) for name, each in named.items()}
    _require_apart(wrong, filled)
    return FixedOwners(filled)


def _templates(listeners: tuple[Listener, ...]) -> Iterator[Steps]:
    """Yield the place of each setting that contains ``{instance}``."""
    for index, listener in enumerate(listeners):
        if INSTANCE in listener.advertise.host:
            yield "listeners", index, "advertise"
        if listener.broker_host is not None and INSTANCE in listener.broker_host:
            yield "listeners", index, "broker_host"


def _of(listener: Listener, instance: str) -> Listener:
    """Return a listener of ``instance``. Raises InvalidValue if its name does not belong into a host name."""
    host = listener.broker_host
    advertise = AdvertisedAddress(_named(listener.advertise.host, instance), listener.advertise.port)
    broker_host = None if host is None else parse_host_template(host.replace(INSTANCE, instance))
    return listener.model_copy(update={"advertise": advertise, "broker_host": broker_host})


def _named(host: str, instance: str) -> str:
    return parse_host(host.replace(INSTANCE, instance)) if INSTANCE in host else host


def _filled(
    wrong: InvalidValues, name: str, written: FixedInstance, listeners: tuple[Listener, ...], here: str
) -> FixedInstance:
    """Return an instance with its address at each listener."""
    at = ("owners", "fixed", name)
    for key in written.advertise:
        if all(each.name != key for each in listeners):
            known = suggestion(key, [each.name for each in listeners])
            wrong.add((*at, "advertise", key), "is not a listener", known, of_key=True)
    found: dict[str, Endpoint] = {}
    for listener in listeners:
        own = listener.name in written.advertise
        with wrong.at(*at, *(("advertise", listener.name) if own else ())):
            found[listener.name] = _endpoint(written.advertise.get(listener.name), listener, name, here)
    return FixedInstance(written.brokers, found)


def _endpoint(written: Endpoint | None, listener: Listener, name: str, here: str) -> Endpoint:
    host = listener.broker_host or listener.advertise.host
    if name == here:  # whatever is written: one list of all instances may be the same in all their files
        return _of(listener, name).endpoint
    if written is None:
        if INSTANCE not in host:
            told = "b{node_id}-" + name + ".kafka.example.com" if listener.broker_host else name + ".example.com"
            key = "broker_host" if listener.broker_host else "advertise"
            raise InvalidValue(
                f"has no address at listener {listener.name}",
                f"write advertise: {{{listener.name}: {told}}}, or {INSTANCE} into {key} of the listener",
            )
        return _of(listener, name).endpoint
    if listener.broker_host is not None:
        if "{node_id}" not in written.host or written.ports is not None:
            fix = f"write it like broker_host of listener {listener.name}: b{{node_id}}-{name}.kafka.example.com"
            raise InvalidValue("is no host name for each broker", fix)
        return Endpoint(written.host, written.port or listener.bootstrap.port, None)
    if "{node_id}" in written.host or written.port is not None:
        raise InvalidValue(
            "must be a host: ports of brokers are those of the listener",
            f"write the host alone, or {{host: {name}.example.com, brokers: {{…}}}} for other ports",
        )
    return Endpoint(written.host, listener.bootstrap.port, written.ports or listener.brokers)


def _require_apart(wrong: InvalidValues, instances: Mapping[str, FixedInstance]) -> None:
    """Require that clients can tell the instances apart: at each listener, each has an address of its own."""
    taken: dict[tuple[str, Endpoint], str] = {}
    for name, each in instances.items():
        for listener, endpoint in each.advertise.items():
            if (other := taken.setdefault((listener, endpoint), name)) != name:
                said = f"has the same addresses at listener {listener} as {other}"
                wrong.add(("owners", "fixed", name), said, "give each instance a host, or ports, of its own")
