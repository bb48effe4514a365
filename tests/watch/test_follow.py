"""A log that grows, is cut, is rotated, is not there yet, or comes by a pipe."""

from __future__ import annotations

import os

import pytest

from patchkit.errors import UsageError
from patchkit.watch.follow import LogFile, LogPipe


def read_all(log):
    found = []
    while True:
        lines, fresh = log.read()
        if not lines:
            return found
        found += [(line, fresh) for line in lines]


def append(path, text):
    with open(path, "a") as file:
        file.write(text)


def test_old_lines_and_fresh_ones(tmp_path):
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    log = LogFile(path)
    assert read_all(log) == [("one", False), ("two", False)]
    append(path, "three\nfo")
    assert read_all(log) == [("three", True)]
    append(path, "ur\n")
    assert read_all(log) == [("four", True)]


def test_what_is_not_there_yet_is_waited_for(tmp_path):
    log = LogFile(tmp_path / "log")
    assert log.waiting and read_all(log) == []
    append(tmp_path / "log", "one\n")
    assert read_all(log) == [("one", True)]
    assert not log.waiting


def test_a_log_that_is_cut(tmp_path):
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    log = LogFile(path)
    read_all(log)
    path.write_text("new\n")
    assert read_all(log) == [("new", True)]


def test_a_log_that_is_cut_under_a_writer_that_goes_on_at_its_place(tmp_path):
    """Not opened for appending: a hole of NULs stands in front."""
    path = tmp_path / "log"
    with open(path, "w") as writer:
        writer.write("x" * 5000 + "\n")
        writer.flush()
        log = LogFile(path)
        read_all(log)
        os.truncate(path, 0)
        assert read_all(log) == []
        writer.write("after\n")
        writer.flush()
        assert read_all(log) == [("after", True)]


@pytest.mark.parametrize("in_between", [True, False])
def test_a_log_that_is_rotated(tmp_path, in_between):
    path = tmp_path / "log"
    path.write_text("one\n")
    log = LogFile(path)
    read_all(log)
    writer = open(path, "a")  # noqa: SIM115
    path.rename(tmp_path / "log.1")
    if in_between:
        assert read_all(log) == []
    writer.write("last of the old\n")
    writer.flush()
    append(path, "first of the new\n")
    found = read_all(log) + read_all(log)
    assert found == [("last of the old", True), ("first of the new", True)]
    # the server may not know that its log was moved
    writer.write("still to the old\n")
    writer.close()
    assert read_all(log) == [("still to the old", True)]


def test_of_a_long_log_the_middle_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("patchkit.watch.follow.MUCH", 100)
    monkeypatch.setattr("patchkit.watch.follow.CHUNK", 50)
    path = tmp_path / "log"
    path.write_text("".join(f"line {i:4}\n" for i in range(100)))
    log = LogFile(path)
    found = [line for line, _ in read_all(log)]
    assert found[:10] == [f"line {i:4}" for i in range(10)]
    assert found[-10:] == [f"line {i:4}" for i in range(90, 100)]
    assert len(found) < 30
    append(path, "later\n")
    assert read_all(log) == [("later", True)]


def test_every_byte_is_passed_on(tmp_path):
    path, passed = tmp_path / "log", []
    data = b"\x00\xff\r\n\x1b[1mone\r50%"
    path.write_bytes(b"of before" + data)
    log = LogFile(path, passed.append, skip=len(b"of before"))
    read_all(log)
    assert b"".join(passed) == data


def test_a_pipe(tmp_path):
    reader, writer = os.pipe()
    log = LogPipe(reader)
    assert read_all(log) == []
    os.write(writer, b"one\ntw")
    assert read_all(log) == [("one", True)]
    assert not log.ended
    os.close(writer)
    assert read_all(log) == [("tw", True)]
    assert log.ended
    os.close(reader)


def test_a_folder_and_a_file_that_may_not_be_read(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        LogFile(tmp_path)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(UsageError, match="can't be read"):
        LogFile(loop)
