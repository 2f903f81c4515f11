"""A tokenizer of sixty words."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer():
    words = [*SPECIAL, *(f"w{number}" for number in range(55))]
    result = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    result.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    result.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    result.add_special_tokens(SPECIAL)
    return result
