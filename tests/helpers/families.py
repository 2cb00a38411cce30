"""Tiny random models of every family, with weights so large that attention matters."""

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    T5Config,
    T5EncoderModel,
    XLMRobertaConfig,
)

from turnwise.models.backbone.bert import BertBackbone
from turnwise.models.backbone.inputs import END_OF_TURN, MARKS, RerankerTask
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.ragged import Tokens
from turnwise.models.encoder import Encoder
from turnwise.models.reranker import Reranker

UNPADDED = ("bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "electra", "modernbert", "gpt2")
BUCKETED = ("t5",)
FAMILIES = (*UNPADDED, *BUCKETED)

#: Tokens that a sequence may have, in every family.
LONGEST = 64

#: How far a token sees in ModernBERT's local layers, both sides together.
LOCAL = 8

_WORDS = (
    "a i you we it is to the want need book find cancel change table taxi train hotel room flight cheap good now "
    "please thanks yes no hello where when what which tomorrow tonight city centre north south east west one two three"
)
WORDS = tuple(_WORDS.split())

#: Special tokens in the order of their ids: padding, unknown, start, end, mask.
_BRACKETS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_ANGLES = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
_SPECIAL: dict[str, dict[str, str]] = {
    **dict.fromkeys(("bert", "distilbert", "electra", "modernbert"), _BRACKETS),
    **dict.fromkeys(("roberta", "xlm-roberta", "mpnet"), _ANGLES),
    "t5": {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
    "gpt2": {"eos_token": "<|endoftext|>", "unk_token": "<|unknown|>"},
}

_TEMPLATES = {
    **dict.fromkeys(("bert", "distilbert", "electra"), ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")),
    "modernbert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]"),
    **dict.fromkeys(("roberta", "xlm-roberta", "mpnet"), ("<s> $A </s>", "<s> $A </s> </s> $B </s>")),
    "t5": ("$A </s>", "$A </s> $B </s>"),
    "gpt2": ("$A", "$A $B"),
}

_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def tokenizer(family: str) -> PreTrainedTokenizerFast:
    """A tokenizer of whole words with the family's special tokens."""
    special = _SPECIAL[family]
    vocabulary = {word: index for index, word in enumerate((*special.values(), *WORDS))}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    single, pair = _TEMPLATES[family]
    around = [(token, vocabulary[token]) for token in special.values()]
    words.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=around)
    return PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=LONGEST, **special)


def config(family: str) -> PreTrainedConfig:
    """A small configuration without dropout."""
    size = len(_SPECIAL[family]) + len(WORDS)
    brackets = {"vocab_size": size, "pad_token_id": 0, **_SIZES}
    angles = {"vocab_size": size, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, **_SIZES, **_NO_DROPOUT}
    match family:
        case "bert":
            return BertConfig(**brackets, **_NO_DROPOUT, max_position_embeddings=LONGEST)
        case "electra":
            return ElectraConfig(**brackets, **_NO_DROPOUT, embedding_size=16, max_position_embeddings=LONGEST)
        case "distilbert":
            sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": LONGEST}
            return DistilBertConfig(vocab_size=size, pad_token_id=0, dropout=0.0, attention_dropout=0.0, **sizes)
        case "modernbert":
            ends = {"cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
            local = {"local_attention": LOCAL, "global_attn_every_n_layers": 3, "max_position_embeddings": LONGEST}
            return ModernBertConfig(**{**brackets, "num_hidden_layers": 3}, **ends, **local)
        case "roberta":
            return RobertaConfig(**angles, max_position_embeddings=LONGEST + 2, type_vocab_size=1)
        case "xlm-roberta":
            return XLMRobertaConfig(**angles, max_position_embeddings=LONGEST + 2, type_vocab_size=1)
        case "mpnet":
            return MPNetConfig(**angles, max_position_embeddings=LONGEST + 2)
        case "t5":
            sizes = {
                "d_model": 32,
                "d_kv": 8,
                "d_ff": 48,
                "num_layers": 2,
                "num_heads": 4,
                "relative_attention_num_buckets": 8,
            }
            return T5Config(vocab_size=size, pad_token_id=0, eos_token_id=1, dropout_rate=0.0, **sizes)
        case "gpt2":
            sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": LONGEST}
            no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
            return GPT2Config(vocab_size=size, bos_token_id=0, eos_token_id=0, **sizes, **no_dropout)
    raise ValueError(family)


def nudged(folder: Path | str) -> Encoder:
    """Load an encoder and change its weights a little, as fine-tuning does: its vectors are almost the same."""
    encoder = Encoder.load(folder, device="cpu")
    with torch.no_grad():
        next(encoder.parameters())[-1] += 1e-4
    return encoder


def plain_model(source: Path | PreTrainedConfig) -> PreTrainedModel:
    """The model as transformers runs it by default, from a folder or with random weights from a configuration."""
    if isinstance(source, Path):
        kind = T5EncoderModel if source.name == "t5" else AutoModel
        return kind.from_pretrained(source).eval()
    return T5EncoderModel(source) if source.model_type == "t5" else AutoModel.from_config(source)


def save(family: str, folder: Path) -> None:
    """Writes a random model and its tokenizer."""
    torch.manual_seed(0)
    model = plain_model(config(family))
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter) * 0.3
            parameter.copy_(noise if parameter.dim() > 1 else parameter + noise)
    model.save_pretrained(folder)
    tokenizer(family).save_pretrained(folder)


