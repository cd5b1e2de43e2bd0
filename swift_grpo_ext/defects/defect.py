"""What is to be said of a known defect."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from packaging.specifiers import SpecifierSet

from swift_grpo_ext.versions import installed_version


@dataclass(frozen=True)
class Defect:
    """One defect."""

    id: str  # in messages, in ``SWIFT_GRPO_EXT_DISABLE=compat.<id>`` and in ``docs/findings.md``
    what: str  # what goes wrong, in one sentence
    # Releases that have it, by distribution. All must match; what is not installed has no defects.
    affected: Mapping[str, str] = field(default_factory=dict)
    fix: str = ""  # what a user changes, where no patch of ours is on
    reports: tuple[str, ...] = ()  # links: the report first, then the changes upstream
    patch: str = ""  # name of the patch of the part ``compat`` that fixes it; empty if there is none

    def absent_because(self, versions: Mapping[str, str | None] | None = None) -> str:
        """Why these releases (unless told, the installed ones) do not have the defect; empty if they do."""
        for name, releases in self.affected.items():
            found = versions[name] if versions and name in versions else installed_version(name)
            if found is None:
                return f"{name} is not installed"
            if not SpecifierSet(releases).contains(found, prereleases=True):
                return f"{name} {found} is outside {releases}"
        return ""

    def harms(self, versions: Mapping[str, str | None] | None = None, fixed: Collection[str] = ()) -> bool:
        """Whether these releases have the defect, and it is not among the fixed defects or patches."""
        return not self.absent_because(versions) and not {self.id, self.patch} & set(fixed)
