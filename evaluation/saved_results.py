"""Results of evaluations and learning curves as they lie on disk: read back, and what later pages take for granted checked.

A file may have been edited, cut short or written by another version. Here it is held against the form that `evaluation.evaluate`
and the training loops write, as far as tables and figures read it, so that nothing beyond has to doubt it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import files, settings
from ..errors import ConfigError, InputFileError
from .elastic.evaluate import ELASTIC_FORMAT_VERSION
from .evaluate import FORMAT_VERSION
from .fleet.evaluate import FLEET_FORMAT_VERSION
from .operators.evaluate import OPERATORS_FORMAT_VERSION
from .operators.forms import OperatorValuesForm
from .saved_forms import CURVES, OTHERS, CurveForm, ElasticResultsForm, FleetResultsForm, ResultsForm


def read_results(path: Path) -> dict[str, Any]:
    """What an evaluation wrote into ``results.json``.

    Raises:
        InputFileError: missing, not JSON, of another version, or not of the form; the field is named.
    """
    kind, found = read_any_results(path)
    if kind is not None:
        raise InputFileError(f"is an evaluation of {OTHERS[kind].words}, a scenario's is wanted", file=path)
    return found


def read_any_results(path: Path) -> tuple[str | None, dict[str, Any]]:
    """What any evaluation wrote into ``results.json``, and its kind, a key of `saved_forms.OTHERS`; None of a scenario.

    Raises:
        InputFileError: missing, not JSON, of another version, or not of the form; the field is named.
    """
    found = files.read_json(path)
    for kind, form in OTHERS.items():
        if isinstance(found, dict) and form.key in found:
            if found.get("format_version") != form.version:
                raise InputFileError(f"is no evaluation of {form.words} of format {form.version}; evaluate again", file=path)
            _check(form.model, found, path)
            return kind, found
    if not isinstance(found, dict) or found.get("format_version") != FORMAT_VERSION or not found.get("rows"):
        raise InputFileError(f"is no result of evaluate of format {FORMAT_VERSION}; evaluate again", file=path)
    _check(ResultsForm, found, path)
    return None, found


def read_fleet_results(path: Path) -> dict[str, Any]:
    """What an evaluation of a fleet wrote into ``results.json``.

    Raises:
        InputFileError: missing, not JSON, of another version, or not of the form; the field is named.
    """
    return _results_with("fleet", "a fleet", FLEET_FORMAT_VERSION, FleetResultsForm, path)


def read_elastic_results(path: Path) -> dict[str, Any]:
    """What an evaluation of elastic workloads wrote into ``results.json``.

    Raises:
        InputFileError: missing, not JSON, of another version, or not of the form; the field is named.
    """
    return _results_with("elastic", "elastic jobs", ELASTIC_FORMAT_VERSION, ElasticResultsForm, path)


def read_operator_results(path: Path) -> dict[str, Any]:
    """What an evaluation of operator placement wrote into ``results.json``, with the value of every instance.

    Raises:
        InputFileError: missing, not JSON, of another version, or not of the form; the field is named.
    """
    return _results_with("placement", "operator placement", OPERATORS_FORMAT_VERSION, OperatorValuesForm, path)


def read_curve(path: Path, method: str | None = None) -> list[dict[str, Any]]:
    """The rows that a training run wrote into ``learning_curve.json``.

    Args:
        path: the file.
        method: of the training: ``fleet``, ``elastic``, ``operators`` or ``tasklets``; any other one validates by blocking rate.

    Raises:
        InputFileError: missing, not JSON, or not of the form; the field is named.
    """
    return _looks(path, CURVES.get(method or "", CurveForm))


def read_fleet_curve(path: Path) -> list[dict[str, Any]]:
    """Read the learning curve of a fleet's policy; see `read_curve`."""
    return read_curve(path, "fleet")


def read_operator_curve(path: Path) -> list[dict[str, Any]]:
    """Read the learning curve of a policy of operator placement; see `read_curve`."""
    return read_curve(path, "operators")


def read_elastic_curve(path: Path) -> list[dict[str, Any]]:
    """Read the learning curve of weights for elastic jobs; see `read_curve`."""
    return read_curve(path, "elastic")


def _results_with(key: str, of: str, version: int, model: type[settings.Settings], path: Path) -> dict[str, Any]:
    """Results of a kind that a key of the root tells from others."""
    found = files.read_json(path)
    if not isinstance(found, dict) or found.get("format_version") != version or key not in found:
        raise InputFileError(f"is no evaluation of {of} of format {version}; evaluate again", file=path)
    _check(model, found, path)
    return found


def _looks(path: Path, model: type[settings.Settings]) -> list[dict[str, Any]]:
    found = files.read_json(path)
    if not isinstance(found, list):
        raise InputFileError("is no learning curve: a list of rows is wanted", file=path)
    _check(model, {"looks": found}, path)
    return found


def _check(model: type[settings.Settings], data: Any, path: Path) -> None:
    try:
        settings.build_settings(model, data, file=path)
    except ConfigError as error:
        raise InputFileError(error.problem, file=path, field=error.field, value=error.value, choices=error.choices) from None
