"""One place for every version, and everything the project imports stands there; the sources are clean."""

import ast
import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
OURS = {"grader", "tests"}
# Imported, yet not listed: it comes with a listed package, which must go on requiring it.
COMES_WITH = {
    "ipython": "ipykernel",
    "jinja2": "jupyterlab",
    "jupyter-client": "nbclient",
    "jupyter-core": "nbformat",
    "nbconvert": "nbgrader",
    "pyyaml": "jupytext",
    "sqlalchemy": "nbgrader",
    "tornado": "jupyterlab",
    "traitlets": "nbformat",
}


def same_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line.strip() and not line.startswith("#")]
    return {same_name(name): version for name, version in pairs}


def project_files() -> list[Path]:
    """What git tracks or would track; in a download without git, everything but what the project itself makes."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        files = [ROOT / name for name in listed if name]
    else:
        made = {".venv", "build", "my-course", ".git"}
        files = [f for f in ROOT.rglob("*") if f.relative_to(ROOT).parts[0] not in made]
    return [f for f in files if f.is_file()]


# ---- versions --------------------------------------------------------------------------------------------------------


def test_requirements_are_exact_and_plain() -> None:
    """name==version a line: no ranges, no index addresses, no options, nothing twice."""
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    odd = [line for line in lines if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][0-9a-z.]*", line)]
    assert not odd
    assert len(pins()) == len(lines)


def test_environment_yml_is_thin() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    assert environment == {
        "name": "transformer-notebooks",
        "channels": ["conda-forge"],
        "dependencies": ["python=3.11", "pip", {"pip": ["-r requirements.txt"]}],
    }


def test_pyproject_takes_its_dependencies_from_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "dependencies" not in project["project"] and "optional-dependencies" not in project["project"]
    assert project["project"]["dynamic"] == ["dependencies"]
    assert project["tool"]["setuptools"]["dynamic"]["dependencies"] == {"file": ["requirements.txt"]}
    assert project["project"]["requires-python"] == ">=3.11"


def test_every_pin_stands_in_one_place() -> None:
    names = "|".join(re.escape(name).replace(r"\-", "[-_.]") for name in pins())
    pin = re.compile(rf"(?<![\w.-])({names})(\[[\w,-]*\])?\s*[=~]=\s*v?\d", re.IGNORECASE)
    found = []
    for file in project_files():
        if file == ROOT / "requirements.txt" or file.stat().st_size > 5_000_000:
            continue
        try:
            text = file.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{file.relative_to(ROOT)}: {m.group()}" for m in pin.finditer(text)]
    assert not found


def test_what_is_pinned_is_installed() -> None:
    """The tests run with what a learner gets. (A local build tag, as in 2.13.0+cpu, is the same version.)"""
    installed = {name: importlib.metadata.version(name).split("+")[0] for name in pins()}
    assert installed == pins()


# ---- imports ---------------------------------------------------------------------------------------------------------


def imports(file: Path) -> Iterator[str]:
    """The top names of the modules a file imports."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"), str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def python_files() -> list[Path]:
    return [f for f in project_files() if f.suffix == ".py" and f.relative_to(ROOT).parts[0] != "course"]


def test_everything_imported_is_listed() -> None:
    provided_by = importlib.metadata.packages_distributions()
    missing = []
    tests = ROOT / "tests"
    for file in python_files():
        beside = set()
        if file.is_relative_to(tests):  # a module beside it, or a package of the tests' own
            beside = {f.stem for f in file.parent.glob("*.py")} | {f.parent.name for f in tests.glob("*/__init__.py")}
        for module in sorted(set(imports(file)) - OURS - beside - set(sys.stdlib_module_names)):
            packages = {same_name(name) for name in provided_by.get(module, [module])}
            if not packages & (pins().keys() | COMES_WITH.keys()):
                missing.append(f"{file.relative_to(ROOT)} imports {module}, of {' or '.join(packages)}")
    assert not missing


