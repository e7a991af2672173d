"""Hooks of the site (`mkdocs.yml`): pages that are not in docs/, and links that leave it.

The README, the changelog and CONTRIBUTING become pages, the decisions get a list, and the names
of `anabranch` a reference, each from the module that defines it.  A link
to a file of the repository that is no page (a benchmark result, an example, a module) leads to
a copy of that file in the site, so that the site is whole without the repository.  A link that
leads nowhere stays as it is, and the strict build rejects it.
"""

import json
import re
from importlib import import_module
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from types import ModuleType
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import anabranch
from anabranch import errors
from anabranch.offered import Offered, offered

ROOT: Final = Path(__file__).parents[1]
MOVED: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Pages outside docs/, by their names in the site."""

PUBLIC: Final = [
    "anabranch",
    *(
        f"anabranch.{n}"
        for n in anabranch.__all__
        if isinstance(getattr(anabranch, n), ModuleType)
    ),
]
"""Modules that users import; each is a page of the reference."""

FOLDERS: Final = {"docs/decisions": "decisions/index.md"}
"""Folders that pages link to, and the page that lists them."""

LINK: Final = re.compile(
    r"(?:(?<=\]\()|(?<=^\[\w\]: ))([^)\s#]+)(#[^)\s]*)?(?=\)|$)", re.MULTILINE
)
"""The target of a link, in its place or behind a name: `[a]: target`."""
FENCE: Final = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Completes the navigation: a page for each public module, and guides that it lacks."""
    sections = {name: pages for part in config.nav or [] for name, pages in part.items()}
    for module in PUBLIC:
        sections["Reference"].append({module: page_of(module)})
    named = [page for pages in sections.values() for page in _pages(pages)]
    for section, folder in (("Guides", "guide"), ("Internals", "internals")):
        for path in sorted((ROOT / "docs" / folder).glob("*.md")):
            if f"{folder}/{path.name}" not in named:
                sections[section].append(f"{folder}/{path.name}")
    return config


def _pages(section: str | list[dict[str, str]]) -> list[str]:
    if isinstance(section, str):
        return [section]
    return [page for entry in section for page in entry.values()]


def page_of(module: str) -> str:
    """The page of the reference that a module has."""
    return f"reference/{module.removeprefix('anabranch.')}.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are generated, and the files that links need."""
    for source, page in MOVED.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=moved(text, "", page)))
    files.append(File.generated(config, "decisions/index.md", content=decisions()))
    for module in PUBLIC:
        files.append(File.generated(config, page_of(module), content=reference(module)))
    linked = set()
    for file in files.documentation_pages():
        linked |= copied(file.content_string, "docs/" + file.src_uri)
    for name in sorted(linked):
        files.append(File.generated(config, f"files/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Points links that leave docs/ to what the site has instead."""
    if page.file.src_uri in MOVED.values():
        return markdown
    return moved(markdown, "docs/" + page.file.src_uri, page.file.src_uri)


def moved(text: str, source: str, page: str) -> str:
    """The text with its links as they are on `page`; `source` is where the text is kept."""

    def lead(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        place = place_of(target, source)
        return found[0] if place is None else relpath(place, dirname(page) or ".") + anchor

    parts = FENCE.split(text)
    return "".join(p if FENCE.fullmatch(p) else LINK.sub(lead, p) for p in parts)


def place_of(target: str, source: str) -> str | None:
    """Where the site has the target of a link; None if the link is to stay."""
    if ":" in target:
        return None
    name = normpath(join(dirname(source), target))
    if name in FOLDERS:
        return FOLDERS[name]
    if name in MOVED:
        return MOVED[name]
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return f"files/{name}" if (ROOT / name).is_file() else None


def copied(text: str, source: str) -> set[str]:
    """Files of the repository that the text links to and that the site has as copies."""
    outside = "".join(p for p in FENCE.split(text) if not FENCE.fullmatch(p))
    places = (place_of(found[0], source) for found in LINK.findall(outside))
    return {place.removeprefix("files/") for place in places if place and "files/" in place}


def reference(module: str) -> str:
    """A page with the names that a public module has, each from where it is defined."""
    inside = import_module(module)
    short = module.replace("anabranch", "ab", 1)
    rows = [f"# {module}", "", f"::: {module}", "    options:", "      members: false"]
    rows += ["      show_root_heading: false", "      show_root_toc_entry: false", ""]
    for name in sorted(names_of(inside), key=lambda name: (name[0].isupper(), name)):
        thing = getattr(inside, name)
        if isinstance(thing, ModuleType):
            rows += [f"[`ab.{name}`]({name}.md) has a page of its own.", ""]
            continue
        home = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
        if not home.startswith("anabranch."):  # a constant, or an alias of a type
            home = f"{module}.{name}"
        if home.startswith("anabranch.errors.") and inside is not errors:
            rows += [f"## {short}.{name}", "", f"[`{home}`](errors.md#{home})", ""]
            continue
        rows += [f"::: {home}", "    options:"]
        rows += [f"      heading: {short}.{name}", f"      toc_label: {short}.{name}"]
        if isinstance(thing, type) and issubclass(thing, Offered):
            rows.append(f"      members: {json.dumps(offered(thing))}")
        rows.append("")
    return "\n".join(rows)


def names_of(module: ModuleType) -> list[str]:
    """The public names of a module: those it lists, else the classes that it defines."""
    own = (n for n, thing in vars(module).items() if isinstance(thing, type))
    defined = [n for n in own if getattr(module, n).__module__ == module.__name__]
    return list(getattr(module, "__all__", defined))


def decisions() -> str:
    """A page with every decision, newest first."""
    rows = []
    for path in sorted((ROOT / "docs" / "decisions").glob("2*.md"), reverse=True):
        title = path.read_text().splitlines()[0].removeprefix("# ")
        rows.append(f"| {path.name[:10]} | [{title}]({path.name}) |")
    head = ["# Decisions", "", "| date | decision |", "| --- | --- |"]
    return "\n".join([*head, *rows, ""])
