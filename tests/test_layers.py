import ast
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleet

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fleet"
LINTER = Path(sys.executable).with_name("lint-imports")


@pytest.mark.skipif(not LINTER.exists(), reason="import-linter is not installed beside this Python")
def test_imports_go_one_way() -> None:
    """Data flows one way: the import contracts hold."""
    done = subprocess.run([LINTER, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def modules() -> Iterator[str]:
    """Yield the name of every module of the package."""
    for module in pkgutil.walk_packages(fleet.__path__, "fleet."):
        if "_migrations" not in module.name and not module.name.endswith("__main__"):
            yield module.name


def test_every_module_can_be_imported() -> None:
    """Every module imports, and everything that it exports is there."""
    for name in modules():
        module = importlib.import_module(name)
        for exported in getattr(module, "__all__", ()):
            assert hasattr(module, exported), f"{name}.{exported}"


def test_the_package_exports_what_it_has() -> None:
    """Every public name that the package imports for its users is in __all__, and nothing else is (README's names)."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fleet")
        for alias in node.names
    }
    assert imported <= set(fleet.__all__)
    assert all(hasattr(fleet, name) for name in fleet.__all__)


def names_in(path: Path) -> Iterator[str]:
    """Yield every dotted name that a module calls or reads, such as `time.time`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"


def test_time_comes_from_one_place() -> None:
    """The clock is read, and slept on, in one module (CK01, CK04)."""
    forbidden = {"time.time", "time.sleep", "time.monotonic", "datetime.now", "datetime.utcnow", "date.today"}
    found = {
        str(path.relative_to(ROOT)): sorted(used)
        for path in PACKAGE.rglob("*.py")
        if path.name != "clock.py" and (used := forbidden & set(names_in(path)))
    }
    assert found == {}


def test_nothing_is_unpickled_or_evaluated() -> None:
    """Rows are data: nothing is unpickled, evaluated or executed from a string (SE01)."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                named = [alias.name for alias in node.names] + [getattr(node, "module", None)]
                assert not {"pickle", "marshal", "shelve", "dill"} & set(named), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), path


def test_a_normal_start_does_not_import_alembic() -> None:
    """Opening a current database does not load Alembic, which costs as much as SQLAlchemy."""
    code = (
        "import sys, fleet.wiring, fleet.storage.store; "
        "sys.exit(any(name.split('.')[0] == 'alembic' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
