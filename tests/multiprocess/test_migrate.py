"""Scripts for tf.distribute, Horovod and BytePS run with a line changed.

docs/migrate.md says what becomes of each name; these use them.
"""

import pathlib
import re

import pytest

from support.job import run_job

FOLDER = pathlib.Path(__file__).with_name("migrated")


@pytest.mark.parametrize("script", sorted(p.name for p in FOLDER.glob("*.py")))
def test_a_script_runs_with_a_line_changed(script, tmp_path):
    """To the same result on all workers."""
    done = run_job(FOLDER / script, environment={"SCRATCH": str(tmp_path)})
    results = {re.search(r"RESULT (\S+)", worker.stdout)[1] for worker in done.values()}
    assert len(results) == 1, results


def test_every_script_changes_few_lines():
    """Each says in a comment what stood there."""
    for path in FOLDER.glob("*.py"):
        changed = re.findall(
            r"# (?:import|tf\.distribute|hvd\.allreduce).*", path.read_text()
        )
        assert 1 <= len(changed) <= 2, path.name
