"""SASL for the brokers of one cluster: their JAAS file, properties, users, and an authorizer.

``RealCluster(..., sasl=SaslUsers(...))`` adds a SASL_PLAINTEXT listener, and with ``ssl=True`` a
SASL_SSL one, with each mechanism that the version has. From 2.2 on the SASL_SSL listener has
OAUTHBEARER too, and ends sessions of GSSAPI after ``REAUTHENTICATION_MS``. Principals in
``refused`` authenticate and may do nothing; all others may do all. The plain listeners stay, for
the harness and between brokers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.brokers.errors import HarnessError
from tests.brokers.kdc import REALM, Kdc
from tests.brokers.versions import BrokerVersion, find_version

if TYPE_CHECKING:
    from tests.brokers.cluster import RealCluster

SERVICE = "kafka"
HOST_NAME = "localhost"
"""The host that SASL listeners advertise, and that the service's principal names."""

PASSWORDS = {"alice": "alice-secret", "mallory": "mallory-secret"}
PRINCIPALS = (f"{SERVICE}/{HOST_NAME}", "client", "guest")
REFUSED = ("mallory", "guest")
"""The users of the clusters that tests share; of PLAIN and SCRAM, and of GSSAPI."""

REAUTHENTICATION_MS = 3000
"""How long sessions of GSSAPI on the SASL_SSL listener last, from 2.2 on."""
SCOPE = "kafka"
"""Without it a token of OAUTHBEARER is refused."""

