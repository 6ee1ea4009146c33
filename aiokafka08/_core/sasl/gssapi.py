"""GSSAPI: Kerberos (RFC 4752), from a keytab or from the cache that kinit fills.

The extra `kerberos` (gssapi). No subprocess is run, and no host name is looked up: the broker's
principal has the host name that the client connects to, or `sasl_kerberos_domain_name`.

Invariant: credentials are renewed when 80 % of their life is over. While that fails, the old ones
are used until they expire. All steps of a client run one after another, so a connection that is
made during a renewal waits for it.
"""

from __future__ import annotations

import itertools
import math
import os
from typing import Any, Final

from aiokafka08 import environment
from aiokafka08._core.concurrency.daemon_thread import DaemonThread
from aiokafka08._core.sasl.failure import FailureKind, SaslFailure
from aiokafka08._core.sasl.mechanism import Mechanism, Steps, missing_extra
from aiokafka08.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError

RENEW_AT: Final = 0.8
"""The share of a ticket's life after which it is renewed."""

_RENEW_AGAIN_S: Final = 10.0
"""After a renewal that failed, the next attempt isn't sooner while the old ticket is valid: a KDC
that is silent takes seconds each time."""

_NO_LAYER: Final = 1
"""Bit of "authentication only" in the broker's offer. Brokers refuse the other layers."""

_ANSWER: Final = bytes((_NO_LAYER, 0, 0, 0))
"""No layer, and so no size of its messages; no authorization id, which brokers ignore."""

_cache_numbers = itertools.count(1)

_TRANSIENT: Final = {
    -1765328228: "no KDC of the realm responds",
    -1765328164: "the address of the realm's KDC can't be resolved",
}
"""Codes of MIT Kerberos (krb5.h) for what may pass, with the reason for the error."""

_TICKET_EXPIRED: Final = -1765328352
_NO_KEYTAB: Final = -1765328174
_NO_KEY: Final = -1765328203
_NO_TICKET: Final = (-1765328189, -1765328243)

_KINDS: Final = {
    **dict.fromkeys((-1765328378, -1765328361), FailureKind.CLIENT_PRINCIPAL),
    -1765328377: FailureKind.BROKER_PRINCIPAL,
    **dict.fromkeys((-1765328360, -1765328353, _NO_KEY, _NO_KEYTAB), FailureKind.KEYTAB),
    **dict.fromkeys((*_NO_TICKET, _TICKET_EXPIRED), FailureKind.TICKET),
    -1765328347: FailureKind.CLOCK,
    -1765328230: FailureKind.REALM,
}
"""The same codes by what is missing; any other is a refusal."""

_CAUSES: Final = {
    -1765328378: "the KDC doesn't know the client's principal. Check sasl_kerberos_principal",
    -1765328377: "the KDC doesn't know the broker's principal. Check sasl_kerberos_service_name, "
    "and that bootstrap.servers and the brokers advertise the host names of their principals, or "
    "set sasl_kerberos_domain_name",
    -1765328361: "the password or the key of the principal has expired",
    **dict.fromkeys(
        (-1765328360, -1765328353), "the keytab's key isn't the KDC's. Export it again"
    ),
    _TICKET_EXPIRED: "the ticket has expired. Run kinit, or set sasl_kerberos_keytab",
    -1765328347: "the clocks of client and KDC differ too much. Synchronize them",
    -1765328230: "krb5.conf doesn't know the realm. Check its sections realms and domain_realm, "
    "and KRB5_CONFIG",
    _NO_KEY: "the keytab has no key for the principal. Check sasl_kerberos_keytab and "
    "sasl_kerberos_principal (klist -k)",
    **dict.fromkeys(
        _NO_TICKET,
        "there is no ticket. Run kinit, set sasl_kerberos_keytab, or check sasl_kerberos_principal "
        "and KRB5CCNAME",
    ),
    _NO_KEYTAB: "the keytab doesn't exist or can't be read. Check sasl_kerberos_keytab",
}
"""Codes of MIT Kerberos (krb5.h), with the cause and what to do."""


