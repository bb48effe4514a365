"""What tells hand-written debug code from shipped code: its words, and which calls
only look.

Studied on the 58 releases from 0.4.6 to 0.5.23: the three files hold one ``print``
(behind a switch of SGLang's own), and no logger call that names hidden states, aux
states, norms or shapes.
"""

from __future__ import annotations

import ast
import re
import sys


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: The environment variable, and those that begin with it and an underscore.
VARIABLE = "EAGLE3_DEBUG"

#: Words of a logger call that make it debug code.
SUBJECTS = _set("hidden aux norm norms shape shapes debug dbg")
_LOGGER = re.compile(r"_*(logger|logging|log)", re.IGNORECASE)
LOG_METHODS = _set("debug info warning warn error exception critical log")
#: Helpers of sglang.srt.utils that log what they are handed.
LOG_HELPERS = _set("log_info_on_rank0 print_info_once print_warning_once rank0_log")
OUTPUT = frozenset(
    (
        *("sys.stdout.write", "sys.stderr.write", "sys.stdout.flush"),
        *("sys.stderr.flush", "sys.__stderr__.write", "pprint.pprint", "pprint.pp"),
        *("traceback.print_stack", "traceback.print_exc", "builtins.print"),
        *("rich.print", "tqdm.tqdm.write", "icecream.ic"),
        *("pdb.set_trace", "ipdb.set_trace"),
    )
)
#: Builtins that print, or stop for a person to look.
OUTPUT_BUILTINS = _set("print pprint breakpoint")
#: What says that a tensor is sound: asserting it is told, and left alone.
SOUNDNESS = _set("isnan isinf isfinite allclose")
SYNCHRONIZE = "torch.cuda.synchronize"
DUMPS = frozenset(
    (
        *("torch.save", "numpy.save", "numpy.savez", "numpy.savetxt"),
        *("json.dump", "pickle.dump", "safetensors.torch.save_file"),
    )
)
HOOKS = _set("register_forward_hook register_forward_pre_hook")
#: Words in a file's path or contents that make it a debug log.
LOG_FILES = SUBJECTS | _set("dump dumps log logs trace")
#: Methods of a file that was opened for writing.
FILE_METHODS = _set("write writelines flush close")

#: Words that the names of debug temporaries have, and shipped ones do not.
_TEMPORARY = SUBJECTS | _set(
    "before after pre post prev old orig stat stats dtype tmp dump print seen eagle "
    "printed logged"
)
#: Words of a name that tell others that it is for debugging.
_SAYS_DEBUG = _set("debug dbg trace dump print printed logged")
#: A comment that tells somebody something else, or a tool.
_STAYS = re.compile(
    r"\W*(fmt|type|noqa|pragma|pylint|mypy|isort|yapf|ruff|flake8)\s*:"
    r"|\W*(noqa|NOTE|TODO|FIXME|XXX|HACK|WARNING|IMPORTANT)\b"
)
#: A comment that is about debug code, whatever stands below it.
_DEBUG_COMMENT = re.compile(
    r"(?i)\b(debug\w*|dbg|eagle3_debug\w*|print\w*|dump\w*|logging)\b|logger\."
    r"|^\W*log\b"
)

