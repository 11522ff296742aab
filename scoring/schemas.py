"""JSON Schemas of what scores are written as: a card, a run, several runs pooled."""

from typing import Any

from scoring.calibration import BINS
from scoring.run import Weights
from scoring.scorecard import FIGURES

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SHARE: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}
_LOSS: dict[str, Any] = {"type": "number", "minimum": -1e300, "maximum": 1e300}
_AMOUNT: dict[str, Any] = {"type": "number", "minimum": 0}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_ID: dict[str, Any] = {"type": "integer"}
_BOOL: dict[str, Any] = {"type": "boolean"}
_VERSION: dict[str, Any] = {"type": "integer", "minimum": 1}
_PIT: dict[str, Any] = {
    "type": ["array", "null"],
    "items": _SHARE,
    "minItems": len(BINS),
    "maxItems": len(BINS),
}


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An object that has all of the properties and no other."""
    return {
        **more,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _array(items: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


_ROW = _object(
    {
        "id": _ID,
        "answered": _BOOL,
        "accuracy": _SHARE,
        "excess": _LOSS,
        "interval": _SHARE,
        "legacy": _SHARE,
        "coverage": _SHARE,
        "null_accuracy": _SHARE,
        "null_excess": _LOSS,
        "quantile_score": _AMOUNT,
        "floor": _AMOUNT,
        "scale": _AMOUNT,
        "tau": _AMOUNT,
        "branches": {"type": "integer", "minimum": 1},
        "pit": _PIT,
    }
)
_MEANS = {name: _LOSS if name == "excess" else _SHARE for name in FIGURES}
_ERRORS = _object({name: {"type": ["number", "null"], "minimum": 0} for name in FIGURES})
_DENOMINATORS = _object({name: _COUNT for name in (*FIGURES, "pit")})
_NULL = _object({"accuracy": _SHARE, "excess": _LOSS})

_CARD: dict[str, Any] = {
    "scoring_version": _VERSION,
    **_MEANS,
    "missing": _COUNT,
    "contracts": {"type": "integer", "minimum": 1},
    "clones": {"type": "integer", "minimum": 4},
    "pit": _PIT,
    "standard_errors": _ERRORS,
    "denominators": _DENOMINATORS,
    "null": _NULL,
    "rows": _array(_ROW, 1),
}

SCORECARD_SCHEMA: dict[str, Any] = _object(
    _CARD,
    **{
        "$schema": _DIALECT,
        "title": "Scores of one run's prediction contracts",
        "description": "Means are over all contracts, missing ones too; higher is better but for excess.",
    },
)

_PREPARATION = _object(
    {"id": _ID, "clones": _VERSION, "in_band": _COUNT, "held": _COUNT, "answered": _BOOL, "fraction": _SHARE}
)

RUN_SCHEMA: dict[str, Any] = _object(
    {
        "scoring_version": _VERSION,
        "weights": _object({name: _AMOUNT for name in Weights._fields}),
        "score": _SHARE,
        "excess": _LOSS,
        "missing": _COUNT,
        "denominators": _object({"score": _COUNT, "excess": _COUNT}),
        "prediction": _object(_CARD),
        "preparation": _array(_PREPARATION),
        "theory": {"anyOf": [_object(_CARD), {"type": "null"}]},
    },
    **{"$schema": _DIALECT, "title": "Score of a run over all its contracts"},
)

POOLED_SCHEMA: dict[str, Any] = _object(
    {
        "scoring_version": _VERSION,
        **_MEANS,
        "missing": _COUNT,
        "contracts": {"type": "integer", "minimum": 1},
        "pit": _PIT,
        "standard_errors": _ERRORS,
        "clusters": {"type": "integer", "minimum": 1},
        "denominators": _DENOMINATORS,
        "null": _NULL,
        "cards": _array(_object({"seed": {"type": "string"}, **_CARD}), 1),
    },
    **{"$schema": _DIALECT, "title": "Scores of several runs, standard errors clustered by seed"},
)
