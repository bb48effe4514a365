"""Faults in a server's own modules: a rank hangs, crashes or crawls.

``PLANT`` holds JSON, ``{module: [[old text, new text], ...]}``.
"""

import importlib.abc
import json
import os
import sys
import time

from patchkit.verify.probe.environment import TargetLoader

PLANTED = json.loads(os.environ.get("PLANT", "{}"))


class _Edited(TargetLoader):
    def get_code(self, name):
        with open(self.path, encoding="utf-8") as file:
            text = file.read()
        for old, new in PLANTED[name]:
            assert old in text, f"{name} has no {old!r} to plant a fault at"
            text = text.replace(old, new, 1)
        return compile(text, self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, target):
        self.target = target

    def find_spec(self, name, path=None, target=None):
        if name not in PLANTED:
            return None
        spec = self.target.find_spec(name, path, target)
        spec.loader = _Edited(name, spec.origin, self.target.loaded)
        return spec


def plant(target):
    """``target``: the finder of SGLang's modules."""
    sys.meta_path.insert(0, _Finder(target))


def crawl(tensor):
    """Read a large tensor as from a very slow disk, a megabyte at a time (each of its
    pages), and hand it on."""
    flat = tensor.view(-1)
    for at in range(1 << 18, flat.numel(), 1 << 18):
        flat[at : at + (1 << 18) : 1024].sum()
        time.sleep(float(os.environ["CRAWL"]))
    return tensor
