"""The equations, as pure functions of tensors: no devices, no files, no state. Each names the equation that it is."""

from typing import Literal

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, normalize

#: A logit that no softmax notices; finite, so that a row of nothing else has a gradient (of zero) and not NaN.
_NEVER = -1e9

#: The square of a length that is taken for none: the root of zero has no gradient.
_TINY = 1e-24

Weighting = Literal["outside", "inside"]


def hard_negative_nt_xent(
    queries: torch.Tensor,
    responses: torch.Tensor,
    temperature: float,
    *,
    weighting: Weighting = "outside",
    same: torch.Tensor | None = None,
) -> torch.Tensor:
    """DSE's contrastive loss with hard-negative weights (Eqs. 1–3; Zhou et al., 2022), the mean over all 2M anchors.

    For an anchor i with partner i⁺, s_ij = cos(e_i, e_j) / τ over the batch's 2M vectors, and over the 2M − 2 negatives
    α_ij = exp(s_ij) / mean_k exp(s_ik):

    - `outside`: ℓ_i = −log( exp(s_ii⁺) / (exp(s_ii⁺) + Σ_j α_ij·exp(s_ij)) ). The authors' code, and what produced the published
      figures. Σ_j α_ij·exp(s_ij) is computed as exp(lse(2s) − lse(s) + log(2M − 2)), which half precision survives where
      exp(20)² does not.
    - `inside`: ℓ_i = −log( exp(s_ii⁺) / Σ_{j≠i} exp(α_ij·s_ij) ). Eq. 1 exactly as printed: the sum runs over the positive too,
      with the α that Eq. 2 gives it. Once a positive stands out, its own weighted term dominates and pushes it away again: an
      equation to compare with, not to train with.

    The gradient flows through α, as in the authors' code.

    Args:
        queries: (M, size); rows need not be normalised.
        responses: (M, size), the i-th answering the i-th query.
        temperature: τ.
        weighting: which of the two forms.
        same: (2M, 2M), true where two of the texts (queries, then responses) are equal; such pairs are no negatives. None: the
            published loss, in which they are.
    """
    vectors = normalize(_full(torch.cat([queries, responses])), dim=1)
    count = len(vectors)
    similarity = vectors @ vectors.T / temperature  # (2M, 2M)
    partners = torch.arange(count, device=vectors.device).roll(count // 2)
    positive = similarity.gather(1, partners[:, None])[:, 0]
    negative = ~torch.eye(count, dtype=torch.bool, device=vectors.device)
    negative = negative.scatter(1, partners[:, None], False)
    if same is not None:
        negative &= ~same
    number = negative.sum(1)
    masked = similarity.masked_fill(~negative, _NEVER)
    log_mean = masked.logsumexp(1) - number.clamp(min=1).to(similarity.dtype).log()
    if weighting == "inside":
        weights = (similarity - log_mean[:, None]).exp()
        counted = negative.scatter(1, partners[:, None], True)
        return ((weights * similarity).masked_fill(~counted, _NEVER).logsumexp(1) - positive).mean()
    log_negatives = (2 * masked).logsumexp(1) - log_mean
    losses = torch.logaddexp(positive, log_negatives) - positive
    # an anchor whose negatives are all masked has nothing to be told apart from
    return torch.where(number > 0, losses, torch.zeros_like(losses)).mean()


def nt_xent(
    anchors: torch.Tensor,
    positives: torch.Tensor,
    temperature: float,
    *,
    negatives: torch.Tensor | None = None,
    same: torch.Tensor | None = None,
    similarity: Literal["cosine", "dot"] = "cosine",
    reduction: Literal["mean", "none"] = "mean",
) -> torch.Tensor:
    """InfoNCE over a batch: each anchor is to find its positive among all positives, and the negatives where there are any.

    ℓ_i = −log( exp(s(a_i, p_i)/τ) / Σ_j exp(s(a_i, p_j)/τ) ), as in SimCSE (Eqs. 1 and 5), TOD-BERT (dot product, τ = 1) and,
    called for both sides, WMDC.

    Args:
        anchors: (M, size).
        positives: (M, size).
        temperature: τ.
        negatives: (N, size), further candidates for every anchor: SimCSE's hard negatives.
        same: (M, M + N), true where a candidate is another copy of the positive's text, and so no negative.
        similarity: cosine, or the plain dot product.
        reduction: the mean, or one loss an anchor (M,).
    """
    anchors, positives = _full(anchors), _full(positives)
    candidates = positives if negatives is None else torch.cat([positives, _full(negatives)])
    if similarity == "cosine":
        anchors, candidates = normalize(anchors, dim=1), normalize(candidates, dim=1)
    logits = anchors @ candidates.T / temperature
    targets = torch.arange(len(anchors), device=anchors.device)
    if same is not None:
        others = same.clone()
        others[targets, targets] = False
        logits = logits.masked_fill(others, _NEVER)
    return cross_entropy(logits, targets, reduction=reduction)


def inverse_response_frequency(counts: torch.Tensor) -> torch.Tensor:
    """WMDC's weight of a pair (Eq. 4): IRF = 1 / (ln freq + 1), freq being how often the corpus has the pair's response.

    Args:
        counts: how often, at least once; any shape, which the weights share.
    """
    return 1 / (_full(counts if counts.is_floating_point() else counts.float()).log() + 1)


def symmetric_nt_xent(
    contexts: torch.Tensor,
    responses: torch.Tensor,
    temperature: float,
    *,
    weights: torch.Tensor | None = None,
    same: torch.Tensor | None = None,
) -> torch.Tensor:
    """NT-Xent from both sides, each pair by its weight, as WMDC has it (appendix A and Eq. 5): the mean over i of wᵢ·ℓᵢ.

    ℓᵢ = −½ log( exp(cos(cᵢ, rᵢ)/τ) / Σ_j exp(cos(cᵢ, r_j)/τ) ) − ½ log( exp(cos(rᵢ, cᵢ)/τ) / Σ_j exp(cos(rᵢ, c_j)/τ) ). The mean is
    over the number of pairs and not over the sum of their weights: a batch of frequent answers moves the encoder less.

    Args:
        contexts: (M, size); rows need not be normalised.
        responses: (M, size), the i-th answering the i-th context.
        temperature: τ.
        weights: (M,); None: all 1.
        same: (M, M), symmetric, true where the context or the response of two pairs is one text: they are no negatives of each
            other. None: the published loss, in which they are.
    """
    forth = nt_xent(contexts, responses, temperature, same=same, reduction="none")
    back = nt_xent(responses, contexts, temperature, same=same, reduction="none")
    losses = (forth + back) / 2
    return losses.mean() if weights is None else (weights * losses).mean()


def simclr(first: torch.Tensor, second: torch.Tensor, temperature: float) -> torch.Tensor:
    """NT-Xent as SimCLR has it (Chen et al., 2020, Eq. 1): both sides are anchors, and the 2M − 2 others of the batch negatives.

    Args:
        first: (M, size); rows need not be normalised.
        second: (M, size), the i-th belonging to the i-th of `first`.
        temperature: τ.
    """
    # among the candidates of an anchor stands the anchor itself, half a batch away from its partner
    itself = torch.eye(2 * len(first), dtype=torch.bool, device=first.device).roll(len(first), 1)
    return nt_xent(torch.cat([first, second]), torch.cat([second, first]), temperature, same=itself)


def supervised_contrastive(vectors: torch.Tensor, labels: torch.Tensor, temperature: float) -> torch.Tensor:
    """Supervised contrastive loss (Khosla et al., 2020, Eq. 2): the mean over all anchors that share their label with another.

    ℓ_i = −1/|P(i)| Σ_{p ∈ P(i)} log( exp(s_ip) / Σ_{a ≠ i} exp(s_ia) ), with s_ij = cos(e_i, e_j) / τ and P(i) the other vectors of
    the same label. An anchor that is alone with its label is a negative of the others, and no anchor itself.

    Args:
        vectors: (M, size); rows need not be normalised.
        labels: (M,), integers.
        temperature: τ.
    """
    vectors = normalize(_full(vectors), dim=1)
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    similarity = (vectors @ vectors.T / temperature).masked_fill(itself, _NEVER)
    positive = (labels[:, None] == labels) & ~itself
    number = positive.sum(1)
    log_shares = (similarity - similarity.logsumexp(1, keepdim=True)).masked_fill(~positive, 0.0)
    losses = -log_shares.sum(1) / number.clamp(min=1)
    return losses.sum() / (number > 0).sum().clamp(min=1)


def matching_guided_embedding(
    context: torch.Tensor, context_mask: torch.Tensor, response: torch.Tensor, response_mask: torch.Tensor
) -> torch.Tensor:
    """DialogueCSE's refined embedding of a response by each turn of its context (Eqs. 3 and 4; Liu et al., 2021).

    For the token states Ū of a turn and R̄ of the response, M = ŪR̄ᵀ/√d and R̂ = MR̄: a row for every token of the turn, each a sum of
    the response's token states. There is no softmax. Padding of either side takes no part, and rows of padding are zero, so a turn
    without tokens gives zeros.

    Training asks for R̂ pooled alone, which `guided_vectors` and `guided_cosine` give without forming M.

    Args:
        context: (…, turns, context tokens, hidden).
        context_mask: (…, turns, context tokens), true or 1 where there is a token.
        response: (…, response tokens, hidden); leading axes broadcast with the context's.
        response_mask: (…, response tokens).

    Returns:
        (…, turns, context tokens, hidden).
    """
    turns = _full(context) * context_mask[..., None]
    tokens = (_full(response) * response_mask[..., None])[..., None, :, :]
    matching: torch.Tensor = turns @ tokens.mT / context.shape[-1] ** 0.5  # M
    return matching @ tokens


def guided_vectors(turns: torch.Tensor, responses: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The refined embeddings of responses (DialogueCSE, Eq. 4), each pooled over the tokens of the turn that guides it.

    The mean over the rows of R̂ = ŪR̄ᵀR̄/√d is ūR̄ᵀR̄/√d, with ū the mean of the turn's token states: the vector of the turn alone is
    needed, and no matching matrix.

    Args:
        turns: (contexts, turns, hidden), the mean of each turn's token states.
        responses: (candidates, tokens, hidden), token states.
        mask: (candidates, tokens), true where there is a token.

    Returns:
        (contexts, candidates, turns, hidden).
    """
    tokens = _full(responses) * mask[..., None]
    matching = torch.einsum("ith,jnh->ijtn", _full(turns), tokens) / turns.shape[-1] ** 0.5
    return torch.einsum("ijtn,jnh->ijth", matching, tokens)


def guided_cosine(contexts: torch.Tensor, responses: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """sim(R̄, R̃) of DialogueCSE's Eq. 8 for every context and every response, where turns are summed up before they guide.

    With Eq. 7, or any weights of the turns that do not depend on the response, R̃ pooled is cR̄ᵀR̄ up to a factor that the cosine
    does not see, c being the weighted sum of the turns' vectors. With m = R̄c over the response's tokens and K = R̄R̄ᵀ, its product
    with the response's mean r̄ is (R̄r̄)·m, and its squared length m·Km. A pair takes a number a token and no vector, so all responses
    of a batch can be candidates of all contexts.

    Args:
        contexts: (contexts, hidden), c.
        responses: (candidates, tokens, hidden), token states.
        mask: (candidates, tokens), true where there is a token.

    Returns:
        (contexts, candidates).
    """
    tokens = _full(responses) * mask[..., None]
    pooled = tokens.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
    # scaled before, the products stay far from the ends of float32
    matched = tokens @ normalize(_full(contexts), dim=1).T  # m: (candidates, tokens, contexts)
    product = torch.einsum("jn,jni->ji", torch.einsum("jnh,jh->jn", tokens, pooled), matched)
    squared = ((tokens @ tokens.mT @ matched) * matched).sum(1)
    lengths = squared.clamp(min=_TINY).sqrt() * (pooled * pooled).sum(1, keepdim=True).clamp(min=_TINY).sqrt()
    return (product / lengths).T


def candidate_nt_xent(
    similarity: torch.Tensor, positives: torch.Tensor, candidates: torch.Tensor, temperature: float
) -> torch.Tensor:
    """NT-Xent of each context over its own candidates (DialogueCSE, Eq. 8), the mean over the contexts.

    Args:
        similarity: (contexts, responses), from −1 to 1.
        positives: (contexts,), which response is the true one.
        candidates: (contexts, responses), true for the true response and for those it is to be told apart from.
        temperature: τ.
    """
    return cross_entropy((_full(similarity) / temperature).masked_fill(~candidates, _NEVER), positives)


def masked_language_model(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy over masked tokens: logits (masked, vocabulary), targets (masked,), the sum over them."""
    return cross_entropy(_full(logits), targets, reduction="sum")


def relevance(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """UMS's pointwise loss of response selection (Eq. 1): binary cross-entropy of the score from [CLS], the sum over the pairs.

    Args:
        logits: (pairs,), before the sigmoid.
        labels: (pairs,), 1 where the response is right, else 0.
    """
    return binary_cross_entropy_with_logits(_full(logits), labels.to(_full(logits).dtype), reduction="sum")


def marked_places(
    logits: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor, form: Literal["sigmoid", "softmax"] = "sigmoid"
) -> torch.Tensor:
    """UMS's loss of insertion, deletion and search (Eq. 2): which of a sequence's marks is the target? The sum over sequences.

    - `sigmoid`: binary cross-entropy at every mark, 1 for the target and 0 for the others, the mean over a sequence's marks.
    - `softmax`: cross-entropy over a sequence's marks, of which one is the target.

    Args:
        logits: (marks,), those of a sequence side by side.
        rows: (marks,), which sequence a mark is of: 0, 1, ….
        targets: (marks,), true at the one target of every sequence.
        form: which of the two.
    """
    values = _full(logits)
    count = int(rows.max()) + 1
    if form == "sigmoid":
        marks = torch.bincount(rows, minlength=count)
        losses = binary_cross_entropy_with_logits(values, targets.to(values.dtype), reduction="none")
        return (losses / marks[rows]).sum()
    greatest = values.new_full((count,), _NEVER).scatter_reduce(0, rows, values.detach(), "amax")
    sums = values.new_zeros(count).index_add(0, rows, (values - greatest[rows]).exp())
    return (sums.log() + greatest).sum() - values[targets.bool()].sum()


def replaced_token_detection(logits: torch.Tensor, replaced: torch.Tensor) -> torch.Tensor:
    """ELECTRA's discriminator loss (Clark et al., 2020): binary cross-entropy, the sum over tokens.

    Args:
        logits: (tokens,), before the sigmoid.
        replaced: (tokens,), true where a token is not the one that stood there.
    """
    return binary_cross_entropy_with_logits(_full(logits), replaced.to(_full(logits).dtype), reduction="sum")


def _full(values: torch.Tensor) -> torch.Tensor:
    """Half precision is lifted to float32: losses are computed in full."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
