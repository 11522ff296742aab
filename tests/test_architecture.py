"""The rules between the packages, read from the sources: imports, randomness, sizes, docstrings.

A rule is a function from a source to its faults. `TestRules` holds each against the packages;
`TestEachRuleCanFail` holds each against planted faults and their harmless neighbours.
"""

import ast
import dataclasses
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("scoring", "simworlds", "oracles", "experiments")  # each imports only those before it

FAMILIES = "simworlds.families"
THEORIES = "oracles.theories"
FAMILY_MAY_IMPORT = ("simworlds.world", "simworlds.integrate", "simworlds.keys", "simworlds.elementary")
KEYS = "simworlds/keys.py"
CATALOGUE = "simworlds/catalogue.py"
ERRORS = "simworlds/errors.py"  # errors extend a concrete class, the language's own

GLOBAL_GENERATORS = ("random", "secrets", "numpy.random")
UNADDRESSED = (
    "jax.random.key",
    "jax.random.PRNGKey",
    "jax.random.wrap_key_data",
    "time.time",
    "time.time_ns",
)
# A theory or a fit may split a key that it was given; a world's keys are derived in one place.
DERIVATIONS = ("jax.random.split", "jax.random.fold_in")

MAX_FILE_LINES = 420
MAX_FUNCTION_LINES = 65

Function = ast.FunctionDef | ast.AsyncFunctionDef


def within(name: str, *modules: str) -> bool:
    """Whether a dotted name is one of the modules or lies in one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


class Binding(NamedTuple):
    """What an import brings in: `import a.b` binds `a` to a, `import a.b as c` binds `c` to a.b."""

    line: int
    imported: str
    local: str
    bound: str


@dataclasses.dataclass(frozen=True)
class Source:
    """A file of the packages: its path from the root, and its text."""

    path: str
    text: str

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text, self.path)))

    @property
    def package(self) -> str:
        return self.path.split("/")[0]

    def is_in(self, package: str) -> bool:
        return self.path.startswith(package.replace(".", "/") + "/")

    @cached_property
    def bindings(self) -> list[Binding]:
        """Whatever the import statements bind, at any depth."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    head = alias.name.split(".")[0]
                    bound = (alias.asname, alias.name) if alias.asname else (head, head)
                    found.append(Binding(node.lineno, alias.name, *bound))
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                for alias in node.names:
                    name = f"{origin}.{alias.name}"
                    found.append(Binding(node.lineno, name, alias.asname or alias.name, name))
        return found

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parents = Path(self.path).parts[: -node.level]
        return ".".join([*parents, *([node.module] if node.module else [])])

    @property
    def imports(self) -> Iterator[tuple[int, str]]:
        """(line, full dotted name) of each import from the four packages."""
        return ((b.line, b.imported) for b in self.bindings if b.imported.split(".")[0] in PACKAGES)

    @property
    def uses(self) -> Iterator[tuple[int, str]]:
        """(line, full dotted name) of each use of an imported name, resolved through its alias."""
        bound = {binding.local: binding.bound for binding in self.bindings}
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute):
                head, _, rest = ast.unparse(node).partition(".")
                if head in bound:
                    yield node.lineno, f"{bound[head]}.{rest}" if rest else bound[head]

    @property
    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))


Rule = Callable[[Source], Iterator[tuple[int, str]]]


def direction(source: Source) -> Iterator[tuple[int, str]]:
    """Imports run along scoring <- simworlds <- oracles <- experiments."""
    allowed = PACKAGES[: PACKAGES.index(source.package) + 1]
    for line, name in source.imports:
        if not within(name, *allowed):
            yield line, f"{source.package} imports {name}, but may import only {', '.join(allowed)}"


def families_know_the_law_only(source: Source) -> Iterator[tuple[int, str]]:
    """A family imports the world interface, the integrators and the keys, and nothing else of ours."""
    if source.is_in(FAMILIES):
        for line, name in source.imports:
            if not within(name, *FAMILY_MAY_IMPORT):
                yield line, f"a family imports {name}, but may import only {', '.join(FAMILY_MAY_IMPORT)}"


