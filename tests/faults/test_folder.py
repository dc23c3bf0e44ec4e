"""The folder of a run: one writer, nothing deleted, nothing of others touched, judging resumed."""

import errno
import io
import json
import logging
import subprocess
import sys

import jax
import numpy as np
import pytest
from rich.console import Console

from benchmarks.fault_runs import write_data
from benchmarks.fault_values import nested, small
from pbcs_jax import data, npz
from pbcs_jax.errors import DamagedError, UserError
from pbcs_jax.experiments import EXPERIMENTS, lock, selection, workdir
from pbcs_jax.experiments.checkpoints import Checkpoints
from pbcs_jax.experiments.judge import Judge
from pbcs_jax.experiments.metrics import MetricsLog
from pbcs_jax.nets import MLP
from pbcs_jax.outer import loop
from pbcs_jax.report import files
from pbcs_jax.select import select_coreset

STATE = loop.init(jax.random.key(0), 5, 2)


def at(step):
    return STATE._replace(step=STATE.step + step)


def losses(*values):
    return [{"outer_loss": np.float32(value)} for value in values]


def start(folder, path, **changes):
    config = nested({**small("summarization", path), "selection.objective": "kernel", **changes})
    console = Console(file=io.StringIO(), width=200)
    summary = EXPERIMENTS["summarization"](config, str(folder), console)
    return summary, console.file.getvalue()


def test_a_second_writer_is_told_of_the_first_and_a_dead_one_is_no_obstacle(tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from pbcs_jax.experiments.lock import *\n"
        "with one_writer(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match=f"in use by process {holder.pid} on .* since 20"),
            lock.one_writer(tmp_path),
        ):
            pass
        holder.kill()
        holder.wait()
    with lock.one_writer(tmp_path):
        assert json.loads((tmp_path / lock.NAME).read_text())["pid"] != holder.pid


def test_a_checkpoint_that_cannot_be_read_is_set_aside(tmp_path, caplog):
    checkpoints = Checkpoints(tmp_path, "mine")
    checkpoints.save(at(1), losses(0.5))
    checkpoints.save(at(2), losses(0.25))
    file = tmp_path / "checkpoints" / "2" / "state.npz"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    again = Checkpoints(tmp_path, "mine")
    assert int(again.restore(STATE).step) == 1 and again.history["outer_loss"].tolist() == [0.5]
    aside = tmp_path / "checkpoints" / "unreadable-2" / "state.npz"
    assert aside.read_bytes() == content[: len(content) // 2] and not file.exists()
    assert "checkpoint 2 cannot be read" in caplog.text


def test_the_newest_checkpoints_are_kept_and_what_else_lies_there(tmp_path):
    checkpoints = Checkpoints(tmp_path, "mine")
    checkpoints.save(at(1), losses(0.5))
    (tmp_path / "checkpoints" / "1" / "thesis.txt").write_text("precious")
    for step in range(2, 6):
        checkpoints.save(at(step), losses(0.5))
    kept = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    states = [f"checkpoints/{step}/state.npz" for step in (3, 4, 5)]
    assert kept == ["checkpoints/1/thesis.txt", *states]


@pytest.mark.parametrize(("failures", "survives"), [(2, True), (9, False)])
def test_errors_of_the_disk_are_waited_for_and_move_nothing(
    tmp_path, monkeypatch, failures, survives
):
    Checkpoints(tmp_path, "mine").save(at(1), losses(0.5))
    read, left = npz.read, [failures]

    def failing(*arguments):
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.EIO, "Input/output error")
        return read(*arguments)

    monkeypatch.setattr(npz, "read", failing)
    monkeypatch.setattr(files, "_PAUSES", (0.0, 0.0, 0.0))
    if survives:
        assert int(Checkpoints(tmp_path, "mine").restore(STATE).step) == 1
    else:
        with pytest.raises(UserError, match="Input/output error"):
            Checkpoints(tmp_path, "mine").restore(STATE)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["1"]


