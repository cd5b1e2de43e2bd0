"""The documentation builds without a warning, loads nothing from elsewhere, and says what the code says."""

import ast
import os
import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path
from statistics import median

import pytest
from packaging.specifiers import SpecifierSet

from swift_grpo_ext.cli import app
from swift_grpo_ext.compat import refusals
from swift_grpo_ext.compat.registry import patches
from swift_grpo_ext.rewards.catalogue import NAMES
from swift_grpo_ext.settings import PREFIX, Settings
from swift_grpo_ext.versions import installed_version
from tools import symptoms_page
from tools.docs_pages import patches_page, settings_page, with_folders

ROOT = Path(__file__).parents[1]
REMOTE = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)=\"?(?:https?:)?//[^\"> ]*")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **QUIET})
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    return folder


QUIET = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}


def test_no_page_loads_anything_from_another_host(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    assert [found for page in pages for found in REMOTE.findall(page.read_text())] == []
    assert [
        sheet for sheet in site.rglob("*.css") if re.search(r"url\([\"']?(?:https?:)?//", sheet.read_text())
    ] == []


def test_examples_and_generated_pages_are_part_of_it(site):
    for name in (
        "settings.html",
        "patches.html",
        "CHANGELOG.html",
        "examples/index.html",
        "zh/quickstart.html",
        "upstream/index.html",
    ):
        assert (site / name).is_file()
    assert (site / "examples/tasks/grounding.sh").read_text() == (
        ROOT / "examples/tasks/grounding.sh"
    ).read_text()


def test_every_setting_and_every_patch_has_its_line():
    for name in Settings.model_fields:
        assert settings_page().count(f"| `{PREFIX}{name.upper()}` |") == 1
    for name in patches():
        assert patches_page().count(f"| `{name}` |") == 1


def test_values_and_defaults_are_in_words():
    lines = {line.split("`")[1]: line for line in settings_page().splitlines() if line.startswith("| `")}
    assert "| `skip`, `raise` | `skip` |" in lines["SWIFT_GRPO_EXT_BAD_ROW"]
    assert "| number above 0 | unset |" in lines["SWIFT_GRPO_EXT_STALL_SECONDS"]
    assert "| number from 0 to 1 | `0.05` |" in lines["SWIFT_GRPO_EXT_REWARD_FAILURES"]
    assert "<" not in settings_page()


def test_the_page_of_the_rewards_names_all_of_them():
    page = (ROOT / "docs/parts/rewards.md").read_text()
    assert {name for name in NAMES if f"`{name}`" not in page} == set()


def test_the_page_of_old_hosts_has_what_the_file_heals():
    page = (ROOT / "docs/old-hosts.md").read_text()
    heals = re.findall(r'Heal\("([^"]+)", "([^"]+)"', (ROOT / "plugins/legacy_swift3.py").read_text())
    assert len(heals) == 7
    assert [heal for heal in heals if "| `{}` | {} |".format(*heal) not in page] == []


def test_every_command_has_its_section_in_both_languages_and_the_readme():
    names = [
        command.name or command.callback.__name__.replace("_", "-") for command in app.registered_commands
    ]
    assert len(names) > 5
    english, chinese, readme = (
        (ROOT / page).read_text() for page in ("docs/commands.md", "docs/zh/commands.md", "README.md")
    )
    for text in (english, chinese):
        assert [name for name in names if text.count(f"\n## {name}\n") != 1] == []
    assert [name for name in names if f"`swift-grpo-ext {name}" not in readme and name != "path"] == []


def test_contributing_names_every_lane():
    targets = re.findall(r"^(test-[a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert [
        target for target in targets if f"`make {target}`" not in page and f"`{target}`" not in page
    ] == []


def test_links_between_pages_are_right_in_the_repository_too():
    link = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")
    pages = [page for folder in ("docs", "examples", "upstream") for page in (ROOT / folder).rglob("*.md")]
    broken = {
        f"{page.relative_to(ROOT)}: {target}"
        for page in (*pages, *ROOT.glob("*.md"))
        for target in link.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    }
    assert broken == set()


def test_links_of_the_repository_lead_to_the_pages_of_the_site(site):
    home = (site / "index.html").read_text()
    for page in ("settings.html", "examples/index.html", "symptoms.html"):
        assert f'href="{page}"' in home
    assert 'href="../patches.html"' in (site / "parts/compat.html").read_text()


def test_the_python_that_is_asked_for_takes_the_tested_set():
    (least,) = re.findall(r"sys\.version_info < \(([\d, ]+)\)", (ROOT / "Makefile").read_text())
    least = least.replace(", ", ".")
    for page in (
        "README.md",
        "README.zh-CN.md",
        "docs/quickstart.md",
        "docs/zh/quickstart.md",
        "CONTRIBUTING.md",
    ):
        assert f"Python {least} " in (ROOT / page).read_text(encoding="utf-8"), page
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints/tested.txt").read_text(), flags=re.MULTILINE)
    needs = {name: metadata(name).get("Requires-Python") for name in pins if installed_version(name)}
    assert len(needs) > 50
    assert {name: need for name, need in needs.items() if need and least not in SpecifierSet(need)} == {}


def test_every_id_of_a_defect_is_explained():
    page = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| ([A-DF]\d+) \|", page, flags=re.MULTILINE))
    explained |= set(patches())  # the page of the patches
    reports = {
        report for row in symptoms_page.rows() for report in row.reports if not report.startswith("http")
    }
    named = {re.split(r"[-,]", name)[0] for name in patches() if re.match(r"[A-D]\d", name)}
    presets = re.findall(r"\(([A-D]\d+)\)", (ROOT / "docs/deepspeed-presets.md").read_text())
    assert len(explained) > 25
    assert {*reports, *named, *presets, *refusals.REFUSALS} - explained == set()


def test_every_file_that_the_architecture_names_is_there():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)*\w+\.py)(?::([\w.]+))?`", page)
    assert len(named) > 30
    for path, function in named:
        file = next(
            (root / path for root in (ROOT / "swift_grpo_ext", ROOT) if (root / path).is_file()), None
        )
        assert file, path
        for name in filter(None, function.split(".")):
            assert re.search(rf"(?:def|class) {name}\b", file.read_text(encoding="utf-8")), (path, function)


def test_a_folder_in_the_navigation_becomes_its_pages(tmp_path):
    (tmp_path / "rewards").mkdir()
    for name in ("b.md", "a.md", "index.md"):
        (tmp_path / "rewards" / name).touch()
    nav = [{"Home": "index.md"}, {"Reference": [{"Rewards": "rewards/"}, {"Gone": "gone/"}]}, "plain.md"]
    assert with_folders(nav, tmp_path) == [
        {"Home": "index.md"},
        {"Reference": [{"Rewards": ["rewards/index.md", "rewards/a.md", "rewards/b.md"]}]},
        "plain.md",
    ]


def texts(path):
    """The string constants of a file that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
    return [node.value for node in strings if isinstance(node.value, str)]


def test_ms_swift_is_called_by_its_name_in_what_users_read():
    sources = [
        path for folder in ("swift_grpo_ext", "plugins", "examples") for path in (ROOT / folder).rglob("*.py")
    ]
    said = [(path.name, text) for path in sources for text in texts(path)]
    pages = [path for folder in ("docs", "examples") for path in (ROOT / folder).rglob("*.md")]
    said += [(path.name, path.read_text(encoding="utf-8")) for path in (*pages, ROOT / "README.md")]
    assert [name for name, text in said if re.search(r"\bthe host\b", text, re.IGNORECASE)] == []


def test_pages_name_files_that_are_there():
    """Of the package or the repository; what a run writes stands in folders of its own."""
    folders = (
        "swift_grpo_ext",
        "tests",
        "tools",
        "benchmarks",
        "examples",
        "docs",
        "upstream",
        "constraints",
        "plugins",
    )
    name = re.compile(rf"`((?:{'|'.join(folders)})/[\w./-]+\.(?:py|sh|md|txt|json|jsonl|yaml|toml))[`:]")
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), *ROOT.glob("*.md")]
    named = {(page.name, found) for page in pages for found in name.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 20
    assert {(page, path) for page, path in named if not (ROOT / path).exists()} == set()


def test_a_newcomer_opens_four_files_at_most_after_the_page():
    last = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").rpartition("\n## ")[2]
    rows = [line for line in last.splitlines() if line.startswith("| ")][1:]
    counts = [len(set(re.findall(r"`([\w/]+\.py)[`:]", row.split("|")[-2]))) for row in rows]
    assert len(counts) == 25
    assert max(counts) <= 4
    assert median(counts) <= 3


CHINESE = {
    "README.zh-CN.md": "README.md",
    "docs/zh/quickstart.md": "docs/quickstart.md",
    "docs/zh/commands.md": "docs/commands.md",
}


def structure(page):
    """What a translation keeps: levels of headings, code without comments, names in code, settings, links."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    code = [[re.sub(r"\s+#.*", "", line).strip() for line in block.splitlines()] for block in blocks]
    links = set()
    for target in re.findall(r"\]\(([^)#\s]+)", prose):
        path = target if ":" in target else os.path.normpath(Path(page).parent / target)
        links.add(str(path).replace("docs/zh/", "docs/").replace("README.zh-CN.md", "README.md"))
    return {
        "headings": [len(marks) for marks in re.findall(r"^(#+) ", prose, flags=re.MULTILINE)],
        "code": code,
        "settings": sorted(set(re.findall(r"SWIFT_GRPO_EXT_\w+", text))),
        "tables": [line.count("|") for line in prose.splitlines() if line.startswith("|---")],
        "links": sorted(links),
    }


@pytest.mark.parametrize("page", CHINESE)
def test_a_chinese_page_has_the_structure_of_the_english_one(page):
    ours, english = structure(page), structure(CHINESE[page])
    # Each links to the other.
    for one in (ours, english):
        one["links"] = [link for link in one["links"] if link not in (*CHINESE, *CHINESE.values())]
    assert ours == english
