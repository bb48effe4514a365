"""canary."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from patchkit.cli.options import JSON, PYTHON, TARGET
from patchkit.cli.terminal import Progress, print_json, style_for
from patchkit.errors import UsageError

OUT = click.Path(path_type=Path)


class _Layers(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "layers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        try:
            return tuple(int(one) for one in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r}: give layers like 2,30,58", param, ctx)


@click.group()
def canary() -> None:
    """A synthetic target and draft whose accept length is known beforehand.

    \b
    patchkit canary make OUT
    python -m sglang.launch_server --model-path OUT/target ...
    patchkit canary check http://127.0.0.1:30000
    """


@canary.command()
@click.argument("out", type=OUT)
@click.option("--layers", default=8, metavar="N", help="Of the target; default 8.")
@click.option(
    "--hidden", type=int, metavar="H", help="Default: the least that holds the layers."
)
@click.option(
    "--heads", type=int, metavar="N", help="Of target and draft; default max(4, 2 tp)."
)
@click.option(
    "--dtype",
    default="float32",
    help="float32 (default), bfloat16 or float16.",
)
@click.option(
    "--ids",
    type=_Layers(),
    metavar="A,B,C",
    help="The layers that draft-ids/config.json names.",
)
@click.option(
    "--tp", default=1, metavar="N", help="Spread digits over N ranks; default 1."
)
@JSON
def make(
    out: Path,
    layers: int,
    hidden: int | None,
    heads: int | None,
    dtype: str,
    ids: tuple[int, ...] | None,
    tp: int,
    as_json: bool,
) -> int:
    """Write the pair's checkpoints into OUT, a new folder.

    A target of DeepSeek-V3's architecture, an EAGLE-3 draft for SGLang's default
    captured layers, one whose config names layers, one that notices wrong positions;
    and the proof that the arithmetic of the dtype holds them.
    """
    from patchkit.canary.folder import write_pair
    from patchkit.canary.plan import make_plan
    from patchkit.canary.text import made_json, made_text

    plan = make_plan(
        layers=layers, hidden=hidden, heads=heads, dtype=dtype, ids=ids, tp=tp
    )
    proof = write_pair(plan, out)
    if as_json:
        print_json(made_json(plan, out, proof))
    else:
        print(made_text(plan, out, proof, style_for(sys.stdout)))
    return 0


@canary.command()
@click.argument("url")
@click.option(
    "--pair",
    type=OUT,
    metavar="OUT",
    help="The pair's folder, if it is not where the server says.",
)
@click.option(
    "--timeout",
    default=120.0,
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="For each request; default 120.",
)
@click.option(
    "--api-key", envvar="PATCHKIT_API_KEY", metavar="KEY", help="The server's API key."
)
@JSON
def check(
    url: str, pair: Path | None, timeout: float, api_key: str | None, as_json: bool
) -> int:
    """Ask a running server that has the pair whether it accepts what it should.

    Sends prompts, compares what each verify step accepts with the closed form, and
    names the fault.

    Exit 0: right; 1: a fault; 2: no address of an HTTP server; 3: --pair is no pair;
    4: no server, no canary, or arguments for which there is no closed form (topk
    above 1); 130: interrupted.
    """
    from patchkit.canary.ask import Server
    from patchkit.canary.check import check
    from patchkit.canary.text import checked_json, checked_text

    checked = check(Server(url, api_key, timeout), pair, Progress())
    if as_json:
        print_json(checked_json(checked))
    else:
        print(checked_text(checked, style_for(sys.stdout)))
    return checked.exit_code


@canary.command()
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    help="cpu (default): SGLang's offline engine, its kernels done in torch; cuda: a"
    " server of the target's own, with its compiled kernels.",
)
@click.option("--draft", default="draft", metavar="NAME", help="Of the pair's folders.")
@click.option(
    "--dtype", default="float32", help="float32 (default), bfloat16 or float16."
)
@click.option("--tp", default=1, metavar="N", help="Tensor-parallel ranks; default 1.")
@click.option(
    "--timeout",
    default=180.0,
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="For the start, and for the answers; default 180.",
)
@click.argument("arguments", nargs=-1, metavar="[-- SERVER ARGUMENTS]")
@JSON
@PYTHON
@TARGET
def run(
    arguments: tuple[str, ...],
    target: str | None,
    python: str | None,
    as_json: bool,
    device: str,
    draft: str,
    dtype: str,
    tp: int,
    timeout: float,
) -> int:
    """Make the pair, start the target's engine on it, ask, and clean up.

    Exit 0: right; 1: a fault, or the engine ended in the model's forward; 4: it could
    not be started; 130: interrupted.
    """
    from patchkit.canary.plan import DRAFTS, make_plan
    from patchkit.canary.text import checked_json, checked_text
    from patchkit.target import find_package
    from patchkit.verify.canary import Asking, run_canary

    if draft not in DRAFTS:
        raise UsageError(
            f"--draft {draft}: there is no such draft",
            hint=f"there are {', '.join(DRAFTS)}",
        )
    if arguments and device == "cpu":
        raise UsageError(
            f"{' '.join(arguments)}: no server is started on a CPU",
            hint="give --device cuda, or leave them out",
        )
    plan = make_plan(dtype=dtype, tp=tp)
    asking = Asking(plan, draft, device, python, timeout, arguments)
    checked = run_canary(find_package(target, python), asking, Progress())
    if as_json:
        print_json(checked_json(checked))
    else:
        print(checked_text(checked, style_for(sys.stdout)))
    return checked.exit_code
