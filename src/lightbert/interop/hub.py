"""Download model folders from the Hugging Face Hub with huggingface_hub (its cache, tokens and offline mode)."""

from pathlib import Path

from lightbert.errors import InputError, required

_FILES = (
    "config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    # sentence-transformers
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
)
_PICKLES = ("pytorch_model*.bin", "pytorch_model.bin.index.json")


def download(repository: str, revision: str | None = None, *, pickled: bool = False) -> Path:
    """Return the folder of a model in the local cache; download it if necessary.

    revision: a branch, tag or commit; None = the default branch.
    pickled: also download pickled weights if there are no safetensors.
    """
    with required(f"{_failure(repository)} requires huggingface_hub", "lightbert[hf]"):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
    try:
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=list(_FILES)))
        if pickled and not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(repository, revision=revision, allow_patterns=[*_FILES, *_PICKLES]))
    except GatedRepoError:
        raise _download_error(repository, "access requires a login: run `hf auth login`") from None
    except RepositoryNotFoundError:
        raise _download_error(repository, "no public model has that name") from None
    except RevisionNotFoundError:
        raise _download_error(repository, f"it has no revision '{revision}'") from None
    # huggingface_hub also raises the errors of its HTTP library.
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise _download_error(repository, reason) from error
    return folder


def _download_error(repository: str, reason: str) -> InputError:
    return InputError(f"{_failure(repository)} failed: {reason}")


def _failure(repository: str) -> str:
    return f"model folder '{repository}' not found, and downloading it from the Hugging Face Hub"