def test_checkpoints_of_another_run_are_neither_read_nor_replaced(tmp_path):
    Checkpoints(tmp_path / "a", "a").save(at(1), losses(0.5))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "checkpoints").symlink_to(tmp_path / "a" / "checkpoints")
    before = (tmp_path / "a" / "checkpoints" / "1" / "state.npz").read_bytes()
    with pytest.raises(UserError, match="belongs to another run"):
        Checkpoints(tmp_path / "b", "b").restore(STATE)
    assert (tmp_path / "a" / "checkpoints" / "1" / "state.npz").read_bytes() == before


def test_a_link_in_place_of_a_checkpoint_is_not_followed(tmp_path):
    (tmp_path / "others").mkdir()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "1").symlink_to(tmp_path / "others")
    with pytest.raises(UserError, match="symbolic link"):
        Checkpoints(tmp_path, "mine").save(at(1), losses(0.5))
    assert not list((tmp_path / "others").iterdir())


def test_metrics_carry_the_step_of_the_state_and_are_written_anew(tmp_path):
    (tmp_path / "others.jsonl").write_text("precious")
    (tmp_path / "metrics.jsonl").symlink_to(tmp_path / "others.jsonl")
    log = MetricsLog(tmp_path, {"outer_loss": np.float32([0.5, 0.25])}, 2)
    log.append(at(4), losses(0.125, 0.0625))
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["outer_loss"]) for line in lines] == [
        *((1, 0.5), (2, 0.25), (3, 0.125), (4, 0.0625))
    ]
    assert (tmp_path / "others.jsonl").read_text() == "precious"


def test_a_killed_judge_goes_on_with_the_next_network(tmp_path, monkeypatch):
    path, devices = write_data(tmp_path / "data.npz"), jax.local_devices()[:2]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    seeds = {"evaluation.num_seeds": 5, "methods": ("pbcs",)}
    whole, _ = start(tmp_path / "whole", path, **seeds)
    judge, judged = Judge.__call__, []

    def killed(self, coresets, done=0, kept=None):
        for accuracies in judge(self, coresets, done, kept):
            judged.append((done, len(accuracies)))
            yield accuracies
            raise KeyboardInterrupt

    monkeypatch.setattr(Judge, "__call__", killed)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path / "killed", path, **seeds)
    assert list((tmp_path / "killed" / "judging").iterdir())
    with monkeypatch.context() as only:  # the coreset is not chosen again
        only.setattr(selection, "select", None)
        only.setattr(Judge, "__call__", judge)
        again, _ = start(tmp_path / "killed", path, **seeds)
    assert judged == [(0, 2)]
    runs = [summary["methods"]["pbcs"]["test_accuracy"]["runs"] for summary in (whole, again)]
    assert runs[0] == runs[1] and len(runs[0]) == 5
    assert not (tmp_path / "killed" / "judging").exists()


def test_other_data_and_other_versions_are_noticed_on_resuming(tmp_path, monkeypatch, caplog):
    path = write_data(tmp_path / "data.npz")
    start(tmp_path / "run", path)
    (tmp_path / "run" / "summary.json").unlink()
    now = workdir.versions()
    monkeypatch.setattr(workdir, "versions", lambda: {**now, "optax": "9.9"})
    with caplog.at_level(logging.WARNING):
        start(tmp_path / "run", path)
    assert f"begun with optax {now['optax']}, this is 9.9" in caplog.text
    (tmp_path / "run" / "summary.json").unlink()
    monkeypatch.setattr(workdir, "versions", lambda: {**now, "pbcs_jax": "9.9"})
    with pytest.raises(UserError, match=r"continue with that version"):
        start(tmp_path / "run", path)
    monkeypatch.setattr(workdir, "versions", lambda: now)
    write_data(path, seed=1)
    with pytest.raises(UserError, match=r"data of .* have changed \(x_train was 'float32"):
        start(tmp_path / "run", path)