BUILTINS = _set(
    "len str repr int float bool list tuple dict set frozenset sorted min max sum "
    "abs round range enumerate zip type isinstance issubclass hasattr getattr id "
    "hex any all format reversed callable map filter hash vars dir chr ord divmod "
    "slice ascii bin oct bytes complex locals globals object super iter"
)
#: Builtins that use up an iterator that they are given.
CONSUMERS = _set(
    "list tuple dict set frozenset sorted min max sum any all enumerate zip map filter "
    "iter reversed"
)
CONTAINERS = frozenset(
    (
        *("dict", "list", "set", "collections.defaultdict", "collections.deque"),
        *("collections.Counter", "collections.OrderedDict"),
    )
)
#: What changes the container that it is a method of.
MUTATORS = _set("append add update extend setdefault insert clear pop")
#: Methods that return something and change nothing, on tensors, strings, mappings,
#: modules and paths. Not here, because some class has one in place: sort, add, remove.
METHODS = _set(
    "norm mean max min sum abs std var item tolist numpy detach clone contiguous "
    "view reshape flatten size dim numel isnan isinf isfinite any all argmax argmin "
    "topk unique nonzero squeeze unsqueeze transpose permute t is_contiguous stride "
    "data_ptr element_size count_nonzero amax amin aminmax pow sqrt square softmax "
    "log_softmax cosine_similarity eq ne lt gt le ge sub mul div matmul dot median "
    "quantile histc prod cumsum select narrow index_select gather expand expand_as "
    "type_as ndimension diff chunk unbind float16 nelement storage untyped_storage "
    "nbytes get_device vector_norm linalg_norm logsumexp format join upper lower "
    "strip lstrip rstrip split startswith endswith replace ljust rjust center zfill "
    "encode decode title splitlines partition rpartition hexdigest isoformat "
    "strftime keys values items copy index count named_parameters parameters "
    "named_modules modules children named_children state_dict exists is_file is_dir "
    "isEnabledFor as_posix total_seconds get_extra_state extra_repr bit_length"
)
#: Methods that return a copy of a tensor, and change a module in place.
CONVERSIONS = _set("float double half bfloat16 to cpu cuda type int long")
#: Methods by which a module tells about itself; its others may be of any kind.
ABOUT_MODULES = _set(
    "named_parameters parameters named_modules modules children named_children "
    "state_dict extra_repr named_buffers buffers"
)
#: Attributes of modules that are tensors.
_TENSOR = re.compile(
    r"(weight|bias|data|grad|logits|loss|T|(.*_)?(states?|ids|tensor|scale|hidden|buf"
    r"|embeds?|positions|cache|weight|bias|residual)(_to_\w+)?)"
)
_FUNCTIONS = re.compile(
    r"(torch\.(linalg\.|nn\.functional\.|special\.)?"
    r"(norm|vector_norm|matrix_norm|isnan|isinf|isfinite|mean|std|var|max|min|abs|sum"
    r"|any|all|allclose|equal|isclose|argmax|argmin|topk|cat|concat|stack|unique|dot"
    r"|nonzero|softmax|log_softmax|tensor|is_tensor|numel|count_nonzero|median|sqrt"
    r"|square|sub|add|mul|matmul|cosine_similarity|mse_loss|l1_loss|quantile|histc"
    r"|no_grad|inference_mode|typename|amax|amin|aminmax|zeros_like|as_tensor|eq|ne)"
    r"|torch\.cuda\.(current_device|memory_allocated|memory_reserved|device_count"
    r"|max_memory_allocated|current_stream|mem_get_info|get_device_name)"
    r"|torch\.(distributed\.)?(get_rank|get_world_size|get_backend)"
    r"|numpy\.(linalg\.)?(norm|mean|abs|max|min|sum|std|array|asarray|isnan|isinf|any"
    r"|all|round|median|percentile|allclose|prod)"
    r"|math\.\w+|time\.(time|time_ns|perf_counter|perf_counter_ns|monotonic|strftime"
    r"|localtime|gmtime|process_time)|datetime\.(datetime\.)?(now|utcnow|today)"
    r"|os\.(getenv|getpid|getcwd|environ\.get|environ\.copy|fspath)"
    r"|os\.path\.(exists|isfile|isdir|join|basename|dirname|abspath|getsize"
    r"|expanduser)|pathlib\.Path|threading\.(get_ident|current_thread)"
    r"|socket\.gethostname|json\.dumps|pprint\.pformat|textwrap\.\w+|inspect\.\w+"
    r"|traceback\.(format_stack|format_exc|extract_stack)|sys\.(getsizeof|_getframe)"
    r"|collections\.(Counter|defaultdict|OrderedDict|deque|namedtuple)"
    r"|hashlib\.\w+|uuid\.uuid4|functools\.partial|itertools\.(chain|islice|count)"
    r"|contextlib\.(suppress|nullcontext)|warnings\.catch_warnings"
    r"|logging\.getLogger|operator\.\w+|platform\.\w+|string\.\w+|re\.(match|search|findall|sub|compile"
    r"|fullmatch|split))"
)
#: Names that say that a function only looks.
_ASKS = re.compile(r"_*(is|has)_\w+|_*get_(\w+_)?(rank|size|world_size|capture_mode)")
#: Contexts that a ``with`` around debug code may open.
CONTEXTS = frozenset(
    (
        *("torch.no_grad", "torch.inference_mode", "contextlib.suppress"),
        *("contextlib.nullcontext", "warnings.catch_warnings"),
    )
)


def words(text: str) -> set[str]:
    """The lower-case runs of letters in ``text``: aux_hidden_states gives three."""
    return set(re.findall(r"[a-z]+", text.lower()))


def names_debugging(name: str) -> bool:
    """Whether a variable's name is that of a throwaway."""
    return len(name.strip("_")) <= 2 or bool(words(name) & _TEMPORARY)


def says_debug(name: str) -> bool:
    """Whether a public name is plainly that of debug code."""
    return name.lower().startswith("log_") or bool(words(name) & _SAYS_DEBUG)


def is_quiet_module(path: str) -> bool:
    """Whether importing a module does nothing but bind it, or SGLang does it anyway:
    others may register operators or models."""
    top = path.split(".")[0]
    return top in sys.stdlib_module_names or top in ("", "torch", "sglang", "numpy")


def is_logger(name: str) -> bool:
    return bool(_LOGGER.fullmatch(name))


def is_tensor_name(name: str) -> bool:
    return bool(_TENSOR.fullmatch(name))


def only_looks(path: str) -> bool:
    """Whether the function of this dotted path returns something and no more."""
    last = path.rpartition(".")[2]
    return bool(_FUNCTIONS.fullmatch(path) or _ASKS.fullmatch(last))


def comment_stays(comment: str) -> bool:
    return bool(_STAYS.match(comment))


def comment_is_debug(comment: str) -> bool:
    """Whether a comment above debug code talks about it, and goes with it."""
    return bool(_DEBUG_COMMENT.search(comment)) and not comment_stays(comment)


def subjects(call: ast.Call) -> set[str]:
    """The words in the texts and names of a call's arguments."""
    found: set[str] = set()
    for part in (*call.args, *call.keywords):
        for node in ast.walk(part):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= words(node.value)
            elif isinstance(node, ast.Name):
                found |= words(node.id)
            elif isinstance(node, ast.Attribute):
                found |= words(node.attr)
    return found


def last_name(node: ast.AST) -> str:
    """``c`` for ``a().b.c``; nothing for what has no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.AST) -> str:
    """``a.b.c`` for a chain of attributes of a name; else nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])
