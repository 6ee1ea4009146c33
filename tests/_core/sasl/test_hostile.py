"""Whatever a server says in a step, the outcome is a token, success, or a typed error."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._core.sasl.java_properties import sasl_options
from aiokafka08._core.sasl.mechanism import Mechanism
from aiokafka08._core.sasl.oauthbearer import OAuthBearer
from aiokafka08._core.sasl.plain import Plain
from aiokafka08._core.sasl.scram import Scram
from aiokafka08.errors import AuthenticationFailedError, IllegalArgumentError
from tests.protocol.strategies import examples

PASSWORD = "s3cret-hunter2"


class Provider:
    async def token(self) -> str:
        return PASSWORD


def mechanism(name: str) -> Mechanism:
    if name == "PLAIN":
        return Plain("alice", PASSWORD)
    return OAuthBearer(Provider()) if name == "OAUTHBEARER" else Scram(name, "alice", PASSWORD)


ATTRIBUTES = st.lists(st.tuples(st.sampled_from("rsivemn"), st.text(max_size=12)), max_size=5).map(
    lambda pairs: ",".join(f"{name}={value}" for name, value in pairs)
)
SALTED = st.builds(
    "s={},i={}{}".format,
    st.sampled_from(["c2FsdHNhbHRzYWx0c2FsdA==", "c2Fs", "", "=", "ä"]),
    st.sampled_from(["4096", "4095", "-1", "4096x", "0x1000", "9" * 5000, "१२३४५", ""]),
    st.text(max_size=4),
)
ANSWERS = st.lists(
    st.one_of(
        st.binary(max_size=40),
        ATTRIBUTES.map(str.encode),
        st.tuples(st.just("first"), SALTED),  # with the client's own nonce
        st.sampled_from([b"v=", b"v=AAAA", b"v=\xff", b"e=other-error", b"e=", b""]),
    ),
    max_size=4,
)


@pytest.mark.parametrize("name", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@examples(150)
@given(answers=ANSWERS)
def test_any_answer_gives_a_token_or_a_typed_error(
    name: str, answers: list[bytes | tuple[str, str]]
) -> None:
    steps = asyncio.run(mechanism(name).begin("localhost"))
    token = next(steps)
    end: Exception | None = None
    for answer in answers:
        if isinstance(answer, tuple):
            nonce = token.decode().partition("r=")[2].partition(",")[0]
            answer = f"r={nonce}server,{answer[1]}".encode()
        try:
            token = steps.send(answer)
        except (AuthenticationFailedError, StopIteration) as error:
            end = error
            break
        assert isinstance(token, bytes)
    assert PASSWORD not in str(end)
    if isinstance(end, StopIteration):
        assert end.value is None
        # SCRAM's server would have had to know the password.
        assert not name.startswith("SCRAM")


@pytest.mark.fast
@examples(200)
@given(
    text=st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(
                ["a.PlainLoginModule", " ", "required", '"', "\\", "=", ";", "username", "\n", "é"]
            ),
            max_size=16,
        ).map("".join),
    )
)
def test_any_jaas_config_is_read_or_an_error_without_it(text: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.jaas.config": f"{text}{PASSWORD}"}
    shown = ""
    try:
        sasl_options(given)
    except IllegalArgumentError as error:
        shown = str(error)
    assert PASSWORD not in shown
