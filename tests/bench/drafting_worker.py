"""A peer with a mode that needs a draft model, which it tells in its versions; it reads no files in F16."""

MODES = {"plain": "", "draft-model": "3 tokens"}
MODEL = "gguf"
DRAFTS = ("draft-model",)
REFUSED = {"F16": "it halves them"}
COMPUTES = True


def open_model(options):
    told = {"drafting": "1", "draft": str(options["draft"]), "at_once": str(options["at_once"])}
    return told, lambda ids, max_new_tokens, emit: emit(ids) and None
