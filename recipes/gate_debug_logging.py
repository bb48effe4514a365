"""Put hand-written debug code behind ``EAGLE3_DEBUG``.

Finds what people add to the three files when acceptance is low: ``print`` and its
kin (a console's, ``tqdm.write``), ``breakpoint`` and ``pdb``; calls of a logger, and
warnings, whose text or arguments name hidden states, aux states, norms or shapes; hooks
that print, log files, ``torch.save`` dumps; and the loops, counters, latches and
temporaries that only feed these. Each stretch of it moves under
``if _EAGLE3_DEBUG_ON:``, one level deeper and otherwise unchanged. The constant stands
below the imports and is true if the environment variable is set to anything but 0,
false, no or off, as for the taps of debug-logging. So ``print(aux.norm().item())``
in a forward, which costs a synchronisation at every step and ends a CUDA graph capture,
costs a test of a constant until it is asked for.

What is debug code is told by data flow, not by names: a statement goes behind the gate
if it prints, or if nothing but such code reads what it computes and computing it does
no more than look. Left alone, and reported with its line and the reason: whatever may
have an effect (``print(queue.pop())``, a call of a function that is not known only to
look, a loop over an iterator that others read, ``+=`` on what others may hold), public
names that do not say debug, files that may be no debug logs, statements that share
their line with other code, and what stands behind a switch of SGLang's own. The lines
reported are those of the edited file. Code that is behind ``EAGLE3_DEBUG`` already
stays as it is, and so do lines that patchkit inserted (``patchkit revert`` is for
these). Loggers that say nothing of hidden states are debug code only if ``-O
pattern=...`` matches them; a lone ``torch.cuda.synchronize()``, and functions of yours
that live in another file, are named with ``-O calls=dump,self.trace``.

The recipe indents lines that are there, instead of adding marked ones. So its changes
rest on the journal alone: ``patchkit revert`` restores the bytes, but a tree that has
lost its journal can't be reverted by stripping marks. Code that you add after patchkit
first changed a file counts as your edit of it, and is not looked at: revert, then apply
again.
"""

from patchkit.recipe import EditsDebugCode, Recipe, gate_debug_code


class GateDebugLogging(EditsDebugCode, Recipe):
    version = 1
    summary = "put hand-written debug prints behind EAGLE3_DEBUG"
    releases = "any"
    next_step = "restart the server; EAGLE3_DEBUG=1 turns the debug code on"
    inserts_only = False
    excludes = ("remove-debug-logging",)
    files = (
        "srt/models/deepseek_v2.py",
        "srt/layers/logits_processor.py",
        "srt/models/llama_eagle3.py",
    )
    environment = (
        ("EAGLE3_DEBUG", "1 turns it on; unset, empty, 0, false, no, off: nothing"),
    )
    options = {
        "pattern": (
            "",
            "a regular expression: logger calls that it matches are debug code too",
        ),
        "calls": (
            "",
            "functions whose calls are debug code, as written: dump,self.trace",
        ),
    }
    sites = {
        "debug code": "whatever the code itself prints",
        "left alone": "what looks like debug code and was not touched, and why",
    }

    def edit_text(self, text: str) -> str:
        edited = gate_debug_code(text, self.wanted)
        return self.report(edited, "debug code", edited.gated)
