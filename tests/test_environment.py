"""The environment that client and embedded cluster share."""

from random import Random

import pytest

from aiokafka08 import environment


def test_a_replacement_lasts_for_its_block() -> None:
    before = environment.wall_time
    with environment.replace(wall_time=lambda: 1.5, random=Random(1)):
        assert environment.wall_time_ms() == 1500
        assert not environment.is_real
        first = environment.random.random()
    assert environment.wall_time is before
    assert environment.is_real
    with environment.replace(random=Random(1)):
        assert environment.random.random() == first


def test_a_second_replacement_is_refused() -> None:
    second = environment.replace(wall_time=lambda: 0.0)
    with environment.replace(), pytest.raises(RuntimeError, match="two simulations at once"):
        second.__enter__()
    assert environment.is_real


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(TypeError, match="no such names: now"), environment.replace(now=1):
        pass


def test_listeners_hear_of_begin_and_end() -> None:
    heard: list[bool] = []
    environment.on_replace(lambda: heard.append(environment.is_real))
    with environment.replace():
        pass
    assert heard == [True, False, True]


def test_the_compiled_appender_takes_time_and_seed_from_it() -> None:
    seeds: list[str] = []

    def new_seed(name: str) -> int:
        seeds.append(name)
        return 7

    pytest.importorskip("aiokafka08.producer._producer_c")
    with environment.replace(new_seed=new_seed):
        assert "_producer_c" in seeds
