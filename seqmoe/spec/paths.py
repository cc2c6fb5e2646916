"""Where declarations and results are: the clone that one stands in, or what the installed wheel carries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import seqmoe


@dataclass(frozen=True, slots=True)
class Home:
    """``declarations`` holds suites/, baselines/ and results/paper; ``work`` is where results/ and reports/ grow."""

    declarations: Path
    work: Path
    kind: str

    @property
    def suites(self) -> Path:
        """Folder of suite files, with models/, hardware/ and datasets/ below."""
        return self.declarations / "suites"

    @property
    def baselines(self) -> Path:
        """Folder with one folder per wrapped system."""
        return self.declarations / "baselines"

    @property
    def paper(self) -> Path:
        """What the paper prints, transcribed."""
        return self.declarations / "results" / "paper"

    @property
    def results(self) -> Path:
        """Where records are appended, one folder per host."""
        return self.work / "results"

    @property
    def reports(self) -> Path:
        """Where pages and figures are written."""
        return self.work / "reports"

    @property
    def predictors(self) -> Path:
        """Predictors of models that bring none: one folder a model, by its name, and those that sweeps have trained."""
        return self.work / ".predictors"

    @property
    def environments(self) -> Path:
        """Where the baselines' own Python environments live."""
        return self.work / ".baselines"


def find_home(start: Path | None = None) -> Home:
    """The clone around ``start`` (default: the current folder), else the wheel's own copy of the declarations."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "suites").is_dir() and (folder / "baselines").is_dir() and (folder / "pyproject.toml").is_file():
            return Home(folder, folder, "clone")
    package = Path(seqmoe.__file__).parent
    bundled = package / "bundled"
    if bundled.is_dir():
        return Home(bundled, here, "wheel")
    return Home(package.parent, here, "source")
