"""GSSAPI: Kerberos (RFC 4752), from a keytab or from the cache that kinit fills.

It needs the package gssapi (the extra `kerberos`). No subprocess is run, and no host name is looked
up: the broker's principal has the host name that the client connects to, or
`sasl_kerberos_domain_name`.

Invariant: when 80 % of the life of credentials is over, they are renewed, with a ticket for each
broker, so that later connections need no KDC. While a renewal lasts, or when it fails, connections
use the old credentials. A connection waits for the KDC only if it is the first one to its broker,
or the credentials have expired.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import threading
from typing import Any, Final, NamedTuple

from aiokafka08 import environment
from aiokafka08._core.concurrency.daemon_thread import DaemonThread
from aiokafka08._core.sasl.failure import FailureKind, SaslFailure
from aiokafka08._core.sasl.mechanism import Mechanism, Steps, missing_extra
from aiokafka08.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError

RENEW_AT: Final = 0.8
"""The share of a ticket's life after which it is renewed."""

# The least time between a renewal that failed and the next attempt, because a silent KDC takes
# seconds each time, and a KDC may lock a principal whose key is wrong
_RENEW_AGAIN_S: Final = 10.0

# The same, as a share of the ticket's remaining life; the longer one of both counts
_RENEW_AGAIN_AT: Final = 0.1

# While a KDC refuses a keytab, the time between attempts doubles, up to this
_LONGEST_REFUSAL_S: Final = 300.0

# Codes of MIT Kerberos (krb5.h) that a KDC responds with; the others are the library's own
_KDC_CODES: Final = range(-1765328384, -1765328256)

# Bit of "authentication only" in the broker's offer. Brokers refuse the other layers.
_NO_LAYER: Final = 1

# The client's choice: no layer, so the size of its messages is 0. The authorization id, which
# brokers ignore, is left out.
_ANSWER: Final = bytes((_NO_LAYER, 0, 0, 0))

_log: Final = logging.getLogger("aiokafka08.net")

_cache_numbers = itertools.count(1)

# Codes of MIT Kerberos (krb5.h) for transient failures, with the reason for the error
_TRANSIENT: Final = {
    -1765328228: "no KDC of the realm responds",
    -1765328164: "the address of the realm's KDC can't be resolved",
}

_TICKET_EXPIRED: Final = -1765328352
_NO_KEYTAB: Final = -1765328174
_NO_KEY: Final = -1765328203
_NO_TICKET: Final = (-1765328189, -1765328243)

# What to check when a broker refuses, because its reason doesn't tell these cases apart
_CHECK: Final = (
    "that the clocks of client and broker agree, and that the broker maps this principal "
    "(sasl.kerberos.principal.to.local.rules)"
)

# Codes of MIT Kerberos (krb5.h) by the kind of failure; any other code is a refusal
_KINDS: Final = {
    **dict.fromkeys((-1765328378, -1765328361), FailureKind.CLIENT_PRINCIPAL),
    -1765328377: FailureKind.BROKER_PRINCIPAL,
    **dict.fromkeys((-1765328360, -1765328353, _NO_KEY, _NO_KEYTAB), FailureKind.KEYTAB),
    **dict.fromkeys((*_NO_TICKET, _TICKET_EXPIRED), FailureKind.TICKET),
    **dict.fromkeys((-1765328347, -1765328351), FailureKind.CLOCK),
    -1765328230: FailureKind.REALM,
}

# Codes of MIT Kerberos (krb5.h), with the cause and what to do
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
    -1765328351: "the ticket isn't valid yet: the clock of this machine is behind the KDC's. "
    "Synchronize them",
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


class _Refusal(NamedTuple):
    """The KDC's last word on a keytab: until `ends` it isn't asked again, unless the file changes.

    A KDC may lock a principal after some wrong keys, so connections get the error at once.
    """

    error: KafkaError
    file: object
    delay_s: float
    ends: float


