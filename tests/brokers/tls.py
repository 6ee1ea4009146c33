"""A server certificate for brokers' SSL listeners, made anew for each cluster by ``keytool``."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.brokers.errors import HarnessError
from tests.brokers.jars import find_java_tool

_PASSWORD = "of-no-value"  # it guards a key that lives as long as a test run


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """A key with its self-signed certificate for localhost and 127.0.0.1."""

    keystore: Path
    ca_path: Path

    def server_properties(self) -> dict[str, object]:
        """The broker settings that use it."""
        return {
            "ssl.keystore.location": self.keystore,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": _PASSWORD,
            "ssl.key.password": _PASSWORD,
        }


def make_identity(folder: Path) -> ServerIdentity:
    """Make key, keystore and exported certificate in ``folder``."""
    identity = ServerIdentity(folder / "server.p12", folder / "ca.pem")
    store = ["-keystore", str(identity.keystore), "-storepass", _PASSWORD, "-alias", "broker"]
    _keytool(
        "-genkeypair", *store, "-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1",
        "-dname", "CN=localhost", "-validity", "30",
        "-ext", "san=ip:127.0.0.1,dns:localhost",
        # It is its own certificate authority; strict verification (the default of Python 3.13)
        # wants an authority to say so.
        "-ext", "bc:critical=ca:true",
        "-ext", "ku:critical=digitalSignature,keyCertSign",
    )  # fmt: skip
    _keytool("-exportcert", *store, "-rfc", "-file", str(identity.ca_path))
    return identity


def _keytool(*args: str) -> None:
    done = subprocess.run(
        [find_java_tool("keytool"), "-J-XX:TieredStopAtLevel=1", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise HarnessError(f"keytool failed (exit code {done.returncode}):\n{done.stdout}")