_ITERATIONS = 4096
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MODULES = "org.apache.kafka.common.security"
_AUTHORIZERS = (
    ((4,), "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ((2, 4), "kafka.security.authorizer.AclAuthorizer"),
    ((0, 9), "kafka.security.auth.SimpleAclAuthorizer"),
)


def mechanisms_of(version: BrokerVersion) -> tuple[str, ...]:
    """Return the mechanisms that a version has, OAUTHBEARER aside."""
    if version.number >= (0, 10, 2):
        return ("GSSAPI", "PLAIN", *_HASHES)
    if version.number >= (0, 10):
        return ("GSSAPI", "PLAIN")
    return ("GSSAPI",) if version.number >= (0, 9) else ()


@dataclass(frozen=True)
class SaslUsers:
    """Users of PLAIN and SCRAM with their passwords, the KDC of GSSAPI, and who has no rights."""

    passwords: Mapping[str, str] = field(default_factory=dict)
    kdc: Kdc | None = None
    refused: Sequence[str] = ()
    mechanisms: Sequence[str] | None = None

    def enabled(self, version: BrokerVersion) -> tuple[str, ...]:
        """Return the mechanisms that brokers of a version enable."""
        return tuple(
            mechanism
            for mechanism in mechanisms_of(version)
            if (mechanism != "GSSAPI" or self.kdc is not None)
            and (self.mechanisms is None or mechanism in self.mechanisms)
        )

    def server_properties(self, version: BrokerVersion) -> dict[str, object]:
        """Return the broker settings."""
        enabled = self.enabled(version)
        properties: dict[str, object] = {"sasl.enabled.mechanisms": ",".join(enabled)}
        if self.kdc is not None:
            properties["sasl.kerberos.service.name"] = SERVICE
        if version.number >= (2, 2):
            listener = "listener.name.sasl_ssl"
            properties |= {
                f"{listener}.gssapi.connections.max.reauth.ms": REAUTHENTICATION_MS,
                f"{listener}.sasl.enabled.mechanisms": ",".join([*enabled, "OAUTHBEARER"]),
                f"{listener}.oauthbearer.sasl.jaas.config": oauth_module(SERVICE),
            }
        if self.refused:
            allowed = ("ANONYMOUS", SERVICE, *self._known)
            properties |= {
                "authorizer.class.name": next(
                    name for number, name in _AUTHORIZERS if version.number >= number
                ),
                "super.users": ";".join(
                    f"User:{user}" for user in allowed if user not in self.refused
                ),
            }
        return properties

    def java_options(self, version: BrokerVersion, folder: Path) -> list[str]:
        """Write the JAAS file of brokers, and return the options with which they read it."""
        modules = []
        if "GSSAPI" in (enabled := self.enabled(version)):
            assert self.kdc is not None
            principal = f"{SERVICE}/{HOST_NAME}"
            keytab = self.kdc.keytab(principal)
            modules.append(_krb5_module(keytab, f"{principal}@{REALM}"))
        if "PLAIN" in enabled:
            users = " ".join(
                f'user_{user}="{password}"' for user, password in self.passwords.items()
            )
            modules.append(
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
            )
        if any(mechanism in _HASHES for mechanism in enabled):
            modules.append(f"{_MODULES}.scram.ScramLoginModule required;")
        return jaas_options(folder / "server-jaas.conf", "KafkaServer", modules, self.kdc)

    def scram_nodes(self, version: BrokerVersion) -> dict[str, bytes]:
        """Return the nodes of ZooKeeper with the credentials of SCRAM; brokers read them."""
        hashes = [name for name in self.enabled(version) if name in _HASHES]
        if not hashes:
            return {}
        return {
            f"/config/users/{user}": json.dumps(
                {"version": 1, "config": {name: _credential(name, password) for name in hashes}}
            ).encode()
            for user, password in self.passwords.items()
        }

    def scram_arguments(self, version: BrokerVersion) -> list[str]:
        """Return the arguments that add SCRAM's credentials when 4.x formats its storage."""
        return [
            argument
            for name in self.enabled(version)
            if name in _HASHES
            for user, password in self.passwords.items()
            for argument in ("--add-scram", f"{name}=[name={user},password={password}]")
        ]

    @property
    def _known(self) -> list[str]:
        """Users of passwords, and principals with a keytab, by the names that brokers give them."""
        principals = [] if self.kdc is None else self.kdc.principals
        return [*self.passwords, *(name for name in principals if "/" not in name)]


def jaas_options(file: Path, section: str, modules: Sequence[str], kdc: Kdc | None) -> list[str]:
    """Write a JAAS file, and return the options with which a JVM reads it."""
    lines = "\n  ".join(modules)
    file.write_text(f"{section} {{\n  {lines}\n}};\n")
    options = [
        f"-Djava.security.auth.login.config={file}",
        # Without it a file without a section for ZooKeeper is an error or a warning.
        "-Dzookeeper.sasl.client=false",
    ]
    if kdc is not None:
        options += [
            f"-Djava.security.krb5.conf={kdc.krb5_conf}",
            # Up to 0.11 brokers learn the realm by reflection, which Java 17 forbids without this
            # option; principals would then keep their realm, and so be others for the authorizer.
            "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        ]
    return options


def java_reads(
    cluster: RealCluster, mechanism: str, topic: str, count: int, *, tls: bool = False
) -> list[str]:
    """Return the first messages of a topic, as the Java client of the cluster's line reads them.

    With ``tls`` from 2.7 on, which reads a CA in PEM.
    """
    number = find_version(cluster.version).number
    name = f"java-{mechanism}-{tls}"
    settings = cluster.folder / f"{name}.properties"
    lines = [
        f"security.protocol={'SASL_SSL' if tls else 'SASL_PLAINTEXT'}",
        f"sasl.mechanism={mechanism}",
        f"sasl.kerberos.service.name={SERVICE}",
    ]
    if tls:
        lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={cluster.ca_path}"]
    settings.write_text("".join(f"{line}\n" for line in lines))
    servers = cluster.sasl_ssl_bootstrap_servers if tls else cluster.sasl_bootstrap_servers
    package = "org.apache.kafka.tools.consumer" if number >= (3, 9) else "kafka.tools"
    done = cluster.run_java(
        f"{package}.ConsoleConsumer",
        f"--bootstrap-server={servers}",
        f"--topic={topic}",
        f"--consumer.config={settings}",
        "--from-beginning",
        f"--max-messages={count}",
        *(("--new-consumer",) if number < (0, 10) else ()),
        java_options=jaas_options(
            cluster.folder / f"{name}.conf",
            "KafkaClient",
            [client_module(mechanism, cluster.sasl.kdc)],
            cluster.sasl.kdc,
        ),
    )
    if done.returncode:
        raise HarnessError(f"{mechanism}: the Java client fails: {done.stderr[-3000:]}")
    return done.stdout.splitlines()


def client_module(mechanism: str, kdc: Kdc | None = None) -> str:
    """Return the JAAS module with which a Java client authenticates; it may do all."""
    if mechanism == "GSSAPI":
        assert kdc is not None
        return _krb5_module(kdc.keytab("client"), f"client@{REALM}")
    if mechanism == "OAUTHBEARER":
        return oauth_module("alice")
    kind = "scram.Scram" if mechanism in _HASHES else "plain.Plain"
    password = PASSWORDS["alice"]
    return f'{_MODULES}.{kind}LoginModule required username="alice" password="{password}";'


def oauth_module(user: str) -> str:
    """Return the JAAS module of OAUTHBEARER with tokens that nobody has signed."""
    return (
        f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"
        f' unsecuredLoginStringClaim_sub="{user}" unsecuredLoginListClaim_scope=",{SCOPE}"'
        f' unsecuredValidatorRequiredScope="{SCOPE}";'
    )


def _krb5_module(keytab: Path, principal: str) -> str:
    return (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        f' keyTab="{keytab}" principal="{principal}";'
    )


def _credential(mechanism: str, password: str) -> str:
    """Return a user's credential as brokers store it."""
    name = _HASHES[mechanism]
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, _ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", name)
    values = {
        "salt": salt,
        "stored_key": hashlib.new(name, client_key).digest(),
        "server_key": hmac.digest(salted, b"Server Key", name),
    }
    texts = [f"{key}={base64.b64encode(value).decode()}" for key, value in values.items()]
    return ",".join([*texts, f"iterations={_ITERATIONS}"])
