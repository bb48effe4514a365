from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

settings = importlib.import_module("patchkit.tap.settings")

TAP = Path(settings.__file__).parent


@pytest.mark.parametrize("text", ["1", "true", "YES", "on", "2", " 1 "])
def test_gate_on(load, text):
    assert load(text).ENABLED is True


@pytest.mark.parametrize("text", [None, "", "0", "false", "No", "OFF", "FALSE", " 0 "])
def test_gate_off(load, said, text):
    tap = load(text)
    assert tap.ENABLED is False
    tap.begin("m", None)
    tap.tap("x", torch.ones(2))
    assert said.texts == []


def test_defaults():
    assert settings.read({}) == settings.Settings()


def test_all_values():
    found = settings.read(
        {
            "EAGLE3_DEBUG": "1",
            "EAGLE3_DEBUG_EVERY": " 10 ",
            "EAGLE3_DEBUG_RANKS": "0, 3,",
            "EAGLE3_DEBUG_SITES": "deepseek_v2.*, *.fc_in",
            "EAGLE3_DEBUG_DIR": "~/taps",
        }
    )
    assert (found.every, found.ranks) == (10, frozenset({0, 3}))
    assert found.sites == ("deepseek_v2.*", "*.fc_in")
    assert found.directory == str(Path.home() / "taps")
    assert found.problems == ()
    assert found.wants_site("llama_eagle3.fc_in")
    assert not found.wants_site("llama_eagle3.fc_out")


BAD = [
    ("EVERY", "0"),
    ("EVERY", "-1"),
    ("EVERY", "often"),
    ("EVERY", "1.5"),
    ("EVERY", "9" * 5000),
    ("EVERY", "٣"),
    ("RANKS", "0,x"),
    ("RANKS", "-1"),
    ("RANKS", ","),
]


@pytest.mark.parametrize("name,text", BAD)
def test_bad_value_is_said_once_and_the_default_used(load, said, name, text):
    tap = load(**{name: text})
    for _ in range(3):
        tap.begin("m", None)
        tap.tap("x", torch.ones(2))
    problems = [t for t in said.texts if f"EAGLE3_DEBUG_{name}=" in t]
    assert len(problems) == 1
    assert "using" in problems[0]
    assert [line["step"] for line in said.lines] == ["1", "2", "3"]


def test_sites_of_blanks_means_all():
    assert settings.read({"EAGLE3_DEBUG_SITES": " , "}).sites == ("*",)


def test_environment_is_a_literal_and_complete():
    source = (TAP / "settings.py").read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and node.target.id == "ENVIRONMENT":
            table = ast.literal_eval(node.value)
    assert table == settings.ENVIRONMENT
    read = set()

    class Environ(dict):
        def get(self, key, default=None):
            read.add(key)
            return default

    settings.read(Environ())
    assert {name for name, _ in table} == read
    assert all(text and "\n" not in text for _, text in table)


def test_version_is_a_literal():
    tree = ast.parse((TAP / "__init__.py").read_text())
    versions = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__version__"
    ]
    assert len(versions) == 1
    assert type(versions[0]) is int


def test_imports_only_the_standard_library_torch_and_itself():
    """And triton, in the files that are imported only where it is there."""
    with_triton = {"copying.py", "kernel.py", "launch.py", "rows.py"}
    always = {"__init__.py"}
    for file in sorted(TAP.glob("*.py")):
        if file.name not in with_triton:
            always |= {f"{name}.py" for name in relative_imports(file)}
    assert not always & with_triton
    files = sorted(TAP.glob("*.py"))
    assert len(files) >= 5
    for file in files:
        assert file.read_text().startswith("# patchkit: tap\n"), file
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level <= 1, f"{file}: leaves the package"
                if node.level == 0:
                    names = [node.module]
            for name in names:
                top = name.split(".")[0]
                known = top == "torch" or top in sys.stdlib_module_names
                known |= top == "triton" and file.name in with_triton
                assert known, (file, name)


def relative_imports(file):
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            names |= {node.module} if node.module else {x.name for x in node.names}
    return names


def test_saves():
    text = "llama_eagle3.*:3, deepseek_v2.aux:10"
    found = settings.read({"EAGLE3_DEBUG_SAVE": text, "EAGLE3_DEBUG_DIR": "taps"})
    assert found.problems == ()
    assert found.saved("llama_eagle3.fc_in") == 3
    assert found.saved("deepseek_v2.aux") == 10
    assert found.saved("deepseek_v2.layer") == 0


@pytest.mark.parametrize("text", ["x", "x:", ":3", "x:0", "x:-1", "x:many"])
def test_a_save_that_is_not_understood_is_said(text):
    found = settings.read({"EAGLE3_DEBUG_SAVE": text, "EAGLE3_DEBUG_DIR": "taps"})
    assert len(found.problems) == 1
    assert found.saves == ()


def test_saves_need_a_folder():
    found = settings.read({"EAGLE3_DEBUG_SAVE": "x:1"})
    assert found.saves == ()
    assert "EAGLE3_DEBUG_DIR" in found.problems[0]


@pytest.mark.parametrize(
    "text,records", [("", 32768), ("1000", 1024), ("1", 64), ("9" * 12, 1 << 22)]
)
def test_ring_is_a_power_of_two_within_bounds(text, records):
    assert settings.read({"EAGLE3_DEBUG_RING": text}).ring == records