class _Credentials:
    """Credentials from a keytab, for all clients of the process, or from a ticket cache.

    Args:
        gssapi: the module.
        keytab: None: the ticket cache.
        principal: None: the first one of the keytab, or that of the cache.
        description: names the credentials and their source in errors.
    """

    def __init__(
        self, gssapi: Any, keytab: str | None, principal: str | None, description: str
    ) -> None:
        self.thread = DaemonThread()  # for `renew()`, so that no connection waits behind it
        self._gssapi = gssapi
        self._keytab = keytab
        self._principal = principal
        self._description = description
        self._new_cache = _cache_name()
        self._brokers: set[str] = set()
        self._lock = threading.Lock()  # held while new credentials are got and put in place
        self._current: Any = None
        self._expires = self._renew_at = -math.inf
        self._life_s = 0.0
        self._is_overdue = False  # the last renewal failed, and a log line has said so
        self._refusal: _Refusal | None = None

    def begin(self, broker: str) -> tuple[Any, bytes]:
        """Return a context for the broker with this principal, and its first token; may block.

        Raises:
            AuthenticationFailedError: there are no credentials, or the KDC refuses them.
            KafkaConnectionError: the same, but another attempt may succeed.
        """
        credentials = self._valid()
        if credentials is None:
            with self._lock:
                credentials = self._valid()  # another thread may just have got some
                if credentials is None:
                    self._current = None
                    credentials = self._acquire()
        try:
            begun = self._begin(credentials, broker)
        except self._gssapi.exceptions.GSSError as error:
            raise self.error(f"the broker is {broker.removesuffix('@')!r}", error) from None
        self._brokers.add(broker)
        return begun

    @property
    def principal(self) -> str | None:
        """The ticket's principal; without a valid ticket the given one, or None."""
        current = self._current  # the thread of another client may replace it
        try:
            return self._principal if current is None else str(current.name)
        except self._gssapi.exceptions.GSSError:  # the ticket has expired
            return self._principal

    def due_s(self) -> float:
        """Return the seconds until `renew()` has something to do."""
        current = self._current
        if current is None:
            return _RENEW_AGAIN_S  # the first connection gets credentials
        due_s = self._renew_at - environment.monotonic()
        if not self._is_overdue:
            # The monotonic clock stands still while the machine is suspended.
            due_s = min(due_s, self._left_s(current) - (1 - RENEW_AT) * self._life_s)
        return max(due_s, 0.0)

    def _left_s(self, credentials: Any) -> float:
        try:
            lifetime = credentials.lifetime
        except self._gssapi.exceptions.GSSError:  # they have expired
            return 0.0
        return math.inf if lifetime is None else float(lifetime)

    def renew(self) -> float:
        """Get new credentials if it is time; return `due_s()` of the next time; may block."""
        with self._lock:
            if not self.due_s():  # else another client has done it
                try:
                    self._acquire()
                except KafkaError as error:
                    now = environment.monotonic()
                    left = max(self._expires - now, 0.0)
                    refused_s = 0.0 if self._refusal is None else self._refusal.ends - now
                    self._renew_at = now + max(left * _RENEW_AGAIN_AT, _RENEW_AGAIN_S, refused_s)
                    if not self._is_overdue:
                        # The process that fills a cache may do that later than at 80 %.
                        level = logging.INFO if self._keytab is None else logging.WARNING
                        _log.log(
                            level, "%s. The present ticket expires in %.0f s", error.text, left
                        )
                        self._is_overdue = True
            return self.due_s()

    def error(self, what: str, error: Any) -> KafkaError:
        """Translate a GSSError into a KafkaError. Its text names principals, but no secrets."""
        minor = _code(error)
        text = f"{self._description}: {what}: "
        if minor in _TRANSIENT:
            return KafkaConnectionError(
                f"{text}{_TRANSIENT[minor]} ({error.gen_message()})", SaslFailure(FailureKind.KDC)
            )
        if isinstance(error, self._gssapi.exceptions.ExpiredCredentialsError):
            minor = _TICKET_EXPIRED
        if minor in _NO_TICKET and self._keytab is not None:
            minor = _NO_KEY
        return _failed(text, minor, error.gen_message())

    def _acquire(self) -> Any:
        """Get and return credentials; in a renewal, also tickets for the brokers used so far.

        With a keytab, each call fills a new cache in memory. So connections use the old cache until
        the new one is complete. MIT Kerberos also needs an empty cache to say why the KDC gave no
        ticket.
        """
        store = None
        if self._keytab is not None:
            # For MIT Kerberos a missing file is a keytab without this principal.
            if not os.access(self._keytab, os.R_OK):
                raise _failed(f"{self._description}: ", _NO_KEYTAB)
            store = {"client_keytab": f"FILE:{self._keytab}", "ccache": self._new_cache}
            self._raise_refusal(self._keytab)
        try:
            name = None if self._principal is None else self._name(self._principal)
            # By default each mechanism asks the KDC, SPNEGO too.
            found = self._gssapi.Credentials(
                name=name, mechs=[self._gssapi.MechType.kerberos], usage="initiate", store=store
            )
            lifetime = found.lifetime
            expires = environment.monotonic() + (math.inf if lifetime is None else lifetime)
            if self._current is not None and expires < self._expires + 1:
                raise AuthenticationFailedError(f"{self._description}: there is no newer ticket")
            self._new_cache = _cache_name()
            if self._current is not None:  # else a connection waits for these credentials
                for broker in tuple(self._brokers):
                    self._get_ticket(found, broker)
        except self._gssapi.exceptions.GSSError as error:
            failure = self.error("no credentials", error)
            if self._keytab is not None and _code(error) in _KDC_CODES:
                self._keep_refusal(self._keytab, failure)
            raise failure from None
        self._refusal, self._is_overdue = None, False
        self._current, self._expires = found, expires
        now = environment.monotonic()
        self._life_s = 0.0 if math.isinf(expires) else expires - now
        self._renew_at = now + RENEW_AT * (expires - now)
        return found

    def _raise_refusal(self, keytab: str) -> None:
        refusal = self._refusal
        if (
            refusal is not None
            and environment.monotonic() < refusal.ends
            and refusal.file == _identity(keytab)
        ):
            raise type(refusal.error)(*refusal.error.args)

    def _keep_refusal(self, keytab: str, error: KafkaError) -> None:
        before, file = self._refusal, _identity(keytab)
        delay_s = _RENEW_AGAIN_S
        if before is not None and before.file == file:
            delay_s = min(before.delay_s * 2, _LONGEST_REFUSAL_S)
        self._refusal = _Refusal(error, file, delay_s, environment.monotonic() + delay_s)

    def _get_ticket(self, credentials: Any, broker: str) -> None:
        try:
            self._begin(credentials, broker)
        except self._gssapi.exceptions.GSSError as error:
            if isinstance(self.error(broker, error), KafkaConnectionError):
                raise
            self._brokers.discard(broker)  # it may have left the cluster

    def _begin(self, credentials: Any, broker: str) -> tuple[Any, bytes]:
        context = self._gssapi.SecurityContext(
            name=self._name(broker),
            creds=credentials,
            usage="initiate",
            mech=self._gssapi.MechType.kerberos,
        )
        return context, context.step() or b""

    def _valid(self) -> Any:
        """Return the credentials, or None if they have expired or were never got."""
        current = self._current
        try:
            if current is not None and current.lifetime != 0:  # None: they never expire
                return current
        except self._gssapi.exceptions.GSSError:
            pass
        return None

    def _name(self, principal: str) -> Any:
        return self._gssapi.Name(principal, self._gssapi.NameType.kerberos_principal)


