"""fetch: from the cache, without a network."""

import subprocess

import pytest
from clikit import process, refused, unchanged
from support import snapshot

from patchkit import fetch


def test_fetch_from_the_cache(cli, site, tmp_path, stock_wheel):
    folder = tmp_path / "new" / "tree"
    said = cli("fetch", stock_wheel, "--into", folder)
    assert said.code == 0
    assert f"apply debug-logging --target {folder}" in said.out
    assert snapshot(folder) == snapshot(site)
    assert cli("apply", "debug-logging", "--target", folder).code == 0


def test_fetch_into_the_default_folder(tmp_path, stock_wheel):
    assert process("fetch", stock_wheel, cwd=tmp_path).code == 0
    assert (tmp_path / f"sglang-{stock_wheel}" / "sglang").is_dir()


def test_an_existing_folder_is_kept(cli, tmp_path, site, stock_wheel):
    with unchanged(tmp_path):
        refused(cli("fetch", stock_wheel, "--into", site), 2, "is there already")
    (tmp_path / "empty").mkdir()
    assert cli("fetch", stock_wheel, "--into", tmp_path / "empty").code == 0


def test_force_replaces_a_tree(cli, patched, site, stock_wheel):
    assert cli("fetch", stock_wheel, "--into", patched, "--force").code == 0
    assert snapshot(patched) == snapshot(site)
    assert not (patched / ".patchkit").exists()


def test_force_does_not_remove_what_is_no_tree(cli, tmp_path, stock_wheel):
    """`fetch --into ~ --force` must not empty somebody's home."""
    home = tmp_path / "home"
    (home / "sglang").mkdir(parents=True)
    (home / "thesis.tex").write_text("years of work")
    with unchanged(tmp_path):
        said = cli("fetch", stock_wheel, "--into", home, "--force")
    refused(said, 3, "thesis.tex")


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_file_is_not_a_folder(cli, tmp_path, stock_wheel, force):
    (tmp_path / "file").write_text("mine")
    with unchanged(tmp_path):
        said = cli("fetch", stock_wheel, "--into", tmp_path / "file", *force)
    refused(said, 2, "file")


def test_a_place_that_can_not_be_made(cli, tmp_path, stock_wheel):
    (tmp_path / "file").write_text("mine")
    with unchanged(tmp_path):
        said = cli("fetch", stock_wheel, "--into", tmp_path / "file" / "below")
    refused(said, 2, "can't be written")


@pytest.mark.parametrize("version", ["banana", "latest", "0", "../../etc", "0.5.9*"])
def test_what_is_no_release_number(cli, tmp_path, version):
    said = cli("fetch", version, "--into", tmp_path / "x")
    refused(said, 2, "is not a release number", "patchkit fetch 0.5.9")


def pip_says(monkeypatch, stderr):
    def run(command, **_):
        return subprocess.CompletedProcess(command, 1, "", stderr)

    monkeypatch.setattr(fetch.subprocess, "run", run)


def test_a_release_that_was_never_made(cli, tmp_path, stock_wheel, monkeypatch):
    pip_says(
        monkeypatch,
        "ERROR: Could not find a version that satisfies the requirement"
        " sglang==0.9.99 (from versions: 0.5.8, 0.5.9)\n"
        "ERROR: No matching distribution found for sglang==0.9.99\n",
    )
    said = cli("fetch", "0.9.99", "--into", tmp_path / "x")
    refused(said, 2, "not on the package index", "0.5.8, 0.5.9")
    assert not (tmp_path / "x").exists()


def test_no_network(cli, tmp_path, stock_wheel, monkeypatch):
    pip_says(
        monkeypatch,
        "WARNING: Retrying ...\nERROR: Could not find a version that satisfies the"
        " requirement sglang==0.5.8 (from versions: none)\n"
        "ERROR: No matching distribution found for sglang==0.5.8\n",
    )
    refused(cli("fetch", "0.5.8", "--into", tmp_path / "x"), 4, "could not fetch")


def test_no_pip(cli, tmp_path, stock_wheel, monkeypatch):
    pip_says(monkeypatch, "/usr/bin/python: No module named pip\n")
    refused(cli("fetch", "0.5.8", "--into", tmp_path / "x"), 4, "has no pip")


def test_a_damaged_wheel_in_the_cache(cli, tmp_path, stock_wheel, monkeypatch):
    wheel = fetch.fetch_wheel(stock_wheel)
    wheel.write_bytes(wheel.read_bytes()[:5000])
    refused(cli("fetch", stock_wheel, "--into", tmp_path / "x"), 4, "damaged")
    assert not wheel.exists()
    assert not (tmp_path / "x").exists()
    assert not list(tmp_path.glob(".patchkit-*"))