def random_bert(**settings: Any) -> BertBackbone:
    """A BERT with random weights and a vocabulary of 200 tokens, without a tokenizer."""
    config = BertConfig(vocab_size=200, **{**_SIZES, "num_attention_heads": 2, **settings})
    return BertBackbone(config.to_dict(), BertModel(config).state_dict(), None)  # type: ignore[arg-type]


def padded_output(model: PreTrainedModel, parts: Sequence[Tokens], segments: Sequence[Tokens] | None = None) -> Any:
    """What a model of transformers returns for one padded batch with a mask: hidden states, too."""

    def rows(values: Iterable[Tokens], padding: int = 0) -> torch.Tensor:
        return pad_sequence([torch.from_numpy(each).long() for each in values], True, padding)

    more = {"token_type_ids": rows(segments)} if segments else {}
    mask = rows(np.ones_like(part) for part in parts)
    ids = rows(parts, model.config.pad_token_id or 0)
    return model(input_ids=ids, attention_mask=mask, output_hidden_states=True, **more)


def mean_states(states: torch.Tensor, parts: Sequence[Tokens]) -> torch.Tensor:
    """The mean over the tokens of each row's states (sequences, hidden)."""
    return torch.stack([row[: len(part)].mean(0) for row, part in zip(states, parts, strict=True)])


def sequences(lengths: Sequence[int], seed: int = 0) -> list[Tokens]:
    """Random words; special tokens, padding first of all, are left out."""
    random = np.random.default_rng(seed)
    return [random.integers(5, len(WORDS), length).astype(np.int32) for length in lengths]


def perturbed(encoder: Encoder, seed: int = 1) -> Encoder:
    """Return the same model with other weights."""
    other = copy.deepcopy(encoder)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=random))
    return other


def make_reranker(
    folder: Path | str,
    max_length: int | None = None,
    tasks: tuple[RerankerTask, ...] = get_args(RerankerTask),
    seed: int = 0,
) -> Reranker:
    """A re-ranker with heads drawn at random, large enough for scores to differ."""
    torch.manual_seed(seed)
    backbone = load_backbone(folder)
    backbone.add_tokens((END_OF_TURN, *MARKS.values()))
    # marks initialised around one mean would be almost equal
    nn.init.normal_(backbone.token_embeddings().weight[-4:], std=0.3)
    return Reranker(backbone, {task: nn.Linear(backbone.hidden, 1) for task in tasks}, max_length).eval()
