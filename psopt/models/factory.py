"""From a name or an import path to a callable, and checking the options given to it."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError


class ModelError(ValueError):
    """A model or a loss cannot be built; the message says which, why, and the remedy."""


def load(
    kind: str, known: Mapping[str, Callable[..., Any]], name: str | None, factory: str | None
) -> tuple[str, Callable[..., Any]]:
    """(what to call it in messages, the callable) of exactly one of `name` and `factory`.

    Raises:
        ModelError: neither or both are given, or there is no such thing.
    """
    if (name is None) == (factory is None):
        raise ModelError(f"{kind}: give exactly one of name and factory")
    if name is not None:
        if name not in known:
            raise ModelError(f"unknown {kind} {name!r}; {suggest(name, known)}")
        return f"{kind} {name}", known[name]
    assert factory is not None
    return f"{kind} factory {factory}", _import(kind, factory)


def _import(kind: str, path: str) -> Callable[..., Any]:
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise ModelError(f'{kind} factory {path!r}: write it as "package.module:attribute"')
    _look_here_too()
    try:
        target: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the user's module raises
        raise ModelError(
            f"{kind} factory {path}: cannot import {module_name}: {type(error).__name__}: {error}; "
            "install it, start where it lies, or put its directory on PYTHONPATH"
        ) from error
    for part in attribute.split("."):
        if not hasattr(target, part):
            names = [key for key, value in vars(target).items() if callable(value)]
            raise ModelError(
                f"{kind} factory {path}: {module_name} has no {attribute}; {suggest(part, names)}"
            )
        target = getattr(target, part)
    if not callable(target):
        raise ModelError(f"{kind} factory {path}: is {type(target).__name__}, expected a callable")
    made: Callable[..., Any] = target
    return made


def _look_here_too() -> None:
    """A job's own model or loss may lie where the user stands.

    Only a factory makes Python look there: commands that name none import nothing from a directory
    that the user happens to stand in.
    """
    with contextlib.suppress(OSError):  # the directory may be gone
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.append(here)


def call(what: str, make: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls the factory with options.

    Raises:
        ModelError: the factory refuses the values.
    """
    try:
        return make(**kwargs)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what} with {dict(kwargs)}: {error}") from error
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ModelError(
            f"{what} with {dict(kwargs)}: {type(error).__name__}: {error} "
            f"({last.filename}:{last.lineno})"
        ) from error


def refuse(problems: list[str]) -> None:
    """Raises them as one ModelError, if there are any."""
    if problems:
        raise ModelError("; ".join(problems))


def kwargs_problems(
    what: str,
    make: Callable[..., Any],
    kwargs: Mapping[str, Any],
    *,
    given: Collection[str] = (),
    strict: bool = False,
) -> list[str]:
    """What is wrong with the options, one message a problem.

    Args:
        what: the callable's name in messages.
        make: the callable.
        kwargs: the options of the job.
        given: parameters that are filled in elsewhere: neither to be given nor missed.
        strict: hold the values to the callable's annotations too; those of a user's own factory
            say what it likes, not what YAML can write.
    """
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature: calling them will tell
        return []
    free = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    valid = [p.name for p in named if p.name not in given]
    problems = []
    for key in kwargs:
        if key in given:
            problems.append(f"{what}: {key} comes from the dataset; remove it from kwargs")
        elif key not in valid and not free:
            problems.append(f"{what}: unknown option {key!r}; {suggest(key, valid)}")
    for parameter in named:
        needed = parameter.default is parameter.empty and parameter.name in valid
        if needed and parameter.name not in kwargs:
            problems.append(f"{what}: option {parameter.name!r} is missing from kwargs")
    return problems + (_type_problems(what, make, kwargs) if strict else [])


def _type_problems(what: str, make: Callable[..., Any], kwargs: Mapping[str, Any]) -> list[str]:
    parameters = inspect.signature(make, eval_str=True).parameters
    problems = []
    for key, value in kwargs.items():
        if key in parameters:
            try:
                TypeAdapter(parameters[key].annotation).validate_python(value, strict=True)
            except ValidationError as error:
                reason = error.errors()[0]["msg"]
                problems.append(f"{what}: option {key}: {reason}, not {value!r}")
    return problems


def suggest(word: str, valid: Iterable[str]) -> str:
    """The remedy for an unknown name: the nearest valid one, or all of them."""
    names = sorted(valid)
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"valid: {', '.join(names)}" if names else "it takes none"
