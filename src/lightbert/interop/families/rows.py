"""Keymap rows that several families share: the names of transformers' BERT, which the other families kept."""

from lightbert.interop.keymap import PositionIds, Row

EMBEDDINGS = (
    Row("embeddings.word.weight", "embeddings.word_embeddings.weight"),
    Row("embeddings.position.weight", "embeddings.position_embeddings.weight"),
    Row("embeddings.segment.weight", "embeddings.token_type_embeddings.weight"),
    Row("embeddings.norm.{p}", "embeddings.LayerNorm.{p}"),
)
EMBEDDINGS_PROJECT = Row("embeddings.project.{p}", "embeddings_project.{p}")
POSITION_IDS = PositionIds("embeddings.position_ids")

ATTENTION = (
    Row("blocks.{i}.mixer.query.{p}", "encoder.layer.{i}.attention.self.query.{p}"),
    Row("blocks.{i}.mixer.key.{p}", "encoder.layer.{i}.attention.self.key.{p}"),
    Row("blocks.{i}.mixer.value.{p}", "encoder.layer.{i}.attention.self.value.{p}"),
    Row("blocks.{i}.output.{p}", "encoder.layer.{i}.attention.output.dense.{p}"),
    Row("blocks.{i}.norm.{p}", "encoder.layer.{i}.attention.output.LayerNorm.{p}"),
)
FEEDFORWARD = (
    Row("blocks.{i}.feedforward.up.{p}", "encoder.layer.{i}.intermediate.dense.{p}"),
    Row("blocks.{i}.feedforward.down.{p}", "encoder.layer.{i}.output.dense.{p}"),
    Row("blocks.{i}.feedforward.norm.{p}", "encoder.layer.{i}.output.LayerNorm.{p}"),
)

TOKEN_HEADS = (
    Row("heads.tokens.output.{p}", "classifier.{p}"),
    Row("heads.span.output.{p}", "qa_outputs.{p}"),
)
# BERT and MobileBERT: all [CLS] heads share the pooler of the body.
POOLED_HEADS = (
    Row("heads.pooler.dense.{p}", "pooler.dense.{p}"),
    Row("heads.nsp.dense.{p}", "pooler.dense.{p}"),
    Row("heads.nsp.output.{p}", "cls.seq_relationship.{p}"),
    Row("heads.classify.dense.{p}", "pooler.dense.{p}"),
    Row("heads.classify.output.{p}", "classifier.{p}"),
    Row("heads.regress.dense.{p}", "pooler.dense.{p}"),
    Row("heads.regress.output.{p}", "classifier.{p}"),
    Row("heads.choice.dense.{p}", "pooler.dense.{p}"),
    Row("heads.choice.output.{p}", "classifier.{p}"),
)
PREDICTIONS = (
    Row("heads.mlm.transform.{p}", "cls.predictions.transform.dense.{p}"),
    Row("heads.mlm.norm.{p}", "cls.predictions.transform.LayerNorm.{p}"),
    Row("heads.mlm.bias", "cls.predictions.bias"),
)
# ELECTRA and ConvBERT: no pooler; each head has its own hidden layer.
UNPOOLED_HEADS = (
    Row("heads.classify.dense.{p}", "classifier.dense.{p}"),
    Row("heads.classify.output.{p}", "classifier.out_proj.{p}"),
    Row("heads.regress.dense.{p}", "classifier.dense.{p}"),
    Row("heads.regress.output.{p}", "classifier.out_proj.{p}"),
)
GENERATOR_PREDICTIONS = (
    Row("heads.mlm.transform.{p}", "generator_predictions.dense.{p}"),
    Row("heads.mlm.norm.{p}", "generator_predictions.LayerNorm.{p}"),
    Row("heads.mlm.bias", "generator_lm_head.bias"),
)
