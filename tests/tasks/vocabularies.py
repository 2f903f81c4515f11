"""Tokenizers of a few words."""

from tokenizers import Tokenizer, models, pre_tokenizers

_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "the", "##s", "was", ".")


def small_tokenizer() -> Tokenizer:
    """WordPiece over a dozen words; everything else is one [UNK]."""
    tokenizer = Tokenizer(models.WordPiece({word: at for at, word in enumerate(_WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
