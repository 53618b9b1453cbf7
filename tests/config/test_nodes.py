from __future__ import annotations

import pytest

from psopt.config import ConfigError
from psopt.config.nodes import MOST_NODES, compose, locate, value_of


def faults(text: str) -> list[str]:
    """Every fault of a text, those that leave a tree and those that do not."""
    try:
        found = compose(text, "f")[1]
    except ConfigError as error:
        found = list(error.problems)
    return [str(problem) for problem in found]


def test_value() -> None:
    tree, found = compose(
        "a: [1, 'x', yes, ~]\nb:\n  c: &k {d: 1e-3}\n  e: *k\n1: |\n  text\n", "f"
    )
    assert not found
    assert tree is not None
    assert value_of(tree) == {
        "a": [1, "x", "yes", None],
        "b": {"c": {"d": 0.001}, "e": {"d": 0.001}},
        "1": "text\n",
    }


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n...\n", "\ufeff"])
def test_nothing(text: str) -> None:
    tree, found = compose(text, "f")
    assert not found
    assert tree is None or value_of(tree) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3:1: duplicate key 'a': on line 1 and on line 3"),
        ("{a: 1,\n 'a': 3}", "f:2:2: duplicate key 'a': on line 1 and on line 2"),
        ("x:\n  1: a\n  01: b\n", "f:3:3: duplicate key '01': on line 2 and on line 3"),
        (
            "a: !!python/object/apply:os.system ['true']",
            "f:1:4: the tag 'tag:yaml.org,2002:python/",
        ),
        ("a: !foo 1", "f:1:4: the tag '!foo' is refused"),
        ("a: !!str 1", "f:1:4: the tag 'tag:yaml.org,2002:str' is refused"),
        ("a: ! 1", "f:1:4: the tag '!' is refused"),
        ("!foo\na: 1", "f:1:1: the tag '!foo' is refused"),
        ("!foo a: 1", "f:1:1: the tag '!foo' is refused"),
        ("? [a, b]\n: 1\n", "f:1:3: a key must be one word"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "f:3:3: merge keys ('<<') are refused"),
        ("a: 1\n--- \nb: 2\n", "f:2:1: a second document begins here"),
        ("a:\n\tb: 1\n", "f:2:1: a tab cannot indent"),
        ("a: [1, 2\nb: 3\n", "f:2:2: not YAML: while parsing a flow sequence, expected ',' or ']'"),
        ("a: *x\n", "f:1:4: not YAML: found undefined alias 'x'"),
        ("a: 'x\n", "f:2:1: not YAML: while scanning a quoted scalar"),
        ("a: b: c\n", "f:1:5: not YAML: mapping values are not allowed here"),
        ("a: 1\n b: 2\n", "f:2:3: not YAML: mapping values are not allowed here"),
        ("%YAML 2.0\n--- a\n", "f:1:1: not YAML: found incompatible YAML document"),
        ("a: \x00", r"f:1:4: the character '\x00' is not allowed"),
        ("a: 1\nb: \x07", r"f:2:4: the character '\x07' is not allowed"),
        ("a: \ud800", r"f:1:4: the character '\ud800' is not allowed"),
        (r'a: "\ud800"', r"f:1:4: '\ud800' has half a surrogate pair"),
        (r'"\ud800": a', r"f:1:1: '\ud800' has half a surrogate pair"),
        (r'a: "\U99999999"', "f:1:7: this escape is no character"),
        ("a: &x [*x]\n", "f:1:4: an alias inside its own anchor never ends"),
        ("a: &x {b: {c: *x}}\n", "f:1:4: an alias inside its own anchor never ends"),
        ("[" * 50_000, "f:1:41: nested more than 40 levels deep"),
        ("{a: " * 50_000, "f:1:158: nested more than 40 levels deep"),
        ("- " * 50_000, "f:1:81: nested more than 40 levels deep"),
        ("? " * 50_000, "f:1:81: nested more than 40 levels deep"),
    ],
)
def test_fault(text: str, line: str) -> None:
    (found,) = faults(text)
    assert found.startswith(line)


def test_faults_of_a_tree_are_all_reported() -> None:
    assert len(faults("a: !x 1\na: 2\n? [k]\n: 3\nb: {c: 1, c: 2}\n")) == 4


def test_number_of_aliases() -> None:
    text = "a: &x 1\nb: [" + "*x, " * 100 + "]\n"
    assert not faults(text)
    assert faults(text.replace("]", "*x]")) == ["f:2:405: more than 100 aliases"]


def test_aliases_expand_within_the_limit() -> None:
    bomb = "a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
    )
    (found,) = faults(bomb)
    assert f"aliases expand to more than {MOST_NODES} values" in found


def test_aliases_nest_within_the_limit() -> None:
    chain = "a0: &a0 1\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 90))
    (found,) = faults(chain)
    assert "aliases nest more than 40 levels deep" in found


def test_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psopt.config.nodes.MOST_NODES", 10)
    assert not faults("[1, 2, 3, 4, 5, 6, 7, 8, 9]")
    assert faults("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]") == ["f:1:29: more than 10 values"]


def test_locate() -> None:
    tree = compose("a:\n  b: [1, {c: 2}]\n", "f")[0]
    assert tree is not None
    found, node, key_place = locate(tree, ("a", "label", "b", 1, "c", "missing"))
    assert found == ("a", "b", 1, "c")
    assert (str(node.place), str(key_place)) == ("f:2:14", "f:2:11")
    assert locate(tree, ("x",))[0] == ()
    assert locate(tree, ("a", "b", 5))[0] == ("a", "b")
    assert locate(tree, ("a", "b", -1))[0] == ("a", "b")
