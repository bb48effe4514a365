"""Lets a real SGLang server run on a CPU without its compiled kernels: in every process
that has this folder on PYTHONPATH, the spawned ranks too. Done when sglang is imported.
"""

import importlib.abc
import importlib.util
import sys


class _WhenSglangIsImported(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "sglang":
            return None
        sys.meta_path.remove(self)
        import planting

        from patchkit.verify.probe.engine.served import prepare

        planting.plant(prepare())
        return importlib.util.find_spec(name)


sys.meta_path.insert(0, _WhenSglangIsImported())
