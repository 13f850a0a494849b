"""The job files for clusters: that they can be read, and start what there is."""

import re
import shlex
import subprocess

import pytest
import yaml

from evergrad._training.machine_options import machine_fields
from evergrad._training.settings import fields, flag
from tests.training_helpers import ROOT

CLUSTER = ROOT / "examples" / "cluster"
SLURM, KUBERNETES = CLUSTER / "slurm.sh", CLUSTER / "kubernetes.yaml"


def kubernetes():
    service, job = yaml.safe_load_all(KUBERNETES.read_text())
    return service, job


def shell(path):
    if path == SLURM:
        return SLURM.read_text()
    _, job = kubernetes()
    return job["spec"]["template"]["spec"]["containers"][0]["args"][0]


@pytest.mark.parametrize("path", [SLURM, KUBERNETES], ids=lambda path: path.name)
def test_the_shell_can_read_it(path):
    done = subprocess.run(["bash", "-n"], input=shell(path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", [SLURM, KUBERNETES], ids=lambda path: path.name)
def test_every_option_is_one_of_evergrad_s(path):
    known = {flag(name) for name in fields("text")} | {flag(f.name) for f in machine_fields()} | {"--out"}
    lines = [line for line in shell(path).splitlines() if not line.lstrip().startswith(("#", "srun"))]
    used = set(re.findall(r"(--[a-z][a-z-]*)", "\n".join(lines)))
    assert {"--coordinator", "--processes", "--process-id", "--batch"} <= used
    assert used <= known


def test_slurm_is_told_in_its_own_words():
    told = [line.split(maxsplit=1)[1] for line in SLURM.read_text().splitlines() if line.startswith("#SBATCH")]
    assert all(re.fullmatch(r"--[a-z-]+(=\S+)?", line) for line in told)
    assert shlex.split(" ".join(told)) == told


def test_kubernetes_starts_as_many_as_the_command_line_says():
    service, job = kubernetes()
    spec = job["spec"]
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    assert spec["completionMode"] == "Indexed"  # gives JOB_COMPLETION_INDEX
    assert spec["completions"] == spec["parallelism"] == 4
    assert "--processes 4" in shell(KUBERNETES)
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None" or service["spec"]["clusterIP"] is None
    pod = spec["template"]["spec"]["containers"][0]
    port = int(re.search(r"--coordinator [\w.-]+:(\d+)", shell(KUBERNETES))[1])
    assert [p["containerPort"] for p in pod["ports"]] == [port]
    mounted = {m["name"] for m in pod["volumeMounts"]}
    assert mounted == {v["name"] for v in spec["template"]["spec"]["volumes"]}
