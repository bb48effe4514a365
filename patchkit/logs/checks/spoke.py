"""Sites and ranks that never spoke, and what the taps say about themselves."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from patchkit.logs.finding import ERROR, NOTE, WARNING, Finding, Findings
from patchkit.logs.landmarks import Landmarks
from patchkit.logs.record import Note, Where
from patchkit.logs.table import Row

#: The sites of debug-logging that speak in every release with aux capture.
#: The draft's class that the recipe puts taps into.
_TAPPED = "LlamaForCausalLMEagle3"
SITES = ("deepseek_v2.aux", "logits_processor.concat", "llama_eagle3.fc_in",
         "llama_eagle3.fc_out")  # fmt: skip


class Spoke:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._sites: dict[str, Where] = {}
        self._in_graphs: dict[str, Note] = {}
        self._silent_taps = False
        self.lost = 0

    def note(self, note: Note) -> None:
        if note.event == "captured":
            if len(self._in_graphs) < 64:
                self._in_graphs.setdefault(note.site, note)
            self._silent_taps = self._silent_taps or "silent" in note.text
        elif note.event == "lost":
            self.lost += note.count
            self._lost(note)
        elif note.event == "failed":
            self._add(
                *("tap-failed", ERROR, f"the tap at {note.site} failed"),
                *(f"{note.text[:400]}.", note),
                "the model went on without it: patchkit verify --target DIR",
            )
        elif note.event == "said":
            self._add(
                *("said", WARNING, f"{note.site}: {note.text[:200]}", "", note),
                "",
            )

    def finish(
        self, rows: Sequence[Row], ranks: Collection[int], landmarks: Landmarks
    ) -> None:
        for row in rows:
            self._sites.setdefault(row.site, row.first)
        replayed = {row.site for row in rows if row.in_graphs}
        if not self._sites:
            self._nothing(landmarks)
            return
        self._silent_sites(landmarks)
        for site, note in self._in_graphs.items():
            if site in self._sites and site not in replayed and self._silent_taps:
                self._add(
                    "silent-in-graphs",
                    WARNING,
                    f"{site} speaks only outside CUDA graphs",
                    "It was captured in a graph, and the taps of this tree say nothing"
                    " at replay.",
                    note,
                    "patchkit reapply brings taps that do, then restart the server",
                )
        silent = landmarks.ranks.difference(ranks)
        if len(landmarks.ranks) > 1 and silent:
            shown = ", ".join(map(str, sorted(silent)))
            self._add(
                "rank-silent",
                WARNING,
                f"no tap spoke on rank {shown}",
                f"These ranks have lines in the log, and {len(ranks)} others spoke.",
                None,
                "EAGLE3_DEBUG_RANKS leaves them out, or EAGLE3_DEBUG did not reach"
                " these workers (other hosts have their own environment)",
            )

    def _lost(self, note: Note) -> None:
        key = ("records-lost",)
        title = f"{self.lost} records were overwritten before they were read"
        if self._findings.again("records-lost", [note.where]):
            self._findings.found[key].title = title
            return
        self._add(
            *("records-lost", WARNING, title),
            "The GPU was faster than the reader of its ring; counts are too low, and"
            " forwards with a gap are not compared.",
            note,
            "EAGLE3_DEBUG_EVERY=N or EAGLE3_DEBUG_SITES=... make fewer records",
        )

    def _nothing(self, landmarks: Landmarks) -> None:
        likely = []
        if self._in_graphs:
            likely.append(
                "the taps were captured in CUDA graphs and no request came since, or"
                " they are of a version that is silent at replay: patchkit reapply"
            )
        elif landmarks.algorithm == "None":
            likely.append(
                "the server runs without speculative decoding (speculative_algorithm="
                "None), so no aux state is captured"
            )
        if not self._in_graphs:
            likely.append(
                "EAGLE3_DEBUG=1 was not set where the server was started, or did not"
                " reach its workers (docker -e, srun --export, ray's runtime_env)"
            )
            likely.append(_tree(landmarks))
            begins = (
                f" (this log begins at {landmarks.begins})" if landmarks.begins else ""
            )
            likely.append(
                f"the server was started before the patch was applied{begins}:"
                " patchkit log says when"
            )
            if landmarks.models and not any("Deepseek" in m for m in landmarks.models):
                likely.append(
                    f"the model is {', '.join(landmarks.models)}, which runs on none of"
                    " the patched files"
                )
        if not landmarks.server:
            likely.append("this is not the log of a server's start")
        note = next(iter(self._in_graphs.values()), None)
        self._add(
            "nothing-spoke",
            ERROR,
            "no tap spoke",
            "Likely reasons: "
            + "; ".join(f"({i}) {text}" for i, text in enumerate(likely, 1))
            + ".",
            note,
            "",
        )

    def _silent_sites(self, landmarks: Landmarks) -> None:
        silent = [site for site in SITES if site not in self._sites]
        if len(silent) == len(SITES):
            self._site_silent(WARNING, silent, "EAGLE3_DEBUG_SITES leaves them out")
            return
        by_reason: dict[tuple[str, str], list[str]] = {}
        for site in silent:
            by_reason.setdefault(self._why(site, landmarks), []).append(site)
        for (severity, why), sites in by_reason.items():
            self._site_silent(severity, sites, why)

    def _site_silent(self, severity: str, sites: list[str], why: str) -> None:
        note = self._in_graphs.get(sites[0])
        evidence = note.where if note else next(iter(self._sites.values()))
        title = f"{' and '.join(sites)} never spoke"
        text = f"Other sites did. Likely: {why}."
        found = Finding("site-silent", severity, title, text, [evidence])
        found.site = sites[0]
        self._findings.add(found, title)

    def _why(self, site: str, landmarks: Landmarks) -> tuple[str, str]:
        """How bad it is that a site never spoke, and what may be the reason."""
        if site in self._in_graphs:
            return WARNING, (
                "captured in a CUDA graph that was not replayed since; or the taps of"
                " this tree are silent at replay: patchkit reapply"
            )
        if site == "deepseek_v2.aux":
            return NOTE, (
                "releases up to 0.5.4.post1 capture no states, and other models hand"
                " theirs to the logits processor themselves"
            )
        filtered = "EAGLE3_DEBUG_SITES leaves it out"
        if site == "logits_processor.concat":
            return WARNING, f"{filtered}, or no request wanted hidden states"
        if landmarks.algorithm == "None":
            return WARNING, "speculative_algorithm=None: there is no draft"
        if landmarks.raised:
            return WARNING, f"the forward raised {landmarks.raised}"
        drafts = [one for one in landmarks.models if "agle" in one]
        other = ""
        if _TAPPED not in drafts:
            other = f"the draft is another model than {_TAPPED}"
            other += f" (loaded: {', '.join(drafts)}); " if drafts else "; "
        return WARNING, (
            f"{filtered}; {other}its forward raised; or llama_eagle3.py of another tree"
            " is imported"
        )

    def _add(
        self,
        name: str,
        severity: str,
        title: str,
        text: str,
        note: Note | None,
        hint: str,
    ) -> None:
        where = [note.where] if note else []
        key = () if name == "records-lost" else (title,)
        if not self._findings.again(name, where, *key):
            site = note.site if note else None
            found = Finding(name, severity, title, text, where, hint, site)
            self._findings.add(found, *key)


def _tree(landmarks: Landmarks) -> str:
    if landmarks.trees:
        where = " and ".join(landmarks.trees)
        return (
            f"the server runs another tree than the patched one: the log names {where},"
            f" so patchkit status --target {landmarks.trees[0]}"
        )
    return (
        "the server imports another tree than the patched one: patchkit status"
        " --python PYTHON says which"
    )