class Gssapi(Mechanism):
    """See `Mechanism`."""

    name = "GSSAPI"
    starts_raw = True

    def __init__(
        self, service: str, domain: str | None, keytab: str | None, principal: str | None
    ) -> None:
        try:
            import gssapi
        except (ImportError, OSError):  # OSError: the library of the system is missing
            raise missing_extra(
                "GSSAPI",
                "gssapi",
                "kerberos",
                " (it is compiled: a C compiler and libkrb5-dev), or Debian's python3-gssapi for "
                "Debian's Python",
            ) from None
        self._gssapi: Any = gssapi
        self.thread = DaemonThread()  # for the KDC
        self._service = service
        self._domain = domain
        self._keytab = keytab
        self._principal = principal
        # Only in memory: the cache that kinit fills stays as it is.
        self._cache = _new_cache()
        self._credentials: Any = None
        self._renew_at = -math.inf
        source = "the ticket cache" if keytab is None else f"keytab {keytab!r}"
        who = "" if principal is None else f" as {principal!r}"
        self.description = f"GSSAPI{who} from {source}"
        self.hint = (
            "that the port is a SASL listener with GSSAPI in sasl.enabled.mechanisms, that the "
            "clocks of client and broker agree, and that the broker maps this principal "
            "(sasl.kerberos.principal.to.local.rules)"
        )

    @property
    def principal(self) -> str | None:
        """The ticket's principal, or before there is a ticket the one that was given."""
        try:
            return self._principal if self._credentials is None else str(self._credentials.name)
        except self._gssapi.exceptions.GSSError:  # the ticket has expired
            return self._principal

    def broker_principal(self, host: str) -> str:
        """Return the principal of the broker at `host`.

        Without a realm it ends with "@": Kerberos then asks the client's KDC, which may refer to
        another realm. Another kind of name would be looked up in DNS, as krb5.conf says.
        """
        name = f"{self._service}/{self._domain or host.removesuffix('.').lower()}"
        return name if "@" in name else f"{name}@"

    async def begin(self, host: str) -> Steps:
        """Begin: usually two tokens, the broker's offer of layers, and the choice of none."""
        return self._steps(host)

    def acquire(self) -> float:
        """Get credentials if there are none, or if they are to be renewed; may block.

        Returns:
            Seconds until they expire.

        Raises:
            AuthenticationFailedError: there are none.
            KafkaConnectionError: there are none, but another attempt may get some.
        """
        if self._credentials is not None and environment.monotonic() < self._renew_at:
            return float(self._credentials.lifetime or 0)
        if self._keytab is not None and self._credentials is not None and not self._is_valid():
            # For MIT Kerberos the cause would be the expired ticket in the cache, not the KDC that
            # gave no new one, which may pass.
            self._credentials, self._cache = None, _new_cache()
        try:
            name = None if self._principal is None else self._name(self._principal)
            store = None
            if self._keytab is not None:
                # For MIT Kerberos a missing file is a keytab without this principal.
                if not os.access(self._keytab, os.R_OK):
                    raise _failed(f"{self.description}: ", _NO_KEYTAB)
                store = {"client_keytab": f"FILE:{self._keytab}", "ccache": self._cache}
            credentials = self._gssapi.Credentials(name=name, usage="initiate", store=store)
            lifetime = credentials.lifetime
        except self._gssapi.exceptions.GSSError as error:
            if self._credentials is not None and self._is_valid():
                self._renew_at = environment.monotonic() + _RENEW_AGAIN_S
                return 0.0
            raise self._error("no credentials", error) from None
        self._credentials = credentials
        seconds = math.inf if lifetime is None else float(lifetime)
        self._renew_at = environment.monotonic() + RENEW_AT * seconds
        return seconds

    def _is_valid(self) -> bool:
        try:
            lifetime = self._credentials.lifetime
        except self._gssapi.exceptions.GSSError:
            return False
        return lifetime is None or lifetime > 0

    def _name(self, principal: str) -> Any:
        return self._gssapi.Name(principal, self._gssapi.NameType.kerberos_principal)

    def _steps(self, host: str) -> Steps:
        self.acquire()
        target = self.broker_principal(host)
        try:
            context = self._gssapi.SecurityContext(
                name=self._name(target),
                creds=self._credentials,
                usage="initiate",
                mech=self._gssapi.MechType.kerberos,
            )
            token = context.step()
            while not context.complete:
                token = context.step((yield token or b""))
            offer = context.unwrap((yield token or b"")).message
            if len(offer) != 4 or not offer[0] & _NO_LAYER:
                raise AuthenticationFailedError(
                    f"{self.description}: the broker's offer of layers is {offer[:8].hex()!r}; "
                    "expected four bytes that allow no layer"
                )
            wrapped: bytes = context.wrap(_ANSWER, False).message
        except self._gssapi.exceptions.GSSError as error:
            raise self._error(f"the broker is {target.removesuffix('@')!r}", error) from None
        return wrapped

    def _error(self, what: str, error: Any) -> KafkaError:
        """Return the error for one of the library's, whose text names principals, no secrets."""
        minor = int.from_bytes(
            getattr(error, "min_code", 0).to_bytes(8, "big", signed=True)[4:], "big", signed=True
        )
        text = f"{self.description}: {what}: "
        if minor in _TRANSIENT:
            return KafkaConnectionError(
                f"{text}{_TRANSIENT[minor]} ({error.gen_message()})", SaslFailure(FailureKind.KDC)
            )
        if isinstance(error, self._gssapi.exceptions.ExpiredCredentialsError):
            minor = _TICKET_EXPIRED
        if minor in _NO_TICKET and self._keytab is not None:
            minor = _NO_KEY
        return _failed(text, minor, error.gen_message())


def _failed(text: str, code: int, message: str = "") -> AuthenticationFailedError:
    """Return the error for a code of MIT Kerberos; without a cause, it has the library's text."""
    cause = _CAUSES.get(code, message)
    remedy = cause.partition(". ")[2] if code in _CAUSES else ""
    failure = SaslFailure(_KINDS.get(code, FailureKind.REFUSED), remedy)
    return AuthenticationFailedError(f"{text}{cause}", failure)


def _new_cache() -> str:
    return f"MEMORY:aiokafka08-{os.getpid()}-{next(_cache_numbers)}"