@pytest.mark.parametrize(("package", "listed"), COMES_WITH.items())
def test_what_is_not_listed_comes_with_what_is(package: str, listed: str) -> None:
    assert listed in pins()
    required = importlib.metadata.requires(listed) or []
    assert package in {same_name(re.split(r"[^\w.-]", line)[0]) for line in required}


def test_run_py_needs_the_standard_library_only() -> None:
    assert set(imports(ROOT / "run.py")) <= set(sys.stdlib_module_names)


# ---- clean sources ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tool", [["ruff", "check", "--quiet", "--output-format=concise"], ["mypy", "--no-pretty"]], ids=["ruff", "mypy"]
)
def test_sources_are_clean(tool: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{tool[0]} says:\n{done.stdout}{done.stderr}"


# ---- .ci/run ---------------------------------------------------------------------------------------------------------

CI = ROOT / ".ci" / "run"


def ci(
    folder: Path,
    *,
    uid: int = 0,
    has: tuple[str, ...] = (),
    venv: bool = True,
    apt: bool = True,
    sudo: bool = True,
    status: int = 0,
) -> tuple[int, list[str], str]:
    """Runs .ci/run where every program is a stub that notes its call; gives exit code, calls and stderr."""
    programs = folder / "bin"
    programs.mkdir()
    calls = folder / "calls"
    calls.touch()
    for real in ("bash", "dirname"):
        (programs / real).symlink_to(shutil.which(real) or real)
    stubs = {
        "id": f"echo {uid}",
        "python3": f'[ "$1" = -c ] && exit {int(not venv)}; echo "python3 $*" >>"$CALLS"; exit {status}',
        "apt-get": f'echo "apt-get $*" >>"$CALLS"; exit {int(not apt)}',
        "sudo": f'{"" if sudo else "exit 1;"} shift; [ "$1" = true ] && exit 0; echo "sudo" >>"$CALLS"; exec "$@"',
    }
    for name in (*stubs, *has):
        (programs / name).write_text(f"#!{shutil.which('bash')}\n{stubs.get(name, 'exit 0')}\n")
        (programs / name).chmod(0o755)
    env = {"PATH": str(programs), "CALLS": str(calls)}
    done = subprocess.run([CI], cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.returncode, calls.read_text().splitlines(), done.stderr


def test_ci_runs_the_whole_suite_and_nothing_weaker(tmp_path: Path) -> None:
    assert os.stat(CI).st_mode & stat.S_IXUSR
    status, calls, err = ci(tmp_path, has=("bwrap", "chromium"), status=5)
    assert (status, calls, err) == (5, ["python3 run.py test"], "")


def test_ci_installs_what_is_missing(tmp_path: Path) -> None:
    status, calls, _ = ci(tmp_path, venv=False)
    assert status == 0 and calls[-1] == "python3 run.py test"
    for package in ("python3-venv", "bubblewrap", "chromium"):
        assert any(call.startswith("apt-get install") and call.endswith(f" {package}") for call in calls)
    assert "sudo" not in calls


def test_ci_without_root_uses_sudo(tmp_path: Path) -> None:
    _, calls, _ = ci(tmp_path, uid=1000, has=("chromium",))
    assert calls[-3:] == ["sudo", next(c for c in calls if "install" in c), "python3 run.py test"]


@pytest.mark.parametrize(
    ("failing", "line"),
    [({"apt": False}, "could not install bubblewrap"), ({"sudo": False, "uid": 1000}, "apt-get install bubblewrap")],
)
def test_ci_says_what_it_could_not_install_and_tests_all_the_same(
    tmp_path: Path, failing: dict[str, Any], line: str
) -> None:
    status, calls, err = ci(tmp_path, has=("chromium",), **failing)
    assert status == 0 and calls[-1] == "python3 run.py test"
    assert line in err.splitlines()[-1]
