import subprocess
import sys

from tests.harness import ports

ASK = "import sys; from tests.harness import ports; print([ports._take(int(port)) for port in sys.argv[1:]])"


def test_a_port_is_chosen_once_by_everybody() -> None:
    first, second = ports.free_ports(2)
    assert second == first + 1
    assert not ports._take(first)
    asked = subprocess.run(
        [sys.executable, "-c", ASK, str(first), str(second)], capture_output=True, text=True, check=True, timeout=30.0
    )
    assert asked.stdout.strip() == "[False, False]", "another test run"
