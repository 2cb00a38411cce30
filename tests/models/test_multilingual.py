"""Encoders with the tokenizer of XLM-RoBERTa, as multilingual models of Hugging Face have it: BERT and XLM-RoBERTa."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizer

from tests.helpers import tiny
from turnwise.models.encoder import Encoder
from turnwise.models.export import export
from turnwise.training.loop import train

TEXTS = ["Wo ist mein Paket?", "我的包裹在哪里？", "주문을 취소해 주세요", "Où est mon colis ?", "where is my parcel?"]


@pytest.fixture(params=["bert", "xlm-roberta"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A random model whose tokenizer is a unigram model of pieces of the texts."""
    words = [f"▁{word}" for text in TEXTS for word in text.split()]
    pieces = Counter(word[i:j] for word in words for i in range(len(word)) for j in range(i + 1, len(word) + 1))
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    scored = [(piece, math.log(count / pieces.total())) for piece, count in sorted(pieces.items())]
    tokenizer = XLMRobertaTokenizer(vocab=[*special, *scored, ("<mask>", 0.0)], model_max_length=64)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    sizes |= {"vocab_size": len(tokenizer), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    torch.manual_seed(0)
    if request.param == "bert":
        model = BertModel(BertConfig(**sizes, max_position_embeddings=64))
    else:
        ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
        model = XLMRobertaModel(XLMRobertaConfig(**sizes, **ids, max_position_embeddings=66))
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_models_encode_train_and_export(folder: Path, tmp_path: Path) -> None:
    encoder = Encoder.load(folder, device="cpu")
    assert encoder.tokenise(TEXTS)[0].tolist() == XLMRobertaTokenizer.from_pretrained(folder)(TEXTS[0])["input_ids"]
    encoder.save(tmp_path / "saved")
    vectors = encoder.encode(TEXTS)
    peer = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors, peer, atol=1e-5)
    train(tiny.recipe("dse", f"backbone={folder}", "steps=2"), tiny.corpus(), tmp_path / "trained")
    trained = Encoder.load(tmp_path / "trained", device="cpu")
    assert all(math.isfinite(entry["loss"]) for entry in tiny.read_metrics(tmp_path / "trained"))
    assert trained.tokenise(TEXTS)[1].tolist() == encoder.tokenise(TEXTS)[1].tolist()
    assert np.abs(trained.encode(TEXTS) - vectors).max() > 1e-3
    export(trained, tmp_path / "onnx", "onnx")
    exported = Encoder.load(tmp_path / "onnx")
    inputs = [*TEXTS, TEXTS[:3]]
    np.testing.assert_allclose(exported.encode(inputs), trained.encode(inputs), atol=1e-4)
