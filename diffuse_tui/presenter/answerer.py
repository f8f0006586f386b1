"""Which model answers, what is said when it becomes another, and why it cannot be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean_line

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView
    from diffuse_tui.presenter.dialogue import KeptTurn


def name_of(model: ModelView) -> str:
    """What exactly is asked: `id@fingerprint`."""
    return f"{model.id}@{model.fingerprint}"


def id_of(name: str) -> str:
    """The id in `id@fingerprint`."""
    return name.rpartition("@")[0] or name


class Answerer:
    """Keeps track of the model that the next question goes to.

    Attributes:
        model: None while there is none.
        refusal: Why it cannot be asked now, None when it can.
    """

    def __init__(self) -> None:
        self.model: ModelView | None = None
        self.refusal: str | None = "the network is not known yet"
        self._told: str | None = None
        self._confirm = False

    def set(self, model: ModelView | None, refusal: str | None) -> bool:
        """What the network has now; whether another model answers, or there is another refusal."""
        same = (model and name_of(model)) == (self.model and name_of(self.model))
        new = not same or refusal != self.refusal
        self.model, self.refusal = model, refusal
        return new

    def switched(self, last: KeptTurn | None, *, picked: bool) -> str | None:
        """What to say between the turns: "" for nothing more, None to leave it as it is.

        Args:
            last: The newest turn of the conversation.
            picked: Whether the user chose the model, or the conversation, just now.
        """
        model = self.model
        if model is None or (name_of(model) == self._told and not picked):
            return None
        self._told = name_of(model)
        if last is None or last.model == self._told:
            self._confirm = False
            return ""
        self._confirm = not picked
        gone = f"{id_of(last.model)} is not there any more · " if self._confirm else ""
        return f"{gone}from here on: {model.id}"

    def asked(self, name: str) -> None:
        """A question went to the model of this name."""
        self._told, self._confirm = name, False

    def forget(self) -> None:
        """Another conversation begins."""
        self._told, self._confirm = None, False

    def why_not(self) -> str | None:
        """Why a question cannot be sent; one to a model that was not chosen must be sent twice."""
        if self.model is None or self.refusal is not None:
            return f"not sent: {self.refusal or 'there is no model'}"
        if self._confirm:
            self._confirm = False
            name = clean_line(self.model.id, 60)
            return f"not sent: the model before is not there any more; once more asks {name}"
        return None
