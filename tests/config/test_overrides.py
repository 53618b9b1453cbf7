from __future__ import annotations

import pytest

from tests.config.support import MINIMAL, Bench, Bsp


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("seed=7", "seed", 7),
        ("optimizer.lr=1e-3", "optimizer.lr", 0.001),
        ("optimizer.lr=1", "optimizer.lr", 1.0),
        ("name=no", "name", "no"),
        ("name=123", "name", "123"),
        ("name='123'", "name", "123"),
        ("stop.seconds=24:00:00", "stop.seconds", 86400.0),
        ("cluster.compute.mean=2", "cluster.compute.mean", 2.0),
        ("cluster.stragglers.1=3", "cluster.stragglers", {1: 3.0}),
        ("cluster.stragglers={0: 2, 1: 3}", "cluster.stragglers", {0: 2.0, 1: 3.0}),
        ("optimizer.momentum=0.9", "optimizer.momentum", 0.9),
        ("model.kwargs.hidden=[1, 2]", "model.kwargs", {"hidden": [1, 2]}),
        ("model.kwargs.a.b=null", "model.kwargs", {"a": {"b": None}}),
        ("train.clip_norm=", "train.clip_norm", None),
        ("scheme.weights=[1,2]", "scheme.weights", (1.0, 2.0)),
        ("data.path=a=b", "data.path", "a=b"),
        ("data.path=/my data/it's (1).h5", "data.path", "/my data/it's (1).h5"),
        (" seed =7", "seed", 7),
    ],
)
def test_override(bench: Bench, override: str, path: str, value: object) -> None:
    found = bench.load(MINIMAL, override)
    for key in path.split("."):
        found = getattr(found, key)
    assert found == value
    assert type(found) is type(value)


def test_scheme_changes_with_its_name(bench: Bench) -> None:
    assert bench.load(MINIMAL, "scheme.name=bsp", "scheme.slices=3").scheme == Bsp(slices=3)
    assert bench.load(MINIMAL, "scheme={name: bsp, slices: 3}").scheme == Bsp(slices=3)
    text = MINIMAL.replace("wasp}", "wasp, period: 3}")
    assert bench.error(text, "scheme.name=bsp") == (
        "3:22: scheme: unknown key 'period'; valid: name, slices ('period' belongs to 'wasp')"
    )


def test_later_overrides_win(bench: Bench) -> None:
    assert bench.load(MINIMAL, "seed=7", "seed=8").seed == 8
    assert (
        bench.load(MINIMAL, "train={epochs: 3, batch_size: 9}", "train.epochs=4").train.epochs == 4
    )


def test_override_of_a_null_section(bench: Bench) -> None:
    assert bench.load(MINIMAL + "stop:\n", "stop.steps=4").stop.steps == 4


def test_override_of_a_list(bench: Bench) -> None:
    text = MINIMAL.replace("0.1}", "0.1, groups: [{match: '*.bias', lr: 1}]}")
    assert bench.load(text, "optimizer.groups.0.lr=2").optimizer.groups[0].options == {"lr": 2.0}
    assert bench.load(text, "optimizer.groups.0={match: x}").optimizer.groups[0].match == "x"
    for position in ("1", "-1", "x"):
        line = bench.error(text, f"optimizer.groups.{position}.lr=2")
        assert line.endswith(
            f"optimizer.groups is a list of 1: '{position}' is not a position in it"
        )


def test_override_mends_the_file(bench: Bench) -> None:
    assert bench.load(MINIMAL + "seed: wrong\n", "seed=3").seed == 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "write key=value, with dots between nested keys"),
        ("=3", "write key=value, with dots between nested keys"),
        ("a..b=3", "write key=value, with dots between nested keys"),
        ("\ud800=1", "write key=value, with dots between nested keys"),
        ("a\n=1", "write key=value, with dots between nested keys"),
        (".".join("a" * 41) + "=1", "write key=value, with dots between nested keys"),
        (".".join("a" * 40) + "=1", "unknown key 'a'; valid: name"),
        ("", "write key=value, with dots between nested keys"),
        ("seed=yes", "seed: must be a whole number, not the text 'yes'"),
        ("seed=1.0", "seed: must be a whole number, not 1.0"),
        ("seed=", "seed: must be a whole number, not null"),
        ("seed=[", "not YAML: while parsing a flow node, expected the node content, but found"),
        ("seed=!foo 1", "the tag '!foo' is refused"),
        ("sede=1", "unknown key 'sede'; did you mean 'seed'?"),
        ("optimizer.lerning_rate=1", "optimizer: unknown key 'lerning_rate'; did you mean 'lr'?"),
        ("trian.epochs=1", "unknown key 'trian'; did you mean 'train'?"),
        ("train={epochs: 1, epochs: 2}", "duplicate key 'epochs'"),
        ("train={epochs: 0}", "train.epochs: must be at least 1, not 0"),
        ("name=a b", "name: 'a b' is not a job name"),
        ("scheme.name=bps", "scheme.name: unknown scheme 'bps'; did you mean 'bsp'?"),
        ("scheme=bsp", "scheme: must be a mapping of keys, not the text 'bsp'"),
        ("name.x=1", "name is a single value ("),
        ("data.path=\ud800", r"the character '\ud800' is not allowed"),
    ],
)
def test_fault_of_an_override(bench: Bench, override: str, message: str) -> None:
    with_place = bench.error(MINIMAL, override)
    label = override.encode("unicode_escape", "surrogatepass").decode()
    assert with_place.startswith(f"--set {label}: ")
    assert message.split(", but")[0] in with_place


def test_faults_of_file_and_overrides_together(bench: Bench) -> None:
    lines = bench.errors(MINIMAL + "sede: 1\n", "seed=yes", "nothing", "train.epochs=0")
    assert [line.split(": ")[0] for line in lines] == [
        "5:1",
        "--set nothing",
        "--set seed=yes",
        "--set train.epochs=0",
    ]
    assert len(bench.errors("a: [", "nothing")) == 2
