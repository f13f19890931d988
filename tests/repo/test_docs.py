"""The documents say what the code says."""

import re
import subprocess
import sys

from repo.sources import ROOT, files, place


def test_configuration_is_what_config_says():
    made = subprocess.run(
        [sys.executable, "-m", "tf_byteps.config"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert (ROOT / "docs/configuration.md").read_text() == made, "run `make docs`"


def test_links_lead_somewhere():
    broken = [
        f"{place(path)}: {link}"
        for path in files("*.md", "docs/**/*.md")
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
        if "://" not in link and not (path.parent / link).exists()
    ]
    assert not broken
