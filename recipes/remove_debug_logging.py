"""Take hand-written debug code out, gated or not.

Takes out what gate-debug-logging would put behind ``EAGLE3_DEBUG``: ``print`` and its
kin, ``breakpoint`` and ``pdb``; calls of a logger, and warnings, whose text or
arguments name hidden states, aux states, norms or shapes; hooks that print, log files;
the loops, counters, latches and temporaries that only feed these, with the helper
functions and imports that nothing else in the file uses. Every ``if`` on
``EAGLE3_DEBUG`` goes too, as if the variable was unset: its body is dropped, and an
``else`` takes its place. What is left is the code without it: an ``else`` or a loop
with nothing in it goes, a body that must hold something holds ``pass``, comments about
the debug code go and others stay. Lines that were only added to a release are gone to
the byte.

Nothing that has an effect is removed. Left alone, and reported with its line and the
reason: a print whose arguments may do more than look (``print(queue.pop())``), a
temporary whose value does, a temporary that may be the release's own, ``+=`` on what
other code may hold, a loop that may wait or use up an iterator, an import that may do
more than bind a name, an assertion that values are finite, public names that do not say
debug (other files may use them), and what stands behind a switch of SGLang's own.
``torch.save``, other dumps and files opened to write stay too, with the ``if`` on
``EAGLE3_DEBUG`` around them, of which only the prints go: ``-O dumps=yes`` takes them
out, files only if their path or what is written says that they are debug logs. The
lines reported are those of the edited file. Lines that patchkit inserted are never
touched: ``patchkit revert`` is for these.
Loggers that say nothing of hidden states are debug code only if ``-O pattern=...``
matches them; a lone ``torch.cuda.synchronize()``, and functions of yours that live in
another file, are named with ``-O calls=dump,self.trace``.

The recipe removes lines that are there, instead of adding marked ones. So its changes
rest on the journal alone: ``patchkit revert`` puts your debug code back to the byte,
but a tree that has lost its journal can't. Code that you add after patchkit first
changed a file counts as your edit of it, and is not looked at: revert, then apply
again.
"""

from patchkit.recipe import EditsDebugCode, Recipe, remove_debug_code


class RemoveDebugLogging(EditsDebugCode, Recipe):
    version = 1
    summary = "take hand-written debug prints out"
    releases = "any"
    next_step = "restart the server; patchkit revert puts the debug code back"
    inserts_only = False
    excludes = ("gate-debug-logging",)
    files = (
        "srt/models/deepseek_v2.py",
        "srt/layers/logits_processor.py",
        "srt/models/llama_eagle3.py",
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
        "dumps": ("no", "yes: torch.save and other dumps are taken out too"),
    }
    sites = {
        "debug code": "nothing any more",
        "left alone": "what looks like debug code and was not touched, and why",
    }

    def edit_text(self, text: str) -> str:
        return self.report(
            remove_debug_code(text, self.wanted), "debug code", standing=False
        )
