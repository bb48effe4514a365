"""Mutants of the tap package: what is wrong only with the gate on, or off."""

from __future__ import annotations

from mutation import Mutant, mutant

_TAP = "srt/patchkit_tap/"


def _sites(name: str, pattern: str, new: str, by: str = "gate-on") -> Mutant:
    return mutant(name, _TAP + "sites.py", by, ("", pattern, new))


def _speaker(name: str, pattern: str, new: str) -> Mutant:
    return mutant(name, _TAP + "speaker.py", "gate-on", ("", pattern, new))


def _layers(name: str, pattern: str, new: str) -> Mutant:
    return mutant(name, _TAP + "layers.py", "gate-on", ("", pattern, new))


def _settings(name: str, pattern: str, new: str, by: str = "gate-on") -> Mutant:
    return mutant(name, _TAP + "settings.py", by, ("", pattern, new))


def _statistics(name: str, pattern: str, new: str) -> Mutant:
    return mutant(name, _TAP + "statistics.py", "gate-on", ("", pattern, new))


def _emit(name: str, pattern: str, new: str) -> Mutant:
    return mutant(name, _TAP + "emit.py", "gate-on", ("", pattern, new))


_MEASURE = r"statistics = measure\(tensor\)"

# Not here, as nothing could tell them from the real one: a gate that is open at the
# call sites alone (every call looks again, and returns), and an import that sets
# torch's default dtype (who builds the model sets it as well).
MUTANTS: tuple[Mutant, ...] = (
    _speaker("tap scales its tensor", _MEASURE, r"\g<0>; tensor.mul_(1.5)"),
    _speaker("tap zeroes one element", _MEASURE, r"\g<0>; tensor[0, 0] = 0"),
    _speaker("tap raises inside", _MEASURE, "1 / 0"),
    _speaker("tap raises into the model", r"try:\n(?= +with torch\.no_grad)",
           "if True: raise RuntimeError('here')\n        try:\n"),
    _speaker("tap looks at twice the tensor", _MEASURE,
             "statistics = measure(tensor*2)"),
    _speaker("tap looks at the first row only", _MEASURE,
           "statistics = measure(tensor[:1])"),
    _speaker("tap says nothing", r"^def _observe\((?s:.*?)-> None:\n",
           r"\g<0>    return\n"),
    _speaker("tap says all twice", r"^    emit\.say\(site, emit\.line[^\n]*\n",
           r"\g<0>\g<0>"),
    _layers("layer labels reversed", r"return sorted\((layer for [^\n]*)\)",
           r"return sorted((\1), reverse=True)"),
    _layers("layer labels one up", r"return sorted\(layer for",
           "return sorted(layer + 1 for"),
    _sites("states without labels", r"if len\(layers\) != len\(many\)", "if True"),
    _sites("states at one layer only", r"in zip\(layers, states, strict=True\)",
           "in [*zip(layers, states)][:1]"),
    _sites("number of parts wrong", r'fields\["parts"\] = len\(widths\)',
           'fields["parts"] = len(widths) + 1'),
    _sites("fc said to be skipped", r'"skipped" if received is hidden_states',
           '"skipped" if received is not None'),
    _sites("fc said to be applied", r'"skipped" if received is hidden_states',
           '"skipped" if received is None'),
    _layers("in_features unknown", r"return count\(fc, \"input_size\"\) if number is "
            "None else number", "return None"),
    _sites("steps stand still", r"state\.steps\[model\] \+= 1",
           "state.steps[model] = 1"),
    _settings("speaks with the gate off", r"enabled=environ[^\n]*", "enabled=True,",
              "gate-off"),
    _settings("gate upside down", r"(?<=\.lower\(\)) not in _OFF", " in _OFF"),
    _settings("never speaks", r"enabled=environ[^\n]*", "enabled=False,"),
    _settings("every second step", r"^    every = 1$", "    every = 2"),
    mutant("another rank", _TAP + "settings.py", "gate-on",
           ("read", r"^    ranks: frozenset\[int\] \| None = None$",
            "    ranks: frozenset[int] | None = frozenset({1})")),
    _settings("some sites only", r'or \("\*",\)', 'or ("llama*",)'),
    _statistics("norm of the scaled values", r"n \* s for n, s in", "n for n, s in"),
    _statistics("sum for mean", r"t / finite \* s", "t * s"),
    _statistics("mean over one element more", r"t / finite \* s",
                "t / (finite + 1) * s"),
    _statistics("smallest for largest", r"absmax=max\(scales\)",
                "absmax=max(scales) / 2"),
    _statistics("values counted as non-finite", r"nonfinite = int\(sum\(",
                "nonfinite = 1 + int(sum("),
    _statistics("largest, not largest magnitude",
                r"torch\.linalg\.vector_norm\(finite, ord=math\.inf\)", "finite.max()"),
    _emit("shape turned round", r"map\(str, tensor\.shape\)",
          "map(str, reversed(tensor.shape))"),
    _emit("dtype unknown", r"return str\(tensor\.dtype\)[^\n]*", 'return "?"'),
    _emit("rank wrong", r"return int\(distributed\.get_rank\(\)\)", "return 1"),
    mutant("tap package fails to import", _TAP + "__init__.py", "import",
           ("", r"^__version__ = 1$", "1 / 0")),
    mutant("tap package speaks when imported", _TAP + "__init__.py", "gate-off",
           ("", r"^__version__ = 1$", r"\g<0>; print('hello')")),
)  # fmt: skip
