"""The dependency rule: packages import only from the layers below them, and no import cycles exist."""

import ast
from pathlib import Path

import turnwise

#: From the top layer to the bottom one.
LAYERS = ("cli", "serve", "assist", "papers", "evaluation", "training", "objectives", "models", "corpus", "core")

#: Modules at the top level, besides the layers.
TOP_LEVEL = {"__init__", "__main__", "losses", "version"}

PACKAGE = Path(turnwise.__file__).parent


def module_name(path: Path) -> str:
    """Return the dotted name of a module below the package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(path: Path) -> set[str]:
    """Return the modules of this package that a file imports, also inside functions and for type checking only."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "turnwise":
            base = node.module.partition(".")[2]
            imported |= {f"{base}.{alias.name}".strip(".") for alias in node.names} & MODULES.keys() or {base}
        elif isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[2] for alias in node.names if alias.name.startswith("turnwise.")}
    return imported


IMPORTS = {module: imports(path) for module, path in MODULES.items()}


def test_top_level_holds_layers_only() -> None:
    names = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py"}
    assert names == TOP_LEVEL
    directories = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert directories == set(LAYERS)


def test_imports_point_downwards() -> None:
    upward = [
        f"{module} imports {imported}"
        for module, targets in IMPORTS.items()
        if (layer := module.split(".")[0]) in LAYERS
        for imported in targets
        if (target := imported.split(".")[0]) in LAYERS and LAYERS.index(target) < LAYERS.index(layer)
    ]
    assert not upward, "\n".join(upward)


def test_no_import_cycles() -> None:
    """Imports inside functions and for type checking only count as well."""
    finished: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module not in finished:
            for imported in sorted(IMPORTS.get(module, ())):
                visit(imported, (*trail, module))
            finished.add(module)

    for module in IMPORTS:
        visit(module, ())


def test_files_are_short() -> None:
    lengths = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in MODULES.items()}
    assert {module: length for module, length in lengths.items() if length > 450} == {}


def test_every_package_says_what_it_is_for() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert docstring and len(docstring) > 20, f"{path} needs a docstring that says what the package is for"


def test_class_names_are_unique() -> None:
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
