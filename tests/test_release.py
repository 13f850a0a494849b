"""What a release consists of agrees with itself; `make dist` builds and tries it."""

import importlib.util
import re
import subprocess
import tomllib

import pytest
import yaml

import evergrad as eg
from tests.training_helpers import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS = [(path.name, name) for path in WORKFLOWS for name in yaml.safe_load(path.read_text())["jobs"]]
NOT_TRIED = {"cuda", "docs", "test"}  # needs an accelerator; and two that are for work on evergrad itself


def job(file, name):
    return yaml.safe_load((ROOT / ".github" / "workflows" / file).read_text())["jobs"][name]


def test_one_version():
    (cited,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    first, *_ = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited == first == eg.__version__


def test_the_citation_has_what_the_format_asks_for():
    document = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "type", "license"} <= document.keys()
    assert all("name" in author or "family-names" in author for author in document["authors"])


def test_there_are_workflows_for_all_that_must_hold():
    assert {"lint", "types", "tests", "docs", "build", "upload"} <= {name for _, name in JOBS}


@pytest.mark.parametrize(("file", "name"), JOBS)
def test_a_job_does_what_make_does_and_may_do_no_more_than_it_must(file, name):
    workflow, makefile = (ROOT / ".github" / "workflows" / file).read_text(), (ROOT / "Makefile").read_text()
    document = yaml.safe_load(workflow)
    assert True in document  # `on`, which YAML takes for a truth
    assert document["permissions"] == {"contents": "read"}
    found = job(file, name)
    assert found["timeout-minutes"] > 0
    for step in found["steps"]:
        assert ("uses" in step) != ("run" in step)
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "some/action@v1"))
        for target in re.findall(r"^make (\S+)", step.get("run", ""), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        done = subprocess.run(["bash", "-n"], input=step.get("run", ""), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_every_extra_is_tried_in_an_environment_of_its_own():
    spec = importlib.util.spec_from_file_location("smoke", ROOT / "scripts" / "smoke.py")
    smoke = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(smoke)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    assert smoke.PARTS.keys() - {"core"} == extras - NOT_TRIED
    assert subprocess.run(["sh", "-n", ROOT / "scripts" / "dist.sh"]).returncode == 0


@pytest.mark.parametrize("name", ["SECURITY.md", "LICENSE", "CITATION.cff", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_what_people_look_for_is_there(name):
    assert (ROOT / name).stat().st_size > 500