def test_broken_files_of_a_finished_run_are_made_again(tmp_path):
    path = write_data(tmp_path / "data.npz")
    folder = tmp_path / "run"
    before, _ = start(folder, path)
    kept = {name: (folder / name).read_bytes() for name in ("coreset.npz", "metrics.jsonl")}
    (folder / "coreset.npz").write_bytes(b"")
    (folder / "metrics.jsonl").unlink()
    after, _ = start(folder, path)
    assert {name: (folder / name).read_bytes() for name in kept} == kept
    assert after["methods"] == before["methods"]
    _, said = start(folder, path)
    assert "This run is finished" in said


@pytest.mark.parametrize("changed", ["an accuracy", "an index", "a run", "nothing"])
def test_records_are_checked_beyond_their_checksum(tmp_path, changed):
    path = write_data(tmp_path / "data.npz")
    start(tmp_path / "run", path)
    file = tmp_path / "run" / "methods" / "uniform.json"
    record = files.read_record(file)
    if changed == "an accuracy":
        record["runs"]["mlp"][0] = 9.4
    if changed == "an index":
        record["coresets"][0][0] = -1
    if changed == "a run":
        record["run"] = "another"
    files.write_record(file, record)
    (tmp_path / "run" / "summary.json").unlink()
    start(tmp_path / "run", path)
    aside = tmp_path / "run" / "methods" / "unreadable-uniform.json"
    assert aside.exists() == (changed != "nothing")
    assert files.read_record(file)["runs"]["mlp"][0] <= 1


def test_names_with_markup_are_printed_as_they_are(tmp_path):
    path = write_data(tmp_path / "data.npz")
    _, said = start(tmp_path / "[bold]run[", path, **{"data.name": "[red]mine[/blink]"})
    assert "[bold]run[" in said and "[red]mine[/blink]" in said


def test_a_point_of_a_sweep_stays_inside_of_its_folder(tmp_path):
    folder = tmp_path / "deep" / "sweep"
    points = {"sweep.points": ("data.dir=/../../../../x", "data.dir=/../../../../y")}
    start(folder, write_data(tmp_path / "data.npz"), **points)
    assert {p.name for p in tmp_path.iterdir()} == {"data.npz", "deep"}
    assert len(list((folder / "runs").iterdir())) == 2


def test_a_record_says_what_is_wrong_with_it(tmp_path):
    file = tmp_path / "a.json"
    for content in (b"[]", b"{}", b"\xff", b'{"a": 1, "checksum": 3}', b"", b"[" * 100_000):
        file.write_bytes(content)
        with pytest.raises(DamagedError, match=r"a\.json' is damaged \("):
            files.read_record(file)
    files.write_record(file, {"a": np.float32(0.1), "name": "gr\udcff"})
    assert files.read_record(file) == {"a": float(np.float32(0.1)), "name": "gr\udcff"}


def test_jax_forgets_what_many_selections_left(monkeypatch):
    emptied, x = [], np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    clear = jax.clear_caches
    monkeypatch.setattr(jax, "clear_caches", lambda: (emptied.append(True), clear()))
    monkeypatch.setattr(loop, "FORGET_ALL", 3)
    for number in range(3):
        options = {"objective": "kernel", "outer_steps": 1, "progress": False}
        select_coreset(number, x, np.arange(20) % 2, MLP(num_classes=2, hidden=(4,)), 3, **options)
    assert emptied


def test_fingerprints_see_each_bit_of_small_data_and_rows_of_large(monkeypatch):
    dataset = data.load("bundled", "wine")
    changed = dataset.x_train.copy()
    changed[7, 3] = np.nextafter(changed[7, 3], 100)
    other = dataset._replace(x_train=changed)
    differing = [k for k, v in data.fingerprint(dataset).items() if data.fingerprint(other)[k] != v]
    assert differing == ["x_train"]
    monkeypatch.setattr("pbcs_jax.data.fingerprints.LARGEST", 10)
    assert "rows" in data.fingerprint(dataset)["x_train"]
