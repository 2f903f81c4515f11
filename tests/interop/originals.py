"""Tiny models of transformers with random weights, biases, norms and padding embeddings, and their outputs."""

import pytest
import torch

COMMON = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
MOBILE = {**COMMON, "embedding_size": 12, "intra_bottleneck_size": 16, "num_feedforward_networks": 3}
RAW = {"classifier_activation": False}
TINY = {"use_bottleneck_attention": True, "key_query_shared_bottleneck": False}
WIDE = {"intra_bottleneck_size": 32, "key_query_shared_bottleneck": False, "num_feedforward_networks": 1}
LABELS = {"id2label": {0: "no", 1: "maybe", 2: "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}

BODIES = {
    "bert": ("Bert", COMMON),
    "bert-relu": ("Bert", {**COMMON, "hidden_act": "relu", "type_vocab_size": 3, "layer_norm_eps": 1e-5}),
    "bert-tanh-gelu": ("Bert", {**COMMON, "hidden_act": "gelu_new"}),
    "electra": ("Electra", {**COMMON, "embedding_size": 16}),
    "electra-one-width": ("Electra", {**COMMON, "embedding_size": 32, "hidden_act": "relu"}),
    "convbert": ("ConvBert", {**COMMON, "embedding_size": 16, "conv_kernel_size": 5}),
    "convbert-grouped": ("ConvBert", {**COMMON, "embedding_size": 32, "num_groups": 2}),
    "convbert-ratio-4": ("ConvBert", {**COMMON, "embedding_size": 32, "head_ratio": 4}),
    "convbert-ratio-1": ("ConvBert", {**COMMON, "embedding_size": 32, "head_ratio": 1}),
    "convbert-one-head": ("ConvBert", {**COMMON, "embedding_size": 32, "num_attention_heads": 1}),
    "mobilebert": ("MobileBert", MOBILE),
    "mobilebert-raw": ("MobileBert", {**MOBILE, **RAW}),
    "mobilebert-tiny": ("MobileBert", {**MOBILE, **RAW, **TINY, "hidden_act": "relu6"}),
    "mobilebert-wide": ("MobileBert", {**MOBILE, **RAW, **WIDE}),
    "mobilebert-layer-norm": ("MobileBert", {**MOBILE, "normalization_type": "layer_norm", "layer_norm_eps": 1e-5}),
}
# The class, and its heads in our terms.
CLASSES = {
    "Bert": {
        "Model": ["pooler"],
        "ForPreTraining": ["mlm", "nsp"],
        "ForMaskedLM": ["mlm"],
        "ForNextSentencePrediction": ["nsp"],
        "ForSequenceClassification": ["classify"],
        "ForTokenClassification": ["tokens"],
        "ForQuestionAnswering": ["span"],
        "ForMultipleChoice": ["choice"],
    },
    "Electra": {
        "Model": [],
        "ForPreTraining": ["rtd"],
        "ForMaskedLM": ["mlm"],
        "ForSequenceClassification": ["classify"],
        "ForTokenClassification": ["tokens"],
        "ForQuestionAnswering": ["span"],
    },
    "ConvBert": {
        "Model": [],
        "ForMaskedLM": ["mlm"],
        "ForSequenceClassification": ["classify"],
        "ForTokenClassification": ["tokens"],
        "ForQuestionAnswering": ["span"],
    },
}
CLASSES["MobileBert"] = CLASSES["Bert"]
# Every class of the main bodies; of their variants the body and the head that depends on its config.
THOROUGH = {"bert", "electra", "electra-one-width", "convbert", "mobilebert", "mobilebert-raw"}
CASES = [
    (body, suffix)
    for body, (stem, _) in BODIES.items()
    for suffix in (CLASSES[stem] if body in THOROUGH else ("Model", "ForMaskedLM"))
]


def original(body, suffix="Model", **changes):
    transformers = pytest.importorskip("transformers")
    stem, settings = BODIES[body]
    labels = LABELS if suffix in ("ForSequenceClassification", "ForTokenClassification") else {}
    config = getattr(transformers, f"{stem}Config")(**{**settings, **labels, **changes})
    return randomised(getattr(transformers, stem + suffix)(config))


def randomised(model):
    for name, parameter in model.named_parameters():
        centre = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        torch.nn.init.normal_(parameter, mean=centre, std=0.2)
    return model.eval()


def batch():
    """Three texts, two of them padded on the right with an id whose embedding is not zero."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 60, (3, 11), generator=generator)
    lengths = torch.tensor([11, 7, 3])
    mask = torch.arange(11) < lengths[:, None]
    segments = ((torch.arange(11) > 4) & mask).long()
    return ids.masked_fill(~mask, 0), mask, segments


@torch.no_grad()
def their_outputs(model):
    """States and logits of a model of transformers: at real tokens where there is one output per token."""
    ids, mask, segments = batch()
    inputs = {"input_ids": ids, "attention_mask": mask.long(), "token_type_ids": segments}
    outputs = {"states": model.base_model(**inputs).last_hidden_state[mask]}
    if type(model).__name__.endswith("ForMultipleChoice"):
        inputs = {name: tensor[None] for name, tensor in inputs.items()}
    result = model(**inputs)
    for name in ("pooler_output", "logits", "prediction_logits", "seq_relationship_logits"):
        if result.get(name) is not None:
            outputs[name] = result[name][mask] if result[name].shape[:2] == mask.shape else result[name]
    if "start_logits" in result:
        outputs["span"] = torch.stack([result.start_logits[mask], result.end_logits[mask]])
    return outputs


@torch.no_grad()
def our_outputs(model):
    """The same for one of our models, in the same order."""
    ids, mask, segments = batch()
    states = model(ids, mask, segments)
    outputs = {"states": states[mask]}
    for kind, head in model.heads.items():
        if kind == "mlm":
            outputs[kind] = head(states, model.table)[mask]
        elif kind == "choice":
            outputs[kind] = head(states[None])
        elif kind == "span":
            start, end = head(states)
            outputs[kind] = torch.stack([start[mask], end[mask]])
        elif kind == "regress":
            outputs[kind] = head(states)[:, None]
        else:
            result = head(states)
            outputs[kind] = result[mask] if kind in ("rtd", "tokens") else result
    return outputs


def assert_same_outputs(ours, theirs):
    assert len(ours) == len(theirs), (list(ours), list(theirs))
    for (kind, our), (name, their) in zip(ours.items(), theirs.items(), strict=True):
        assert our.shape == their.shape, (kind, name)
        error = (our - their).abs().max() / their.abs().max()
        assert error <= 1e-5, f"{kind} and {name} differ by {error:.1e}"