def catalogue_alone_names_families(source: Source) -> Iterator[tuple[int, str]]:
    """Only the catalogue imports families, or names one for a dynamic import."""
    if source.path == CATALOGUE:
        return
    strings = [
        (node.lineno, node.value)
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    for line, name in [*source.imports, *strings]:
        if within(name, FAMILIES):
            yield line, f"{name} is named outside {CATALOGUE}"


def theories_stand_alone(source: Source) -> Iterator[tuple[int, str]]:
    """A theory calls no code of the worlds, and of the oracles only the interface that it fulfils."""
    if source.is_in(THEORIES):
        for line, name in source.imports:
            if within(name, "simworlds") or (
                within(name, "oracles") and not within(name, "oracles.theory", "oracles.chance")
            ):
                yield line, f"a theory imports {name}, but may import only oracles.theory, chance and scoring"


def randomness_is_addressed(source: Source) -> Iterator[tuple[int, str]]:
    """No global generator, no clock, and in the worlds no key but those that the keys module derives."""
    if source.path == KEYS:
        return
    forbidden = (*UNADDRESSED, *(DERIVATIONS if source.package == "simworlds" else ()))
    for binding in source.bindings:
        name = binding.imported
        if within(name, *GLOBAL_GENERATORS) or name in forbidden:
            yield binding.line, f"{name} is imported outside {KEYS}"
    for line, name in source.uses:
        if name in (*forbidden, "numpy.random"):
            yield line, f"{name} is used outside {KEYS}"


def files_are_short(source: Source) -> Iterator[tuple[int, str]]:
    """A file has at most 420 lines."""
    lines = len(source.text.splitlines())
    if lines > MAX_FILE_LINES:
        yield 1, f"the file has {lines} lines, the limit is {MAX_FILE_LINES}"


def functions_are_short(source: Source) -> Iterator[tuple[int, str]]:
    """A function has at most 65 lines, its docstring not counted."""
    for node in source.functions:
        lines = _lines(node) - (_lines(node.body[0]) if ast.get_docstring(node) else 0)
        if lines > MAX_FUNCTION_LINES:
            yield node.lineno, f"`{node.name}` has {lines} lines, the limit is {MAX_FUNCTION_LINES}"


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def public_names_have_docstrings(source: Source) -> Iterator[tuple[int, str]]:
    """Each public function and class of a module says what it is."""
    for node in ast.parse(source.text).body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            overload = any(ast.unparse(mark).endswith("overload") for mark in node.decorator_list)
            if not overload and not ast.get_docstring(node):
                yield node.lineno, f"`{node.name}` is public and has no docstring"


def classes_are_abstract_or_final(source: Source) -> Iterator[tuple[int, str]]:
    """The engine asks no object what it has, and extends no concrete method."""
    if source.package == "simworlds" and source.path != ERRORS:
        for node in source.nodes:
            if isinstance(node, ast.Name) and node.id in ("super", "hasattr"):
                yield node.lineno, f"`{node.id}` is used in the engine"


RULES: tuple[Rule, ...] = (
    direction,
    families_know_the_law_only,
    catalogue_alone_names_families,
    theories_stand_alone,
    randomness_is_addressed,
    files_are_short,
    functions_are_short,
    public_names_have_docstrings,
    classes_are_abstract_or_final,
)


def read_packages() -> list[Source]:
    """Every source of the packages that exist."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return read_packages()


class TestRules:
    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
    def test_holds_in_every_file(self, rule, sources):
        faults = [f"{source.path}:{line}: {text}" for source in sources for line, text in rule(source)]
        assert not faults, "\n" + "\n".join(faults)

    def test_the_walk_reaches_each_package(self, sources):
        there = {package for package in PACKAGES if (ROOT / package / "__init__.py").exists()}
        assert there
        assert {source.package for source in sources} >= there


LONG_BODY = "\n".join(f"    x{i} = {i}" for i in range(MAX_FUNCTION_LINES))
LONG_DOCSTRING = "\n".join(["    '''Long."] + ["    more"] * MAX_FUNCTION_LINES + ["    '''"])

FAULTS = [
    (direction, "scoring/a.py", "import simworlds"),
    (direction, "scoring/a.py", "from oracles.fit import fit"),
    (direction, "simworlds/a.py", "def f():\n    from oracles import fit"),
    (direction, "simworlds/tasks/a.py", "from experiments import records"),
    (direction, "oracles/a.py", "import experiments.records as records"),
    (families_know_the_law_only, "simworlds/families/a.py", "import simworlds"),
    (families_know_the_law_only, "simworlds/families/a.py", "from simworlds import load"),
    (families_know_the_law_only, "simworlds/families/a.py", "from ..ensemble import measure"),
    (families_know_the_law_only, "simworlds/families/a.py", "from .b import B"),
    (families_know_the_law_only, "simworlds/families/a.py", "from simworlds.worldly import World"),
    (families_know_the_law_only, "simworlds/families/a.py", "from scoring import quantile"),
    (catalogue_alone_names_families, "simworlds/ensemble.py", "from simworlds.families.a import A"),
    (catalogue_alone_names_families, "simworlds/ensemble.py", "from . import families"),
    (catalogue_alone_names_families, "oracles/fit.py", "import simworlds.families.a as a"),
    (catalogue_alone_names_families, "experiments/a.py", "import_module('simworlds.families.a')"),
    (catalogue_alone_names_families, "simworlds/families/__init__.py", "from .a import A"),
    (theories_stand_alone, "oracles/theories/a.py", "import simworlds"),
    (theories_stand_alone, "oracles/theories/a.py", "from simworlds.integrate import RK4"),
    (theories_stand_alone, "oracles/theories/a.py", "from oracles.fit import fit"),
    (theories_stand_alone, "oracles/theories/a.py", "from . import b"),
    (randomness_is_addressed, "scoring/a.py", "import numpy as np\nx = np.random.default_rng(0)"),
    (randomness_is_addressed, "scoring/a.py", "import numpy\nx = numpy.random.normal()"),
    (randomness_is_addressed, "scoring/a.py", "from numpy.random import default_rng"),
    (randomness_is_addressed, "scoring/a.py", "from numpy import random"),
    (randomness_is_addressed, "simworlds/a.py", "import jax\nkey = jax.random.key(0)"),
    (randomness_is_addressed, "simworlds/a.py", "import jax.random as jr\nkey = jr.PRNGKey(0)"),
    (randomness_is_addressed, "simworlds/a.py", "import jax.random\nkey = jax.random.key(0)"),
    (randomness_is_addressed, "simworlds/a.py", "from jax import random\nkey = random.key(0)"),
    (randomness_is_addressed, "simworlds/a.py", "from jax.random import key as root\nroot(0)"),
    (randomness_is_addressed, "simworlds/a.py", "import jax\na, b = jax.random.split(key)"),
    (randomness_is_addressed, "simworlds/a.py", "from jax import random as jr\njr.fold_in(key, 1)"),
    (randomness_is_addressed, "oracles/a.py", "import random\nx = random.random()"),
    (randomness_is_addressed, "oracles/a.py", "def f():\n    from random import choice"),
    (randomness_is_addressed, "experiments/a.py", "import time\nseed = time.time()"),
    (randomness_is_addressed, "experiments/a.py", "from time import time"),
    (files_are_short, "scoring/a.py", "x = 1\n" * (MAX_FILE_LINES + 1)),
    (functions_are_short, "scoring/a.py", f"def f():\n{LONG_BODY}"),
    (functions_are_short, "scoring/a.py", f"class A:\n  async def f(self):\n{LONG_BODY}"),
    (public_names_have_docstrings, "scoring/a.py", "def f():\n    return 1"),
    (public_names_have_docstrings, "scoring/a.py", "class A:\n    x = 1"),
    (classes_are_abstract_or_final, "simworlds/a.py", "class A(B):\n    def f(self):\n        super().f()"),
    (classes_are_abstract_or_final, "simworlds/tasks/a.py", "x = hasattr(1, 'real')"),
]

HARMLESS = [
    (direction, "scoring/a.py", "import numpy\nfrom scoring.reward import f\nfrom . import quantile"),
    (direction, "experiments/a.py", "import scoring, simworlds, oracles\nfrom experiments import cli"),
    (direction, "scoring/a.py", "import simworldsish"),
    (families_know_the_law_only, "simworlds/families/a.py", "from simworlds.world import World"),
    (families_know_the_law_only, "simworlds/families/a.py", "from .. import keys, integrate"),
    (families_know_the_law_only, "simworlds/ensemble.py", "from simworlds.ports import Ports"),
    (catalogue_alone_names_families, "simworlds/catalogue.py", "from simworlds.families.a import A"),
    (catalogue_alone_names_families, "simworlds/ensemble.py", "from simworlds import catalogue"),
    (theories_stand_alone, "oracles/theories/a.py", "import jax\nfrom oracles.theory import Theory"),
    (theories_stand_alone, "oracles/fit.py", "from simworlds import load"),
    (randomness_is_addressed, "simworlds/keys.py", "import jax\nkey = jax.random.key(0)"),
    (randomness_is_addressed, "simworlds/a.py", "import jax\nx = jax.random.normal(key, (3,))"),
    (randomness_is_addressed, "simworlds/a.py", "from jax import random\nx = random.normal(key, (3,))"),
    (randomness_is_addressed, "oracles/a.py", "import jax\na, b = jax.random.split(key)"),
    (randomness_is_addressed, "experiments/a.py", "import time\nx = time.perf_counter()"),
    (randomness_is_addressed, "experiments/a.py", "from datetime import time\nx = time.min"),
    (files_are_short, "scoring/a.py", "x = 1\n" * MAX_FILE_LINES),
    (functions_are_short, "scoring/a.py", f"def f():\n{LONG_DOCSTRING}\n    return 1"),
    (public_names_have_docstrings, "scoring/a.py", "def f():\n    'Say.'\ndef _g():\n    pass"),
    (public_names_have_docstrings, "scoring/a.py", "@typing.overload\ndef f(x: int) -> int: ..."),
    (classes_are_abstract_or_final, "simworlds/errors.py", "class A(Exception):\n    x = super"),
    (classes_are_abstract_or_final, "experiments/a.py", "x = hasattr(1, 'real')"),
]


def name_case(value: object) -> str:
    return value.__name__ if callable(value) else "-"


class TestEachRuleCanFail:
    @pytest.mark.parametrize(("rule", "path", "text"), FAULTS, ids=name_case)
    def test_a_planted_fault_is_found(self, rule, path, text):
        assert list(rule(Source(path, text)))

    @pytest.mark.parametrize(("rule", "path", "text"), HARMLESS, ids=name_case)
    def test_a_harmless_neighbour_passes(self, rule, path, text):
        assert not list(rule(Source(path, text)))

    def test_each_rule_has_both_cases(self):
        assert {rule for rule, _, _ in FAULTS} == set(RULES)
        assert {rule for rule, _, _ in HARMLESS} == set(RULES)
