"""The record of a known defect."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from packaging.specifiers import SpecifierSet

from swift_grpo_ext.versions import installed_version


@dataclass(frozen=True)
class Defect:
    """One defect."""

    id: str  # in messages, in ``SWIFT_GRPO_EXT_DISABLE=compat.<id>`` and in ``docs/findings.md``
    what: str  # what goes wrong, in one sentence
    # Releases that have it, by distribution. All must match; a package that is not installed has no defect.
    affected: Mapping[str, str] = field(default_factory=dict)
    fix: str = ""  # what a user changes, where no patch of ours is on
    reports: tuple[str, ...] = ()  # links: the report first, then the changes upstream
    patch: str = ""  # name of the patch of the part ``compat`` that fixes it; empty without one

    def absent_because(self, versions: Mapping[str, str | None] | None = None) -> str:
        """Reason that these releases (default: the installed) lack the defect; empty if they have it."""
        for name, releases in self.affected.items():
            version = versions[name] if versions and name in versions else installed_version(name)
            if version is None:
                return f"{name} is not installed"
            if not SpecifierSet(releases).contains(version, prereleases=True):
                return f"{name} {version} is outside {releases}"
        return ""

    def harms(self, versions: Mapping[str, str | None] | None = None, fixed: Collection[str] = ()) -> bool:
        """True if these releases have the defect and neither its id nor its patch is in ``fixed``."""
        return not self.absent_because(versions) and not {self.id, self.patch} & set(fixed)