# Credentials by keytab and principal: clients that follow each other, as in Spark's workers, use
# the same tickets
_of_process: Final[dict[object, _Credentials]] = {}
os.register_at_fork(after_in_child=_of_process.clear)


class Gssapi(Mechanism):
    """See `Mechanism`."""

    name = "GSSAPI"
    starts_raw = True
    wait = "no KDC of the realm has responded"
    wait_kind = FailureKind.KDC

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
        source = "the ticket cache" if keytab is None else f"keytab {keytab!r}"
        who = "" if principal is None else f" as {principal!r}"
        self.description = f"GSSAPI{who} from {source}"
        self.hint = (
            f"that the port is a SASL listener with GSSAPI in sasl.enabled.mechanisms, {_CHECK}"
        )
        self.refusal_hint = f"Check {_CHECK}"
        self._credentials = _Credentials(gssapi, keytab, principal, self.description)
        if keytab is not None:
            key = (principal, keytab, _identity(keytab))
            self._credentials = _of_process.setdefault(key, self._credentials)

    @property
    def principal(self) -> str | None:
        """The ticket's principal; before there is a ticket the given one, or None."""
        return self._credentials.principal

    def broker_principal(self, host: str) -> str:
        """Return the principal of the broker at `host`.

        Without a realm it ends with "@": Kerberos then asks the client's KDC, which may refer to
        another realm. A host-based name would be looked up in DNS, as krb5.conf says.
        """
        name = f"{self._service}/{self._domain or host.removesuffix('.').lower()}"
        return name if "@" in name else f"{name}@"

    async def begin(self, host: str) -> Steps:
        """Begin. The client usually sends two tokens, then asks for none of the offered layers."""
        return self._steps(self.broker_principal(host))

    async def renew(self) -> float:
        """Renew the credentials if it is time."""
        credentials = self._credentials
        return credentials.due_s() or await credentials.thread.run(credentials.renew)

    def _steps(self, broker: str) -> Steps:
        context, token = self._credentials.begin(broker)
        try:
            while not context.complete:
                token = context.step((yield token)) or b""
            offer = context.unwrap((yield token)).message
            if len(offer) != 4 or not offer[0] & _NO_LAYER:
                raise AuthenticationFailedError(
                    f"{self.description}: the broker's offer of layers is {offer[:8].hex()!r}; "
                    "expected four bytes that allow no layer"
                )
            wrapped: bytes = context.wrap(_ANSWER, False).message
        except self._gssapi.exceptions.GSSError as error:
            what = f"the broker is {broker.removesuffix('@')!r}"
            raise self._credentials.error(what, error) from None
        return wrapped


def _failed(text: str, code: int, message: str = "") -> AuthenticationFailedError:
    """Return the error for a code of MIT Kerberos; without a cause, it has the library's text."""
    cause = _CAUSES.get(code, message)
    remedy = cause.partition(". ")[2] if code in _CAUSES else ""
    failure = SaslFailure(_KINDS.get(code, FailureKind.REFUSED), remedy)
    return AuthenticationFailedError(f"{text}{cause}", failure)


def _code(error: Any) -> int:
    """Return the code of MIT Kerberos in an error; the library gives the code unsigned."""
    code: int = getattr(error, "min_code", 0)
    return int.from_bytes(code.to_bytes(8, "big", signed=True)[4:], "big", signed=True)


def _cache_name() -> str:
    return f"MEMORY:aiokafka08-{os.getpid()}-{next(_cache_numbers)}"


def _identity(file: str) -> object:
    """Return the identity of a file, which differs from that of its replacement."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
