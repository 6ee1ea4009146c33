"""Create certificates and what Java clients trust, with ``keytool``."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.brokers.errors import HarnessError
from tests.brokers.jars import find_java_tool

_PASSWORD = "of-no-value"  # it protects a key that exists only during a test run


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """A key and its self-signed certificate, for localhost and 127.0.0.1."""

    keystore: Path
    ca_path: Path

    def server_properties(self) -> dict[str, object]:
        """Return the broker settings for this identity."""
        return {
            "ssl.keystore.location": self.keystore,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": _PASSWORD,
            "ssl.key.password": _PASSWORD,
        }


def make_identity(folder: Path) -> ServerIdentity:
    """Create key, keystore and exported certificate in ``folder``."""
    identity = ServerIdentity(folder / "server.p12", folder / "ca.pem")
    store = ["-keystore", str(identity.keystore), "-storepass", _PASSWORD, "-alias", "broker"]
    _keytool(
        "-genkeypair", *store, "-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1",
        "-dname", "CN=localhost", "-validity", "30",
        "-ext", "san=ip:127.0.0.1,dns:localhost",
        # The certificate is its own authority; strict verification (the default of Python 3.13)
        # requires that an authority is marked as one.
        "-ext", "bc:critical=ca:true",
        "-ext", "ku:critical=digitalSignature,keyCertSign",
    )  # fmt: skip
    _keytool("-exportcert", *store, "-rfc", "-file", str(identity.ca_path))
    return identity


def java_trust(certificate: Path, store: Path) -> dict[str, object]:
    """Create the truststore of a Java client, and return the settings for it.

    Args:
        certificate: the PEM file of the authority.
        store: the file to create, in PKCS12, which clients from 0.9 on read.
    """
    _keytool(
        "-importcert", "-noprompt", "-file", str(certificate), "-alias", "authority",
        "-keystore", str(store), "-storetype", "PKCS12", "-storepass", _PASSWORD,
    )  # fmt: skip
    return {
        "ssl.truststore.location": store,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": _PASSWORD,
    }


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
        raise HarnessError(f"keytool: failed with exit code {done.returncode}:\n{done.stdout}")
