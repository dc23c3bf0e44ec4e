"""The files in deploy/, as far as they can be checked without a cluster."""

import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from quick import environment

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def test_the_manifest_is_an_indexed_job_of_a_known_config():
    manifest = yaml.safe_load((DEPLOY / "jobset.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    [hosts] = manifest["spec"]["replicatedJobs"]
    job = hosts["template"]["spec"]
    assert job["completionMode"] == "Indexed" and job["parallelism"] == job["completions"]
    pod = job["template"]["spec"]
    [container] = pod["containers"]
    assert pod["restartPolicy"] == "Never"  # one alone could not join the others again
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    config, preset = container["args"][0].removeprefix("--config=").split(":")
    assert f'"{preset}": {{' in (ROOT / "configs" / f"{config}.py").read_text()
    mount = container["volumeMounts"][0]["mountPath"]
    assert container["args"][1].startswith(f"--workdir={mount}/")


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_shell(script):
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_image_is_made_of_files_that_exist_and_extras_that_there_are():
    text = (DEPLOY / "Dockerfile").read_text()
    sources = [
        name for line in re.findall(r"^COPY (.*)$", text, re.M) for name in line.split()[:-1]
    ]
    assert "deploy/requirements.lock" in sources
    assert [name for name in sources if not (ROOT / name).exists()] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"experiments", "tpu", "cuda12"} <= set(extras["optional-dependencies"])


def test_the_lock_file_holds_what_the_package_asks_for():
    lines = (DEPLOY / "requirements.lock").read_text().splitlines()[1:]
    locked = dict(line.lower().replace("_", "-").split("==") for line in lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["experiments"]]
    for requirement in map(Requirement, asked):
        name = requirement.name.lower().replace("_", "-")
        assert requirement.specifier.contains(locked[name]), name


def test_two_processes_find_each_other_by_the_variables_of_slurm():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    code = (
        "import jax; from pbcs_jax import processes; processes.start(); "
        "print(jax.process_count(), len(jax.devices()), processes.gather(processes.name()))"
    )
    slurm = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_NODES": "1",
        "JAX_COORDINATOR_PORT": str(port),
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment() | slurm | {"SLURM_PROCID": number, "SLURM_LOCALID": number},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in "01"
    ]
    said = [one.communicate(timeout=300)[0].strip() for one in running]
    assert said == ["2 2 ['process 0 of 2: ', 'process 1 of 2: ']"] * 2
