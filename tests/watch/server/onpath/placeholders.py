"""Stand-ins for compiled packages that are not installed: every name in them exists and
can be subclassed, annotated with and used as a decorator; a call raises, unless
``REPLACED`` has something better for it.
"""

import importlib.abc
import importlib.machinery
import sys
import types

NAMES = (
    "sgl_kernel",
    "triton",
    "torchvision",
    "tvm_ffi",
    "xgrammar",
    "cutlass",
    "cuda",
)
#: full name -> function
REPLACED = {}
#: name of a Triton kernel -> the function that stands in for its launch
KERNELS = {}


class Kernel:
    """A function under ``triton.jit``: ``kernel[grid](...)`` calls its replacement."""

    def __init__(self, function):
        self.fn = function
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__module__ = getattr(function, "__module__", "?")

    def __getitem__(self, grid):
        def launch(*arguments, **named):
            if self.__name__ not in KERNELS:
                raise NotImplementedError(f"Triton kernel {self.__name__} on a CPU")
            return KERNELS[self.__name__](*arguments, **named)

        return launch

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.fn, name)


class _Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return make(f"{cls.full_name}.{name}")

    def __call__(cls, *arguments, **named):
        if "full_name" not in cls.__dict__:
            return type.__call__(cls, *arguments, **named)
        if cls.full_name in REPLACED:
            return REPLACED[cls.full_name](*arguments, **named)
        raise NotImplementedError(f"{cls.full_name} was called on a CPU")

    def __or__(cls, other):
        return object

    __ror__ = __or__

    def __getitem__(cls, index):
        return cls


def make(full_name):
    if full_name in MADE:
        return MADE[full_name]()
    module, _, name = full_name.rpartition(".")
    return _Anything(name, (), {"full_name": full_name, "__module__": module})


def _structural_tag():
    import pydantic

    return type("StructuralTag", (pydantic.BaseModel,), {})


#: full name -> makes it: names that must be a certain kind of thing
MADE = {
    "xgrammar.StructuralTag": _structural_tag,
    "triton.JITFunction": lambda: Kernel,
    "triton.runtime.jit.JITFunction": lambda: Kernel,
}


def _decorate(*arguments, **named):
    if len(arguments) == 1 and callable(arguments[0]) and not named:
        return arguments[0]
    return lambda function: function


def _jit(*arguments, **named):
    return Kernel(arguments[0]) if arguments else Kernel


REPLACED.update(
    {
        "triton.jit": _jit,
        "triton.autotune": lambda *a, **k: lambda f: f,
        "triton.heuristics": lambda *a, **k: lambda f: f,
        "triton.Config": lambda *a, **k: (a, k),
        "triton.language.constexpr": lambda value=None: value,
        "triton.language.dtype": lambda *a: a,
        "triton.cdiv": lambda a, b: -(-a // b),
        "triton.next_power_of_2": lambda n: 1 << max(0, int(n) - 1).bit_length(),
        "cutlass.cutlass_dsl.dsl_user_op": _decorate,
        "cutlass.cutlass_dsl.T": _decorate,
        "cutlass.cute.jit": _decorate,
        "cutlass.cute.kernel": _decorate,
        "cutlass.jit": _decorate,
    }
)


class _Module(types.ModuleType):
    __path__ = []
    __version__ = "0.0.0"

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value = make(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def install(names):
    import transformers.utils  # noqa: F401  # which takes stock of what is there first

    finder = _Finder()
    finder.names = frozenset(names)
    sys.meta_path.insert(0, finder)
